/* Stands for kernels/cuda/blas.h where kernels are emulated: plain products on the same memory, so that operators and plans are
 * tested without a GPU. It cannot show what cuBLASLt computes; tests/gpu/test_ops asks the real one where there is a GPU.
 *
 * Like cuBLASLt it takes some passes and refuses others, so that every way is gone. Tensors that are not aligned as blas.h promises
 * cuBLASLt are refused. Thread safety: as blas.h.
 */
#include "kernels/cuda/blas.h"

#include "tests/gpu/emulate_queue.h"

#include <stdlib.h>

struct gn_blas {
	struct gn_cuda_stream *stream;
};

struct gn_blas_plan {
	struct gn_cuda_stream *stream;
	struct gn_blas_linear linear;
	struct gn_blas_batch batch;
	enum gn_blas_pass pass;
};

const char *gn_blas_pass_name(enum gn_blas_pass pass)
{
	static const char *const names[GN_BLAS_PASSES] = {"forward", "bias", "data", "weight", "weight and bias", "batch"};

	return names[pass];
}

enum gn_status gn_blas_create(struct gn_cuda_stream *s, const struct gn_blas_options *options, struct gn_blas **out,
			      struct gn_err *err)
{
	struct gn_blas *b = calloc(1, sizeof *b);

	(void)options;
	if (!b)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	b->stream = s;
	*out = b;
	return GN_OK;
}

void gn_blas_destroy(struct gn_blas *b)
{
	free(b);
}

enum gn_status gn_blas_plan_create(struct gn_blas *b, const struct gn_blas_linear *l, enum gn_blas_pass pass,
				   struct gn_blas_plan **out, struct gn_err *err)
{
	int with_bias = pass == GN_BLAS_FORWARD_BIAS || pass == GN_BLAS_BACKWARD_WEIGHT_BIAS;
	struct gn_blas_plan *p;

	if (l->c % 2 || (with_bias && l->out_c % 4))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the emulation refuses %s", gn_blas_pass_name(pass));
	if (!(p = calloc(1, sizeof *p)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	p->stream = b->stream;
	p->linear = *l;
	p->pass = pass;
	*out = p;
	return GN_OK;
}

enum gn_status gn_blas_batch_create(struct gn_blas *b, const struct gn_blas_batch *batch, struct gn_blas_plan **out, struct gn_err *err)
{
	struct gn_blas_plan *p = calloc(1, sizeof *p);

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	p->stream = b->stream;
	p->batch = *batch;
	p->pass = GN_BLAS_BATCH;
	*out = p;
	return GN_OK;
}

void gn_blas_plan_destroy(struct gn_blas_plan *p)
{
	free(p);
}

size_t gn_blas_plan_workspace_bytes(const struct gn_blas_plan *p)
{
	return p->pass == GN_BLAS_BACKWARD_DATA ? 700 : 0;
}

enum gn_status gn_blas_tune(struct gn_blas_plan *p, const struct gn_blas_data *data, void *workspace, struct gn_err *err)
{
	return gn_blas_run(p, data, workspace, err);
}

static void forward(const struct gn_blas_linear *l, const struct gn_blas_data *d)
{
	for (int i = 0; i < l->n; i++) {
		for (int o = 0; o < l->out_c; o++) {
			double sum = d->bias ? gn_cuda_value(l->type, d->bias, (size_t)o) : 0;

			for (int k = 0; k < l->c; k++)
				sum += (double)gn_cuda_value(l->type, d->x, (size_t)i * l->c + k) *
				       gn_cuda_value(l->type, d->weight, (size_t)o * l->c + k);
			gn_cuda_set_value(l->type, d->y, (size_t)i * l->out_c + o, (float)sum);
		}
	}
}

static void backward_data(const struct gn_blas_linear *l, const struct gn_blas_data *d)
{
	for (int i = 0; i < l->n; i++) {
		for (int k = 0; k < l->c; k++) {
			double sum = 0;

			for (int o = 0; o < l->out_c; o++)
				sum += (double)gn_cuda_value(l->type, d->y, (size_t)i * l->out_c + o) *
				       gn_cuda_value(l->type, d->weight, (size_t)o * l->c + k);
			gn_cuda_set_value(l->type, d->x, (size_t)i * l->c + k, (float)sum);
		}
	}
}

static void backward_weight(const struct gn_blas_linear *l, const struct gn_blas_data *d)
{
	float *weight = d->weight, *bias = d->bias;

	for (int o = 0; o < l->out_c; o++) {
		double total = 0;

		for (int k = 0; k < l->c; k++) {
			double sum = 0;

			for (int i = 0; i < l->n; i++)
				sum += (double)gn_cuda_value(l->type, d->y, (size_t)i * l->out_c + o) *
				       gn_cuda_value(l->type, d->x, (size_t)i * l->c + k);
			weight[(size_t)o * l->c + k] = (float)sum;
		}
		for (int i = 0; i < l->n; i++)
			total += gn_cuda_value(l->type, d->y, (size_t)i * l->out_c + o);
		if (bias)
			bias[o] = (float)total;
	}
}

static void multiply(const struct gn_blas_batch *l, const struct gn_blas_data *d, int64_t number)
{
	int64_t a = number * l->a_step, b = number * l->b_step, at = number * l->d_step;

	for (int i = 0; i < l->rows; i++) {
		for (int j = 0; j < l->columns; j++) {
			double sum = 0;

			for (int k = 0; k < l->depth; k++) {
				int64_t x = l->a_transposed ? (int64_t)k * l->a_stride + i : (int64_t)i * l->a_stride + k;
				int64_t y = l->b_transposed ? (int64_t)j * l->b_stride + k : (int64_t)k * l->b_stride + j;

				sum += (double)gn_cuda_value(l->type, d->x, (size_t)(a + x)) * gn_cuda_value(l->type, d->weight, (size_t)(b + y));
			}
			gn_cuda_set_value(l->result_type, d->y, (size_t)(at + (int64_t)i * l->d_stride + j), (float)sum);
		}
	}
}

struct call {
	struct gn_blas_linear linear;
	struct gn_blas_batch batch;
	enum gn_blas_pass pass;
	struct gn_blas_data data;
};

static void run(const void *args)
{
	const struct call *c = args;

	for (int64_t i = 0; c->pass == GN_BLAS_BATCH && i < c->batch.count; i++)
		multiply(&c->batch, &c->data, i);
	if (c->pass == GN_BLAS_BATCH)
		return;
	if (c->pass == GN_BLAS_BACKWARD_DATA)
		backward_data(&c->linear, &c->data);
	else if (c->pass >= GN_BLAS_BACKWARD_WEIGHT)
		backward_weight(&c->linear, &c->data);
	else
		forward(&c->linear, &c->data);
}

static enum gn_status check_alignment(const struct gn_blas_plan *p, const struct gn_blas_data *d, struct gn_err *err)
{
	const struct {
		const char *name;
		const void *at;
	} all[] = {{"x", d->x}, {"weight", d->weight}, {"y", d->y}, {"bias", d->bias}};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if ((uintptr_t)all[i].at % 16)
			return gn_err_set(err, GN_ERR_USAGE, "%s: %s is not aligned to 16 bytes", gn_blas_pass_name(p->pass), all[i].name);
	return GN_OK;
}

enum gn_status gn_blas_run(struct gn_blas_plan *p, const struct gn_blas_data *d, void *workspace, struct gn_err *err)
{
	int with_bias = p->pass == GN_BLAS_FORWARD_BIAS || p->pass == GN_BLAS_BACKWARD_WEIGHT_BIAS;
	struct call c = {p->linear, p->batch, p->pass, *d};
	enum gn_status status;

	if (gn_blas_plan_workspace_bytes(p) && (!workspace || (uintptr_t)workspace % GN_CUDA_ALIGN_BYTES))
		return gn_err_set(err, GN_ERR_USAGE, "%s with a workspace that is not aligned to %d bytes", gn_blas_pass_name(p->pass),
				  GN_CUDA_ALIGN_BYTES);
	if (!d->x || !d->weight || !d->y || with_bias != (d->bias != NULL))
		return gn_err_set(err, GN_ERR_USAGE, "%s without a tensor, or with one too many", gn_blas_pass_name(p->pass));
	status = check_alignment(p, d, err);
	if (!status)
		status = gn_emulate_look(p->stream, &c, sizeof c, gn_blas_pass_name(p->pass), err);
	return status ? status : gn_emulate_call(p->stream, run, &c, sizeof c, gn_blas_pass_name(p->pass), err);
}
