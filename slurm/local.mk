# Scripts are installed where a job can find them: $(pkgdatadir)/slurm.
slurmdir = $(pkgdatadir)/slurm
dist_slurm_SCRIPTS = slurm/vcluster
vclusterdir = $(slurmdir)/vcluster.d
dist_vcluster_SCRIPTS = slurm/vcluster.d/node
dist_vcluster_DATA = slurm/vcluster.d/conf.sh slurm/vcluster.d/daemons.sh slurm/vcluster.d/net.sh
