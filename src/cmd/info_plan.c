#include "src/cmd/info.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/json.h"
#include "src/cmd/cmd.h"
#include "src/train/plan/weight_layouts.h"
#include "src/train/plan/device.h"
#include "src/train/plan/plan_cost.h"

#include <stdio.h>
#include <stdlib.h>

/* What the roofline is of: as given, or measured here, which takes a second. */
struct machine {
	const char *precision; /* the precision in use */
	double bytes_per_s, flops_per_s;
};

enum { REPEATS = 7, STREAM_BYTES = 1 << 26 };

struct totals {
	double flops[2], bytes[2], floor_s;
	double update_bytes;
};

/* Memory bandwidth: adds two arrays much larger than the caches; two reads and a write per element. */
static enum gn_status measure_memory(double *bytes_per_s, struct gn_err *err)
{
	struct gn_layout l = {.n = 1, .c = 1, .h = 1, .w = STREAM_BYTES / (int)sizeof(float), .block = 1,
			      .element_bytes = sizeof(float)};
	float *a = gn_alloc_aligned(STREAM_BYTES), *b = gn_alloc_aligned(STREAM_BYTES);
	double best = 0;

	if (a && b) {
		for (int i = 0; i < REPEATS; i++) {
			double began = gn_clock_s(), rate;

			gn_tensor_accumulate(&l, a, b);
			rate = 3.0 * STREAM_BYTES / (gn_clock_s() - began);
			best = rate > best ? rate : best;
		}
	}
	free(a);
	free(b);
	if (best <= 0)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the bandwidth measurement");
	*bytes_per_s = best;
	return GN_OK;
}

static enum gn_status run_product(struct gn_op *op, const struct gn_op_buffers *b, double *seconds, struct gn_err *err)
{
	enum gn_status status = gn_op_bind(op, b, err);

	*seconds = 1e9;
	for (int i = 0; i < REPEATS && !status; i++) {
		double began = gn_clock_s();

		status = gn_op_forward(op, 0, err);
		began = gn_clock_s() - began;
		*seconds = began < *seconds ? began : *seconds;
	}
	return status;
}

/* Arithmetic rate: a convolution with a high ratio of arithmetic to memory traffic. */
static enum gn_status measure_compute(const struct gn_plan_options *po, double *flops_per_s, struct gn_err *err)
{
	struct gn_op_desc d = {.kind = GN_OP_CONV, .in = {{16, 256, 14, 14, 1, sizeof(float)}}, .channels_out = 256, .kernel = 3,
			       .stride = 1, .pad = 1, .bf16 = po->bf16, .emulate = po->emulate,
			       .convolution = GN_CONVOLUTION_DIRECT, .weight = {GN_WEIGHT_ANY, 0}};
	const double flops = 2.0 * 16 * 256 * 256 * 9 * 14 * 14;
	struct gn_op_buffers b = {0};
	struct gn_op *op;
	void *in, *out, *weight, *scratch;
	double seconds = 0;
	enum gn_status status = gn_op_create(GN_BACKEND_HOST, &d, &op, err);

	if (status)
		return status;
	b.in[0] = in = gn_alloc_aligned(gn_layout_bytes(&gn_op_info(op)->in[0]));
	b.out = out = gn_alloc_aligned(gn_layout_bytes(&gn_op_info(op)->out));
	b.weight = weight = gn_alloc_aligned(256 * 256 * 9 * sizeof(float));
	b.scratch = scratch = gn_alloc_aligned(gn_op_info(op)->scratch_bytes);
	status = in && out && weight && scratch ? run_product(op, &b, &seconds, err)
						: gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the arithmetic measurement");
	if (!status)
		*flops_per_s = flops / seconds;
	free(in);
	free(out);
	free(weight);
	free(scratch);
	gn_op_destroy(op);
	return status;
}

static enum gn_status read_machine(const struct gn_info_plan_options *o, struct machine *m, struct gn_err *err)
{
	struct gn_plan_options po = {0};
	enum gn_status status = gn_device_choose("host", o->precision, 0, &po, err);

	m->precision = gn_device_precision(&po);
	m->bytes_per_s = o->gb_per_s * 1e9;
	m->flops_per_s = o->gflop_per_s * 1e9;
	if (!status && m->bytes_per_s <= 0)
		status = measure_memory(&m->bytes_per_s, err);
	if (!status && m->flops_per_s <= 0)
		status = measure_compute(&po, &m->flops_per_s, err);
	return status;
}

/* The roofline of Williams, Waterman and Patterson 2009: the longer of moving and computing. */
static double roofline_s(const struct machine *m, double bytes, double flops)
{
	double move = bytes / m->bytes_per_s, compute = flops / m->flops_per_s;

	return move > compute ? move : compute;
}

static double op_roofline_s(const struct machine *m, const struct gn_plan_cost *c)
{
	return roofline_s(m, c->bytes[0], c->products[0]) + roofline_s(m, c->bytes[1], c->products[1]);
}

static struct totals add_up(const struct gn_plan *p, const struct gn_model *model, const struct gn_info_plan_options *o,
			    const struct machine *m)
{
	struct totals t = {0};

	for (int i = 0; i < gn_plan_op_count(p); i++) {
		struct gn_plan_cost c;

		gn_plan_op_cost(p, i, &c);
		for (int k = 0; k < 2; k++) {
			t.flops[k] += c.flops[k];
			t.bytes[k] += c.bytes[k];
		}
		t.floor_s += op_roofline_s(m, &c);
	}
	/* SGD with momentum reads parameter, gradient and momentum and writes two of them; the gradient's norm is computed
	 * before */
	if (!o->inference)
		t.update_bytes = 6.0 * sizeof(float) * (double)gn_model_param_elements(model);
	t.floor_s += t.update_bytes / m->bytes_per_s;
	return t;
}

static void print_json(const struct gn_plan *p, const struct gn_model *model, const struct gn_info_plan_options *o,
		       const struct machine *m, const struct totals *t)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "plan %s batch %ld side %d training %d precision %s ops [", gn_model_name(model), o->batch, gn_model_side(model),
		    !o->inference, m->precision);
	for (int i = 0; i < gn_plan_op_count(p); i++) {
		struct gn_plan_cost c;

		gn_plan_op_cost(p, i, &c);
		gn_json_put(&j, "{ kind %s name %s channels %d height %d width %d block %d element_bytes %d forward_flops %.0f "
			    "backward_flops %.0f forward_bytes %.0f backward_bytes %.0f floor_ms %.4f }", c.kind, c.name, c.out.c, c.out.h,
			    c.out.w, c.out.block, c.out.element_bytes, c.flops[0], c.flops[1], c.bytes[0], c.bytes[1],
			    1e3 * op_roofline_s(m, &c));
	}
	gn_json_put(&j, "] flops %.0f bytes %.0f parameters %lu arena_bytes %lu gb_per_s %.2f gflop_per_s %.2f floor_ms %.3f "
		    "floor_images_per_s %.2f", t->flops[0] + t->flops[1], t->bytes[0] + t->bytes[1] + t->update_bytes,
		    gn_model_param_elements(model), gn_plan_bytes(p), m->bytes_per_s * 1e-9, m->flops_per_s * 1e-9, 1e3 * t->floor_s,
		    (double)o->batch / t->floor_s);
	gn_cmd_print_json(&j);
}

static void print_text(const struct gn_plan *p, const struct gn_model *model, const struct gn_info_plan_options *o,
		       const struct machine *m, const struct totals *t)
{
	printf("%-21s %-24s %15s %9s %9s %9s %9s %8s\n", "operator", "layer", "output", "GFLOP fw", "GFLOP bw", "MB fw", "MB bw",
	       "floor ms");
	for (int i = 0; i < gn_plan_op_count(p); i++) {
		struct gn_plan_cost c;
		char shape[48];

		gn_plan_op_cost(p, i, &c);
		snprintf(shape, sizeof shape, "%dx%dx%d", c.out.c, c.out.h, c.out.w);
		printf("%-21s %-24s %15s %9.3f %9.3f %9.2f %9.2f %8.3f\n", c.kind, c.name, shape, c.flops[0] * 1e-9,
		       c.flops[1] * 1e-9, c.bytes[0] * 1e-6, c.bytes[1] * 1e-6, 1e3 * op_roofline_s(m, &c));
	}
	if (!o->inference)
		printf("%-21s %-24s %15s %9s %9s %9s %9.2f %8.3f\n", "update", "sgd with momentum", "", "", "", "",
		       t->update_bytes * 1e-6, 1e3 * t->update_bytes / m->bytes_per_s);
	printf("\n%s, batch %lld of %dx%d, %s in %s: %.1f GFLOP, %.1f MB moved, arena %.1f MB, %zu parameters\n",
	       gn_model_name(model),
	       (long long)o->batch, gn_model_side(model), gn_model_side(model), o->inference ? "inference" : "training",
	       	m->precision,
	       (t->flops[0] + t->flops[1]) * 1e-9, (t->bytes[0] + t->bytes[1] + t->update_bytes) * 1e-6,
	       (double)gn_plan_bytes(p) * 1e-6, gn_model_param_elements(model));
	printf("floor at %.1f GB/s%s and %.1f GFLOP/s%s: %.1f ms, %.1f images/s\n", m->bytes_per_s * 1e-9,
	       o->gb_per_s > 0 ? "" : " (measured)", m->flops_per_s * 1e-9, o->gflop_per_s > 0 ? "" : " (measured)",
	       1e3 * t->floor_s, (double)o->batch / t->floor_s);
}

static enum gn_status make_plan(const struct gn_info_plan_options *o, const struct gn_model *model, struct gn_plan **out,
				struct gn_err *err)
{
	struct gn_plan_options po = {.batch = (int)o->batch, .training = !o->inference, .frozen = o->inference, .dropout = 1};
	enum gn_status status = gn_device_choose("host", o->precision, 0, &po, err);

	return status ? status : gn_plan_create_unallocated(model, &po, out, err);
}

int gn_info_plan(const struct gn_info_plan_options *o)
{
	int side = o->side ? (int)o->side : gn_model_default_side(o->model);
	struct gn_model *model = NULL;
	struct gn_plan *plan = NULL;
	struct machine machine;
	struct gn_err err;
	enum gn_status status = gn_model_create(o->model, (int)o->classes, 0, side, &model, &err);

	if (!status)
		status = make_plan(o, model, &plan, &err);
	if (!status)
		status = read_machine(o, &machine, &err);
	if (!status) {
		struct totals totals = add_up(plan, model, o, &machine);

		(o->json ? print_json : print_text)(plan, model, o, &machine, &totals);
	}
	gn_plan_destroy(plan);
	gn_model_destroy(model);
	return status ? gn_cmd_fail("info", &err) : GN_EXIT_DONE;
}
