/* Threads of the library's own: the program's signals are for its own threads, so these have them all blocked. */
#ifndef GN_BASE_THREAD_H
#define GN_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create(): 0, or an error number and no thread. Any thread. */
int gn_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);

#endif
