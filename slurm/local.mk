# Scripts are installed where a job can find them: $(pkgdatadir)/slurm.
slurmdir = $(pkgdatadir)/slurm
dist_slurm_SCRIPTS = slurm/vcluster slurm/epilog slurm/prolog slurm/stage-node
powerdir = $(slurmdir)/power
dist_power_SCRIPTS = slurm/power/resume slurm/power/suspend
jobsdir = $(slurmdir)/jobs
dist_jobs_SCRIPTS = slurm/jobs/bench-allreduce.sbatch slurm/jobs/ib-vs-eth.sbatch slurm/jobs/stage.sbatch slurm/jobs/train.sbatch
vclusterdir = $(slurmdir)/vcluster.d
dist_vcluster_SCRIPTS = slurm/vcluster.d/node
dist_vcluster_DATA = slurm/vcluster.d/accounting.sh slurm/vcluster.d/conf.sh slurm/vcluster.d/daemons.sh slurm/vcluster.d/net.sh slurm/vcluster.d/power.sh slurm/vcluster.d/share.sh
# They call the program that is installed with them, also where PATH has another or none, as in an epilog. A job script is copied by sbatch, and
# an epilog by administrators: neither could look beside itself.
install-data-hook: installed-scripts
installed-scripts:
	cd '$(DESTDIR)$(slurmdir)' && sed -i 's|$${GANNET:-gannet}|$${GANNET:-$(bindir)/gannet}|' epilog prolog stage-node jobs/*.sbatch
.PHONY: installed-scripts
EXTRA_DIST += slurm/containers/Dockerfile slurm/containers/gannet.def slurm/containers/install slurm/containers/make-root
EXTRA_DIST += slurm/demo slurm/install-packages slurm/packages
# A module that Slurm loads by dlopen: a program as far as automake knows. Its functions are found by name, so all are exported.
if HAVE_SPANK
spankdir = $(pkglibdir)
spank_PROGRAMS = spank_gannet_stage.so
spank_gannet_stage_so_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS)
spank_gannet_stage_so_CFLAGS = $(AM_CFLAGS) -fPIC
spank_gannet_stage_so_LDFLAGS = $(AM_LDFLAGS) -shared
spank_gannet_stage_so_SOURCES = slurm/spank_stage.c
endif
