#include "tests/kernels/op_pair.h"

#include "src/base/alloc.h"
#include "src/base/half.h"
#include "src/base/philox.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float *random_floats(size_t count, uint32_t which, int values)
{
	float *x = gn_alloc_aligned(count * sizeof *x + 1);
	struct gn_rng r;

	assert_non_null(x);
	gn_rng_init(&r, 7, GN_RNG_TEST, which, 0);
	for (size_t i = 0; i < count; i++)
		x[i] = values ? (float)gn_rng_below(&r, values) - (float)values / 2 : (float)gn_rng_normal(&r);
	return x;
}

static int is_bf16(const struct gn_op_desc *d)
{
	return d->bf16 || d->in[0].element_bytes == 2;
}

static struct gn_op_desc plain(const struct gn_op_desc *desc, enum gn_backend backend)
{
	struct gn_op_desc d = *desc;

	if (backend == GN_BACKEND_REF)
		d.weight.order = GN_WEIGHT_PLAIN;
	d.bf16 = d.bf16 && backend == GN_BACKEND_HOST;
	for (int i = 0; i < 2; i++) {
		if (backend == GN_BACKEND_REF)
			d.in[i].block = 1;
		d.in[i].element_bytes = backend == GN_BACKEND_REF ? 8 : is_bf16(desc) ? 2 : 4;
	}
	return d;
}

static void round_to_bf16(size_t count, float *x)
{
	for (size_t i = 0; i < count; i++)
		x[i] = gn_f32_of_bf16(gn_bf16_of_f32(x[i]));
}

void op_run_init(struct op_run *r, const struct gn_op_desc *desc, int values)
{
	struct gn_op_desc d = plain(desc, GN_BACKEND_REF);
	struct gn_op *op;
	struct gn_err err;

	memset(r, 0, sizeof *r);
	assert_ok(gn_op_create(GN_BACKEND_REF, &d, &op, &err));
	r->in = gn_op_info(op)->in[0];
	r->out = gn_op_info(op)->out;
	gn_op_destroy(op);
	r->in_count = gn_layout_elements(&r->in);
	r->out_count = gn_layout_elements(&r->out);
	if (d.kind == GN_OP_CONV)
		r->weight_count = (size_t)d.channels_out * (r->in.c / (d.groups > 1 ? d.groups : 1)) * d.kernel * d.kernel;
	if (d.kind == GN_OP_LINEAR)
		r->weight_count = (size_t)d.channels_out * r->in.c * r->in.h * r->in.w;
	if ((d.kind == GN_OP_CONV || d.kind == GN_OP_LINEAR) && d.bias)
		r->bias_count = d.channels_out;
	if (d.kind == GN_OP_CHANNEL_SCALE)
		r->weight_count = r->in.c;
	if (d.kind == GN_OP_TOKENS) {
		r->weight_count = r->in.c;
		r->bias_count = (size_t)r->in.c * (1 + (size_t)r->in.h * r->in.w);
	}
	if (d.kind == GN_OP_BATCH_NORM || d.kind == GN_OP_LAYER_NORM)
		r->weight_count = r->bias_count = r->in.c;
	r->x[0] = random_floats(r->in_count, 1, values);
	r->x[1] = random_floats(r->in_count > r->out_count ? r->in_count : r->out_count, 2, values);
	r->dy = random_floats(r->out_count, 3, 0);
	r->weight = random_floats(r->weight_count, 4, 0);
	if (is_bf16(desc)) {
		round_to_bf16(r->in_count, r->x[0]);
		round_to_bf16(r->in_count > r->out_count ? r->in_count : r->out_count, r->x[1]);
		round_to_bf16(r->out_count, r->dy);
	}
	if (is_bf16(desc) && d.kind == GN_OP_CONV)
		round_to_bf16(r->weight_count, r->weight);
	r->bias = random_floats(r->bias_count, 5, 0);
	r->y = random_floats(r->out_count, 6, 0);
	r->dx[0] = random_floats(r->in_count, 6, 0);
	r->dx[1] = random_floats(r->in_count, 6, 0);
	r->dweight = random_floats(r->weight_count, 6, 0);
	r->dbias = random_floats(r->bias_count, 6, 0);
	r->mean = random_floats(r->in.c, 6, 0);
	r->var = random_floats(r->in.c, 6, 0);
}

void op_run_release(struct op_run *r)
{
	float *all[] = {r->x[0],  r->x[1],  r->dy,      r->weight, r->bias, r->y,
			r->dx[0], r->dx[1], r->dweight, r->dbias,  r->mean, r->var};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i]);
}

/* By a reorder operator: the way a plan does it. */
static void change_layout(enum gn_backend backend, const struct gn_layout *from, const void *a,
			  const struct gn_layout *to, void *b)
{
	struct gn_op_desc d = {.kind = GN_OP_REORDER, .in = {*from, *from}, .out = *to};
	struct gn_op_buffers buffers = {.in = {a}, .out = b};
	struct gn_op *op;
	struct gn_err err;

	assert_ok(gn_op_create(backend, &d, &op, &err));
	buffers.scratch = gn_alloc_aligned(gn_op_info(op)->scratch_bytes + 1);
	assert_ok(gn_op_bind(op, &buffers, &err));
	assert_ok(gn_op_forward(op, 0, &err));
	free(buffers.scratch);
	gn_op_destroy(op);
}

static struct gn_layout plain_of(const struct gn_layout *l)
{
	struct gn_layout p = *l;

	p.block = 1;
	return p;
}

static void *load(enum gn_backend backend, const struct gn_layout *l, const float *x)
{
	struct gn_layout p = plain_of(l);
	void *staged = gn_alloc_aligned(gn_layout_bytes(&p)), *out = gn_alloc_aligned(gn_layout_bytes(l));

	assert_non_null(staged);
	assert_non_null(out);
	gn_tensor_load(&p, x, staged);
	change_layout(backend, &p, staged, l, out);
	free(staged);
	return out;
}

static void store(enum gn_backend backend, const struct gn_layout *l, const void *x, float *out)
{
	struct gn_layout p = plain_of(l);
	void *staged = gn_alloc_aligned(gn_layout_bytes(&p));

	assert_non_null(staged);
	change_layout(backend, l, x, &p, staged);
	gn_tensor_store(&p, staged, out);
	free(staged);
}

/* Operators must leave zeros in what fills up the last block of channels: the next one may sum over it. */
static void assert_padding_zero(const struct gn_layout *l, const void *tensor)
{
	const float *x = tensor;
	const uint16_t *half = tensor;
	size_t map = (size_t)l->h * l->w, blocks;

	if (l->block < 2)
		return;
	blocks = ((size_t)l->c + l->block - 1) / l->block;
	for (size_t n = 0; n < (size_t)l->n; n++)
		for (size_t i = 0; i < map; i++)
			for (size_t k = l->c; k < blocks * l->block; k++) {
				size_t at = ((n * blocks + k / l->block) * map + i) * l->block + k % l->block;

				assert_true((l->element_bytes == 2 ? gn_f32_of_bf16(half[at]) : x[at]) == 0);
			}
}

/* In place, from torch's order or back. */
static void change_weight(const struct gn_op_desc *d, struct gn_weight_layout l, int to_plain, size_t count, float *weight)
{
	struct gn_weight_shape s = {(size_t)d->channels_out, (size_t)d->in[0].c, (size_t)d->kernel * (size_t)d->kernel};
	float *copy;

	if (d->kind != GN_OP_CONV || l.order == GN_WEIGHT_PLAIN)
		return;
	copy = gn_alloc_aligned(count * sizeof *copy);
	assert_non_null(copy);
	memcpy(copy, weight, count * sizeof *copy);
	gn_weight_reorder(&s, l, to_plain, copy, weight);
	free(copy);
}

/* The output's gradient in two halves, where the operator adds them: halving and doubling lose nothing. */
static void *halve(const struct gn_op_info *info, void *dy)
{
	size_t count = gn_layout_elements(&info->out);
	float *plain = gn_alloc_aligned(count * sizeof *plain);
	void *more = gn_alloc_aligned(gn_layout_bytes(&info->out));

	assert_true(plain && more);
	gn_tensor_store(&info->out, dy, plain);
	for (size_t i = 0; i < count; i++)
		plain[i] *= 0.5f;
	gn_tensor_load(&info->out, plain, dy);
	gn_tensor_load(&info->out, plain, more);
	free(plain);
	return more;
}

/* Results back into torch's order; what was made for the operator is freed. */
static void take_input(struct op_run *r, enum gn_backend backend, const struct gn_op_desc *d, const struct gn_layout *l, int i,
		       void *din)
{
	if (d->training && d->needs_din) {
		store(backend, l, din, r->dx[i]);
		if (backend == GN_BACKEND_HOST)
			assert_padding_zero(l, din);
	}
	free(din);
}

void op_run_execute(struct op_run *r, enum gn_backend backend, const struct gn_op_desc *desc)
{
	struct gn_op_desc d = plain(desc, backend);
	struct gn_op_buffers b = {.weight = r->weight,
				  .bias = r->bias,
				  .dweight = r->dweight,
				  .dbias = r->dbias,
				  .running_mean = r->mean,
				  .running_var = r->var};
	const struct gn_op_info *info;
	struct gn_op *op;
	struct gn_err err;
	void *x[2] = {NULL, NULL}, *dy;
	void *more = NULL;
	int inputs = d.kind == GN_OP_ADD || d.kind == GN_OP_SCALE || d.add ? 2 : 1;

	assert_ok(gn_op_create(backend, &d, &op, &err));
	info = gn_op_info(op);
	for (int i = 0; i < inputs; i++) {
		b.in[i] = x[i] = load(backend, &info->in[i], r->x[i]);
		b.din[i] = d.needs_din ? gn_alloc_aligned(gn_layout_bytes(&info->in[i])) : NULL;
	}
	for (int i = 0; i < r->in.c; i++) {
		r->mean[i] = 0.1f * (float)i;
		r->var[i] = 1 + 0.1f * (float)i;
	}
	b.out = info->out_is_second ? x[1] : gn_alloc_aligned(gn_layout_bytes(&info->out));
	b.dout = dy = load(backend, &info->out, r->dy);
	if (info->sums_gradients && r->halves)
		b.more_dout = more = halve(info, dy);
	b.workspace = gn_alloc_aligned(info->workspace_bytes + 1);
	b.scratch = gn_alloc_aligned(info->scratch_bytes + 1);
	r->weight_layout = info->weight;
	change_weight(&d, info->weight, 0, r->weight_count, r->weight);
	assert_ok(gn_op_bind(op, &b, &err));
	assert_ok(gn_op_freeze(op, &err));
	assert_ok(gn_op_forward(op, 3, &err));
	store(backend, &info->out, b.out, r->y);
	if (backend == GN_BACKEND_HOST)
		assert_padding_zero(&info->out, b.out);
	if (d.training)
		assert_ok(gn_op_backward(op, &err));
	for (int i = 0; i < inputs; i++) {
		take_input(r, backend, &d, &info->in[i], i, b.din[i]);
		if (x[i] != b.out)
			free(x[i]);
	}
	change_weight(&d, info->weight, 1, r->weight_count, r->weight);
	if (d.training)
		change_weight(&d, info->weight, 1, r->weight_count, r->dweight);
	free(b.out);
	free(dy);
	free(more);
	free(b.workspace);
	free(b.scratch);
	gn_op_destroy(op);
}

double assert_near(const char *title, const char *what, size_t count, const float *a, const float *b, double bound)
{
	double off = 0, size = 0;

	for (size_t i = 0; i < count; i++) {
		off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
		size += (double)b[i] * b[i];
	}
	if (!(sqrt(off) <= bound * sqrt(size)))
		fail_msg("%s: %s is off by %.2e of its norm, %.0e is allowed", title, what, sqrt(off / size), bound);
	return size > 0 ? sqrt(off / size) : 0;
}

void op_compare(const char *title, const struct gn_op_desc *desc, int values, struct op_bounds bounds)
{
	struct op_run host, ref;
	double y, dx = 0, dw = 0, db = 0;

	op_run_init(&host, desc, values);
	op_run_init(&ref, desc, values);
	host.halves = desc->add && desc->in[0].c % 2;
	op_run_execute(&host, GN_BACKEND_HOST, desc);
	op_run_execute(&ref, GN_BACKEND_REF, desc);
	y = assert_near(title, "output", host.out_count, host.y, ref.y, bounds.tensors);
	if (desc->kind == GN_OP_BATCH_NORM && desc->training) {
		assert_near(title, "running mean", host.in.c, host.mean, ref.mean, bounds.params);
		assert_near(title, "running variance", host.in.c, host.var, ref.var, bounds.params);
	}
	if (desc->training) {
		dw = assert_near(title, "weight gradient", host.weight_count, host.dweight, ref.dweight, bounds.params);
		db = assert_near(title, "bias gradient", host.bias_count, host.dbias, ref.dbias, bounds.params);
		if (desc->needs_din)
			dx = assert_near(title, "input gradient", host.in_count, host.dx[0], ref.dx[0], bounds.tensors);
		if (desc->needs_din && desc->kind == GN_OP_SCALE)
			assert_near(title, "gradient of factors", (size_t)host.in.n * host.in.c, host.dx[1], ref.dx[1], bounds.params);
		if (desc->needs_din && (desc->kind == GN_OP_ADD || desc->add))
			assert_near(title, "second input gradient", host.in_count, host.dx[1], ref.dx[1], bounds.tensors);
	}
	if (getenv("GN_VERBOSE"))
		printf("# %-36s y %.1e dx %.1e dw %.1e db %.1e\n", title, y, dx, dw, db);
	op_run_release(&host);
	op_run_release(&ref);
}

void op_compare_layouts(const char *title, const struct gn_op_desc *desc, int values, struct op_bounds bounds)
{
	static const int blocks[] = {1, 16, 8, 4, 0};
	struct gn_op_desc d = *desc;
	char named[100];

	for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
		d.in[0].block = d.in[1].block = blocks[i];
		snprintf(named, sizeof named, "%s block %d", title, blocks[i]);
		op_compare(named, &d, values, bounds);
	}
}
