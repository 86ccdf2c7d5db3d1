#include "tests/gpu/plan_net.h"

#include "src/train/model/init.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int net_points, net_failed;

void net_point(int ok, const char *format, ...)
{
	va_list args;

	net_points++;
	net_failed += !ok;
	printf("%sok %d - ", ok ? "" : "not ", net_points);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

const struct net_precision net_precisions[NET_PRECISIONS] = {
	{"fp32", 0, 0, 0, 1e-5, 1e-4}, {"tf32", 0, 0, 1, 5e-3, 0.4}, {"bf16", 1, 0, 0, 3e-2, 0.8}, {"fp16", 0, 1, 0, 5e-3, 0.4}};

struct gn_plan_options net_on_gpu(const struct net_precision *p)
{
	return (struct gn_plan_options){.backend = GN_BACKEND_CUDA, .bf16 = p->bf16, .fp16 = p->fp16, .tf32 = p->tf32};
}

float *net_floats(size_t count)
{
	float *x = calloc(count + 1, sizeof *x);

	if (!x)
		abort();
	return x;
}

void net_destroy(struct net *n)
{
	gn_optimizer_destroy(n->optimizer);
	gn_plan_destroy(n->plan);
	gn_weight_layouts_destroy(n->layouts);
	gn_model_destroy(n->model);
	for (int i = 0; i < 3; i++)
		gn_array_release(&n->arrays[i]);
	gn_buffer_free(&n->accumulated);
	gn_plan_device_close(&n->device);
	free(n->images);
	free(n->crops);
	free(n->pixels);
	free(n->lambdas);
	free(n->labels);
	free(n->pair_labels);
}

static enum gn_status create_arrays(struct net *n, const struct gn_plan_options *o)
{
	const size_t params = gn_model_param_elements(n->model), counts[3] = {params, params, gn_model_buffer_elements(n->model)};
	enum gn_status status = gn_plan_device_open(o, &n->device, &n->err);

	for (int i = 0; i < 3 && !status; i++)
		status = gn_array_create(n->device.device, counts[i], &n->arrays[i], &n->err);
	if (!status)
		status = gn_buffer_alloc(n->device.device, params * sizeof(float), &n->accumulated, &n->err);
	n->params = n->arrays[0].host;
	n->grads = n->arrays[1].host;
	n->buffers = n->arrays[2].host;
	return status;
}

static enum gn_status make_plan(struct net *n, struct gn_plan_options o)
{
	const struct gn_optimizer_options oo = {.name = "sgd", .momentum = 0.9, .weight_decay = 1e-3, .eps = -1};
	struct gn_optimizer_arrays arrays = {.params = n->arrays[0].device, .grads = n->arrays[1].device, .buffers = n->arrays[2].device,
					     .ranks = 1};
	enum gn_status status;

	o.device = &n->device;
	o.weights = gn_weight_layouts_layouts(n->layouts);
	o.batch = n->batch;
	status = o.frozen ? gn_plan_create(n->model, &o, n->params, NULL, n->buffers, &n->plan, &n->err) :
			    gn_plan_create(n->model, &o, n->arrays[0].device, n->arrays[1].device, n->arrays[2].device, &n->plan, &n->err);
	if (!status)
		status = gn_weight_layouts_take(n->layouts, n->plan, &n->err);
	if (!status)
		gn_weight_layouts_in(n->layouts, n->params);
	return status ? status : gn_optimizer_create(n->model, &oo, &arrays, n->device.compute, &n->optimizer, &n->err);
}

static enum gn_status move(struct net *n, enum gn_status (*by)(const struct gn_array *a, struct gn_stream *s, struct gn_err *err))
{
	enum gn_status status = GN_OK;

	for (int i = 0; i < 3 && !status; i++)
		status = by(&n->arrays[i], n->device.stream, &n->err);
	return status ? status : gn_stream_wait(n->device.stream, &n->err);
}

enum gn_status net_send(struct net *n)
{
	return move(n, gn_array_send);
}

enum gn_status net_fetch(struct net *n)
{
	return move(n, gn_array_fetch);
}

enum gn_status net_make(struct net *n, const char *model, int batch, int side, struct gn_plan_options o)
{
	enum gn_status status;

	memset(n, 0, sizeof *n);
	n->batch = batch;
	status = net_model(model, 10, side, &n->model, &n->err);
	if (status)
		return status;
	status = create_arrays(n, &o);
	if (status)
		return status;
	n->images = net_floats((size_t)batch * (size_t)gn_model_channels(n->model) * (size_t)side * (size_t)side);
	n->labels = calloc((size_t)batch, sizeof *n->labels);
	n->pair_labels = calloc((size_t)batch, sizeof *n->pair_labels);
	n->lambdas = net_floats((size_t)batch);
	gn_init_formula_batch(batch, gn_model_channels(n->model), side, 10, n->images, n->labels);
	for (int i = 0; i < batch; i++) {
		n->pair_labels[i] = (n->labels[i] + 3) % 10;
		n->lambdas[i] = 0.25f + 0.5f * (float)i / (float)batch;
	}
	if ((status = gn_init_params(n->model, "formula", n->params, n->buffers, &n->err)) ||
	    (status = gn_weight_layouts_create(n->model, &n->layouts, &n->err)))
		return status;
	return make_plan(n, o);
}

const void *net_input(const struct net *n)
{
	return n->crops ? (const void *)n->crops : n->images;
}

struct gn_targets net_targets(const struct net *n)
{
	return (struct gn_targets){n->labels, n->pair_labels, n->lambdas, NULL};
}

enum gn_status net_pass(struct net *n, double *loss, const float **logits)
{
	struct gn_targets t = net_targets(n);
	enum gn_status status = net_send(n);

	if (!status)
		status = gn_plan_forward(n->plan, net_input(n), 3, logits, &n->err);
	if (!status)
		status = gn_plan_loss_mixed(n->plan, &t, loss, &n->err);
	if (!status)
		status = gn_plan_backward(n->plan, NULL, NULL, &n->err);
	return status ? status : net_fetch(n);
}

double net_distance(const float *a, const float *b, size_t count)
{
	double off = 0, size = 0;

	for (size_t i = 0; i < count; i++) {
		off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
		size += (double)b[i] * b[i];
	}
	return sqrt(off) / (sqrt(size) + 1e-30);
}
