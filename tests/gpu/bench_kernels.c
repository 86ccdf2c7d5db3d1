/* How fast our kernels move memory on this GPU, beside a copy of the device by itself in the same run.
 * Bytes are the fewest that a kernel can do with: every input read once, every output written once. Rates are medians of RUNS
 * graphs of REPEATS calls each, timed by events, so that the host's part of a call is not counted; a tensor is more than twice the
 * L2 cache. Results are not looked at: test_kernels does. Arguments: beginnings of names of kernels; then these alone. */
#include "kernels/cuda/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 20
#define REPEATS 10
#define TENSORS 4

/* ResNet-50's widest, for as many times this number of images as it takes. */
enum { BATCH = 64, SIDE = 56, CHANNELS = 256, CLASSES = 1000, IMAGE = 256, CROP = 224 };

struct bench {
	struct gn_cuda_device *device;
	struct gn_cuda_stream *stream;
	struct gn_cuda_arena *arena;
	struct gn_event *from, *to;
	enum gn_cuda_type type;
	int batch;
	size_t elements;
	void *tensors[TENSORS];
	uint8_t *argmax;
	float *channels[6];
	struct gn_cuda_batch_norm norm;
	struct gn_cuda_optim *sgd, *lamb;
	int32_t *found;
	struct gn_cuda_image_args images;
	double copy_rate; /* GB/s */
};

struct job {
	const char *name;
	enum gn_status (*run)(struct bench *b, struct gn_err *err);
	double tensors; /* bytes moved, in tensors of the type; at least, where more depends on the values */
};

static int by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static enum gn_status record(struct bench *b, const struct job *j, struct gn_cuda_graph **out, struct gn_err *err)
{
	enum gn_status status = gn_cuda_graph_begin(b->stream, err), ended;
	size_t nodes;

	if (status)
		return status;
	for (int i = 0; i < REPEATS && !status; i++)
		status = j->run(b, err);
	ended = gn_cuda_graph_end(b->stream, status ? NULL : out, &nodes, status ? NULL : err);
	return status ? status : ended;
}

static enum gn_status median_ms(struct bench *b, const struct job *j, float *out, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	struct gn_cuda_graph *graph = NULL;
	float ms[RUNS];
	double passed = 0;

	/* the first call loads */
	if ((status = j->run(b, err)) || (status = gn_cuda_stream_wait(b->stream, err)) || (status = record(b, j, &graph, err)))
		return status;
	for (int i = -3; !status && i < RUNS; i++) {
		if ((status = gn_event_record(b->from, gn_cuda_stream_base(b->stream), err)) || (status = gn_cuda_graph_launch(graph, b->stream, err)) ||
		    (status = gn_event_record(b->to, gn_cuda_stream_base(b->stream), err)) || (status = gn_event_wait(b->to, err)))
			break;
		if (i >= 0)
			status = gn_event_between(b->from, b->to, &passed, err);
		if (i >= 0)
			ms[i] = (float)passed;
	}
	gn_cuda_graph_destroy(graph);
	if (status)
		return status;
	qsort(ms, RUNS, sizeof *ms, by_size);
	*out = ms[RUNS / 2] / REPEATS;
	return GN_OK;
}

static enum gn_status copy(struct bench *b, struct gn_err *err)
{
	return gn_cuda_copy(b->stream, b->tensors[1], b->tensors[0], b->elements * gn_cuda_type_bytes(b->type), err);
}

static enum gn_status statistics(struct bench *b, struct gn_err *err)
{
	return gn_cuda_batch_norm_statistics(b->stream, &b->norm, b->tensors[0], b->norm.rows, err);
}

static enum gn_status apply(struct bench *b, struct gn_err *err)
{
	return gn_cuda_batch_norm_apply(b->stream, &b->norm, b->tensors[0], NULL, b->tensors[1], err);
}

static enum gn_status apply_added(struct bench *b, struct gn_err *err)
{
	return gn_cuda_batch_norm_apply(b->stream, &b->norm, b->tensors[0], b->tensors[1], b->tensors[2], err);
}

/* added: as behind a block of ResNet, with an addend, and the output known. */
static struct gn_cuda_batch_norm_grad grad_of(const struct bench *b, int added)
{
	return (struct gn_cuda_batch_norm_grad){.x = b->tensors[0],
						.y = added ? b->tensors[3] : NULL,
						.dout = b->tensors[1],
						.dx = b->tensors[2],
						.dadded = added ? b->tensors[1] : NULL,
						.dweight = b->channels[4],
						.dbias = b->channels[5]};
}

static enum gn_status grad_sums(struct bench *b, struct gn_err *err)
{
	struct gn_cuda_batch_norm_grad g = grad_of(b, 0);

	return gn_cuda_batch_norm_grad_sums(b->stream, &b->norm, &g, err);
}

static enum gn_status grad_apply(struct bench *b, struct gn_err *err)
{
	struct gn_cuda_batch_norm_grad g = grad_of(b, 0);

	return gn_cuda_batch_norm_grad_apply(b->stream, &b->norm, &g, b->norm.rows, err);
}

static enum gn_status added_grad_sums(struct bench *b, struct gn_err *err)
{
	struct gn_cuda_batch_norm_grad g = grad_of(b, 1);

	return gn_cuda_batch_norm_grad_sums(b->stream, &b->norm, &g, err);
}

static enum gn_status added_grad_apply(struct bench *b, struct gn_err *err)
{
	struct gn_cuda_batch_norm_grad g = grad_of(b, 1);

	return gn_cuda_batch_norm_grad_apply(b->stream, &b->norm, &g, b->norm.rows, err);
}

/* The first pool of ResNet has a quarter of these channels and four times the pixels. */
static struct gn_cuda_window pool_of(const struct bench *b)
{
	return (struct gn_cuda_window){b->batch, CHANNELS / 4, 2 * SIDE, 2 * SIDE, SIDE, SIDE, 3, 2, 1};
}

static enum gn_status max_pool(struct bench *b, struct gn_err *err)
{
	struct gn_cuda_window pool = pool_of(b);

	return gn_cuda_max_pool(b->stream, b->type, &pool, b->tensors[0], b->tensors[1], b->argmax, err);
}

static enum gn_status max_pool_grad(struct bench *b, struct gn_err *err)
{
	struct gn_cuda_window pool = pool_of(b);

	return gn_cuda_max_pool_grad(b->stream, b->type, &pool, b->tensors[1], b->argmax, b->tensors[2], err);
}

static enum gn_status average(struct bench *b, struct gn_err *err)
{
	struct gn_cuda_window w = {b->batch, CHANNELS, SIDE, SIDE, 1, 1, 0, 0, 0};

	return gn_cuda_average_pool(b->stream, b->type, &w, b->tensors[0], b->tensors[1], err);
}

static enum gn_status sum(struct bench *b, struct gn_err *err)
{
	return gn_cuda_add(b->stream, b->type, b->tensors[0], b->tensors[1], 0, b->tensors[0], b->elements, err);
}

static enum gn_status gelu(struct bench *b, struct gn_err *err)
{
	return gn_cuda_activate(b->stream, b->type, GN_ACTIVATION_GELU, b->tensors[0], b->tensors[1], b->elements, err);
}

static enum gn_status gelu_grad(struct bench *b, struct gn_err *err)
{
	return gn_cuda_activate_grad(b->stream, b->type, GN_ACTIVATION_GELU, b->tensors[0], b->tensors[1], NULL, b->tensors[2], b->elements,
				     err);
}

/* Statistics of rows are in the last tensor. */
static struct gn_cuda_layer_norm layer_norm_of(const struct bench *b)
{
	float *rows = b->tensors[3];

	return (struct gn_cuda_layer_norm){b->type, b->norm.rows, CHANNELS, 1e-6, b->channels[0], b->channels[1], rows,
					   rows + b->norm.rows, b->norm.scratch};
}

static enum gn_status layer_norm(struct bench *b, struct gn_err *err)
{
	struct gn_cuda_layer_norm l = layer_norm_of(b);

	return gn_cuda_layer_norm(b->stream, &l, b->tensors[0], b->tensors[1], err);
}

static enum gn_status layer_norm_grad(struct bench *b, struct gn_err *err)
{
	struct gn_cuda_layer_norm l = layer_norm_of(b);

	return gn_cuda_layer_norm_grad(b->stream, &l, b->tensors[0], b->tensors[1], b->tensors[2], b->channels[4], b->channels[5], err);
}

static enum gn_status cast(struct bench *b, struct gn_err *err)
{
	return gn_cuda_cast(b->stream, GN_CUDA_BF16, b->tensors[0], GN_CUDA_F16, b->tensors[1],
			    b->elements * gn_cuda_type_bytes(b->type) / 2, err);
}

static enum gn_status find(struct bench *b, struct gn_err *err)
{
	return gn_cuda_find_nonfinite(b->stream, b->type, b->tensors[0], b->elements, b->found, err);
}

static enum gn_status sgd(struct bench *b, struct gn_err *err)
{
	return gn_cuda_optim_step(b->sgd, b->stream, NULL, err);
}

static enum gn_status lamb(struct bench *b, struct gn_err *err)
{
	return gn_cuda_optim_step(b->lamb, b->stream, NULL, err);
}

static enum gn_status crop(struct bench *b, struct gn_err *err)
{
	return gn_cuda_crop_resize_normalise(b->stream, &b->images, err);
}

static enum gn_status optimizers(struct bench *b, struct gn_err *err)
{
	struct gn_optim rules[] = {{GN_OPTIM_SGD, 0.9, 0, 0, 0, 0}, {GN_OPTIM_LAMB, 0.9, 0.999, 1e-6, 0, 0}};
	struct gn_optim_update u = {1e-3, 1, 1};
	/* as many floats as fit into a tensor of the type; gradients in the type */
	size_t count = b->elements * gn_cuda_type_bytes(b->type) / 4;
	struct gn_cuda_optim_tensor t = {(float *)b->tensors[0],
					 b->tensors[1],
					 {(float *)b->tensors[2], (float *)b->tensors[3]},
					 NULL,
					 count,
					 1e-4,
					 1,
					 1};
	enum gn_status status;

	if ((status = gn_cuda_optim_create(b->stream, &rules[0], b->type, &t, 1, &b->sgd, err)) ||
	    (status = gn_cuda_optim_create(b->stream, &rules[1], b->type, &t, 1, &b->lamb, err)) ||
	    (status = gn_cuda_optim_set(b->sgd, b->stream, &u, err)))
		return status;
	return gn_cuda_optim_set(b->lamb, b->stream, &u, err);
}

/* Numbers of which none repeats soon: compressible data could run faster than real data. */
static enum gn_status fill(struct bench *b, void *to, struct gn_err *err)
{
	float *random = malloc(b->elements * sizeof *random);
	size_t bytes = b->elements * gn_cuda_type_bytes(b->type);
	uint32_t state = 1;
	enum gn_status status;

	if (!random)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu numbers", b->elements);
	for (size_t i = 0; i < b->elements; i++) {
		state = state * 1664525 + 1013904223;
		gn_cuda_set_value(b->type, random, i, (float)(state >> 8) / 8388608.f - 1);
	}
	status = gn_cuda_copy(b->stream, to, random, bytes, err);
	if (!status)
		status = gn_cuda_stream_wait(b->stream, err);
	free(random);
	return status;
}

static enum gn_status take(struct bench *b, size_t bytes, void **out, struct gn_err *err)
{
	if (!(*out = gn_cuda_arena_take(b->arena, bytes)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "the arena is too small for %zu bytes more", bytes);
	return GN_OK;
}

/* Whole images that become smaller. */
static enum gn_status crops(struct bench *b, const uint8_t *images, void *to, struct gn_err *err)
{
	size_t bytes = (size_t)b->batch * sizeof(struct gn_crop);
	struct gn_crop *all = malloc(bytes);
	enum gn_status status;

	if (!all)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d images", b->batch);
	for (int i = 0; i < b->batch; i++)
		all[i] = (struct gn_crop){images + (size_t)i * IMAGE * IMAGE * 3, IMAGE, IMAGE, 0, 0, IMAGE, IMAGE, 0, 0, CROP, CROP,
					   i % 2};
	status = gn_cuda_copy(b->stream, to, all, bytes, err);
	if (!status)
		status = gn_cuda_stream_wait(b->stream, err);
	free(all);
	return status;
}

static enum gn_status make_tensors(struct bench *b, struct gn_err *err)
{
	size_t bytes = b->elements * gn_cuda_type_bytes(b->type), rows = (size_t)b->batch * SIDE * SIDE;
	void *taken[12] = {NULL};
	enum gn_status status = GN_OK;
	size_t sizes[12] = {b->elements,
			    4,
			    (size_t)b->batch * IMAGE * IMAGE * 3,
			    (size_t)b->batch * sizeof(struct gn_crop),
			    2 * CHANNELS * sizeof(double),
			    gn_cuda_batch_norm_scratch_bytes(b->stream, rows, CHANNELS),
			    CHANNELS * 4,
			    CHANNELS * 4,
			    CHANNELS * 4,
			    CHANNELS * 4,
			    CHANNELS * 4,
			    CHANNELS * 4};

	gn_cuda_arena_empty(b->arena);
	for (int i = 0; !status && i < TENSORS; i++)
		if (!(status = take(b, bytes, &b->tensors[i], err)))
			status = fill(b, b->tensors[i], err);
	for (int i = 0; !status && i < 12; i++)
		if (!(status = take(b, sizes[i], &taken[i], err)))
			status = gn_cuda_fill(b->stream, taken[i], 0, sizes[i], err);
	if (status)
		return status;
	b->argmax = taken[0];
	b->found = taken[1];
	for (int i = 0; i < 6; i++)
		b->channels[i] = taken[6 + i];
	b->norm = (struct gn_cuda_batch_norm){
		b->type, rows,		 CHANNELS,	 1,	   1e-5,    0.1, b->channels[0], b->channels[1], NULL,
		NULL,	 b->channels[2], b->channels[3], taken[4], taken[5]};
	b->images = (struct gn_cuda_image_args){
		b->type, b->batch, CROP, CROP, 4, {0.5f, 0.5f, 0.5f}, {0.2f, 0.2f, 0.2f}, taken[3], b->tensors[0]};
	status = crops(b, taken[2], taken[3], err);
	return status ? status : optimizers(b, err);
}

static int is_wanted(const char *name, char **beginnings)
{
	int any = *beginnings == NULL;

	while (!any && *beginnings)
		any = !strncmp(name, *beginnings, strlen(*beginnings)), beginnings++;
	return any;
}

static enum gn_status run_type(struct bench *b, char **beginnings, struct gn_err *err)
{
	double type_bytes = (double)gn_cuda_type_bytes(b->type), bytes = (double)b->elements * type_bytes;
	/* parameters and a slot are read and written, gradients read; as fractions of a tensor */
	double grads = type_bytes / 4;
	double images = (double)b->batch * (IMAGE * IMAGE * 3 + CROP * CROP * 4 * type_bytes) / bytes;
	const struct job jobs[] = {{"copy by the device", copy, 2},
				   {"batch norm statistics", statistics, 1},
				   {"batch norm apply+relu", apply, 2},
				   {"batch norm apply+add+relu", apply_added, 3},
				   {"batch norm grad sums", grad_sums, 2},
				   {"batch norm grad apply", grad_apply, 3},
				   {"batch norm grad sums, add", added_grad_sums, 4},
				   {"batch norm grad apply, add", added_grad_apply, 3},
				   {"max pool", max_pool, 1.25 + 0.25 / type_bytes},
				   {"max pool grad", max_pool_grad, 1.25 + 0.25 / type_bytes},
				   {"average pool", average, 1},
				   {"sum a += b", sum, 3},
				   {"gelu", gelu, 2},
				   {"gelu grad", gelu_grad, 3},
				   {"layer norm", layer_norm, 2},
				   {"layer norm grad", layer_norm_grad, 3},
				   {"cast bf16 to f16", cast, 2},
				   {"find what is not finite", find, 1},
				   {"sgd", sgd, 4 + grads},
				   {"lamb", lamb, 6 + 2 * grads + 2},
				   {"crop, resize, normalise", crop, images}};
	enum gn_status status = make_tensors(b, err);
	float ms;

	for (size_t i = 0; !status && i < sizeof jobs / sizeof *jobs; i++) {
		double rate;

		if (i > 0 && !is_wanted(jobs[i].name, beginnings))
			continue;
		if ((status = median_ms(b, &jobs[i], &ms, err)))
			break;
		rate = jobs[i].tensors * bytes / (ms * 1e6);
		if (i == 0)
			b->copy_rate = rate;
		printf("%-26s %-5s %9.1f %10.1f %9.0f %8.2f\n", jobs[i].name, gn_cuda_type_name(b->type), ms * 1e3,
		       jobs[i].tensors * bytes / 1e6, rate, rate / b->copy_rate);
	}
	gn_cuda_optim_destroy(b->sgd);
	gn_cuda_optim_destroy(b->lamb);
	b->sgd = b->lamb = NULL;
	return status;
}

/* Tensors of the smallest type, too, are more than twice the cache; the arena has room for those of the largest, and the rest. */
static enum gn_status set_size(struct bench *b, struct gn_err *err)
{
	size_t image = (size_t)SIDE * SIDE * CHANNELS, l2_bytes = gn_cuda_device_info(b->device)->l2_bytes;

	do {
		b->batch += BATCH;
		b->elements = (size_t)b->batch * image;
	} while (b->elements * gn_cuda_type_bytes(GN_CUDA_F16) <= 2 * l2_bytes);
	return gn_cuda_arena_create(b->device, TENSORS * b->elements * sizeof(float) + (size_t)b->batch * IMAGE * IMAGE * 3 + ((size_t)128 << 20),
				    &b->arena, err);
}

int main(int argc, char **argv)
{
	struct bench b = {0};
	struct gn_err err;
	enum gn_status status;

	if ((status = gn_cuda_device_create(0, &b.device, &err)) ||
	    (status = gn_cuda_stream_create(b.device, &b.stream, &err)) ||
	    (status = set_size(&b, &err)) ||
	    (status = gn_event_create_timed(gn_stream_device(gn_cuda_stream_base(b.stream)), &b.from, &err)) ||
	    (status = gn_event_create_timed(gn_stream_device(gn_cuda_stream_base(b.stream)), &b.to, &err)))
		goto out;
	printf("%s: medians of %d times %d, tensors of %zu elements, L2 of %zu MiB\n", gn_cuda_device_info(b.device)->name, RUNS, REPEATS,
	       b.elements, gn_cuda_device_info(b.device)->l2_bytes >> 20);
	printf("%-26s %-5s %9s %10s %9s %8s\n", "kernel", "type", "us", "MB moved", "GB/s", "of copy");
	for (int type = GN_CUDA_F32; !status && type <= GN_CUDA_F16; type++) {
		b.type = type;
		status = run_type(&b, argv + (argc > 0), &err);
	}
out:
	gn_event_destroy(b.to);
	gn_event_destroy(b.from);
	gn_cuda_arena_destroy(b.arena);
	gn_cuda_stream_destroy(b.stream);
	gn_cuda_device_destroy(b.device);
	if (status)
		fprintf(stderr, "bench_kernels: %s\n", err.text);
	return status == GN_OK ? 0 : status == GN_ERR_NOT_FOUND || status == GN_ERR_UNSUPPORTED ? 77 : 1;
}
