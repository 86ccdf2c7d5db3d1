/* A fixed set of worker threads and a bounded queue of jobs.
 *
 * Submitting blocks while the queue is full, which bounds memory. A job is a function and its argument; jobs start in the
 * order in which they were submitted and report their own results through the argument.
 *
 * Thread safety: submit and wait may be called from any thread that is not one of the workers.
 */
#ifndef GN_BASE_THREAD_POOL_H
#define GN_BASE_THREAD_POOL_H

#include "src/base/status.h"

#include <stddef.h>

struct gn_thread_pool;

/* threads >= 1 workers and room for queue_len >= 1 waiting jobs. */
enum gn_status gn_thread_pool_create(int threads, size_t queue_len, struct gn_thread_pool **out, struct gn_err *err);
/* Waits for the jobs already submitted, then ends the workers. */
void gn_thread_pool_destroy(struct gn_thread_pool *pool);
void gn_thread_pool_submit(struct gn_thread_pool *pool, void (*run)(void *argument), void *argument);
/* Returns when every submitted job has ended. */
void gn_thread_pool_wait(struct gn_thread_pool *pool);
int gn_thread_pool_threads(const struct gn_thread_pool *pool);
/* Processors this process may run on (its affinity mask), at least 1. */
int gn_cpu_count(void);

#endif
