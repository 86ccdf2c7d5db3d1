/* Stands for kernels/cuda/dnn.h where kernels are emulated: the oracle's convolutions on the same memory, so that operators
 * and plans are tested without a GPU. It cannot show what cuDNN computes; tests/gpu/test_dnn asks the real one.
 *
 * Like cuDNN it takes some fusions and refuses others, so that both ways are gone. Tensors that are not aligned as dnn.h promises
 * cuDNN are refused. Where engines need not be deterministic, weight gradients differ from run to run. Thread safety: as dnn.h.
 */
#include "kernels/cuda/dnn.h"

#include "kernels/ref/ref.h"
#include "tests/gpu/emulate_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gn_dnn {
	struct gn_cuda_stream *stream;
	struct gn_dnn_options options;
	struct gn_dnn_plan *plans;
	int collects;
};

struct gn_dnn_plan {
	struct gn_dnn_plan *next;
	int is_planned;
	struct gn_cuda_stream *stream;
	struct gn_dnn_conv conv;
	enum gn_dnn_pass pass;
	int deterministic;
};

static const char *const names[GN_DNN_PASSES] = {"forward", "backward data", "backward weight", "bias", "bias, relu",
						 "bias, sum, relu", "statistics", "norm", "norm, statistics",
						 "norm, backward weight", "backward data, norm"};

const char *gn_dnn_pass_name(enum gn_dnn_pass pass)
{
	return names[pass];
}

enum gn_status gn_dnn_create(struct gn_cuda_stream *s, const struct gn_dnn_options *options, struct gn_dnn **out,
			     struct gn_err *err)
{
	struct gn_dnn *d = calloc(1, sizeof *d);

	if (!d)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	d->stream = s;
	d->options = *options;
	*out = d;
	return GN_OK;
}

void gn_dnn_destroy(struct gn_dnn *d)
{
	while (d && d->plans) {
		struct gn_dnn_plan *p = d->plans;

		d->plans = p->next;
		free(p);
	}
	free(d);
}

/* As dnn_table.c, of whose rounds it makes as many. */
static struct gn_dnn_plan *find_plan(struct gn_dnn *d, const struct gn_dnn_conv *conv, enum gn_dnn_pass pass)
{
	struct gn_dnn_plan *p = d->plans;

	while (p && (p->pass != pass || memcmp(&p->conv, conv, sizeof *conv) != 0))
		p = p->next;
	if (p || !(p = calloc(1, sizeof *p)))
		return p;
	*p = (struct gn_dnn_plan){.next = d->plans, .stream = d->stream, .conv = *conv, .pass = pass,
				  .deterministic = d->options.deterministic};
	return d->plans = p;
}

enum gn_status gn_dnn_plan_get(struct gn_dnn *d, const struct gn_dnn_conv *conv, enum gn_dnn_pass pass, struct gn_dnn_plan **out,
			       struct gn_err *err)
{
	int is_bias = pass >= GN_DNN_FORWARD_BIAS && pass <= GN_DNN_FORWARD_BIAS_ADD_RELU;
	struct gn_dnn_plan *p = find_plan(d, conv, pass);

	if (!p)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	if (d->collects && !p->is_planned) {
		*out = NULL;
		return GN_OK;
	}
	if ((is_bias && conv->out_c % 2) || (pass >= GN_DNN_FORWARD_STATISTICS && conv->out_c % 8 == 7))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the emulation refuses %s", gn_dnn_pass_name(pass));
	p->is_planned = 1;
	*out = p;
	return GN_OK;
}

void gn_dnn_collect(struct gn_dnn *d, int on)
{
	d->collects = on;
}

enum gn_status gn_dnn_plan_noted(struct gn_dnn *d, int *out, struct gn_err *err)
{
	(void)err;
	*out = 0;
	for (struct gn_dnn_plan *p = d->plans; p; p = p->next) {
		*out += !p->is_planned;
		p->is_planned = 1;
	}
	return GN_OK;
}

size_t gn_dnn_plan_workspace_bytes(const struct gn_dnn_plan *p)
{
	return p->pass == GN_DNN_BACKWARD_WEIGHT ? 1000 : 0;
}

int gn_dnn_plan_candidates(const struct gn_dnn_plan *p)
{
	(void)p;
	return 1;
}

int64_t gn_dnn_plan_engine(const struct gn_dnn_plan *p)
{
	(void)p;
	return 0;
}

void gn_dnn_plan_describe(const struct gn_dnn_plan *p, struct gn_op_engine *out)
{
	*out = (struct gn_op_engine){gn_dnn_pass_name(p->pass), gn_dnn_plan_engine(p), p->is_planned};
}

enum gn_status gn_dnn_tune(struct gn_dnn_plan *p, const struct gn_dnn_data *data, void *workspace, struct gn_err *err)
{
	return gn_dnn_run(p, data, workspace, err);
}

/* Typed, channels innermost, to doubles in planes; NULL for NULL. */
static double *widen(enum gn_cuda_type type, const void *from, int n, int c, int pixels)
{
	double *to = from ? calloc((size_t)n * c * pixels + 1, sizeof *to) : NULL;

	for (int i = 0; to && i < n; i++)
		for (int p = 0; p < pixels; p++)
			for (int k = 0; k < c; k++)
				to[((size_t)i * c + k) * pixels + p] =
					gn_cuda_value(type, from, ((size_t)i * pixels + p) * c + k);
	return to;
}

static void narrow(enum gn_cuda_type type, const double *from, int n, int c, int pixels, void *to)
{
	for (int i = 0; i < n; i++)
		for (int p = 0; p < pixels; p++)
			for (int k = 0; k < c; k++)
				gn_cuda_set_value(type, to, ((size_t)i * pixels + p) * c + k,
						  (float)from[((size_t)i * c + k) * pixels + p]);
}

struct call {
	struct gn_dnn_conv conv;
	enum gn_dnn_pass pass;
	struct gn_dnn_data data;
	int deterministic;
};

/* As far from 1 as another order of sums leads, drawn by lot. */
static double any_order(void)
{
	unsigned char lot = 0;

	(void)getentropy(&lot, sizeof lot);
	return 1 + (double)(lot % 16) * 0x1p-22;
}

/* What follows the convolution in the same pass. */
static void finish(const struct call *p, const struct gn_dnn_data *d, double *y, const double *added)
{
	const struct gn_dnn_conv *c = &p->conv;
	int pixels = c->out_h * c->out_w;

	for (int i = 0; i < c->n * c->out_c; i++) {
		for (int k = 0; k < pixels; k++) {
			double *v = &y[(size_t)i * pixels + k];

			*v += (d->bias ? ((const float *)d->bias)[i % c->out_c] : 0) + (added ? added[(size_t)i * pixels + k] : 0);
			if ((p->pass == GN_DNN_FORWARD_BIAS_RELU || p->pass == GN_DNN_FORWARD_BIAS_ADD_RELU) && *v < 0)
				*v = 0;
		}
	}
}

static void sum_channels(const struct call *p, const struct gn_dnn_data *d, const double *y)
{
	const struct gn_dnn_conv *c = &p->conv;
	size_t pixels = (size_t)c->out_h * c->out_w;

	for (int k = 0; k < c->out_c; k++) {
		double sum = 0, squares = 0;

		for (int i = 0; i < c->n; i++) {
			for (size_t q = 0; q < pixels; q++) {
				double v = y[((size_t)i * c->out_c + k) * pixels + q];

				sum += v;
				squares += v * v;
			}
		}
		d->sum[k] = (float)sum;
		d->squares[k] = (float)squares;
	}
}

/* What a batch norm and a relu make of x, rounded as if it had been written. */
static void normalise(const struct call *p, const struct gn_dnn_data *d, double *x)
{
	const struct gn_dnn_conv *c = &p->conv;
	int pixels = c->h * c->w;
	uint32_t raw;

	for (int i = 0; i < c->n * c->c; i++) {
		double scale = gn_cuda_value(c->type, d->scale, (size_t)(i % c->c)), shift = gn_cuda_value(c->type, d->shift, (size_t)(i % c->c));

		for (int k = 0; k < pixels; k++) {
			double *v = &x[(size_t)i * pixels + k];

			*v = *v * scale + shift;
			gn_cuda_set_value(c->type, &raw, 0, (float)(*v > 0 ? *v : 0));
			*v = gn_cuda_value(c->type, &raw, 0);
		}
	}
}

/* x, a gradient, behind the relu, and the batch norm's sums. */
static void pass_relu(const struct call *p, const struct gn_dnn_data *d, const double *z, double *x)
{
	const struct gn_dnn_conv *c = &p->conv;
	int pixels = c->h * c->w;

	for (int k = 0; k < c->c; k++) {
		double sum = 0, dot = 0;

		for (int i = 0; i < c->n * pixels; i++) {
			size_t at = ((size_t)(i / pixels) * c->c + k) * pixels + i % pixels;
			double normal = (z[at] - (double)d->mean[k]) * (double)d->inverse[k];

			if (normal * (double)d->norm_weight[k] + (double)d->norm_bias[k] <= 0)
				x[at] = 0;
			sum += x[at];
			dot += x[at] * normal;
		}
		d->dnorm_bias[k] = (float)sum;
		d->dnorm_weight[k] = (float)dot;
		for (int i = 0; i < 3; i++)
			d->factors[(size_t)i * gn_dnn_factors_step(c) + (size_t)k] = -1;
	}
}

static void run(const void *args)
{
	const struct call *p = args;
	const struct gn_dnn_data *d = &p->data;
	const struct gn_dnn_conv *c = &p->conv;
	struct gn_ref_window w = {c->n, c->c, c->h, c->w, c->out_c, c->out_h, c->out_w, c->kernel, c->stride, c->pad, c->groups};
	int inputs = c->groups ? c->c / c->groups : c->c, window = c->kernel * c->kernel, in = c->h * c->w, out = c->out_h * c->out_w;
	double *x, *y, *weight, *added = widen(c->type, d->added, c->n, c->out_c, out);
	double *z = p->pass == GN_DNN_BACKWARD_DATA_NORM ? widen(c->type, d->z, c->n, c->c, in) : NULL;

	x = widen(c->type, d->x, c->n, c->c, in);
	y = widen(c->type, d->y, c->n, c->out_c, out);
	weight = widen(c->type, d->weight, c->out_c, inputs, window);
	if (!x || !y || !weight || (!z && p->pass == GN_DNN_BACKWARD_DATA_NORM) || (d->added && !added)) {
		fprintf(stderr, "no memory for an emulated %s\n", gn_dnn_pass_name(p->pass));
		abort();
	}
	if (p->pass == GN_DNN_NORM_FORWARD || p->pass == GN_DNN_NORM_FORWARD_STATISTICS || p->pass == GN_DNN_NORM_BACKWARD_WEIGHT)
		normalise(p, d, x);
	if (p->pass == GN_DNN_BACKWARD_DATA || p->pass == GN_DNN_BACKWARD_DATA_NORM) {
		gn_ref_conv_backward_data(&w, y, weight, x);
		if (z)
			pass_relu(p, d, z, x);
		narrow(c->type, x, c->n, c->c, in, d->x);
	} else if (p->pass == GN_DNN_BACKWARD_WEIGHT || p->pass == GN_DNN_NORM_BACKWARD_WEIGHT) {
		gn_ref_conv_backward_weight(&w, x, y, weight, NULL);
		weight[0] *= p->deterministic ? 1 : any_order();
		narrow(c->type, weight, c->out_c, inputs, window, d->weight);
	} else {
		gn_ref_conv_forward(&w, x, weight, NULL, y);
		if (p->pass == GN_DNN_FORWARD_STATISTICS || p->pass == GN_DNN_NORM_FORWARD_STATISTICS)
			sum_channels(p, d, y);
		else if (p->pass != GN_DNN_FORWARD && p->pass != GN_DNN_NORM_FORWARD)
			finish(p, d, y, added);
		narrow(c->type, y, c->n, c->out_c, out, d->y);
	}
	free(x);
	free(y);
	free(weight);
	free(added);
	free(z);
}

/* What graphs declare of all tensors of the pass. */
static enum gn_status check_alignment(const struct gn_dnn_plan *p, const struct gn_dnn_data *d, struct gn_err *err)
{
	const float *second = d->factors ? d->factors + gn_dnn_factors_step(&p->conv) : NULL;
	const struct {
		const char *name;
		const void *at;
	} all[] = {{"x", d->x}, {"weight", d->weight}, {"y", d->y}, {"bias", d->bias}, {"added", d->added}, {"sum", d->sum},
		   {"squares", d->squares}, {"scale", d->scale}, {"shift", d->shift}, {"z", d->z}, {"mean", d->mean},
		   {"inverse", d->inverse}, {"norm_weight", d->norm_weight}, {"norm_bias", d->norm_bias},
		   {"dnorm_weight", d->dnorm_weight}, {"dnorm_bias", d->dnorm_bias}, {"factors", d->factors}, {"factors' second", second}};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if ((uintptr_t)all[i].at % 16)
			return gn_err_set(err, GN_ERR_USAGE, "%s: %s is not aligned to 16 bytes", gn_dnn_pass_name(p->pass), all[i].name);
	return GN_OK;
}

enum gn_status gn_dnn_run(struct gn_dnn_plan *p, const struct gn_dnn_data *d, void *workspace, struct gn_err *err)
{
	struct call c = {p->conv, p->pass, *d, p->deterministic};
	enum gn_status status;

	if (gn_dnn_plan_workspace_bytes(p) && (!workspace || (uintptr_t)workspace % GN_CUDA_ALIGN_BYTES))
		return gn_err_set(err, GN_ERR_USAGE, "%s with a workspace that is not aligned to %d bytes", gn_dnn_pass_name(p->pass),
				  GN_CUDA_ALIGN_BYTES);
	if (!d->x || !d->y || !d->weight || (!d->z && p->pass == GN_DNN_BACKWARD_DATA_NORM))
		return gn_err_set(err, GN_ERR_USAGE, "%s without a tensor", gn_dnn_pass_name(p->pass));
	status = check_alignment(p, d, err);
	if (!status)
		status = gn_emulate_look(p->stream, &c, sizeof c, gn_dnn_pass_name(p->pass), err);
	return status ? status : gn_emulate_call(p->stream, run, &c, sizeof c, gn_dnn_pass_name(p->pass), err);
}
