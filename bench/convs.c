/* What a network's convolutions take alone, in oneDNN's own primitives: the ceiling for a training step, or for inference,
 * with that library. bench/convs MODEL BATCH SIDE STEPS [fp32|bf16 [inference]] prints one JSON object with medians: forward,
 * gradient of the input (not of the network's), gradient of the weights, each in the layouts that oneDNN likes best, inputs
 * and outputs in memory of their own for each convolution as in a network, gradients in memory that all share. All but
 * gradients of weights is of the type named, nothing is converted, added, normalised or updated. winograd_ms is what they take where
 * those of 3 x 3 that Winograd's filtering is for are computed by kernels/host/winograd.h, in fp32. Threads: OMP_NUM_THREADS.
 *
 * bench/convs table BATCH prints for square maps and as many channels in as out how many times as fast Winograd's filtering is, for each
 * pass: what gn_winograd_pays() decides from. */
#include "kernels/backend.h"
#include "kernels/host/onednn_compat.h"
#include "kernels/host/winograd.h"
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
	struct gn_winograd winograd[WAYS]; /* loops NULL: not for it */
};

struct job {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_data_type_t type;
	int batch, steps, inference, count;
	struct conv convs[CONVS_MAX];
	int sides[NODES_MAX], channels[NODES_MAX];
	int lanes;	 /* of Winograd's filtering; 0: not on this processor, or not in this type */
	char *shared[2]; /* gradients: of outputs, of inputs */
	char *scratch;	 /* of Winograd's filtering */
	size_t scratch_room;
	size_t room;
	double times[WAYS + 2][STEPS_MAX];
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

/* The same passes by Winograd's filtering, on the same memory, whose layout does not matter to its time. */
static void add_winograd(struct job *j, struct conv *c, const struct gn_shm *n, int in_channels, int side)
{
	const struct gn_layout in = {j->batch, in_channels, side, side, j->lanes, sizeof(float)};

	if (!j->lanes || n->kernel != 3 || n->stride != 1 || n->pad != 1 || in_channels % j->lanes || n->channels_out % j->lanes)
		return;
	for (int way = 0; way < (j->inference ? 1 : WAYS); way++) {
		struct gn_winograd *w = &c->winograd[way];

		*w = (struct gn_winograd){.loops = gn_winograd_loops(j->lanes), .pass = (enum gn_winograd_pass)way};
		gn_winograd_init(w, &in, n->channels_out);
		if (w->scratch_bytes <= j->scratch_room)
			continue;
		free(j->scratch);
		j->scratch = gn_alloc_aligned(j->scratch_room = w->scratch_bytes);
		if (!j->scratch)
			exit(1);
	}
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
	add_winograd(j, c, n, in_channels, in_side);
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

static double run_winograd(struct job *j, enum way way, int k)
{
	const struct gn_winograd *w = &j->convs[k].winograd[way];
	void *at[3];
	double began;

	for (int i = 0; i < 3; i++)
		CHECK(dnnl_memory_get_data_handle(j->convs[k].args[way][i].memory, &at[i]));
	began = gn_clock_s();
	if (way == OF_WEIGHTS)
		gn_winograd_run_weights(w, at[0], at[1], at[2], NULL, j->scratch);
	else
		gn_winograd_run(w, at[0], at[1], NULL, at[2], j->scratch);
	return gn_clock_s() - began;
}

/* The gradient of the network's input is not wanted. */
static int takes_winograd(const struct job *j, enum way way, int k)
{
	return j->convs[k].primitive[way] && j->convs[k].winograd[way].loops;
}

static void one_step(struct job *j, int step)
{
	for (int w = 0; w <= WAYS + 1; w++)
		j->times[w][step] = 0;
	for (int k = 0; k < j->count; k++)
		for (int w = 0; w < WAYS; w++)
			j->times[WAYS + 1][step] += takes_winograd(j, (enum way)w, k) ? run_winograd(j, (enum way)w, k)
										      : run(j, (enum way)w, k);
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

/* Of a convolution alone, the best of several runs, in which nothing else disturbs. */
static double best_s(struct job *j, enum way way, int winograd)
{
	double best = 1e9, took;

	for (int i = 0; i < 8; i++) {
		took = winograd ? run_winograd(j, way, 0) : run(j, way, 0);
		best = took < best ? took : best;
	}
	return best;
}

static int print_table(struct job *j)
{
	static const int sides[] = {2, 4, 7, 8, 14, 16, 28, 32, 56, 112}, channels[] = {16, 32, 64, 128, 256, 512};

	for (int way = 0; way < WAYS; way++) {
		printf("%s\n%8s", (const char *[]){"forward", "gradient of the input", "gradient of the weights"}[way], "");
		for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
			printf(" %5d", sides[i]);
		for (size_t c = 0; c < sizeof channels / sizeof *channels; c++) {
			printf("\n%8d", channels[c]);
			for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
				const struct gn_shm node = {.kernel = 3, .stride = 1, .pad = 1, .channels_out = channels[c]};

				if ((size_t)sides[i] * sides[i] * channels[c] > 256 * 56 * 56)
					continue;
				j->count = 0;
				memset(j->convs, 0, sizeof *j->convs);
				add(j, &node, channels[c], sides[i], sides[i], 0);
				printf(" %5.2f", best_s(j, (enum way)way, 0) / best_s(j, (enum way)way, 1));
				fflush(stdout);
			}
		}
		putchar('\n');
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct job *j = calloc(1, sizeof *j);
	struct gn_model *m;
	struct gn_err err;

	if (j && argc == 3 && !strcmp(argv[1], "table") && atoi(argv[2]) > 0) {
		j->batch = atoi(argv[2]);
		j->type = dnnl_f32;
		j->lanes = gn_host_winograd_lanes();
		if (!j->lanes)
			return 1;
		CHECK(dnnl_engine_create(&j->engine, dnnl_cpu, 0));
		CHECK(dnnl_stream_create(&j->stream, j->engine, dnnl_stream_default_flags));
		for (int i = 0; i < 2; i++)
			if (!(j->shared[i] = gn_alloc_aligned((size_t)j->batch * 256 * 56 * 56 * 4 + 4096)))
				return 1;
		return print_table(j);
	}
	if (!j || argc < 5 || (argc > 5 && strcmp(argv[5], "fp32") && strcmp(argv[5], "bf16"))) {
		fputs("usage: bench/convs MODEL BATCH SIDE STEPS [fp32|bf16 [inference]]\n       bench/convs table BATCH\n", stderr);
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
	j->lanes = j->type == dnnl_f32 ? gn_host_winograd_lanes() : 0;
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
	       "\"of_input_ms\": %.3f, \"of_weights_ms\": %.3f, \"winograd_ms\": %.3f}\n", argv[1], j->batch, j->type == dnnl_bf16 ? "bf16" : "fp32",
	       j->inference ? "inference" : "training", omp_get_max_threads(), j->count, j->steps, 1e3 * j->batch / all, all,
	       median_ms(j->times[FORWARD], j->steps), median_ms(j->times[OF_INPUT], j->steps),
	       median_ms(j->times[OF_WEIGHTS], j->steps), median_ms(j->times[WAYS + 1], j->steps));
	gn_model_destroy(m);
	return 0; /* the rest goes with the process */
}
