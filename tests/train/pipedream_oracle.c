/* PipeDream without a pipeline: the stages of a network one after the other in one process, each with the parameters that it would have by the
 * definition: micro-batch k of a run passes stage s of P, both ways, with those after max(0, k - (P - 1 - s)) updates, which its gradient
 * then changes for the (k + 1)th time. Nothing of the pipeline's code but the parts of networks is used.
 * usage: pipedream_oracle DATA MODEL SIDE CHANNELS CUT,... MICRO_BATCH PER_STEP STEPS PAUSE
 *     PER_STEP: micro-batches of a step; PAUSE: steps of a run, after which all stages have all updates. SGD with --lr 0.02, and --ema 0.9.
 * Prints the SHA-256 of the parameters, as the log of gannet train has it, and that of the averages' tensors, as they follow each other in a
 * checkpoint. */
#include "src/base/alloc.h"
#include "src/base/sha256.h"
#include "src/train/loop/session.h"
#include "src/train/parallel/cuts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES_MAX = 4 };

struct stage {
	struct gn_model *model;
	struct gn_weight_layouts *layouts;
	float *params, *grads, *buffers;
	float *read;		     /* the parameters that the plan reads */
	float *versions[STAGES_MAX]; /* after the last updates: those after v updates are number v % stages */
	struct gn_plan *plan;
	struct gn_ema ema;
	struct gn_optimizer *optimizer;
	size_t count;
};

struct oracle {
	struct gn_session *session;
	struct gn_plan_device device;
	struct stage stages[STAGES_MAX];
	int count, pause;
};

static struct gn_train_options options = {
	.epochs = 1, .schedule = "constant", .lr = 0.02, .lr_start = -1, .optimizer = "sgd", .momentum = 0.9, .beta2 = 0.999, .weight_decay = 1e-4,
	.eps = -1, .trust = 0.001, .ema = 0.9, .augment = "none", .pad = -1, .resize_shorter = -1, .seed = 1, .resume = "none", .log_every = 1,
	.eval_every = 1, .device = "host", .algo = "auto", .threads = 1, .loader_threads = 1, .prefetch = 1 << 20, .bucket = 1 << 16, .dropout = 1,
	.drop_path = -1,
};

static void ignore(void *context, int param, struct gn_event *event)
{
	(void)context;
	(void)param;
	(void)event;
}

static const struct gn_plan_observer observer = {.ready = ignore};

static float *floats(size_t count)
{
	float *p = gn_alloc_aligned(count * sizeof *p + 1);

	if (!p)
		exit(1);
	return p;
}

static void need(enum gn_status status, const struct gn_err *err)
{
	if (!status)
		return;
	fprintf(stderr, "pipedream_oracle: %s\n", err->text);
	exit(1);
}

/* The parameters of all begin as the session's. */
static void make_stage(struct oracle *o, int s, int first, int end, const float *params, struct gn_err *err)
{
	struct gn_session *session = o->session;
	struct stage *p = &o->stages[s];
	struct gn_plan_options po = session->device;
	struct gn_optimizer_options optimizer = gn_session_optimizer_options(&options);
	struct gn_optimizer_arrays arrays = {.ranks = 1};
	struct gn_model_origin at;

	need(gn_model_part(session->model, first, end, &p->model, err), err);
	at = gn_model_origin(p->model);
	p->count = gn_model_param_elements(p->model);
	p->params = floats(p->count);
	p->grads = floats(p->count);
	p->buffers = floats(gn_model_buffer_elements(p->model));
	memcpy(p->params, params + at.params, p->count * sizeof(float));
	memcpy(p->buffers, session->replica.buffers.host + at.buffers, gn_model_buffer_elements(p->model) * sizeof(float));
	p->read = floats(p->count);
	for (int v = 0; v < o->count; v++)
		p->versions[v] = floats(p->count);
	need(gn_weight_layouts_create(p->model, &p->layouts, err), err);
	po.batch = (int)options.batch;
	po.training = 1;
	po.dropout = 1;
	po.drop_path = gn_model_drop_path(session->model);
	po.seed = (uint64_t)options.seed;
	po.device = &o->device;
	po.weights = gn_weight_layouts_layouts(p->layouts);
	po.input = s ? gn_plan_output_layout(o->stages[s - 1].plan) : NULL;
	need(gn_plan_create(p->model, &po, p->read, p->grads, p->buffers, &p->plan, err), err);
	need(gn_weight_layouts_take(p->layouts, p->plan, err), err);
	gn_weight_layouts_in(p->layouts, p->params);
	need(gn_ema_init(&p->ema, p->model, options.ema, NULL, o->device.device, err), err);
	gn_ema_set(&p->ema, p->params, p->buffers);
	arrays.params = p->params;
	arrays.grads = p->grads;
	arrays.buffers = p->buffers;
	arrays.ema = &p->ema;
	need(gn_optimizer_create(p->model, &optimizer, &arrays, o->device.compute, &p->optimizer, err), err);
}

static void run_micro(struct oracle *o, int k, uint64_t number, uint64_t update, struct gn_err *err)
{
	struct gn_replica *r = &o->session->replica;
	struct gn_optim_update u = {.lr = options.lr, .step = update, .grad_scale = 1};
	struct gn_update_result result;
	struct gn_targets targets;
	const void *in, *gradient = NULL;

	need(r->next(r->next_context, &in, &targets, err), err);
	for (int s = 0; s < o->count; s++) {
		struct stage *p = &o->stages[s];
		int age = o->count - 1 - s, version = k > age ? k - age : 0;

		memcpy(p->versions[k % o->count], p->params, p->count * sizeof(float)); /* after k updates */
		memcpy(p->read, p->versions[version % o->count], p->count * sizeof(float));
		need(gn_plan_stage(p->plan, in, &targets, err), err);
		need(gn_plan_run_forward(p->plan, number, &observer, err), err);
		in = s + 1 < o->count ? gn_plan_output(p->plan) : NULL;
	}
	for (int s = o->count - 1; s >= 0; s--) {
		struct stage *p = &o->stages[s];

		need(gn_plan_run_backward(p->plan, gradient, &observer, NULL, err), err);
		gradient = s ? gn_plan_input_gradient(p->plan) : NULL;
		need(gn_optimizer_step(p->optimizer, &u, &result, err), err);
		need(gn_plan_check_labels(p->plan, err), err);
	}
}

static void print_digest(struct oracle *o, int averages, struct gn_err *err)
{
	const struct gn_model *m = o->session->model;
	float *whole = floats(gn_model_param_elements(m));
	size_t count = averages ? 0 : gn_model_param_elements(m);
	char hex[GN_SHA256_HEX];

	for (int s = 0; s < o->count; s++) {
		struct stage *p = &o->stages[s];
		float *from = averages ? p->ema.params.host : p->params;

		gn_weight_layouts_out(p->layouts, from);
		memcpy(whole + gn_model_origin(p->model).params, from, p->count * sizeof(float));
	}
	for (int i = 0; averages && i < gn_model_param_count(m); i++) {
		const struct gn_param *t = gn_model_param(m, i);

		memmove(whole + count, whole + t->offset, t->count * sizeof(float));
		count += t->count;
	}
	need(gn_sha256_buffer(whole, count * sizeof(float), hex, err), err);
	puts(hex);
	free(whole);
}

static void release(struct oracle *o)
{
	for (int s = 0; s < o->count; s++) {
		struct stage *p = &o->stages[s];

		gn_plan_destroy(p->plan);
		gn_optimizer_destroy(p->optimizer);
		gn_ema_release(&p->ema);
		gn_weight_layouts_destroy(p->layouts);
		gn_model_destroy(p->model);
		for (int v = 0; v < o->count; v++)
			free(p->versions[v]);
		free(p->read), free(p->params), free(p->grads), free(p->buffers);
	}
	gn_plan_device_close(&o->device);
}

static void run(struct oracle *o, const char *cuts, int steps, struct gn_err *err)
{
	int nodes[STAGES_MAX] = {0}, per_step = (int)options.accumulate, first = 1, k = 0;
	float *params = o->session->replica.params.host;

	need(gn_plan_device_open(&o->session->device, &o->device, err), err);
	need(gn_cuts_parse(o->session->model, cuts, o->count, nodes, err), err);
	gn_weight_layouts_out(o->session->replica.layouts, params);
	for (int s = 0; s < o->count; s++) {
		int end = s + 1 < o->count ? nodes[s] : gn_model_node_count(o->session->model);

		make_stage(o, s, first, end, params, err);
		first = end;
	}
	for (int i = 0; i < steps * per_step; i++, k++) {
		if (i % (o->pause * per_step) == 0)
			k = 0;
		run_micro(o, k, (uint64_t)i, (uint64_t)i + 1, err);
	}
	print_digest(o, 0, err);
	print_digest(o, 1, err);
	release(o);
}

int main(int argc, char **argv)
{
	struct gn_world_options world_options = {0};
	struct gn_comm_options comm_options = {.transport = "auto", .tuning = "none"};
	struct oracle o = {.count = 1};
	struct gn_world *world;
	struct gn_comm *comm;
	struct gn_err err;
	int resumed;

	if (argc != 10)
		return 2;
	options.data = argv[1];
	options.model = argv[2];
	options.side = atoi(argv[3]);
	options.channels = atoi(argv[4]);
	for (const char *c = argv[5]; *c; c++)
		o.count += *c == ',';
	o.count++;
	options.batch = atoi(argv[6]);
	options.accumulate = atoi(argv[7]);
	o.pause = atoi(argv[9]);
	if (o.count > STAGES_MAX)
		return 2;
	need(gn_world_create(&world_options, NULL, &world, &err), &err);
	need(gn_comm_create(world, &comm_options, NULL, &comm, &err), &err);
	need(gn_session_create(&options, "oracle", comm, NULL, &o.session, &err), &err);
	need(gn_session_restore(o.session, &resumed, &err), &err);
	need(gn_loader_start(o.session->data.loader, 0, 0, &err), &err);
	run(&o, argv[5], atoi(argv[8]), &err);
	gn_session_destroy(o.session);
	gn_comm_destroy(comm);
	gn_world_destroy(world);
	return 0;
}
