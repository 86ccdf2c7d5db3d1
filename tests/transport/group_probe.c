/* Groups of ranks: random splits, nested and overlapping, several in flight at once, every result checked.
 * usage: group_probe TRANSPORT ROUNDS [SEED]    prints the number of groups that rank 0 was in; exit code 1 when a result is wrong.
 *        group_probe TRANSPORT stall            two groups of even and odd ranks; the last rank does not come to its group's sum
 * PROBE_PROGRESS=thread: progress by a thread. */
#include "src/base/log.h"
#include "transport/coll/comm.h"
#include "transport/schedule/algo.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS = 4, OPS = 3, COUNT_MAX = 3000 };

struct probe {
	struct gn_world *world;
	struct gn_comm *comm;
	uint64_t common, own; /* states of generators: the same on all ranks; this rank's */
	int wrong;
	uint64_t groups;
};

static uint32_t draw(uint64_t *state)
{
	return (uint32_t)((*state = *state * 6364136223846793005u + 1442695040888963407u) >> 33);
}

/* One operation of one group. */
struct op {
	struct gn_coll *coll;
	enum gn_collective what;
	size_t count;
	int root;
	int64_t *in, *out;
};

static int64_t given(int world_rank, size_t i)
{
	return (int64_t)(i * 3 + (size_t)world_rank * 1000);
}

static int64_t wanted(const struct gn_comm *g, const struct op *o, size_t i)
{
	int64_t sum = 0;

	if (o->what == GN_COLLECTIVE_BROADCAST)
		return given(gn_comm_world_rank(g, o->root), i);
	if (o->what == GN_COLLECTIVE_ALLGATHER)
		return given(gn_comm_world_rank(g, (int)(i / o->count)), i % o->count);
	for (int r = 0; r < gn_comm_size(g); r++)
		sum += given(gn_comm_world_rank(g, r), i);
	return sum;
}

static size_t out_count(const struct gn_comm *g, const struct op *o)
{
	return o->what == GN_COLLECTIVE_ALLGATHER ? o->count * (size_t)gn_comm_size(g) : o->count;
}

/* seed: the group's, so that its ranks draw alike. */
static enum gn_status prepare(struct probe *p, struct gn_comm *g, uint64_t *seed, struct op *o, struct gn_err *err)
{
	static const enum gn_collective all[] = {GN_COLLECTIVE_ALLREDUCE, GN_COLLECTIVE_BROADCAST, GN_COLLECTIVE_ALLGATHER};
	struct gn_coll_args args;
	int me = gn_comm_world_rank(g, gn_comm_rank(g));

	(void)p;
	o->what = all[draw(seed) % 3];
	o->count = draw(seed) % 4 ? draw(seed) % 50 + 1 : draw(seed) % COUNT_MAX + 1;
	o->root = (int)(draw(seed) % (uint32_t)gn_comm_size(g));
	o->in = calloc(o->count, sizeof *o->in);
	o->out = calloc(out_count(g, o), sizeof *o->out);
	for (size_t i = 0; i < o->count; i++)
		o->in[i] = given(me, i);
	args = (struct gn_coll_args){.what = o->what, .in = o->in, .out = o->out, .count = o->count, .type = GN_I64, .root = o->root};
	return gn_coll_prepare(g, &args, &o->coll, err);
}

static void check(struct probe *p, const struct gn_comm *g, const struct op *o)
{
	for (size_t i = 0; i < out_count(g, o); i++) {
		/* a root's own output is its input, which it need not copy */
		int64_t got = o->what == GN_COLLECTIVE_BROADCAST && gn_comm_rank(g) == o->root ? o->in[i] : o->out[i];

		if (got == wanted(g, o, i))
			continue;
		fprintf(stderr, "%s in %s of %d ranks: element %zu is %" PRId64 ", expected %" PRId64 "\n", gn_collective_name(o->what),
			gn_comm_name(g), gn_comm_size(g), i, got, wanted(g, o, i));
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
		status = gn_coll_start(ops[g][started[g]++].coll, err);
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
			free(ops[g][i].in);
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
		uint64_t seed = number * 977 + (uint64_t)g;

		for (int i = 0; groups[g] && i < OPS && !status; i++)
			status = prepare(p, groups[g], &seed, &ops[g][i], err);
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

int main(int argc, char **argv)
{
	struct gn_comm_options options = {.transport = argc > 1 ? argv[1] : "auto", .progress = getenv("PROBE_PROGRESS")};
	uint64_t rounds = argc > 2 ? strtoull(argv[2], NULL, 10) : 10, seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
	struct probe p = {.common = seed};
	struct gn_log *log = NULL;
	struct gn_err err = {.text = ""};
	enum gn_status status = gn_log_create(2, GN_LOG_WARN, &log, &err);

	if (!status)
		status = gn_world_create(NULL, log, &p.world, &err);
	if (!status)
		status = gn_comm_create(p.world, &options, log, &p.comm, &err);
	if (!status)
		p.own = seed * 131 + (uint64_t)gn_comm_rank(p.comm);
	if (!status && argc > 2 && !strcmp(argv[2], "stall"))
		status = stall(&p, &err);
	for (uint64_t i = 0; i < rounds && !status && !p.wrong; i++)
		status = round_of(&p, i, &err);
	if (!status)
		status = gn_comm_barrier(p.comm, &err);
	if (status)
		fprintf(stderr, "%s\n", err.text);
	else if (gn_comm_rank(p.comm) == 0)
		printf("in %" PRIu64 " groups\n", p.groups);
	gn_comm_destroy(p.comm);
	gn_world_destroy(p.world);
	gn_log_destroy(log);
	return status || p.wrong ? 1 : 0;
}
