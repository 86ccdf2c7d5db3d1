noinst_LIBRARIES = libgannet_jobs.a
libgannet_jobs_a_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS)
libgannet_jobs_a_SOURCES = \
	src/jobs/account.c src/jobs/account.h \
	src/jobs/account_write.c \
	src/jobs/exec_child.c \
	src/jobs/exec_environment.c src/jobs/exec_environment.h \
	src/jobs/exec_guard.c src/jobs/exec_guard.h \
	src/jobs/exec_horovod.c \
	src/jobs/exec_meet.c src/jobs/exec_meet.h \
	src/jobs/exec_run.c src/jobs/exec_run.h \
	src/jobs/preflight.h \
	src/jobs/preflight_file.c \
	src/jobs/preflight_host.c \
	src/jobs/preflight_judge.c \
	src/jobs/preflight_net.c \
	src/jobs/program.c src/jobs/program.h \
	src/jobs/run_view.c src/jobs/run_view.h \
	src/jobs/run_view_text.c \
	src/jobs/slurm_job.c src/jobs/slurm_job.h \
	src/jobs/submit.c src/jobs/submit.h \
	src/jobs/sweep_page.c \
	src/jobs/sweep_status.c src/jobs/sweep_status.h
JOBS_LIBS = libgannet_jobs.a
