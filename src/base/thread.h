/* Threads of the libraries: all signals are blocked in them, so that the program's own threads handle signals. */
#ifndef GN_BASE_THREAD_H
#define GN_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create(): 0, or an error number. Any thread. */
int gn_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

#endif
