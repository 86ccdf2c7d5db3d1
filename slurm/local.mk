# Scripts are installed where a job can find them: $(pkgdatadir)/slurm.
slurmdir = $(pkgdatadir)/slurm
dist_slurm_SCRIPTS = slurm/vcluster slurm/epilog
jobsdir = $(slurmdir)/jobs
dist_jobs_SCRIPTS = slurm/jobs/bench-allreduce.sbatch slurm/jobs/ib-vs-eth.sbatch slurm/jobs/stage.sbatch slurm/jobs/train.sbatch
vclusterdir = $(slurmdir)/vcluster.d
dist_vcluster_SCRIPTS = slurm/vcluster.d/node
dist_vcluster_DATA = slurm/vcluster.d/conf.sh slurm/vcluster.d/daemons.sh slurm/vcluster.d/net.sh
EXTRA_DIST += slurm/demo slurm/install-packages slurm/packages
