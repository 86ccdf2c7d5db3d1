#include "src/base/thread.h"

#include <signal.h>

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
