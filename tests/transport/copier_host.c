#include "tests/transport/copier_host.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct copy {
	void *to;
	const void *from;
	size_t bytes;
	int slot, fails, pause_us;
};

/* Copies of one way, in order. */
struct way {
	struct copier_host *host;
	pthread_t thread;
	struct copy queue[GN_COPY_ENGINE_SLOTS_MAX];
	int first, count, started;
};

struct copier_host {
	struct gn_copy_engine base;
	struct copier_host_options options;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct way ways[2];
	int busy[GN_COPY_ENGINE_SLOTS_MAX], failed[GN_COPY_ENGINE_SLOTS_MAX];
	int64_t begun;
	int over;
};

static void *work(void *context)
{
	struct way *w = context;
	struct copier_host *h = w->host;

	pthread_mutex_lock(&h->lock);
	while (!h->over || w->count) {
		struct timespec pause;
		struct copy c;

		if (!w->count) {
			pthread_cond_wait(&h->changed, &h->lock);
			continue;
		}
		c = w->queue[w->first];
		pthread_mutex_unlock(&h->lock);
		pause = (struct timespec){0, c.pause_us * 1000};
		nanosleep(&pause, NULL);
		if (!c.fails)
			memcpy(c.to, c.from, c.bytes);
		pthread_mutex_lock(&h->lock);
		w->first = (w->first + 1) % GN_COPY_ENGINE_SLOTS_MAX;
		w->count--;
		h->failed[c.slot] |= c.fails;
		h->busy[c.slot] = 0;
	}
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

static enum gn_status add(struct copier_host *h, int way, int slot, void *to, const void *from, size_t bytes,
			  struct gn_err *err)
{
	struct way *w = &h->ways[way];
	enum gn_status status = GN_OK;

	pthread_mutex_lock(&h->lock);
	if (slot < 0 || slot >= GN_COPY_ENGINE_SLOTS_MAX || h->busy[slot] || !bytes) {
		status = gn_err_set(err, GN_ERR_USAGE, "WRONG: slot %d has a copy under way, or is none", slot);
	} else {
		h->begun++;
		h->options.seed = h->options.seed * 6364136223846793005u + 1442695040888963407u;
		w->queue[(w->first + w->count++) % GN_COPY_ENGINE_SLOTS_MAX] = (struct copy){
			to, from, bytes, slot, h->begun == h->options.fail_at,
			h->options.pause_us +
				(h->options.pause_max_us ? (int)(h->options.seed >> 33) % h->options.pause_max_us : 0)};
		h->busy[slot] = 1;
		pthread_cond_broadcast(&h->changed);
	}
	pthread_mutex_unlock(&h->lock);
	return status;
}

static enum gn_status down(struct gn_copy_engine *c, int slot, void *host, const void *device, size_t bytes, void *after,
			   struct gn_err *err)
{
	(void)after;
	return add((struct copier_host *)c, 0, slot, host, device, bytes, err);
}

static enum gn_status up(struct gn_copy_engine *c, int slot, void *device, const void *host, size_t bytes, struct gn_err *err)
{
	return add((struct copier_host *)c, 1, slot, device, host, bytes, err);
}

static enum gn_status poll(struct gn_copy_engine *c, int slot, int *done, struct gn_err *err)
{
	struct copier_host *h = (struct copier_host *)c;
	enum gn_status status = GN_OK;

	pthread_mutex_lock(&h->lock);
	if (h->failed[slot])
		status = gn_err_set(err, GN_ERR_FAILED, "copy %lld was made to fail", (long long)h->options.fail_at);
	else
		*done = !h->busy[slot];
	pthread_mutex_unlock(&h->lock);
	return status;
}

static enum gn_status pin(struct gn_copy_engine *c, void *host, size_t bytes, struct gn_err *err)
{
	(void)host;
	(void)bytes;
	return ((struct copier_host *)c)->options.unpinned ? gn_err_set(err, GN_ERR_UNSUPPORTED, "not pinned") : GN_OK;
}

static void unpin(struct gn_copy_engine *c, void *host)
{
	(void)c;
	(void)host;
}

static void destroy(struct gn_copy_engine *c)
{
	struct copier_host *h = (struct copier_host *)c;

	pthread_mutex_lock(&h->lock);
	h->over = 1;
	pthread_cond_broadcast(&h->changed);
	pthread_mutex_unlock(&h->lock);
	for (int i = 0; i < 2; i++)
		if (h->ways[i].started)
			pthread_join(h->ways[i].thread, NULL);
	pthread_cond_destroy(&h->changed);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

static const struct gn_copy_engine_ops ops = {pin, unpin, down, up, poll, destroy};

enum gn_status copier_host_create(const struct copier_host_options *options, struct gn_copy_engine **out, struct gn_err *err)
{
	struct copier_host *h = calloc(1, sizeof *h);

	if (!h)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copier");
	h->base.ops = &ops;
	h->options = *options;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->changed, NULL);
	for (int i = 0; i < 2; i++) {
		h->ways[i].host = h;
		h->ways[i].started = !pthread_create(&h->ways[i].thread, NULL, work, &h->ways[i]);
		if (!h->ways[i].started) {
			destroy(&h->base);
			return gn_err_set(err, GN_ERR_FAILED, "cannot start a thread");
		}
	}
	*out = &h->base;
	return GN_OK;
}
