/* Groups of ranks: random splits, nested and overlapping, several in flight at once; random operations, types, sizes and memory;
 * every result checked against a serial computation.
 * usage: group_probe TRANSPORT ROUNDS [SEED]    prints the number of groups that rank 0 was in, and of its operations that read
 *                                               other ranks' memory; exit code 1 when a result is wrong.
 *        group_probe TRANSPORT many             many groups at once; prints how many share memory
 *        group_probe TRANSPORT stall            two groups of even and odd ranks; the last rank does not come to its group's sum
 * PROBE_PROGRESS=thread: progress by a thread. */
#include "src/base/log.h"
#include "transport/coll/comm.h"
#include "transport/schedule/algo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 4, OPS = 3, RANKS_MAX = 12, BLOCK_MAX = 3000, COUNT_MAX = 40000 };
#define BUFFER_BYTES ((size_t)COUNT_MAX * sizeof(int64_t))

struct probe {
	struct gn_world *world;
	struct gn_comm *comm;
	char *shared; /* of the world: two buffers for each operation */
	uint64_t seed, common, own; /* states of generators: the same on all ranks; this rank's */
	int wrong;
	uint64_t groups, direct;
};

static uint32_t draw(uint64_t *state)
{
	return (uint32_t)((*state = *state * 6364136223846793005u + 1442695040888963407u) >> 33);
}

enum memory { PRIVATE, OF_WORLD, OF_GROUP, MEMORY_COUNT };

/* One operation of one group. */
struct op {
	struct gn_coll *coll;
	enum gn_collective what;
	enum gn_dtype type;
	enum memory memory;
	size_t count;
	int root, in_place, uneven; /* uneven: all-to-all with a count for each rank */
	char *in, *out; /* in: equal to out in place */
};

static int64_t given(int world_rank, size_t i)
{
	return (int64_t)((i * 3 + (size_t)world_rank * 17) % 1000);
}

static void put(const struct op *o, char *buffer, size_t i, int64_t value)
{
	int32_t i32 = (int32_t)value;
	float f32 = (float)value;
	double f64 = (double)value;
	const void *from = o->type == GN_F32 ? (const void *)&f32 : o->type == GN_F64 ? (const void *)&f64 :
			   o->type == GN_I32 ? (const void *)&i32 : (const void *)&value;

	memcpy(buffer + i * gn_dtype_bytes(o->type), from, gn_dtype_bytes(o->type));
}

static int64_t get(const struct op *o, const char *buffer, size_t i)
{
	int64_t i64;
	int32_t i32;
	float f32;
	double f64;

	memcpy(&i64, buffer + i * gn_dtype_bytes(o->type), o->type == GN_I64 ? sizeof i64 : 0);
	memcpy(&i32, buffer + i * gn_dtype_bytes(o->type), o->type == GN_I32 ? sizeof i32 : 0);
	memcpy(&f32, buffer + i * gn_dtype_bytes(o->type), o->type == GN_F32 ? sizeof f32 : 0);
	memcpy(&f64, buffer + i * gn_dtype_bytes(o->type), o->type == GN_F64 ? sizeof f64 : 0);
	return o->type == GN_I64 ? i64 : o->type == GN_I32 ? i32 : o->type == GN_F32 ? (int64_t)f32 : (int64_t)f64;
}

/* The elements that rank `from` sends to rank `to`. */
static size_t sent(const struct op *o, int from, int to)
{
	return o->uneven ? (size_t)((from * 7 + to * 3) % 5) * (o->count / 4) : o->count;
}

/* Of an all-to-all: which element of which rank. */
static int64_t exchanged(const struct gn_comm *g, const struct op *o, size_t i)
{
	int me = gn_comm_rank(g), from = 0;
	size_t at = 0;

	for (; i >= sent(o, from, me); from++)
		i -= sent(o, from, me);
	for (int to = 0; to < me; to++)
		at += sent(o, from, to);
	return given(gn_comm_world_rank(g, from), at + i);
}

/* The serial computation. */
static int64_t wanted(const struct gn_comm *g, const struct op *o, size_t i)
{
	size_t mine = (size_t)gn_comm_rank(g) * o->count, at = o->what == GN_COLLECTIVE_REDUCE_SCATTER ? mine + i : i;
	int64_t sum = 0;

	switch (o->what) {
	case GN_COLLECTIVE_BROADCAST:
		return given(gn_comm_world_rank(g, o->root), i);
	case GN_COLLECTIVE_ALLGATHER:
		return given(gn_comm_world_rank(g, (int)(i / o->count)), i % o->count);
	case GN_COLLECTIVE_ALL_TO_ALL:
		return exchanged(g, o, i);
	default:
		for (int r = 0; r < gn_comm_size(g); r++)
			sum += given(gn_comm_world_rank(g, r), at);
		return sum;
	}
}

static int in_blocks(const struct op *o)
{
	return o->what == GN_COLLECTIVE_ALLGATHER || o->what == GN_COLLECTIVE_ALL_TO_ALL || o->what == GN_COLLECTIVE_REDUCE_SCATTER;
}

/* The elements in the buffer for the input, or for the output. */
static size_t count_of(const struct gn_comm *g, const struct op *o, int input)
{
	enum gn_collective all_blocks = input ? GN_COLLECTIVE_REDUCE_SCATTER : GN_COLLECTIVE_ALLGATHER;
	int me = gn_comm_rank(g);
	size_t count = 0;

	if (o->what != GN_COLLECTIVE_ALL_TO_ALL)
		return o->what == all_blocks ? o->count * (size_t)gn_comm_size(g) : o->count;
	for (int r = 0; r < gn_comm_size(g); r++)
		count += input ? sent(o, me, r) : sent(o, r, me);
	return count;
}

/* index: of the operation among those of all groups, for its place in shared memory. */
static enum gn_status take_memory(struct probe *p, struct gn_comm *g, struct op *o, int index, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	void *memory = NULL;

	if (o->memory == OF_WORLD)
		memory = p->shared + (size_t)index * 2 * BUFFER_BYTES;
	else if (o->memory == OF_GROUP)
		status = gn_comm_alloc(g, 2 * BUFFER_BYTES, &memory, err);
	else if (!(memory = malloc(2 * BUFFER_BYTES)))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	o->out = memory;
	o->in = o->in_place || status ? o->out : o->out + BUFFER_BYTES;
	return status;
}

/* seed: the group's, so that its ranks draw alike. */
static enum gn_status prepare(struct probe *p, struct gn_comm *g, uint64_t *seed, struct op *o, int index, struct gn_err *err)
{
	static const enum gn_collective all[] = {GN_COLLECTIVE_ALLREDUCE, GN_COLLECTIVE_BROADCAST, GN_COLLECTIVE_ALLGATHER,
						 GN_COLLECTIVE_REDUCE_SCATTER, GN_COLLECTIVE_REDUCE, GN_COLLECTIVE_ALL_TO_ALL};
	static const enum gn_dtype types[] = {GN_I64, GN_I32, GN_F32, GN_F64};
	struct gn_coll_args args;
	size_t to[RANKS_MAX], from[RANKS_MAX];
	uint32_t most;
	enum gn_status status;

	o->what = all[draw(seed) % 3 ? draw(seed) % 6 : 0];
	o->type = types[draw(seed) % 4];
	o->memory = draw(seed) % MEMORY_COUNT;
	o->in_place = draw(seed) % 2 && (o->what == GN_COLLECTIVE_ALLREDUCE || o->what == GN_COLLECTIVE_BROADCAST);
	most = in_blocks(o) ? BLOCK_MAX : COUNT_MAX;
	o->count = draw(seed) % 4 ? draw(seed) % 50 + 1 : draw(seed) % most + 1;
	o->root = (int)(draw(seed) % (uint32_t)gn_comm_size(g));
	o->uneven = draw(seed) % 2 && o->what == GN_COLLECTIVE_ALL_TO_ALL;
	for (int r = 0; r < gn_comm_size(g); r++) {
		to[r] = sent(o, gn_comm_rank(g), r);
		from[r] = sent(o, r, gn_comm_rank(g));
	}
	status = take_memory(p, g, o, index, err);
	args = (struct gn_coll_args){.what = o->what, .in = o->in_place ? NULL : o->in, .out = o->out, .count = o->count,
				     .type = o->type, .root = o->root, .counts = o->uneven ? to : NULL,
				     .counts_from = o->uneven ? from : NULL};
	if (!status)
		status = gn_coll_prepare(g, &args, &o->coll, err);
	return status;
}

static void fill(const struct gn_comm *g, struct op *o)
{
	int me = gn_comm_world_rank(g, gn_comm_rank(g));

	memset(o->out, 0xff, count_of(g, o, 0) * gn_dtype_bytes(o->type));
	for (size_t i = 0; i < count_of(g, o, 1); i++)
		put(o, o->in, i, given(me, i));
}

static void check(struct probe *p, const struct gn_comm *g, const struct op *o)
{
	struct gn_coll_info info;
	/* a root's own output is its input, which it need not copy */
	const char *from = o->what == GN_COLLECTIVE_BROADCAST && gn_comm_rank(g) == o->root ? o->in : o->out;
	int has_result = o->what != GN_COLLECTIVE_REDUCE || gn_comm_rank(g) == o->root;

	gn_coll_describe(o->coll, &info);
	p->direct += (uint64_t)info.direct;
	for (size_t i = 0; has_result && i < count_of(g, o, 0); i++) {
		if (get(o, from, i) == wanted(g, o, i))
			continue;
		fprintf(stderr, "%s (%s) of %zu %s in %s of %d ranks, memory %d: element %zu is %" PRId64 ", expected %" PRId64 "\n",
			gn_collective_name(o->what), info.algorithm, o->count, gn_dtype_name(o->type), gn_comm_name(g),
			gn_comm_size(g), (int)o->memory, i, get(o, from, i), wanted(g, o, i));
		p->wrong = 1;
		return;
	}
}

/* Operations of all groups start in the order of each group, but the groups' orders are interleaved as this rank likes. */
static enum gn_status run_all(struct probe *p, struct gn_comm **groups, struct op ops[GROUPS][OPS], struct gn_err *err)
{
	int started[GROUPS] = {0}, left = 0;
	enum gn_status status = GN_OK;

	for (int g = 0; g < GROUPS; g++)
		left += groups[g] ? OPS : 0;
	while (left && !status) {
		int g = (int)(draw(&p->own) % GROUPS);

		if (!groups[g] || started[g] == OPS)
			continue;
		fill(groups[g], &ops[g][started[g]]);
		status = gn_coll_start(ops[g][started[g]++].coll, NULL, err);
		left--;
	}
	for (int first = (int)(draw(&p->own) % GROUPS), k = 0; k < GROUPS && !status; k++) {
		int g = (first + k) % GROUPS;

		for (int i = OPS - 1; groups[g] && i >= 0 && !status; i--) {
			status = gn_coll_wait(ops[g][i].coll, err);
			if (!status)
				check(p, groups[g], &ops[g][i]);
		}
	}
	return status;
}

static void free_ops(struct gn_comm **groups, struct op ops[GROUPS][OPS])
{
	for (int g = 0; g < GROUPS; g++)
		for (int i = 0; groups[g] && i < OPS; i++) {
			gn_coll_free(ops[g][i].coll);
			if (ops[g][i].memory == OF_GROUP)
				gn_comm_free(groups[g], ops[g][i].out);
			else if (ops[g][i].memory == PRIVATE)
				free(ops[g][i].out);
		}
}

/* The last group is split from the first: nested. */
static enum gn_status split_all(struct probe *p, struct gn_comm **groups, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int g = 0; g < GROUPS && !status; g++) {
		struct gn_comm *parent = g == GROUPS - 1 ? groups[0] : p->comm;
		int colors = (int)(draw(&p->common) % 4) + 1, color = (int)(draw(&p->own) % (uint32_t)colors);

		if (draw(&p->own) % 8 == 0)
			color = -1;
		groups[g] = NULL;
		if (parent)
			status = gn_comm_split(parent, color, (int)(draw(&p->own) % 5), "test", &groups[g], err);
		p->groups += groups[g] != NULL;
	}
	return status;
}

static enum gn_status round_of(struct probe *p, uint64_t number, struct gn_err *err)
{
	struct gn_comm *groups[GROUPS] = {0};
	struct op ops[GROUPS][OPS] = {0};
	enum gn_status status = split_all(p, groups, err);

	for (int g = 0; g < GROUPS && !status; g++) {
		uint64_t seed = p->seed * 7919 + number * 977 + (uint64_t)g;

		for (int i = 0; groups[g] && i < OPS && !status; i++)
			status = prepare(p, groups[g], &seed, &ops[g][i], g * OPS + i, err);
	}
	for (int again = 0; again < 3 && !status; again++)
		status = run_all(p, groups, ops, err);
	free_ops(groups, ops);
	for (int g = GROUPS - 1; g >= 0; g--)
		gn_comm_destroy(groups[g]);
	return status;
}

/* The other group goes on for a while, so that the numbers of operations differ between the groups. */
static enum gn_status stall(struct probe *p, struct gn_err *err)
{
	int rank = gn_comm_rank(p->comm), size = gn_comm_size(p->comm);
	struct gn_comm *g = NULL;
	int32_t one = 1;
	enum gn_status status = gn_comm_split(p->comm, rank % 2, 0, "half", &g, err);

	for (int i = 0; i < (rank % 2 ? 3 : 20) && !status; i++)
		status = gn_comm_allreduce(g, &one, 1, GN_I32, NULL, err);
	if (!status && rank != size - 1)
		status = gn_comm_barrier(g, err);
	if (!status)
		status = gn_comm_barrier(p->comm, err);
	gn_comm_destroy(g);
	return status;
}

/* Whether an allreduce in each of the groups is right; *shared: how many groups used shared memory for it. */
static enum gn_status sum_in_each(struct probe *p, struct gn_comm **groups, int count, int *shared, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	*shared = 0;
	for (int g = 0; g < count && !status; g++) {
		int32_t value = g;
		struct gn_coll_info info;
		struct gn_coll *coll = NULL;

		status = gn_coll_allreduce(groups[g], &value, 1, GN_I32, NULL, NULL, &coll, err);
		if (!status)
			status = gn_coll_start(coll, NULL, err);
		if (!status)
			status = gn_coll_wait(coll, err);
		if (status)
			return status;
		gn_coll_describe(coll, &info);
		*shared += !strcmp(info.algorithm, "shared");
		p->wrong |= value != g * gn_comm_size(groups[g]);
		gn_coll_free(coll);
	}
	return status;
}

/* More groups than may share memory: the others use messages. When they are gone, new ones share memory again. */
static enum gn_status many(struct probe *p, struct gn_err *err)
{
	enum { MANY = 66, FEW = 2 };
	enum gn_status status = GN_OK;
	int shared[2] = {0};

	for (int turn = 0; turn < 2 && !status; turn++) {
		struct gn_comm *groups[MANY] = {0};
		int count = turn ? FEW : MANY;

		for (int g = 0; g < count && !status; g++)
			status = gn_comm_split(p->comm, 0, 0, "many", &groups[g], err);
		if (!status)
			status = sum_in_each(p, groups, count, &shared[turn], err);
		for (int g = count - 1; g >= 0; g--)
			gn_comm_destroy(groups[g]);
	}
	if (!status && gn_comm_rank(p->comm) == 0)
		printf("%d of %d groups share memory, then %d of %d\n", shared[0], MANY, shared[1], FEW);
	return status;
}

int main(int argc, char **argv)
{
	struct gn_comm_options options = {.transport = argc > 1 ? argv[1] : "auto", .progress = getenv("PROBE_PROGRESS")};
	uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 10, seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	struct probe p = {.seed = seed, .common = seed};
	void *shared = NULL;
	struct gn_log *log = NULL;
	struct gn_err err = {.text = ""};
	enum gn_status status = gn_log_create(2, GN_LOG_WARN, &log, &err);

	if (!status)
		status = gn_world_create(NULL, log, &p.world, &err);
	if (!status)
		status = gn_comm_create(p.world, &options, log, &p.comm, &err);
	if (!status)
		p.own = seed * 131 + (uint64_t)gn_comm_rank(p.comm);
	if (!status && gn_comm_size(p.comm) > RANKS_MAX)
		status = gn_err_set(&err, GN_ERR_USAGE, "for at most %d ranks", RANKS_MAX);
	if (!status)
		status = gn_comm_alloc(p.comm, 2 * BUFFER_BYTES * GROUPS * OPS, &shared, &err);
	p.shared = shared;
	if (!status && argc > 2 && !strcmp(argv[2], "stall"))
		status = stall(&p, &err);
	if (!status && argc > 2 && !strcmp(argv[2], "many"))
		status = many(&p, &err);
	for (uint64_t i = 0; i < rounds && !status && !p.wrong; i++)
		status = round_of(&p, i, &err);
	if (!status)
		status = gn_comm_barrier(p.comm, &err);
	if (status)
		fprintf(stderr, "%s\n", err.text);
	else if (gn_comm_rank(p.comm) == 0)
		printf("in %" PRIu64 " groups, %" PRIu64 " times from memory of other ranks\n", p.groups, p.direct);
	if (shared)
		gn_comm_free(p.comm, shared);
	gn_comm_destroy(p.comm);
	gn_world_destroy(p.world);
	gn_log_destroy(log);
	return status || p.wrong ? 1 : 0;
}
