SHELL_TESTS += tests/slurm/vcluster.t
EXTRA_DIST += tests/slurm/lab.sh
