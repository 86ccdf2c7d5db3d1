/* The backend "ucx-direct": schedules with messages in device memory and reductions on the device (reduce_executor.h). */
#include "transport/coll/coll_backend.h"

#include <sched.h>
#include <stdlib.h>

struct direct_op;

struct direct_backend {
	struct gn_coll_backend base;
	struct gn_comm *comm;
	struct gn_reduce_executor *memory;
	struct direct_op *first, **end; /* started, but what comes before has not happened yet: in order */
};

struct direct_op {
	struct gn_coll_backend_op base;
	struct gn_coll *coll;
	void *after;
	struct direct_op *next;
	int queued;
};

static struct direct_backend *backend_of(const struct direct_op *op)
{
	return (struct direct_backend *)op->base.carrier;
}

static enum gn_status prepare(struct gn_coll_backend *base, void *device, size_t count, enum gn_dtype type,
			      enum gn_reduction reduction, struct gn_coll_backend_op **out, struct gn_err *err)
{
	struct direct_backend *c = (struct direct_backend *)base;
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .out = device, .count = count, .type = type,
				    .reduction = reduction, .memory = c->memory};
	struct direct_op *op = calloc(1, sizeof *op);
	enum gn_status status;

	if (!op)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an operation");
	op->base.carrier = base;
	status = gn_coll_prepare(c->comm, &args, &op->coll, err);
	if (status) {
		free(op);
		return status;
	}
	*out = &op->base;
	return GN_OK;
}

/* Whether a device event has occurred. A failure aborts the world, because other ranks would wait for this one. */
static enum gn_status event_happened(struct direct_backend *c, void *event, int *yes, struct gn_err *err)
{
	struct gn_err why;
	enum gn_status status = c->memory->ops->happened(c->memory, event, yes, &why);

	if (status)
		gn_world_abort(gn_comm_world(c->comm), why.text);
	if (status && err)
		*err = why;
	return status;
}

/* Starts queued operations in order, the same on all ranks, until one whose event has not occurred. */
static enum gn_status start_ready(struct direct_backend *c, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	while (c->first && !status) {
		struct direct_op *op = c->first;
		int yes = 1;

		if (op->after)
			status = event_happened(c, op->after, &yes, err);
		if (status || !yes)
			break;
		c->first = op->next;
		if (!c->first)
			c->end = &c->first;
		op->queued = 0;
		status = gn_coll_start(op->coll, err);
	}
	return status;
}

static enum gn_status start(struct gn_coll_backend_op *base, void *after, struct gn_err *err)
{
	struct direct_op *op = (struct direct_op *)base;
	struct direct_backend *c = backend_of(op);

	if (op->queued)
		return gn_err_set(err, GN_ERR_USAGE, "an allreduce was started before its previous run was complete");
	op->after = after;
	op->next = NULL;
	op->queued = 1;
	*c->end = op;
	c->end = &op->next;
	return start_ready(c, err);
}

static enum gn_status test(struct gn_coll_backend_op *base, int *done, struct gn_err *err)
{
	struct direct_op *op = (struct direct_op *)base;
	enum gn_status status = start_ready(backend_of(op), err);

	*done = 0;
	if (!status && op->queued)
		status = gn_world_check(gn_comm_world(backend_of(op)->comm), err);
	return status || op->queued ? status : gn_coll_test(op->coll, done, err);
}

static enum gn_status wait(struct gn_coll_backend_op *base, struct gn_err *err)
{
	struct direct_op *op = (struct direct_op *)base;
	int done = 0;
	enum gn_status status = test(base, &done, err);

	for (; !status && op->queued; status = test(base, &done, err))
		sched_yield();
	return status ? status : gn_coll_wait(op->coll, err);
}

static void free_op(struct gn_coll_backend_op *base)
{
	struct direct_op *op = (struct direct_op *)base;
	struct direct_backend *c = backend_of(op);
	struct direct_op **at = &c->first;

	while (*at && *at != op)
		at = &(*at)->next;
	if (*at) {
		*at = op->next;
		if (!op->next)
			c->end = at;
	}
	gn_coll_free(op->coll);
	free(op);
}

static void describe(const struct gn_coll_backend *base, struct gn_strbuf *out)
{
	(void)base;
	gn_strbuf_puts(out, "ucx, messages in GPU memory");
}

static void destroy(struct gn_coll_backend *base)
{
	struct direct_backend *c = (struct direct_backend *)base;

	gn_reduce_executor_destroy(c->memory);
	free(c);
}

enum gn_status gn_coll_backend_direct_create(struct gn_comm *comm, struct gn_reduce_executor *memory, struct gn_coll_backend **out,
					     struct gn_err *err)
{
	static const struct gn_coll_backend_ops ops = {"ucx-direct", prepare, start, test, wait, free_op, describe, destroy};
	struct direct_backend *c = calloc(1, sizeof *c);

	if (!c) {
		gn_reduce_executor_destroy(memory);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a backend");
	}
	c->base.ops = &ops;
	c->comm = comm;
	c->memory = memory;
	c->end = &c->first;
	*out = &c->base;
	return GN_OK;
}
