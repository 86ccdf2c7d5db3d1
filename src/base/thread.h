/* Threads of the libraries: all signals are blocked in them, so that the program's own threads handle signals. */
#ifndef GN_BASE_THREAD_H
#define GN_BASE_THREAD_H

#include "src/base/status.h"

#include <pthread.h>

/* As pthread_create(): 0, or an error number. Any thread. */
int gn_thread_start(pthread_t *thread, void *(*run)(void *argument), void *argument);
/* The same; GN_ERR_FAILED, with what limits threads: "cannot start a thread for WHAT: ...". */
enum gn_status gn_thread_create(pthread_t *thread, void *(*run)(void *argument), void *argument, const char *what, struct gn_err *err);
/* Whether two threads more can be started now, for a library that aborts or does not say why where it cannot start one. Blocks for as long as
 * that takes. */
enum gn_status gn_thread_check(const char *what, struct gn_err *err);

#endif
