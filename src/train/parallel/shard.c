#include "src/train/parallel/shard.h"

#include "src/train/parallel/reducer.h"
#include "src/train/plan/group_sums.h"

#include <stdlib.h>

enum { BLOCK = 16 }; /* elements: offsets of parameters are multiples of it */

/* Sums over the ranks of a shard, and then over another group of each of them. */
struct sums {
	struct gn_update_group group; /* first: it leads back here */
	struct gn_shard *shard;
	struct gn_update_group *beyond; /* NULL: none */
};

struct gn_shard {
	struct sums all, pieces;
	struct gn_comm *comm;
	struct gn_stream *stream;
	struct gn_group_sums *sums;
	struct gn_shard_range *ranges; /* by bucket; an empty one has no part */
	size_t buckets;
	struct gn_parts parts;	       /* one for each range that is not empty, the rest, and the ward's */
	struct gn_parts own;	       /* of them */
	size_t block_elements;
	int ward;
};

enum gn_shard_mode gn_shard_mode_of(const char *name)
{
	return !name || !strcmp(name, "none") ? GN_SHARD_NONE : !strcmp(name, "optimizer") ? GN_SHARD_OPTIMIZER : GN_SHARD_GRADIENTS;
}

size_t gn_shard_rest(size_t params, int ranks)
{
	return params - params % (BLOCK * (size_t)ranks);
}

static size_t move_up(size_t element, size_t params, int ranks)
{
	size_t step = BLOCK * (size_t)ranks, up = (element + step - 1) / step * step, last = gn_shard_rest(params, ranks);

	return up < last ? up : last;
}

struct gn_shard_range gn_shard_range(size_t params, int ranks, size_t begin, size_t end)
{
	size_t from = move_up(begin, params, ranks);

	return (struct gn_shard_range){from, (move_up(end, params, ranks) - from) / (size_t)ranks};
}

static void add_part(struct gn_parts *parts, size_t begin, size_t count, int is_copy)
{
	if (!count)
		return;
	parts->list[parts->count++] = (struct gn_part){.begin = begin, .count = count, .at = parts->elements, .is_copy = is_copy};
	parts->elements += count;
}

static void add_blocks(struct gn_shard *s, int rank, int is_copy)
{
	for (size_t b = 0; b < s->buckets; b++)
		add_part(&s->parts, s->ranges[b].begin + (size_t)rank * s->ranges[b].each, s->ranges[b].each, is_copy);
}

/* begins: of buckets, from the end of the array to its beginning. */
static void divide(struct gn_shard *s, const struct gn_model *model, const size_t *begins)
{
	size_t params = gn_model_param_elements(model), end = params, rest;
	int ranks = gn_comm_size(s->comm), rank = gn_comm_rank(s->comm);

	for (size_t b = 0; b < s->buckets; b++) {
		s->ranges[b] = gn_shard_range(params, ranks, begins[b], end);
		end = begins[b];
	}
	add_blocks(s, rank, 0);
	s->block_elements = s->parts.elements;
	rest = gn_shard_rest(params, ranks);
	add_part(&s->parts, rest, params - rest, rank > 0);
	s->own = s->parts;
	if (s->ward >= 0)
		add_blocks(s, s->ward, 1);
}

static enum gn_status sum(struct gn_update_group *group, double *values, size_t count, struct gn_err *err)
{
	const struct sums *of = (struct sums *)group;
	struct gn_plan_group *g = gn_group_sums_group(of->shard->sums);
	enum gn_status status = g->exchange(g, of->shard->stream, &(struct gn_op_exchange){GN_EXCHANGE_SUM, count, sizeof *values}, values, err);

	return status || !of->beyond ? status : of->beyond->sum(of->beyond, values, count, err);
}

enum gn_status gn_shard_create(struct gn_comm *comm, const struct gn_model *model, size_t bucket_bytes, int ward, struct gn_stream *stream,
			       struct gn_shard **out, struct gn_err *err)
{
	size_t buckets = gn_reducer_count(model, bucket_bytes), *begins = calloc(buckets + 1, sizeof *begins);
	struct gn_shard *s = calloc(1, sizeof *s);
	enum gn_status status = GN_OK;

	if (s) {
		s->ranges = calloc(buckets + 1, sizeof *s->ranges);
		s->parts.list = calloc(2 * buckets + 1, sizeof *s->parts.list);
	}
	if (!s || !begins || !s->ranges || !s->parts.list)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the parts of %zu buckets", buckets);
	if (!status)
		status = gn_group_sums_create(comm, &s->sums, err);
	if (!status) {
		s->all = s->pieces = (struct sums){{sum}, s, NULL};
		s->comm = comm;
		s->stream = stream;
		s->buckets = buckets;
		s->ward = ward;
		gn_reducer_begins(model, bucket_bytes, begins);
		divide(s, model, begins);
		*out = s;
	} else {
		gn_shard_destroy(s);
	}
	free(begins);
	return status;
}

void gn_shard_destroy(struct gn_shard *s)
{
	if (!s)
		return;
	gn_group_sums_destroy(s->sums);
	free(s->ranges);
	free(s->parts.list);
	free(s);
}

const struct gn_parts *gn_shard_parts(const struct gn_shard *s)
{
	return &s->parts;
}

const struct gn_parts *gn_shard_own_parts(const struct gn_shard *s)
{
	return &s->own;
}

int gn_shard_ward(const struct gn_shard *s)
{
	return s->ward;
}

size_t gn_shard_block_elements(const struct gn_shard *s)
{
	return s->block_elements;
}

void gn_shard_set_beyond(struct gn_shard *s, struct gn_update_group *all, struct gn_update_group *pieces)
{
	s->all.beyond = all;
	s->pieces.beyond = pieces;
}

struct gn_update_group *gn_shard_group(struct gn_shard *s)
{
	return &s->all.group;
}

struct gn_update_group *gn_shard_pieces_group(struct gn_shard *s)
{
	return &s->pieces.group;
}

enum gn_status gn_shard_gather(struct gn_shard *s, const float *packed, float *flat, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < s->own.count; i++) {
		const struct gn_part *p = &s->own.list[i];

		memcpy(flat + p->begin, packed + p->at, p->count * sizeof(float));
	}
	for (size_t b = 0; b < s->buckets && !status; b++) {
		const struct gn_shard_range *r = &s->ranges[b];

		if (r->each)
			status = gn_comm_run(s->comm, &(struct gn_coll_args){.what = GN_COLLECTIVE_ALLGATHER, .out = flat + r->begin,
									     .count = r->each, .type = GN_F32}, err);
	}
	return status;
}
