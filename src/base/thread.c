#include "src/base/thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

int gn_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument)
{
	sigset_t all, before;
	int failure;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failure = pthread_create(thread, NULL, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failure;
}

/* "12", or "unlimited" */
static const char *limit_text(int resource, unsigned unit, char text[24])
{
	struct rlimit limit;

	if (getrlimit((unsigned)resource, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return "unlimited";
	snprintf(text, 24, "%llu", (unsigned long long)limit.rlim_cur / unit);
	return text;
}

enum gn_status gn_thread_create(pthread_t *thread, void *(*run)(void *argument), void *argument, const char *what, struct gn_err *err)
{
	int failure = gn_thread_start(thread, run, argument);
	char processes[24], memory[24];

	if (!failure)
		return GN_OK;
	return gn_err_set(err, GN_ERR_FAILED, "cannot start a thread for %s: %s; raise what limits threads: ulimit -u (%s processes and threads "
			  "of this user), ulimit -v (%s KB of addresses), or pids.max of the cgroup", what, strerror(failure),
			  limit_text(RLIMIT_NPROC, 1, processes), limit_text(RLIMIT_AS, 1024, memory));
}

static void *wait_for_lock(void *lock)
{
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	return NULL;
}

enum gn_status gn_thread_check(const char *what, struct gn_err *err)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_t threads[2];
	enum gn_status status = GN_OK;
	int count = 0;

	/* held until all have started: at the same time */
	pthread_mutex_lock(&lock);
	while (count < 2 && !status) {
		status = gn_thread_create(&threads[count], wait_for_lock, &lock, what, err);
		count += !status;
	}
	pthread_mutex_unlock(&lock);
	while (count)
		pthread_join(threads[--count], NULL);
	pthread_mutex_destroy(&lock);
	return status;
}
