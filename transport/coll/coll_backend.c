#include "transport/coll/coll_backend.h"

#include "src/base/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of small and large gradient buckets; each is reduced WARM_UPS + TIMED times. */
static const size_t sizes[] = {64u << 10, 1u << 20, 16u << 20};
#define SIZES (sizeof sizes / sizeof *sizes)
#define WARM_UPS 2
#define TIMED 5

void gn_coll_backend_destroy(struct gn_coll_backend *c)
{
	if (c)
		c->ops->destroy(c);
}

const char *gn_coll_backend_name(const struct gn_coll_backend *c)
{
	return c->ops->name;
}

void gn_coll_backend_describe(const struct gn_coll_backend *c, struct gn_strbuf *out)
{
	c->ops->describe(c, out);
}

enum gn_status gn_coll_backend_prepare(struct gn_coll_backend *c, void *device, size_t count, enum gn_dtype type,
				  enum gn_reduction reduction, struct gn_coll_backend_op **out, struct gn_err *err)
{
	return c->ops->prepare(c, device, count, type, reduction, out, err);
}

enum gn_status gn_coll_backend_start(struct gn_coll_backend_op *op, void *after, struct gn_err *err)
{
	return op->carrier->ops->start(op, after, err);
}

enum gn_status gn_coll_backend_test(struct gn_coll_backend_op *op, int *done, struct gn_err *err)
{
	return op->carrier->ops->test(op, done, err);
}

enum gn_status gn_coll_backend_wait(struct gn_coll_backend_op *op, struct gn_err *err)
{
	return op->carrier->ops->wait(op, err);
}

void gn_coll_backend_free(struct gn_coll_backend_op *op)
{
	if (op)
		op->carrier->ops->free(op);
}

/* --- selection by measurement --- */

static enum gn_status sum_once(struct gn_coll_backend_op *op, double *seconds, struct gn_err *err)
{
	uint64_t began = gn_clock_ns();
	enum gn_status status = gn_coll_backend_start(op, NULL, err);

	if (!status)
		status = gn_coll_backend_wait(op, err);
	*seconds = (double)(gn_clock_ns() - began) * 1e-9;
	return status;
}

/* Collective: the slowest rank's minimum over TIMED runs. */
static enum gn_status measure(struct gn_comm *comm, struct gn_coll_backend *c, void *device, size_t bytes, double *seconds,
			      struct gn_err *err)
{
	struct gn_coll_backend_op *op;
	double best = INFINITY, now;
	enum gn_status status = gn_coll_backend_prepare(c, device, bytes / sizeof(float), GN_F32, GN_SUM, &op, err);

	if (status)
		return status;
	for (int i = 0; i < WARM_UPS + TIMED && !status; i++) {
		status = gn_comm_barrier(comm, err);
		if (!status)
			status = sum_once(op, &now, err);
		if (i >= WARM_UPS && now < best)
			best = now;
	}
	gn_coll_backend_free(op);
	if (!status)
		status = gn_comm_allreduce(comm, &best, 1, GN_F64, gn_reduce_max(GN_F64), err);
	if (!status)
		*seconds = best;
	return status;
}

static void log_times(struct gn_coll_backend *const *backends, int count, const double *seconds, size_t used, int best,
		 struct gn_log *log)
{
	struct gn_strbuf text;

	gn_strbuf_init(&text);
	for (int c = 0; c < count; c++) {
		gn_strbuf_printf(&text, "%s%s", c ? "; " : "", gn_coll_backend_name(backends[c]));
		for (size_t i = 0; i < used; i++)
			gn_strbuf_printf(&text, "%s %zu KiB in %.3f ms", i ? "," : "", sizes[i] >> 10,
					 1e3 * seconds[(size_t)c * SIZES + i]);
	}
	gn_log_info(log, "allreduce of GPU memory by %s, the fastest of: %s", gn_coll_backend_name(backends[best]),
		    gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

enum gn_status gn_coll_backend_choose(struct gn_comm *comm, struct gn_coll_backend *const *backends, int count, void *device,
				 size_t bytes, struct gn_log *log, int *out, struct gn_err *err)
{
	double *seconds = calloc((size_t)count * SIZES, sizeof *seconds), least = INFINITY;
	enum gn_status status = GN_OK;
	size_t used = 0;
	int best = 0;

	if (!seconds)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the times of %d backends", count);
	while (used < SIZES && sizes[used] <= bytes)
		used++;
	for (int c = 0; c < count && !status; c++) {
		double logs = 0;

		for (size_t i = 0; i < used && !status; i++) {
			status = measure(comm, backends[c], device, sizes[i], &seconds[(size_t)c * SIZES + i], err);
			logs += log10(seconds[(size_t)c * SIZES + i]);
		}
		if (logs < least) {
			least = logs;
			best = c;
		}
	}
	if (!status && gn_comm_rank(comm) == 0)
		log_times(backends, count, seconds, used, best, log);
	free(seconds);
	if (!status)
		*out = best;
	return status;
}

/* --- UCX with copies staged in host memory --- */

struct staged_backend {
	struct gn_coll_backend base;
	struct gn_copy_engine *engine;
	struct gn_stager *stager;
};

struct staged_backend_op {
	struct gn_coll_backend_op base;
	struct gn_staged *staged;
};

static enum gn_status staged_prepare(struct gn_coll_backend *c, void *device, size_t count, enum gn_dtype type,
				     enum gn_reduction reduction, struct gn_coll_backend_op **out, struct gn_err *err)
{
	struct staged_backend_op *op = calloc(1, sizeof *op);
	enum gn_status status;

	if (!op)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an operation");
	op->base.carrier = c;
	status = gn_staged_prepare(((struct staged_backend *)c)->stager, device, count, type, reduction, NULL, &op->staged, err);
	if (status) {
		free(op);
		return status;
	}
	*out = &op->base;
	return GN_OK;
}

static enum gn_status staged_start(struct gn_coll_backend_op *op, void *after, struct gn_err *err)
{
	return gn_staged_start(((struct staged_backend_op *)op)->staged, after, err);
}

static enum gn_status staged_test(struct gn_coll_backend_op *op, int *done, struct gn_err *err)
{
	return gn_staged_test(((struct staged_backend_op *)op)->staged, done, err);
}

static enum gn_status staged_wait(struct gn_coll_backend_op *op, struct gn_err *err)
{
	return gn_staged_wait(((struct staged_backend_op *)op)->staged, err);
}

static void staged_free(struct gn_coll_backend_op *op)
{
	gn_staged_free(((struct staged_backend_op *)op)->staged);
	free(op);
}

static void staged_describe(const struct gn_coll_backend *c, struct gn_strbuf *out)
{
	gn_strbuf_puts(out, "ucx, ");
	gn_stager_describe(((const struct staged_backend *)c)->stager, out);
}

static void staged_destroy(struct gn_coll_backend *c)
{
	struct staged_backend *s = (struct staged_backend *)c;

	gn_stager_destroy(s->stager);
	gn_copy_engine_destroy(s->engine);
	free(s);
}

enum gn_status gn_coll_backend_staged_create(struct gn_comm *comm, struct gn_copy_engine *engine,
					const struct gn_stager_options *options, struct gn_coll_backend **out,
					struct gn_err *err)
{
	static const struct gn_coll_backend_ops ops = {"ucx", staged_prepare, staged_start, staged_test, staged_wait,
						  staged_free, staged_describe, staged_destroy};
	struct staged_backend *s = calloc(1, sizeof *s);
	enum gn_status status;

	if (!s) {
		gn_copy_engine_destroy(engine);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for staging");
	}
	s->base.ops = &ops;
	s->engine = engine;
	status = gn_stager_create(comm, engine, options, &s->stager, err);
	if (status) {
		staged_destroy(&s->base);
		return status;
	}
	*out = &s->base;
	return GN_OK;
}

/* --- names --- */

enum gn_status gn_coll_backend_check(const char *how, const char *device, int built_in, struct gn_err *err)
{
	if (strcmp(how, "nccl"))
		return GN_OK;
	if (strcmp(device, "cuda"))
		return gn_err_set(err, GN_ERR_USAGE,
				  "--comm nccl: NCCL requires GPU memory, but --device %s uses host memory: use --comm ucx or auto%s",
				  device, built_in ? ", or --device cuda" : "");
	if (!built_in)
		return gn_err_set(err, GN_ERR_UNSUPPORTED,
				  "--comm nccl: this build has no CUDA and no NCCL (configure --with-cuda=DIR): use --comm ucx "
				  "or auto");
	return GN_OK;
}
