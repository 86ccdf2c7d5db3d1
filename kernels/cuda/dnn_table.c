/* All plans of a gn_dnn: each shape and pass is planned once, many of them in parallel. */
#include "kernels/cuda/dnn_internal.h"
#include "src/base/thread_pool.h"
#include "src/base/thread.h"

#include <stdatomic.h>
#include <stdlib.h>

static int is_same(const struct gn_dnn_conv *a, const struct gn_dnn_conv *b)
{
	return a->type == b->type && a->n == b->n && a->c == b->c && a->h == b->h && a->w == b->w && a->out_c == b->out_c &&
	       a->out_h == b->out_h && a->out_w == b->out_w && a->kernel == b->kernel && a->stride == b->stride && a->pad == b->pad &&
	       a->groups == b->groups;
}

static struct gn_dnn_plan *find(struct gn_dnn *d, const struct gn_dnn_conv *conv, enum gn_dnn_pass pass)
{
	struct gn_dnn_plan *p = d->plans;

	while (p && (p->pass != pass || !is_same(&p->conv, conv)))
		p = p->next;
	if (p || !(p = calloc(1, sizeof *p)))
		return p;
	p->dnn = d;
	p->conv = *conv;
	p->pass = pass;
	p->next = d->plans;
	return d->plans = p;
}

enum gn_status gn_dnn_plan_get(struct gn_dnn *d, const struct gn_dnn_conv *conv, enum gn_dnn_pass pass, struct gn_dnn_plan **out,
			       struct gn_err *err)
{
	struct gn_dnn_plan *p = find(d, conv, pass);

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a convolution");
	if (!p->is_planned && d->collects) {
		*out = NULL;
		return GN_OK;
	}
	if (!p->is_planned)
		gn_dnn_plan_make(p, d->handle);
	if (p->err.status)
		return gn_err_set(err, p->err.status, "%s", p->err.text);
	*out = p;
	return GN_OK;
}

void gn_dnn_collect(struct gn_dnn *d, int on)
{
	d->collects = on;
}

/* The work list of the planning threads. */
struct crew {
	struct gn_dnn *dnn;
	struct gn_dnn_plan **plans;
	int count;
	atomic_int taken;
};

struct helper {
	struct crew *crew;
	int number;
	pthread_t thread;
};

static void work(struct crew *c, cudnnHandle_t handle)
{
	for (int i; (i = atomic_fetch_add(&c->taken, 1)) < c->count;)
		gn_dnn_plan_make(c->plans[i], handle);
}

/* A thread that cannot create a handle leaves the work to the others. */
static void *plan_thread(void *argument)
{
	const struct helper *h = argument;
	struct gn_dnn *d = h->crew->dnn;
	cudnnHandle_t *handle = &d->helpers[h->number];

	if (!d->stream || (!gn_cuda_enter(d->stream->device, NULL) && (*handle || !d->api.cudnnCreate(handle))))
		work(h->crew, *handle);
	return NULL;
}

static void work_together(struct crew *c)
{
	struct helper helpers[GN_DNN_HELPERS_MAX];
	int wanted = (gn_cpu_count() < c->count ? gn_cpu_count() : c->count) - 1, started = 0;

	for (int i = 0; i < wanted && i < GN_DNN_HELPERS_MAX; i++) {
		helpers[i] = (struct helper){.crew = c, .number = i};
		if (gn_thread_start(&helpers[i].thread, plan_thread, &helpers[i]))
			break;
		started++;
	}
	work(c, c->dnn->handle);
	while (started > 0)
		(void)pthread_join(helpers[--started].thread, NULL);
}

enum gn_status gn_dnn_plan_noted(struct gn_dnn *d, int *out, struct gn_err *err)
{
	struct crew c = {.dnn = d};
	int all = 0;

	for (const struct gn_dnn_plan *p = d->plans; p; p = p->next)
		all++;
	c.plans = malloc(((size_t)all + 1) * sizeof(struct gn_dnn_plan *));
	if (!c.plans)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d convolutions", all);
	for (struct gn_dnn_plan *p = d->plans; p; p = p->next)
		if (!p->is_planned)
			c.plans[c.count++] = p;
	work_together(&c);
	free(c.plans);
	*out = c.count;
	return GN_OK;
}

struct gn_dnn_counts gn_dnn_counts(const struct gn_dnn *d)
{
	struct gn_dnn_counts c = {0};

	for (const struct gn_dnn_plan *p = d->plans; p; p = p->next) {
		c.plans += p->is_planned;
		c.restored += p->is_restored;
		c.compiled += p->compiled;
		c.compiled_most = p->compiled > c.compiled_most ? p->compiled : c.compiled_most;
	}
	return c;
}
