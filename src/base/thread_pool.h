/* A fixed set of worker threads and a bounded queue of jobs.
 *
 * A job is a function and its argument. Jobs start in the order of submission and report results through the argument.
 *
 * Thread safety: gn_thread_pool_submit() and gn_thread_pool_wait() from any thread that is not a worker.
 */
#ifndef GN_BASE_THREAD_POOL_H
#define GN_BASE_THREAD_POOL_H

#include "src/base/status.h"

#include <stddef.h>

struct gn_thread_pool;

/* threads >= 1 workers; a queue of queue_len >= 1 jobs. */
enum gn_status gn_thread_pool_create(int threads, size_t queue_len, struct gn_thread_pool **out, struct gn_err *err);
/* Waits for all submitted jobs, then ends the workers. NULL is fine. */
void gn_thread_pool_destroy(struct gn_thread_pool *pool);
/* Blocks while the queue is full. */
void gn_thread_pool_submit(struct gn_thread_pool *pool, void (*run)(void *argument), void *argument);
/* Blocks until every submitted job has ended. */
void gn_thread_pool_wait(struct gn_thread_pool *pool);
int gn_thread_pool_threads(const struct gn_thread_pool *pool);
/* Processors in this process's affinity mask, at least 1. */
int gn_cpu_count(void);

#endif
