#include "src/base/thread_pool.h"

#include "src/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

struct job {
	void (*run)(void *argument);
	void *argument;
};

struct gn_thread_pool {
	pthread_mutex_t lock;
	pthread_cond_t work;  /* a job is queued, or the pool is closing */
	pthread_cond_t space; /* a job was dequeued, or a job ended */
	struct job *queue;
	size_t capacity, head, waiting, running;
	int closing;
	int threads;
	pthread_t *ids;
};

static void *work(void *argument)
{
	struct gn_thread_pool *pool = argument;

	pthread_setname_np(pthread_self(), "gannet-pool");
	pthread_mutex_lock(&pool->lock);
	for (;;) {
		struct job job;

		while (!pool->waiting && !pool->closing)
			pthread_cond_wait(&pool->work, &pool->lock);
		if (!pool->waiting)
			break;
		job = pool->queue[pool->head];
		pool->head = (pool->head + 1) % pool->capacity;
		pool->waiting--;
		pool->running++;
		pthread_cond_broadcast(&pool->space);
		pthread_mutex_unlock(&pool->lock);
		job.run(job.argument);
		pthread_mutex_lock(&pool->lock);
		pool->running--;
		pthread_cond_broadcast(&pool->space);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

enum gn_status gn_thread_pool_create(int threads, size_t queue_len, struct gn_thread_pool **out, struct gn_err *err)
{
	struct gn_thread_pool *pool;

	if (threads < 1 || queue_len < 1)
		return gn_err_set(err, GN_ERR_USAGE, "a thread pool needs at least one thread and one queue entry");
	pool = calloc(1, sizeof *pool);
	if (!pool)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a thread pool");
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pthread_cond_init(&pool->space, NULL);
	pool->capacity = queue_len;
	pool->queue = calloc(queue_len, sizeof *pool->queue);
	pool->ids = calloc((size_t)threads, sizeof *pool->ids);
	if (!pool->queue || !pool->ids) {
		gn_thread_pool_destroy(pool);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a thread pool");
	}
	for (int i = 0; i < threads; i++) {
		enum gn_status status = gn_thread_create(&pool->ids[i], work, pool, "a thread pool", err);

		if (status) {
			gn_thread_pool_destroy(pool);
			return status;
		}
		pool->threads++;
	}
	*out = pool;
	return GN_OK;
}

void gn_thread_pool_destroy(struct gn_thread_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->closing = 1;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (int i = 0; i < pool->threads; i++)
		pthread_join(pool->ids[i], NULL);
	pthread_mutex_destroy(&pool->lock);
	pthread_cond_destroy(&pool->work);
	pthread_cond_destroy(&pool->space);
	free(pool->queue);
	free(pool->ids);
	free(pool);
}

void gn_thread_pool_submit(struct gn_thread_pool *pool, void (*run)(void *argument), void *argument)
{
	pthread_mutex_lock(&pool->lock);
	while (pool->waiting == pool->capacity)
		pthread_cond_wait(&pool->space, &pool->lock);
	pool->queue[(pool->head + pool->waiting) % pool->capacity] = (struct job){run, argument};
	pool->waiting++;
	pthread_cond_signal(&pool->work);
	pthread_mutex_unlock(&pool->lock);
}

void gn_thread_pool_wait(struct gn_thread_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	while (pool->waiting || pool->running)
		pthread_cond_wait(&pool->space, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

int gn_thread_pool_threads(const struct gn_thread_pool *pool)
{
	return pool->threads;
}

int gn_cpu_count(void)
{
	cpu_set_t set;
	int count;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof set, &set))
		return 1;
	count = CPU_COUNT(&set);
	return count > 0 ? count : 1;
}
