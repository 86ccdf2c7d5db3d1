/* What a network's convolutions take alone, in oneDNN's own primitives: the ceiling for a training step, or for inference,
 * with that library. bench/convs MODEL BATCH SIDE STEPS [fp32|bf16 [inference]] prints one JSON object with medians: forward,
 * gradient of the input (not of the network's), gradient of the weights, each in the layouts that oneDNN likes best, inputs
 * and outputs in memory of their own for each convolution as in a network, gradients in memory that all share. All but
 * gradients of weights is of the type named, nothing is converted, added, normalised or updated. Threads: OMP_NUM_THREADS. */
#include "kernels/host/onednn_compat.h"
#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/sort.h"
#include "src/train/model/model.h"

#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONVS_MAX 300
#define NODES_MAX 1000
#define STEPS_MAX 1000
#define CHECK(call) check((call), #call)

enum way { FORWARD, OF_INPUT, OF_WEIGHTS, WAYS };

struct conv {
	dnnl_primitive_t primitive[WAYS];
	dnnl_exec_arg_t args[WAYS][3];
};

struct job {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_data_type_t type;
	int batch, steps, inference, count;
	struct conv convs[CONVS_MAX];
	int sides[NODES_MAX], channels[NODES_MAX];
	char *shared[2]; /* gradients: of outputs, of inputs */
	size_t room;
	double times[WAYS + 1][STEPS_MAX];
};

/* A bench program of its own: it may end here. */
static void check(dnnl_status_t status, const char *call)
{
	if (status == dnnl_success)
		return;
	fprintf(stderr, "bench/convs: oneDNN says %d to %s\n", (int)status, call);
	exit(1);
}

/* Small values of no particular kind, so that no product is denormal or not finite. */
static dnnl_memory_t memory(const struct job *j, gn_dnnl_md md, void *at)
{
	size_t bytes = dnnl_memory_desc_get_size(md);
	dnnl_memory_t m;

	if (!at) {
		uint16_t *p = at = gn_alloc_aligned(bytes);

		if (!at) {
			fputs("bench/convs: no memory\n", stderr);
			exit(1);
		}
		/* The bits of bfloat16 in [1/64, 1/32), and much the same numbers as halves of floats. */
		for (size_t i = 0; i < bytes / 2; i++)
			p[i] = (uint16_t)(0x3c80 + i * 7 % 128);
	}
	CHECK(dnnl_memory_create(&m, md, j->engine, at));
	return m;
}

static void put(struct conv *c, enum way way, dnnl_primitive_desc_t pd, const int *names, const dnnl_memory_t *memories)
{
	CHECK(dnnl_primitive_create(&c->primitive[way], pd));
	for (int i = 0; i < 3; i++)
		c->args[way][i] = (dnnl_exec_arg_t){names[i], memories[i]};
	dnnl_primitive_desc_destroy(pd);
}

static gn_dnnl_md ask(dnnl_primitive_desc_t pd, dnnl_query_t what)
{
	return dnnl_primitive_desc_query_md(pd, what, 0);
}

static void add(struct job *j, const struct gn_shm *n, int in_channels, int in_side, int out_side, int first)
{
	struct conv *c = &j->convs[j->count++];
	int pad_end = (out_side - 1) * n->stride + n->kernel - in_side - n->pad;
	dnnl_dims_t in = {j->batch, in_channels, in_side, in_side}, out = {j->batch, n->channels_out, out_side, out_side};
	dnnl_dims_t weights = {n->channels_out, in_channels, n->kernel, n->kernel};
	const struct gn_dnnl_window window = {
		.stride = {n->stride, n->stride}, .pad_begin = {n->pad, n->pad}, .pad_end = {pad_end, pad_end}};
	const dnnl_prop_kind_t kind = j->inference ? dnnl_forward_inference : dnnl_forward_training;
	struct gn_dnnl_context context = {j->engine, NULL, NULL};
	gn_dnnl_md in_md, out_md, weights_md, gradient_md;
	dnnl_primitive_desc_t forward, pd;

	CHECK(gn_dnnl_md_create(&in_md, 4, in, j->type, dnnl_format_tag_any));
	CHECK(gn_dnnl_md_create(&out_md, 4, out, j->type, dnnl_format_tag_any));
	CHECK(gn_dnnl_md_create(&weights_md, 4, weights, j->type, dnnl_format_tag_any));
	/* Sums of many products: bfloat16 would be rounded from float, at a cost. */
	CHECK(gn_dnnl_md_create(&gradient_md, 4, weights, dnnl_f32, dnnl_format_tag_any));
	CHECK(gn_dnnl_conv_forward_pd(&forward, &context, kind, in_md, weights_md, NULL, out_md, &window));
	dnnl_memory_t x = memory(j, ask(forward, dnnl_query_src_md), NULL);
	put(c, FORWARD, forward, (int[]){DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
	    (dnnl_memory_t[]){x, memory(j, ask(forward, dnnl_query_weights_md), NULL),
			      memory(j, ask(forward, dnnl_query_dst_md), NULL)});
	if (j->inference)
		goto done;
	CHECK(gn_dnnl_conv_forward_pd(&forward, &context, kind, in_md, weights_md, NULL, out_md, &window));
	context.forward = forward;
	CHECK(gn_dnnl_conv_backward_weight_pd(&pd, &context, ask(forward, dnnl_query_src_md), gradient_md, NULL, out_md, &window));
	dnnl_memory_t dy = memory(j, ask(pd, dnnl_query_diff_dst_md), j->shared[0]);
	put(c, OF_WEIGHTS, pd, (int[]){DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS},
	    (dnnl_memory_t[]){x, dy, memory(j, ask(pd, dnnl_query_diff_weights_md), NULL)});
	if (!first) {
		CHECK(gn_dnnl_conv_backward_data_pd(&pd, &context, in_md, weights_md, out_md, &window));
		put(c, OF_INPUT, pd, (int[]){DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
		    (dnnl_memory_t[]){memory(j, ask(pd, dnnl_query_diff_dst_md), j->shared[0]),
				      memory(j, ask(pd, dnnl_query_weights_md), NULL),
				      memory(j, ask(pd, dnnl_query_diff_src_md), j->shared[1])});
	}
	dnnl_primitive_desc_destroy(forward);
done:
	gn_dnnl_md_destroy(in_md);
	gn_dnnl_md_destroy(out_md);
	gn_dnnl_md_destroy(weights_md);
	gn_dnnl_md_destroy(gradient_md);
}

/* Sides and channels node by node; convolutions (of one group) are made in a second pass, when the largest tensor is known. */
static void walk(struct job *j, const struct gn_model *m, int make)
{
	j->sides[0] = gn_model_side(m);
	j->channels[0] = gn_model_channels(m);
	for (int i = 1; i < gn_model_node_count(m) && i < NODES_MAX; i++) {
		const struct gn_shm *n = gn_model_node(m, i);
		int from = n->input[0], side = j->sides[from], windowed = n->kind == GN_LAYER_CONV || n->kind == GN_LAYER_MAX_POOL;
		size_t bytes;

		j->sides[i] = windowed ? (side + 2 * n->pad - n->kernel) / n->stride + 1
			      : n->kind == GN_LAYER_ADAPTIVE_AVG_POOL ? n->out_side : n->kind == GN_LAYER_LINEAR ? 1 : side;
		j->channels[i] = n->kind == GN_LAYER_CONV || n->kind == GN_LAYER_LINEAR ? n->channels_out : j->channels[from];
		/* Blocks of 16 channels at most. */
		bytes = (size_t)j->batch * (size_t)(j->channels[i] + 15) * (size_t)j->sides[i] * (size_t)j->sides[i] * 4;
		j->room = bytes > j->room ? bytes : j->room;
		if (make && n->kind == GN_LAYER_CONV && n->groups <= 1 && j->count < CONVS_MAX)
			add(j, n, j->channels[from], side, j->sides[i], from == 0);
	}
}

static double run(struct job *j, enum way way, int k)
{
	double began = gn_clock_s();

	if (j->convs[k].primitive[way])
		CHECK(dnnl_primitive_execute(j->convs[k].primitive[way], j->stream, 3, j->convs[k].args[way]));
	CHECK(dnnl_stream_wait(j->stream));
	return gn_clock_s() - began;
}

static void one_step(struct job *j, int step)
{
	for (int w = 0; w <= WAYS; w++)
		j->times[w][step] = 0;
	for (int k = 0; k < j->count; k++)
		j->times[FORWARD][step] += run(j, FORWARD, k);
	for (int k = j->count - 1; k >= 0 && !j->inference; k--) {
		j->times[OF_WEIGHTS][step] += run(j, OF_WEIGHTS, k);
		j->times[OF_INPUT][step] += run(j, OF_INPUT, k);
	}
	for (int w = 0; w < WAYS; w++)
		j->times[WAYS][step] += j->times[w][step];
}

static double median_ms(double *times, int count)
{
	gn_sort_doubles(times, (size_t)count);
	return 5e2 * (times[(count - 1) / 2] + times[count / 2]);
}

int main(int argc, char **argv)
{
	struct job *j = calloc(1, sizeof *j);
	struct gn_model *m;
	struct gn_err err;

	if (!j || argc < 5 || (argc > 5 && strcmp(argv[5], "fp32") && strcmp(argv[5], "bf16"))) {
		fputs("usage: bench/convs MODEL BATCH SIDE STEPS [fp32|bf16 [inference]]\n", stderr);
		return 2;
	}
	j->batch = atoi(argv[2]);
	j->steps = atoi(argv[4]);
	j->type = argc > 5 && !strcmp(argv[5], "bf16") ? dnnl_bf16 : dnnl_f32;
	j->inference = argc > 6 && !strcmp(argv[6], "inference");
	if (j->batch < 1 || j->steps < 1 || j->steps > STEPS_MAX ||
	    gn_model_create(argv[1], 1000, 0, atoi(argv[3]), &m, &err)) {
		fprintf(stderr, "bench/convs: a number or the network's name makes no sense\n");
		return 2;
	}
	CHECK(dnnl_engine_create(&j->engine, dnnl_cpu, 0));
	CHECK(dnnl_stream_create(&j->stream, j->engine, dnnl_stream_default_flags));
	walk(j, m, 0);
	for (int i = 0; i < 2; i++) {
		j->shared[i] = gn_alloc_aligned(j->room);
		if (!j->shared[i])
			return 1;
		memset(j->shared[i], 0x3c, j->room);
	}
	walk(j, m, 1);
	one_step(j, 0); /* touches memory for the first time */
	for (int i = 0; i < j->steps; i++)
		one_step(j, i);
	double all = median_ms(j->times[WAYS], j->steps);
	printf("{\"op\": \"convs\", \"model\": \"%s\", \"batch\": %d, \"dtype\": \"%s\", \"mode\": \"%s\", \"threads\": %d, "
	       "\"convs\": %d, \"steps\": %d, \"images_per_s\": %.3f, \"ms\": %.3f, \"forward_ms\": %.3f, "
	       "\"of_input_ms\": %.3f, \"of_weights_ms\": %.3f}\n", argv[1], j->batch, j->type == dnnl_bf16 ? "bf16" : "fp32",
	       j->inference ? "inference" : "training", omp_get_max_threads(), j->count, j->steps, 1e3 * j->batch / all, all,
	       median_ms(j->times[FORWARD], j->steps), median_ms(j->times[OF_INPUT], j->steps),
	       median_ms(j->times[OF_WEIGHTS], j->steps));
	gn_model_destroy(m);
	return 0; /* the rest goes with the process */
}
