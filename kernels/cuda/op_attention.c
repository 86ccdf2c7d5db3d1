/* Multi-head attention: q, k and v by heads, batches of products by cuBLASLt, and softmax in between. Scores and their gradient are float,
 * probabilities have the operator's type. Backward computes the probabilities again, so that none are kept. */
#include "kernels/cuda/layers.h"
#include "kernels/cuda/ops_internal.h"

#include <math.h>

struct attention_op {
	struct gn_op base;
	struct gn_cuda_heads heads;
	int stride;	      /* elements from row to row of scores and probabilities: whole vectors */
	int is_tuned;
	size_t room_bytes, head_bytes, p_bytes, score_bytes; /* cuBLASLt's scratch; one of q, k, v, y; probabilities; scores */
	/* [pixels][pixels] = a b^T over a head's channels; [pixels][size] = p a; and p^T a */
	struct gn_blas_plan *scores, *sums, *back;
};

/* In scratch memory. */
struct room {
	char *q, *k, *v, *y, *dq, *dk, *dv, *p;
	float *scores;
};

static struct attention_op *self(struct gn_op *op)
{
	return (struct attention_op *)op;
}

static struct room room_of(const struct attention_op *a)
{
	size_t each = a->head_bytes;
	char *q = (char *)a->base.buffers.scratch + a->room_bytes, *p = q + 4 * each, *scores = p + a->p_bytes;
	char *dq = scores + a->score_bytes;

	return (struct room){q, q + each, q + 2 * each, q + 3 * each, dq, dq + each, dq + 2 * each, p, (float *)scores};
}

static size_t rows_of(const struct attention_op *a)
{
	return (size_t)a->heads.n * (size_t)a->heads.heads * (size_t)a->heads.pixels;
}

static double factor_of(const struct attention_op *a)
{
	return 1 / sqrt((double)a->heads.size);
}

/* d = a b, as the plan has it. */
static enum gn_status product(const struct attention_op *o, struct gn_blas_plan *plan, void *a, void *b, void *d, struct gn_err *err)
{
	const struct gn_blas_data data = {.x = a, .weight = b, .y = d};

	return gn_blas_run(plan, &data, o->base.buffers.scratch, err);
}

/* Parts of a tensor by heads, or back. */
static enum gn_status split(const struct attention_op *a, int parts, int back, const void *from, void *to, struct gn_err *err)
{
	struct gn_cuda_heads h = a->heads;

	h.parts = parts;
	return gn_cuda_split_heads(gn_cuda_ops_of(&a->base)->stream, &h, back, from, to, err);
}

static enum gn_status probabilities(const struct attention_op *a, const struct room *r, struct gn_err *err)
{
	enum gn_status status = split(a, 3, 0, a->base.buffers.in[0], r->q, err);

	if (!status)
		status = product(a, a->scores, r->q, r->k, r->scores, err);
	return status ? status : gn_cuda_softmax(gn_cuda_ops_of(&a->base)->stream, a->heads.type, rows_of(a), a->heads.pixels, a->stride,
						 factor_of(a), r->scores, r->p, err);
}

static enum gn_status forward(struct gn_op *op, uint64_t step, struct gn_err *err)
{
	const struct attention_op *a = self(op);
	struct room r = room_of(a);
	enum gn_status status = probabilities(a, &r, err);

	(void)step;
	if (!status)
		status = product(a, a->sums, r.p, r.v, r.y, err);
	return status ? status : split(a, 1, 1, r.y, op->buffers.out, err);
}

static enum gn_status backward(struct gn_op *op, struct gn_err *err)
{
	const struct attention_op *a = self(op);
	struct room r = room_of(a);
	enum gn_status status = probabilities(a, &r, err);

	if (!status)
		status = split(a, 1, 0, op->buffers.dout, r.y, err);
	if (!status)
		status = product(a, a->back, r.p, r.y, r.dv, err);
	if (!status)
		status = product(a, a->scores, r.y, r.v, r.scores, err);
	if (!status)
		status = gn_cuda_softmax_grad(gn_cuda_ops_of(op)->stream, a->heads.type, rows_of(a), a->heads.pixels, a->stride,
					      factor_of(a), r.scores, r.p, err);
	if (!status)
		status = product(a, a->sums, r.p, r.k, r.dq, err);
	if (!status)
		status = product(a, a->back, r.p, r.q, r.dk, err);
	return status ? status : split(a, 3, 1, r.dq, op->buffers.din[0], err);
}

/* On random numbers in scratch memory. */
static enum gn_status bind(struct gn_op *op, struct gn_err *err)
{
	struct attention_op *a = self(op);
	struct gn_cuda_ops *o = gn_cuda_ops_of(op);
	struct room r = room_of(a);
	size_t count = (a->head_bytes * 4 + a->p_bytes) / gn_cuda_type_bytes(a->heads.type);
	const struct gn_blas_data scores = {r.q, r.k, r.scores, NULL}, sums = {r.p, r.v, r.y, NULL};
	enum gn_status status;

	if (!o->options.tune || a->is_tuned)
		return GN_OK;
	status = gn_cuda_randomise(o->stream, a->heads.type, r.q, count, 0, err);
	if (!status)
		status = gn_blas_tune(a->scores, &scores, op->buffers.scratch, err);
	if (!status)
		status = gn_blas_tune(a->sums, &sums, op->buffers.scratch, err);
	if (!status && a->back)
		status = gn_blas_tune(a->back, &sums, op->buffers.scratch, err);
	a->is_tuned = !status;
	return status;
}

static void destroy(struct gn_op *op)
{
	gn_blas_plan_destroy(self(op)->scores);
	gn_blas_plan_destroy(self(op)->sums);
	gn_blas_plan_destroy(self(op)->back);
}

static enum gn_status plan(struct attention_op *a, struct gn_blas *blas, struct gn_err *err)
{
	int t = a->heads.pixels, size = a->heads.size;
	int64_t count = (int64_t)a->heads.n * a->heads.heads, head_step = (int64_t)t * size, p_step = (int64_t)t * a->stride;
	enum gn_cuda_type type = a->heads.type;
	const struct gn_blas_batch scores = {type, GN_CUDA_F32, t, t, size, 0, 1, size, size, a->stride, count, head_step, head_step, p_step};
	struct gn_blas_batch sums = {type, type, t, size, t, 0, 0, a->stride, size, size, count, p_step, head_step, head_step};
	enum gn_status status = gn_blas_batch_create(blas, &scores, &a->scores, err);

	if (!status)
		status = gn_blas_batch_create(blas, &sums, &a->sums, err);
	sums.a_transposed = 1;
	return status || !a->base.desc.training ? status : gn_blas_batch_create(blas, &sums, &a->back, err);
}

static void describe(struct attention_op *a)
{
	const struct gn_blas_plan *plans[] = {a->scores, a->sums, a->back};
	size_t bytes = gn_cuda_type_bytes(a->heads.type);

	for (int i = 0; i < 3; i++)
		if (plans[i] && gn_blas_plan_workspace_bytes(plans[i]) > a->room_bytes)
			a->room_bytes = gn_blas_plan_workspace_bytes(plans[i]);
	a->room_bytes = gn_cuda_padded(a->room_bytes);
	/* q, k and v are one tensor, each part of which is aligned for cuBLASLt */
	a->head_bytes = gn_cuda_padded(rows_of(a) * (size_t)a->heads.size * bytes);
	a->heads.step = a->head_bytes / bytes;
	a->p_bytes = gn_cuda_padded(rows_of(a) * (size_t)a->stride * bytes);
	a->score_bytes = gn_cuda_padded(rows_of(a) * (size_t)a->stride * sizeof(float));
	a->base.info.scratch_bytes = a->room_bytes + (a->base.desc.training ? 7 : 4) * a->head_bytes + a->p_bytes + a->score_bytes;
	a->base.info.backward_reads_in = 1;
}

enum gn_status gn_cuda_attention_create(struct gn_cuda_ops *o, const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.bind = bind, .forward = forward, .backward = backward, .destroy = destroy};
	const struct gn_layout *in = &base->desc.in[0];
	struct attention_op *a;
	enum gn_status status;

	if (!o->blas)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "attention needs cuBLASLt, which was not found: install it, or name its folder in "
				  "LD_LIBRARY_PATH");
	a = (struct attention_op *)gn_cuda_op_alloc(o, sizeof *a, &class, base, err);
	if (!a)
		return GN_ERR_NO_MEMORY;
	a->heads = (struct gn_cuda_heads){o->options.type, in->n, in->h * in->w, 3, base->desc.heads, base->info.out.c / base->desc.heads, 0};
	a->stride = (a->heads.pixels + 7) / 8 * 8;
	status = plan(a, o->blas, err);
	if (status) {
		gn_op_destroy(&a->base);
		return status;
	}
	describe(a);
	*out = &a->base;
	return GN_OK;
}
