/* A rank that exchanges gradients of resnet20 with a method of compression, in several buckets, and checks each step: all ranks hold the
 * same bits; the tail is exact; the sums are as near as the method promises; what error feedback keeps and what was sent are the gradient;
 * bytes sent are those of the formula; a NaN on one rank reaches all and leaves no trace.
 * "local": local steps; the rank's own gradients, the tail of all, and a NaN that all ranks learn of.
 * usage: compress_probe METHOD|local      Exit codes as gannet's; 99: a wrong result. */
#include "src/base/sha256.h"
#include "src/train/parallel/compress.h"
#include "src/train/parallel/sharing.h"
#include "src/train/parallel/reducer.h"
#include "tests/transport/exit_code.h"
#include "transport/coll/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRONG 99
#define STEPS 6
#define NAN_STEP 3
#define TAIL 37
#define MOMENTUM 0.75f
#define CLIP 1000

struct probe {
	struct gn_comm *comm;
	struct gn_model *model;
	struct gn_compressor *c;
	struct gn_compress_spec spec;
	float *flat;
	float *momentum, *velocity; /* dgc's, computed here */
	double *given, *got; /* sums over steps: of this rank's gradients; of what came out, divided by ranks */
	size_t params;
	int rank, size;
};

static void wrong(const struct probe *p, int step, const char *what, size_t i, double is, double wanted)
{
	fprintf(stderr, "WRONG: rank %d, step %d, %s, element %zu is %.9g, not %.9g\n", p->rank, step, what, i, is, wanted);
	_exit(WRONG);
}

/* Whole numbers, so that f32 holds all sums exactly; few of them large; the padding between tensors is zero. */
static float given(const struct probe *p, int rank, size_t i, int step)
{
	uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + (uint32_t)step * 977u;

	(void)p;
	h ^= h >> 15;
	h *= 2246822519u;
	h ^= h >> 13;
	return (float)((int)(h % 61) - 30) * (h % 97 ? 1 : 64);
}

static int is_padding(const struct probe *p, size_t i, int *next)
{
	const struct gn_param *t;

	while (*next + 1 < gn_model_param_count(p->model) && gn_model_param(p->model, *next + 1)->offset <= i)
		++*next;
	t = gn_model_param(p->model, *next);
	return i >= t->offset + t->count;
}

static void fill(struct probe *p, int step)
{
	int next = 0;

	for (size_t i = 0; i < p->params; i++)
		p->flat[i] = is_padding(p, i, &next) ? 0 : given(p, p->rank, i, step);
	for (size_t i = p->params; i < p->params + TAIL; i++)
		p->flat[i] = given(p, p->rank, i, step) * 1e-3f;
	if (step == NAN_STEP && p->rank == p->size - 1)
		p->flat[p->params / 2] = NAN;
}

static void check_same_bits(struct probe *p, int step, struct gn_err *err)
{
	struct {
		char hex[65];
	} mine, *all = calloc((size_t)p->size, sizeof *all);

	if (!all || gn_sha256_buffer(p->flat, (p->params + TAIL) * sizeof(float), mine.hex, err) ||
	    gn_agree_gather(p->comm, &mine, sizeof mine, all, err))
		_exit(WRONG);
	for (int r = 0; r < p->size; r++)
		if (strcmp(all[r].hex, mine.hex))
			wrong(p, step, "digest of another rank", (size_t)r, 0, 1);
	free(all);
}

static void check_tail(const struct probe *p, int step)
{
	for (size_t i = p->params; i < p->params + TAIL; i++) {
		double sum = 0;

		for (int r = 0; r < p->size; r++)
			sum += (double)(given(p, r, i, step) * 1e-3f);
		if (fabs(p->flat[i] - sum) > 1e-6 * (fabs(sum) + 2))
			wrong(p, step, "tail", i, p->flat[i], sum);
	}
}

/* Of methods that keep nothing. allowed: of the largest number. */
static void check_near(const struct probe *p, int step, double allowed)
{
	int next = 0;

	for (size_t i = 0; i < p->params; i++) {
		double sum = 0;

		for (int r = 0; r < p->size && !is_padding(p, i, &next); r++)
			sum += given(p, r, i, step);
		if (!(fabs(p->flat[i] - sum) <= allowed))
			wrong(p, step, "sum", i, p->flat[i], sum);
	}
}

/* The ranks' kept parts and all that came out so far are the sum of all gradients so far. */
static void check_kept(struct probe *p, int step, double allowed, struct gn_err *err)
{
	struct gn_compress_state state;
	double *sums = malloc(p->params * sizeof *sums);

	gn_compressor_state(p->c, &state);
	for (size_t i = 0; sums && i < p->params; i++)
		sums[i] = p->given[i] - state.arrays[0][i];
	if (!sums || gn_comm_allreduce(p->comm, sums, p->params, GN_F64, NULL, err))
		_exit(WRONG);
	for (size_t i = 0; i < p->params; i++)
		if (!(fabs(sums[i] - p->got[i]) <= allowed * p->size))
			wrong(p, step, "given less kept", i, sums[i], p->got[i]);
	free(sums);
}

/* dgc: what this rank holds is the velocity, or it was sent and both arrays are cleared; what all sent is what came out. */
static void check_dgc(struct probe *p, int step, struct gn_err *err)
{
	double *sent = calloc(p->params, sizeof *sent), square = 0, limit = CLIP / sqrt(p->size);
	struct gn_compress_state state;
	size_t cleared = 0;
	float scale = 1;
	int next = 0;

	gn_compressor_state(p->c, &state);
	for (size_t i = 0; i < p->params; i++)
		square += is_padding(p, i, &next) ? 0 : (double)given(p, p->rank, i, step) * given(p, p->rank, i, step);
	if (sqrt(square) > limit)
		scale = (float)(limit / sqrt(square));
	next = 0;
	for (size_t i = 0; sent && i < p->params; i++) {
		float g = is_padding(p, i, &next) ? 0 : given(p, p->rank, i, step);

		p->momentum[i] = MOMENTUM * p->momentum[i] + scale * g;
		p->velocity[i] += p->momentum[i];
		if (state.arrays[0][i] == p->velocity[i] && state.arrays[1][i] == p->momentum[i])
			continue;
		if (state.arrays[0][i] != 0 || state.arrays[1][i] != 0)
			wrong(p, step, "velocity", i, state.arrays[0][i], p->velocity[i]);
		sent[i] = p->velocity[i];
		p->velocity[i] = p->momentum[i] = 0;
		cleared++;
	}
	if (!cleared || cleared > p->params * p->spec.fraction + 100)
		wrong(p, step, "elements that were sent", 0, (double)cleared, p->params * p->spec.fraction);
	if (!sent || gn_comm_allreduce(p->comm, sent, p->params, GN_F64, NULL, err))
		_exit(WRONG);
	for (size_t i = 0; i < p->params; i++)
		if (fabs(sent[i] - p->flat[i]) > 1e-6 * (fabs(sent[i]) + 1000))
			wrong(p, step, "sum of what was sent", i, p->flat[i], sent[i]);
	free(sent);
}

static void check_sums(struct probe *p, int step, struct gn_err *err)
{
	double largest = 30 * 64;

	for (size_t i = 0; i < p->params; i++)
		p->got[i] += p->flat[i];
	switch (p->spec.method) {
	case GN_COMPRESS_BF16:
		check_near(p, step, largest * p->size * p->size / 256);
		break;
	case GN_COMPRESS_FP16:
		check_near(p, step, largest * p->size * p->size / 2048);
		break;
	case GN_COMPRESS_INT8:
		check_near(p, step, 2.001 * largest * p->size / 127);
		break;
	case GN_COMPRESS_TOPK:
		check_kept(p, step, 0, err);
		break;
	case GN_COMPRESS_DGC:
		check_dgc(p, step, err);
		break;
	case GN_COMPRESS_POWERSGD:
		check_kept(p, step, 0.05, err);
		break;
	default:
		break;
	}
}

/* The step with the NaN: nothing of that rank is kept or lost but its own gradient. What the others sent is lost. */
static void check_nan(struct probe *p)
{
	int seen = 0;

	for (size_t i = 0; i < p->params; i++)
		seen |= isnan(p->flat[i]);
	if (!seen)
		wrong(p, NAN_STEP, "no NaN", 0, 0, NAN);
}

static void check_bytes(const struct probe *p, int step, uint64_t sent)
{
	double wanted = gn_compressor_sent_bytes(p->c);
	uint64_t all[2] = {sent, 1};
	struct gn_err err;

	/* algorithms may load ranks differently: the formula is of their mean */
	if (gn_comm_allreduce(p->comm, all, 2, GN_I64, NULL, &err))
		_exit(WRONG);
	if (fabs((double)all[0] / (double)all[1] - wanted) > 0.03 * wanted)
		wrong(p, step, "bytes sent", 0, (double)all[0] / (double)all[1], wanted);
}

static uint64_t sent_bytes(const struct gn_comm *c)
{
	uint64_t same_node, other_node;

	gn_comm_sent_bytes(c, &same_node, &other_node);
	return same_node + other_node;
}

static enum gn_status one_step(struct probe *p, struct gn_reducer *x, int step, struct gn_err *err)
{
	uint64_t sent = sent_bytes(p->comm);
	enum gn_status status;

	fill(p, step);
	for (size_t i = 0; i < p->params && step != NAN_STEP; i++)
		p->given[i] += p->flat[i];
	gn_compressor_begin(p->c, (uint64_t)step, 9);
	gn_reducer_begin(x);
	/* each rank misses others, which leave at the end */
	for (int i = gn_model_param_count(p->model) - 1; i >= 0; i--)
		if (step < 2 || (i + p->rank) % 7)
			gn_reducer_ready(x, i, NULL);
	status = gn_reducer_wait(x, err);
	if (status)
		return status;
	sent = sent_bytes(p->comm) - sent;
	check_same_bits(p, step, err);
	check_tail(p, step);
	if (step == NAN_STEP)
		check_nan(p);
	else if (step < NAN_STEP || p->spec.method < GN_COMPRESS_TOPK)
		check_sums(p, step, err);
	check_bytes(p, step, sent);
	return GN_OK;
}

static enum gn_status run(struct probe *p, struct gn_err *err)
{
	struct gn_reducer_config config = {100000, 1};
	struct gn_sharing_options o = {.comm = p->comm, .model = p->model, .flat = p->flat, .tail_elements = TAIL, .algo = "ring",
				       .compressor = p->c};
	struct gn_reducer *x;
	enum gn_status status = gn_reducer_create(&o, &config, &x, err);

	if (status)
		return status;
	for (int step = 0; step < STEPS && !status; step++)
		status = one_step(p, x, step, err);
	for (size_t i = 0; i < p->params && !status; i++)
		if (!isfinite(p->flat[i]))
			wrong(p, STEPS, "after a NaN", i, p->flat[i], 0);
	if (!status)
		printf("rank %d: %zu buckets are right, %.0f bytes a step\n", p->rank, gn_reducer_buckets(x), gn_compressor_sent_bytes(p->c));
	gn_reducer_destroy(x);
	return status;
}

/* The first number of the tail is the flag. */
static void check_local(const struct probe *p, const struct gn_local_steps *local, int step)
{
	int next = 0;

	for (size_t i = 0; i < p->params && step != NAN_STEP; i++) {
		double sum = 0;

		for (int r = 0; r < p->size && !is_padding(p, i, &next); r++)
			sum += given(p, local->is_active ? p->rank : r, i, step);
		if (p->flat[i] != sum)
			wrong(p, step, "gradient", i, p->flat[i], sum);
	}
	if (step != NAN_STEP)
		check_tail(p, step);
	else if (!isnan(*local->flag))
		wrong(p, step, "flag", 0, *local->flag, NAN);
}

static enum gn_status run_local(struct probe *p, struct gn_err *err)
{
	struct gn_local_steps local = {.every = 4, .flag = p->flat + p->params};
	struct gn_reducer_config config = {100000, 1};
	struct gn_sharing_options o = {.comm = p->comm, .model = p->model, .flat = p->flat, .tail_elements = TAIL, .algo = "ring",
				       .local = &local};
	struct gn_reducer *x;
	enum gn_status status = gn_reducer_create(&o, &config, &x, err);

	if (status)
		return status;
	for (int step = 0; step < STEPS && !status; step++) {
		local.is_active = step > 0;
		fill(p, step);
		gn_reducer_begin(x);
		for (int i = gn_model_param_count(p->model) - 1; i >= 0; i--)
			if ((i + p->rank) % 7)
				gn_reducer_ready(x, i, NULL);
		status = gn_reducer_wait(x, err);
		if (!status)
			check_local(p, &local, step);
	}
	if (!status)
		printf("rank %d: %zu buckets are right\n", p->rank, gn_reducer_buckets(x));
	gn_reducer_destroy(x);
	return status;
}

static enum gn_status create(struct probe *p, struct gn_world *world, const char *method, struct gn_err *err)
{
	struct gn_comm_options options = {.transport = "tcp", .tuning = "none"};
	struct gn_compress_options co = {.algo = "ring", .seed = 5, .momentum = MOMENTUM, .clip = CLIP, .batches = 1};
	int is_local = !strcmp(method, "local");
	enum gn_status status = is_local ? GN_OK : gn_compress_parse(method, &p->spec, err);

	if (!status)
		status = gn_comm_create(world, &options, NULL, &p->comm, err);
	if (!status)
		status = gn_model_create("resnet20", 10, 3, 32, &p->model, err);
	if (status)
		return status;
	p->rank = gn_comm_rank(p->comm);
	p->size = gn_comm_size(p->comm);
	p->params = gn_model_param_elements(p->model);
	p->flat = calloc(p->params + TAIL, sizeof *p->flat);
	p->momentum = calloc(p->params, sizeof *p->momentum);
	p->velocity = calloc(p->params, sizeof *p->velocity);
	p->given = calloc(p->params, sizeof *p->given);
	p->got = calloc(p->params, sizeof *p->got);
	if (!p->flat || !p->momentum || !p->velocity || !p->given || !p->got)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	co.comm = p->comm;
	co.model = p->model;
	co.spec = p->spec;
	return is_local ? GN_OK : gn_compressor_create(&co, &p->c, err);
}

int main(int argc, char **argv)
{
	struct probe p = {0};
	struct gn_world *world = NULL;
	struct gn_err err;
	enum gn_status status = gn_world_create(NULL, NULL, &world, &err);

	if (argc != 2)
		return 2;
	if (!status)
		status = create(&p, world, argv[1], &err);
	if (!status)
		status = p.c ? run(&p, &err) : run_local(&p, &err);
	gn_compressor_destroy(p.c);
	free(p.flat);
	free(p.momentum);
	free(p.velocity);
	free(p.given);
	free(p.got);
	gn_model_destroy(p.model);
	gn_comm_destroy(p.comm);
	gn_world_destroy(world);
	return status ? exit_code(&err) : 0;
}
