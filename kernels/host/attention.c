/* Multi-head attention with oneDNN's products, one head of one image at a time and a thread, in floats; backward computes the
 * probabilities again, so that none are kept. Tensors are NHWC. */
#include "kernels/host/host.h"
#include "kernels/host/layer.h"

#include <math.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>

struct attention {
	struct gn_op base;
	size_t count, size, width; /* pixels; channels of a head, of all heads */
	int threads;
};

/* Of a thread, in scratch memory. */
struct room {
	float *q, *k, *v, *y, *dq, *dk, *dv; /* [count][size] */
	float *p, *dp;			     /* [count][count] */
};

static size_t room_elements(const struct attention *a)
{
	return (7 * a->count * a->size + 2 * a->count * a->count + 15) / 16 * 16;
}

static struct room room_of(const struct attention *a)
{
	size_t each = a->count * a->size;
	float *at = (float *)a->base.buffers.scratch + (size_t)omp_get_thread_num() * room_elements(a);

	return (struct room){at, at + each, at + 2 * each, at + 3 * each, at + 4 * each, at + 5 * each, at + 6 * each, at + 7 * each,
			     at + 7 * each + a->count * a->count};
}

static void take(const struct attention *a, const void *tensor, size_t at, size_t stride, float *to)
{
	for (size_t i = 0; i < a->count; i++)
		for (size_t k = 0; k < a->size; k++)
			to[i * a->size + k] = gn_layer_load(gn_layout_is_bf16(&a->base.info.out), tensor, at + i * stride + k);
}

static void put(const struct attention *a, const float *from, size_t at, size_t stride, void *tensor)
{
	for (size_t i = 0; i < a->count; i++)
		for (size_t k = 0; k < a->size; k++)
			gn_layer_store(gn_layout_is_bf16(&a->base.info.out), tensor, at + i * stride + k, from[i * a->size + k]);
}

/* c = a b, of m rows and n columns; transposed: 'N' or 'T'. */
static int product(char a_transposed, char b_transposed, size_t m, size_t n, size_t k, const float *a, const float *b, float *c)
{
	return dnnl_sgemm(a_transposed, b_transposed, (dnnl_dim_t)m, (dnnl_dim_t)n, (dnnl_dim_t)k, 1, a,
			  (dnnl_dim_t)(a_transposed == 'N' ? k : m), b, (dnnl_dim_t)(b_transposed == 'N' ? n : k), 0, c, (dnnl_dim_t)n);
}

static size_t input_at(const struct attention *a, size_t image, size_t head)
{
	return image * a->count * 3 * a->width + head * a->size;
}

/* Takes q, k and v; p becomes the probabilities. */
static int probabilities(const struct attention *a, size_t image, size_t head, const struct room *r)
{
	size_t at = input_at(a, image, head);
	float factor = 1 / sqrtf((float)a->size);
	int failed;

	take(a, a->base.buffers.in[0], at, 3 * a->width, r->q);
	take(a, a->base.buffers.in[0], at + a->width, 3 * a->width, r->k);
	take(a, a->base.buffers.in[0], at + 2 * a->width, 3 * a->width, r->v);
	failed = product('N', 'T', a->count, a->count, a->size, r->q, r->k, r->p);
	for (size_t i = 0; i < a->count; i++)
		gn_layer_loops()->softmax(a->count, factor, r->p + i * a->count);
	return failed;
}

static int head_forward(const struct attention *a, size_t image, size_t head)
{
	struct room r = room_of(a);
	int failed = probabilities(a, image, head, &r);

	failed |= product('N', 'N', a->count, a->size, a->count, r.p, r.v, r.y);
	put(a, r.y, image * a->count * a->width + head * a->size, a->width, a->base.buffers.out);
	return failed;
}

static int head_backward(const struct attention *a, size_t image, size_t head)
{
	struct room r = room_of(a);
	size_t at = input_at(a, image, head), n = a->count, size = a->size;
	float factor = 1 / sqrtf((float)size);
	int failed = probabilities(a, image, head, &r);

	take(a, a->base.buffers.dout, image * n * a->width + head * size, a->width, r.y);
	failed |= product('T', 'N', n, size, n, r.p, r.y, r.dv);
	failed |= product('N', 'T', n, n, size, r.y, r.v, r.dp);
	for (size_t i = 0; i < n; i++)
		gn_layer_loops()->softmax_gradient(n, factor, r.p + i * n, r.dp + i * n);
	failed |= product('N', 'N', n, size, n, r.dp, r.k, r.dq);
	failed |= product('T', 'N', n, size, n, r.dp, r.q, r.dk);
	put(a, r.dq, at, 3 * a->width, a->base.buffers.din[0]);
	put(a, r.dk, at + a->width, 3 * a->width, a->base.buffers.din[0]);
	put(a, r.dv, at + 2 * a->width, 3 * a->width, a->base.buffers.din[0]);
	return failed;
}

static enum gn_status run(const struct gn_op *op, int (*head)(const struct attention *a, size_t image, size_t head), struct gn_err *err)
{
	const struct attention *a = (const struct attention *)op;
	size_t heads = (size_t)op->desc.heads, count = (size_t)op->desc.in[0].n * heads;
	int failed = 0;

#pragma omp parallel for schedule(static) num_threads(a->threads) reduction(| : failed)
	for (size_t i = 0; i < count; i++)
		failed |= head(a, i / heads, i % heads);
	return failed ? gn_err_set(err, GN_ERR_FAILED, "oneDNN: a product of attention failed") : GN_OK;
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	(void)step;
	return run(op, head_forward, err);
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	return run(op, head_backward, err);
}

enum gn_status gn_host_attention_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.forward = forward, .backward = backward};
	struct gn_op *op = gn_op_alloc(sizeof(struct attention), &class, base, err);
	struct attention *a = (struct attention *)op;

	if (!op)
		return GN_ERR_NO_MEMORY;
	a->count = (size_t)base->desc.in[0].h * base->desc.in[0].w;
	a->width = (size_t)base->info.out.c;
	a->size = a->width / (size_t)base->desc.heads;
	a->threads = omp_get_max_threads();
	op->info.in[0].block = op->info.out.block = 0;
	op->info.scratch_bytes = (size_t)a->threads * room_elements(a) * sizeof(float);
	op->info.backward_reads_in = 1;
	*out = op;
	return GN_OK;
}
