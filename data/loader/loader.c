#include "data/loader/loader.h"

#include "data/loader/batch_builder.h"
#include "data/sample/order.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/thread_pool.h"

#include <pthread.h>
#include <stdlib.h>

/* A batch buffer. Batch number k uses slot k % slot_count. */
struct slot {
	struct gn_batch_task batch;
	uint32_t made;	    /* finished samples */
	uint32_t failed_at; /* lowest failed index in the batch, or batch */
	int is_lent;	    /* its images are the caller's memory */
	struct gn_err failure;
};

struct worker {
	struct gn_loader *loader;
	struct gn_batch_builder *builder;
};

struct gn_loader {
	const struct gn_dataset *dataset;
	struct gn_loader_options options;
	struct gn_order order;
	uint32_t grain; /* samples per chunk */

	pthread_mutex_t lock;
	pthread_cond_t work;  /* a chunk is available, or the loader is closing */
	pthread_cond_t ready; /* a batch is complete, or a worker has become idle */
	struct slot *slots;
	uint32_t slot_count;
	int running, closing;
	int active; /* the first so many workers take chunks */
	int busy; /* workers that are building samples */
	uint64_t created_ns, busy_ns, read_ns, built; /* gn_loader_effort() */
	uint32_t epoch;
	uint64_t making; /* the batch that chunks are taken from */
	uint32_t taken;	 /* samples of it that have been taken */
	uint64_t next;	 /* the batch that the consumer gets next */
	uint64_t oldest; /* the batch that the consumer holds, or next */
	uint64_t batches;	/* in this epoch, from where it started */
	uint64_t epoch_batches; /* in a whole epoch */

	struct worker *workers;
	struct gn_thread_pool *pool;
};

/* A chunk: samples begin .. end-1 of one batch. */
struct chunk {
	struct slot *slot;
	uint32_t begin, end;
};

/* Caller holds the lock. At most slot_count batches, from `oldest` on, are in use. */
static int take(struct gn_loader *l, struct chunk *out)
{
	uint32_t batch = l->options.batch;
	struct slot *slot;

	if (!l->running || l->making >= l->batches || l->making >= l->oldest + l->slot_count)
		return 0;
	slot = &l->slots[l->making % l->slot_count];
	if (!l->taken) {
		slot->batch.count = gn_order_slice(&l->order, l->making, &slot->batch.first);
		slot->made = 0;
		slot->failed_at = batch;
	}
	out->slot = slot;
	out->begin = l->taken;
	out->end = batch - l->taken > l->grain ? l->taken + l->grain : batch;
	l->taken = out->end;
	if (l->taken == batch) {
		l->making++;
		l->taken = 0;
	}
	return 1;
}

static void work(void *argument)
{
	struct worker *w = argument;
	struct gn_loader *l = w->loader;
	struct chunk chunk;

	pthread_mutex_lock(&l->lock);
	while (!l->closing) {
		uint32_t epoch = l->epoch, failed_at;
		struct gn_err failure;
		uint64_t began, ended, read;

		if (w - l->workers >= l->active || !take(l, &chunk)) {
			pthread_cond_wait(&l->work, &l->lock);
			continue;
		}
		l->busy++;
		pthread_mutex_unlock(&l->lock);
		/* no other thread accesses the samples of a chunk */
		began = gn_clock_ns();
		read = gn_batch_builder_read_ns(w->builder);
		failed_at = gn_batch_builder_run(w->builder, epoch, &chunk.slot->batch, chunk.begin, chunk.end, &failure);
		ended = gn_clock_ns();
		if (l->options.profiler)
			l->options.profiler(l->options.profiler_context, (int)(w - l->workers), chunk.end - chunk.begin, began, ended);
		pthread_mutex_lock(&l->lock);
		l->busy--;
		l->busy_ns += ended - began;
		l->built += chunk.end - chunk.begin;
		l->read_ns += gn_batch_builder_read_ns(w->builder) - read;
		/* report the failure with the lowest index, whatever the order of the workers */
		if (failed_at < chunk.end && failed_at < chunk.slot->failed_at) {
			chunk.slot->failed_at = failed_at;
			chunk.slot->failure = failure;
		}
		chunk.slot->made += chunk.end - chunk.begin;
		pthread_cond_broadcast(&l->ready);
	}
	pthread_mutex_unlock(&l->lock);
}

/* As many slots as fit into prefetch_bytes; at least three (one held by the consumer, one complete, one being built), at most one
 * per batch. */
static enum gn_status make_slots(struct gn_loader *l, struct gn_err *err)
{
	uint32_t batch = l->options.batch;
	size_t sample_bytes = gn_loader_sample_bytes(&l->options), images_bytes;
	/* label, pair label, lambda and index */
	size_t more_bytes = 3 * sizeof(int32_t) + sizeof(uint64_t) + (l->options.crops ? sizeof(struct gn_crop) : 0);
	const size_t most = (size_t)1 << 40;
	uint64_t fit;

	if (gn_size_mul(sample_bytes, batch, &images_bytes) || images_bytes > most)
		return gn_err_set(err, GN_ERR_USAGE, "loader: a batch of %u samples of %zu bytes is more than 1 TiB",
				  batch, sample_bytes);
	fit = l->options.prefetch_bytes / (images_bytes + batch * more_bytes);
	fit = fit < 3 ? 3 : fit > 1024 ? 1024 : fit;
	l->slot_count = l->batches < 1 ? 1 : (uint32_t)(fit > l->batches ? l->batches : fit);
	l->slots = calloc(l->slot_count, sizeof *l->slots);
	if (!l->slots)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "loader: no memory for %u batches", l->slot_count);
	for (uint32_t i = 0; i < l->slot_count; i++) {
		struct gn_batch_task *b = &l->slots[i].batch;

		b->images = gn_alloc_aligned(images_bytes);
		b->crops = calloc(batch, sizeof *b->crops);
		b->labels = calloc(batch, sizeof *b->labels);
		b->pair_labels = calloc(batch, sizeof *b->pair_labels);
		b->lambdas = calloc(batch, sizeof *b->lambdas);
		b->indices = calloc(batch, sizeof *b->indices);
		if (!b->images || !b->crops || !b->labels || !b->pair_labels || !b->lambdas || !b->indices)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "loader: no memory for %u batches of %zu bytes",
					  l->slot_count, images_bytes);
	}
	return GN_OK;
}

static enum gn_status make_workers(struct gn_loader *l, struct gn_err *err)
{
	int threads = l->options.threads;
	enum gn_status status;

	l->workers = calloc((size_t)threads, sizeof *l->workers);
	if (!l->workers)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "loader: no memory for %d threads", threads);
	for (int i = 0; i < threads; i++) {
		l->workers[i].loader = l;
		status = gn_batch_builder_create(l->dataset, &l->options, &l->order, l->grain, &l->workers[i].builder, err);
		if (status)
			return status;
	}
	status = gn_thread_pool_create(threads, (size_t)threads, &l->pool, err);
	for (int i = 0; !status && i < threads; i++)
		gn_thread_pool_submit(l->pool, work, &l->workers[i]);
	return status;
}

enum gn_status gn_loader_create(const struct gn_dataset *dataset, const struct gn_loader_options *options,
				struct gn_loader **out, struct gn_err *err)
{
	struct gn_order order = {.seed = options->seed,
				 .count = gn_dataset_count(dataset),
				 .rank = options->rank,
				 .ranks = options->ranks,
				 .batch = options->batch,
				 .step_batches = options->step_batches,
				 .shuffled = options->training && !options->in_order,
				 .drops = options->training && !options->keeps_last};
	enum gn_status status = gn_loader_options_check(options, err);
	struct gn_loader *l;
	uint32_t share;

	if (status)
		return status;
	status = gn_order_check(&order, err);
	if (status) {
		gn_err_prefix(err, "%s", gn_dataset_directory(dataset));
		return status;
	}
	l = calloc(1, sizeof *l);
	if (!l)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a loader");
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->work, NULL);
	pthread_cond_init(&l->ready, NULL);
	l->dataset = dataset;
	l->created_ns = gn_clock_ns();
	l->options = *options;
	l->active = options->threads;
	l->order = order;
	l->batches = l->epoch_batches = gn_order_batches(&order);
	share = options->batch / (uint32_t)options->threads;
	l->grain = share < 1 ? 1 : share > 16 ? 16 : share;
	/* the two samples of a mixup pair stay in one chunk */
	if (gn_loader_mixes(options))
		l->grain += l->grain % 2;
	status = make_slots(l, err);
	if (!status)
		status = make_workers(l, err);
	if (status)
		gn_loader_destroy(l);
	else
		*out = l;
	return status;
}

void gn_loader_destroy(struct gn_loader *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->closing = 1;
	pthread_cond_broadcast(&l->work);
	pthread_mutex_unlock(&l->lock);
	gn_thread_pool_destroy(l->pool);
	for (int i = 0; l->workers && i < l->options.threads; i++)
		gn_batch_builder_destroy(l->workers[i].builder);
	for (uint32_t i = 0; l->slots && i < l->slot_count; i++) {
		if (!l->slots[i].is_lent)
			free(l->slots[i].batch.images);
		free(l->slots[i].batch.crops);
		free(l->slots[i].batch.labels);
		free(l->slots[i].batch.pair_labels);
		free(l->slots[i].batch.lambdas);
		free(l->slots[i].batch.indices);
	}
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->work);
	pthread_cond_destroy(&l->ready);
	free(l->workers);
	free(l->slots);
	free(l);
}

uint32_t gn_loader_slots(const struct gn_loader *l)
{
	return l->slot_count;
}

void gn_loader_lend(struct gn_loader *l, uint32_t slot, void *images)
{
	if (!l->slots[slot].is_lent)
		free(l->slots[slot].batch.images);
	l->slots[slot].is_lent = 1;
	l->slots[slot].batch.images = images;
}

void gn_loader_swap(struct gn_loader *l, void *memory)
{
	l->slots[(l->next - 1) % l->slot_count].batch.images = memory;
}

uint64_t gn_loader_batches(const struct gn_loader *l)
{
	return l->epoch_batches;
}

enum gn_status gn_loader_start(struct gn_loader *l, uint32_t epoch, uint64_t samples_done, struct gn_err *err)
{
	if (samples_done > l->order.count)
		return gn_err_set(err, GN_ERR_USAGE, "the epoch has %llu samples and cannot resume after %llu",
				  (unsigned long long)l->order.count, (unsigned long long)samples_done);
	pthread_mutex_lock(&l->lock);
	l->running = 0;
	while (l->busy)
		pthread_cond_wait(&l->ready, &l->lock);
	l->epoch = epoch;
	l->order.done = samples_done;
	l->batches = gn_order_batches(&l->order);
	l->taken = 0;
	l->making = l->next = l->oldest = 0;
	l->running = 1;
	pthread_cond_broadcast(&l->work);
	pthread_mutex_unlock(&l->lock);
	return GN_OK;
}

/* Caller holds the lock. */
static int complete(const struct gn_loader *l, const struct slot *slot)
{
	return l->making > l->next && slot->made == l->options.batch;
}

enum gn_status gn_loader_next(struct gn_loader *l, struct gn_batch *out, struct gn_err *err)
{
	double begin = gn_clock_s();
	enum gn_status status = GN_OK;
	struct slot *slot;

	pthread_mutex_lock(&l->lock);
	if (!l->running || l->next >= l->batches) {
		status = l->running ? GN_ERR_NOT_FOUND : GN_ERR_USAGE;
		gn_err_set(err, status, l->running ? "the epoch is over" : "the loader has not been started");
		goto unlock;
	}
	/* the slot of the previous batch is free again */
	l->oldest = l->next;
	pthread_cond_broadcast(&l->work);
	slot = &l->slots[l->next % l->slot_count];
	while (!complete(l, slot))
		pthread_cond_wait(&l->ready, &l->lock);
	l->next++;
	if (slot->failed_at < l->options.batch) {
		status = slot->failure.status;
		if (err)
			*err = slot->failure;
		goto unlock;
	}
	out->images = l->options.crops ? NULL : slot->batch.images;
	out->crops = l->options.crops ? slot->batch.crops : NULL;
	out->labels = slot->batch.labels;
	out->pair_labels = gn_loader_mixes(&l->options) ? slot->batch.pair_labels : NULL;
	out->lambdas = gn_loader_mixes(&l->options) ? slot->batch.lambdas : NULL;
	out->indices = slot->batch.indices;
	out->count = slot->batch.count;
	out->wait_s = gn_clock_s() - begin;
unlock:
	pthread_mutex_unlock(&l->lock);
	return status;
}

void gn_loader_set_threads(struct gn_loader *l, int threads)
{
	pthread_mutex_lock(&l->lock);
	l->active = threads;
	pthread_cond_broadcast(&l->work);
	pthread_mutex_unlock(&l->lock);
}

void gn_loader_effort(struct gn_loader *l, struct gn_loader_effort *out)
{
	pthread_mutex_lock(&l->lock);
	*out = (struct gn_loader_effort){l->active, l->built, (double)(gn_clock_ns() - l->created_ns) * 1e-9, (double)l->busy_ns * 1e-9,
					 (double)l->read_ns * 1e-9};
	pthread_mutex_unlock(&l->lock);
}
