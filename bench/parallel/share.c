/* What a way to share gradients costs: bench/parallel/share MODEL METHOD [STEPS], on each rank. Shares drawn gradients of a network, as
 * `gannet train --compress METHOD` does after backward, over TCP, rings, buckets of 16 MiB. Rank 0 prints one JSON object: bytes a rank
 * sends in a step, counted (mean over ranks), by formula, and by formula without compression; the least time of a step, on the slowest rank.
 * Counted and by formula have to be within 3 %, and all ranks have to have the same bits. Exit codes: 0, 1 with the reason, 2 usage. */
#include "src/base/clock.h"
#include "src/base/json.h"
#include "src/base/philox.h"
#include "src/base/sha256.h"
#include "src/train/parallel/compress.h"
#include "src/train/parallel/reducer.h"
#include "transport/coll/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
	struct gn_comm *comm;
	struct gn_model *model;
	struct gn_compressor *c;
	struct gn_sharing_options share;
	float *drawn;
	size_t count;
	int steps;
	double seconds, sent, formula, plain;
};

static uint64_t sent_bytes(const struct gn_comm *c)
{
	uint64_t same_node, other_node;

	gn_comm_sent_bytes(c, &same_node, &other_node);
	return same_node + other_node;
}

static enum gn_status one_step(struct bench *b, struct gn_reducer *x, int step, struct gn_err *err)
{
	uint64_t sent, began;
	enum gn_status status;
	double took;

	memcpy(b->share.flat, b->drawn, b->count * sizeof(float));
	if (b->c)
		gn_compressor_begin(b->c, (uint64_t)step, UINT32_MAX);
	status = gn_comm_barrier(b->comm, err);
	sent = sent_bytes(b->comm);
	began = gn_clock_ns();
	gn_reducer_begin(x);
	if (!status)
		status = gn_reducer_wait(x, err);
	took = (double)(gn_clock_ns() - began) * 1e-9;
	b->sent += (double)(sent_bytes(b->comm) - sent) / b->steps / gn_comm_size(b->comm);
	if (!status)
		status = gn_comm_allreduce(b->comm, &took, 1, GN_F64, gn_reduce_max(GN_F64), err);
	b->seconds = fmin(b->seconds, took);
	return status;
}

static enum gn_status check_bits(const struct bench *b, struct gn_err *err)
{
	int size = gn_comm_size(b->comm);
	struct {
		char hex[65];
	} mine, *all = calloc((size_t)size, sizeof *all);
	enum gn_status status = all ? gn_sha256_buffer(b->share.flat, b->count * sizeof(float), mine.hex, err) : GN_ERR_NO_MEMORY;

	if (!status)
		status = gn_agree_gather(b->comm, &mine, sizeof mine, all, err);
	for (int r = 0; r < size && !status; r++)
		if (strcmp(all[r].hex, mine.hex))
			status = gn_err_set(err, GN_ERR_FAILED, "ranks %d and %d have other bits", r, gn_comm_rank(b->comm));
	free(all);
	return status;
}

static enum gn_status run(struct bench *b, struct gn_err *err)
{
	const struct gn_reducer_config config = {16 << 20, 0};
	struct gn_reducer *x;
	enum gn_status status = gn_reducer_create(&b->share, &config, &x, err);

	if (status)
		return status;
	b->seconds = INFINITY;
	b->plain = gn_compress_dense_bytes(b->count * sizeof(float), gn_comm_size(b->comm));
	for (int step = 0; step < b->steps && !status; step++)
		status = one_step(b, x, step, err);
	if (!status)
		status = gn_comm_allreduce(b->comm, &b->sent, 1, GN_F64, NULL, err);
	b->formula = b->c ? gn_compressor_sent_bytes(b->c) : b->plain;
	if (!status && fabs(b->sent - b->formula) > 0.03 * b->formula)
		status = gn_err_set(err, GN_ERR_FAILED, "%.0f bytes are sent in a step, not %.0f", b->sent, b->formula);
	if (!status)
		status = check_bits(b, err);
	gn_reducer_destroy(x);
	return status;
}

static enum gn_status create(struct bench *b, struct gn_world *world, char **argv, struct gn_err *err)
{
	const struct gn_comm_options options = {.transport = "tcp", .tuning = "none"};
	struct gn_compress_options co = {.algo = "ring", .seed = 1, .momentum = 0.9, .batches = 1};
	struct gn_rng rng;
	void *flat;
	enum gn_status status = gn_compress_parse(argv[2], &co.spec, err);

	if (!status)
		status = gn_comm_create(world, &options, NULL, &b->comm, err);
	if (!status)
		status = gn_model_create(argv[1], 1000, 0, 224, &b->model, err);
	if (status)
		return status;
	co.comm = b->comm;
	co.model = b->model;
	b->count = gn_model_param_elements(b->model) + gn_model_buffer_elements(b->model);
	status = gn_comm_alloc(b->comm, b->count * sizeof(float), &flat, err);
	b->drawn = calloc(b->count, sizeof(float)); /* zeros between tensors */
	if (!status && !b->drawn)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	gn_rng_init(&rng, 1, GN_RNG_TEST, (uint32_t)gn_comm_rank(b->comm), 0);
	for (int i = 0; !status && i < gn_model_param_count(b->model); i++) {
		const struct gn_param *p = gn_model_param(b->model, i);

		for (size_t k = 0; k < p->count; k++)
			b->drawn[p->offset + k] = (float)gn_rng_u32(&rng) * 0x1p-32f - 0.5f;
	}
	if (!status && co.spec.method)
		status = gn_compressor_create(&co, &b->c, err);
	b->share = (struct gn_sharing_options){.comm = b->comm, .model = b->model, .flat = status ? NULL : flat, .algo = "ring",
					       .tail_elements = gn_model_buffer_elements(b->model), .compressor = b->c};
	return status;
}

static void print(const struct bench *b, char **argv)
{
	struct gn_json j;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_json_string(&j, "model", argv[1]);
	gn_json_string(&j, "method", argv[2]);
	gn_json_int(&j, "ranks", gn_comm_size(b->comm));
	gn_json_fixed(&j, "sent_bytes", b->sent, 0);
	gn_json_fixed(&j, "formula_bytes", b->formula, 0);
	gn_json_fixed(&j, "plain_bytes", b->plain, 0);
	gn_json_fixed(&j, "ms", b->seconds * 1e3, 3);
	gn_json_end(&j);
	puts(gn_json_text(&j));
	gn_json_release(&j);
}

int main(int argc, char **argv)
{
	struct bench b = {.steps = argc > 3 ? atoi(argv[3]) : 3};
	struct gn_world *world = NULL;
	struct gn_err err;
	enum gn_status status;

	if (argc < 3 || b.steps < 1)
		return 2;
	status = gn_world_create(NULL, NULL, &world, &err);
	if (!status)
		status = create(&b, world, argv, &err);
	if (!status)
		status = run(&b, &err);
	if (!status && gn_comm_rank(b.comm) == 0)
		print(&b, argv);
	if (status)
		fprintf(stderr, "bench/parallel/share: %s\n", err.text);
	gn_compressor_destroy(b.c);
	gn_model_destroy(b.model);
	gn_comm_free(b.comm, b.share.flat);
	free(b.drawn);
	gn_comm_destroy(b.comm);
	gn_world_destroy(world);
	return status ? 1 : 0;
}
