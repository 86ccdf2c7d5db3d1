SHELL_TESTS += tests/slurm/exec.t tests/slurm/preflight.t tests/slurm/vcluster.t tests/slurm/train.t tests/slurm/kill.t tests/slurm/jobs.t \
	tests/slurm/policy.t tests/slurm/epilog.t tests/slurm/stage.t
EXTRA_DIST += tests/slurm/cluster.sh tests/slurm/preflight_faults
SLOW_TESTS += tests/slurm/container.t tests/slurm/power.t tests/slurm/accounting.t tests/slurm/requeue.t tests/slurm/submit.t tests/slurm/sweep.t tests/slurm/servers.t tests/slurm/elastic.t tests/slurm/elastic_join.t tests/slurm/elastic_links.t tests/slurm/pipeline.t
