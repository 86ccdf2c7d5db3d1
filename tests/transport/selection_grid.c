/* Compares the algorithms and slices that the cost model selects (select.h) with the fastest by the simulator (sim.h), for each
 * collective, costs, placement of the ranks and length; prints tab-separated lines and a summary.
 *
 * Usage: selection_grid [--full] [--list] [--placement NAME] [--algo NAME] [--choices FILE] [--within PERCENT]
 *   --full       512 ranks and less, all lengths: minutes; otherwise 16 ranks and less: a second
 *   --list       prints what is selected, without simulations
 *   --placement  one placement only
 *   --algo       one algorithm is all that is selected from
 *   --choices    other selections, as --list prints them: compared with these, not with the fastest of all candidates
 *   --within     how many of a collective's selections have to be; 100
 *
 * The simulations of the fastest are of candidates that are predicted to take up to 1.6 times as long as the selected one, and have
 * up to 2 million steps on all ranks. Exit code 1: a selection takes more than 1.05 times as long as the other, each with its share
 * of the time to connect, is not listed in `accepted`, and there are more of these than --within allows. */
#include "transport/select/select.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIMIT 1.05
/* Candidates whose predicted time is above so many times the selected one's are not simulated. */
#define SIMULATED_FACTOR 1.6
/* Steps of all ranks, above which a candidate is not simulated. */
#define STEPS_MAX 2e6
#define NAME_BYTES 48

struct placement {
	const char *name;
	int small;    /* in the reduced grid */
	int nodes[16]; /* ranks of each node; one number below zero: that many nodes of `local` ranks each */
	int local;
	int cyclic;    /* rank r on node r modulo the number of nodes */
};

static const struct placement placements[] = {
	{"2x1", 1, {-2}, 1, 0},	  {"3x1", 1, {-3}, 1, 0},    {"4x1", 1, {-4}, 1, 0},	{"5x1", 0, {-5}, 1, 0},
	{"6x1", 0, {-6}, 1, 0},	  {"7x1", 1, {-7}, 1, 0},    {"8x1", 1, {-8}, 1, 0},	{"12x1", 0, {-12}, 1, 0},
	{"16x1", 1, {-16}, 1, 0}, {"24x1", 0, {-24}, 1, 0},  {"32x1", 0, {-32}, 1, 0},	{"48x1", 0, {-48}, 1, 0},
	{"64x1", 0, {-64}, 1, 0}, {"100x1", 0, {-100}, 1, 0}, {"128x1", 0, {-128}, 1, 0}, {"256x1", 0, {-256}, 1, 0},
	{"300x1", 0, {-300}, 1, 0}, {"512x1", 0, {-512}, 1, 0},
	{"1x2", 1, {-1}, 2, 0},	  {"1x4", 1, {-1}, 4, 0},    {"1x8", 0, {-1}, 8, 0},	{"2x2", 1, {-2}, 2, 0},
	{"2x4", 1, {-2}, 4, 0},	  {"3x2", 1, {-3}, 2, 0},    {"4x2", 1, {-4}, 2, 0},	{"4x4", 1, {-4}, 4, 0},
	{"6x4", 0, {-6}, 4, 0},	  {"8x2", 0, {-8}, 2, 0},    {"8x4", 0, {-8}, 4, 0},	{"8x8", 0, {-8}, 8, 0},
	{"12x8", 0, {-12}, 8, 0}, {"16x4", 0, {-16}, 4, 0},  {"16x8", 0, {-16}, 8, 0},	{"32x8", 0, {-32}, 8, 0},
	{"64x8", 0, {-64}, 8, 0}, {"128x4", 0, {-128}, 4, 0},
	{"2+1", 1, {2, 1}, 0, 0}, {"3+1", 1, {3, 1}, 0, 0},  {"4+2", 0, {4, 2}, 0, 0},	{"2+2+1", 1, {2, 2, 1}, 0, 0},
	{"4+4+3", 1, {4, 4, 3}, 0, 0}, {"1+4+2+4", 0, {1, 4, 2, 4}, 0, 0}, {"8+8+8+5", 0, {8, 8, 8, 5}, 0, 0},
	{"8x8-1", 0, {8, 8, 8, 8, 8, 8, 8, 7}, 0, 0},
	{"2x2c", 1, {-2}, 2, 1},  {"4x2c", 1, {-4}, 2, 1},   {"2x4c", 0, {-2}, 4, 1},	{"8x4c", 0, {-8}, 4, 1},
	{"16x8c", 0, {-16}, 8, 1},
};

static const struct {
	const char *name, *lanes;
	double gbit;
	int small;
} fabrics[] = {{"infiniband", "rc_mlx5/mlx5_0:1", 100, 1}, {"tcp", "tcp/eth0", 25, 1}, {"tcp-1g", "tcp/eth0", 1, 0}};

/* Compared with the fastest, without --full. */
static const struct {
	const char *where;
	double ratio;
	const char *reason;
} accepted[] = {
	{"allreduce\tinfiniband\t4+4+3\t262144", 1.06, "hierarchical-ring is predicted to take 11 % too long"},
	{"reduce-scatter\ttcp\t2x4\t32768", 1.07, "direct is predicted to take 6 % too short"},
	{"reduce-scatter\ttcp\t4x2c\t16777216", 1.09, "recursive-halving in 8 slices is predicted to take 7 % too short"},
	{"allreduce\ttcp\t3+1\t4096", 1.07, "recursive-doubling is predicted to take 7 % too short"},
};

static int is_accepted(const char *where, double ratio)
{
	for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++)
		if (!strcmp(accepted[i].where, where) && ratio <= accepted[i].ratio) {
			printf("# accepted: %s: %s\n", where, accepted[i].reason);
			return 1;
		}
	return 0;
}

struct total {
	int cases, over, slower; /* over: with their share of connecting; slower: without */
	double worst;
	char where[128];
};

struct pick {
	char where[128], algorithm[NAME_BYTES];
	unsigned pieces;
};

struct grid {
	int full, list;
	const char *placement, *algo;
	double within;
	struct pick *choices;
	size_t count;
	struct total totals[GN_COLLECTIVE_COUNT];
	double spent_s;
};

static struct gn_node_map *map_of(const struct placement *p)
{
	int nodes = 0, size = 0, node_of[4096];
	struct gn_node_map *map = NULL;
	struct gn_err err;

	if (p->nodes[0] < 0)
		nodes = -p->nodes[0];
	else
		while (nodes < 16 && p->nodes[nodes])
			nodes++;
	for (int n = 0; n < nodes; n++)
		for (int k = 0; k < (p->local ? p->local : p->nodes[n]); k++)
			node_of[size++] = n;
	for (int r = 0; r < size && p->cyclic; r++)
		node_of[r] = r % nodes;
	if (gn_node_map_create(node_of, size, &map, &err))
		fprintf(stderr, "selection_grid: %s\n", err.text);
	return map;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static enum gn_status simulated_s(const struct gn_select_args *args, const struct gn_algorithm *a, uint32_t pieces, double *out,
				  struct gn_err *err)
{
	struct gn_sim_topology t;
	struct gn_sim_result r;
	int local = args->map->size / args->map->nodes, regular = local * args->map->nodes == args->map->size;
	enum gn_status status;

	for (int k = 0; k < args->map->size; k++)
		regular &= args->map->node[k] == k / local;
	gn_cost_topology(args->cost, args->map->nodes, local, &t);
	t.map = regular ? NULL : args->map;
	status = gn_sim_run(&t, a, args->bytes, pieces, 0, &r, err);
	if (!status)
		*out = r.time_s;
	return status;
}

static double cost_of(const struct gn_choice *c, double seconds)
{
	return seconds + c->connecting_s / GN_SELECT_USES;
}

/* The cheapest of the candidates that are predicted to be near the selected one. */
static enum gn_status fastest(const struct gn_select_args *args, const struct gn_choice *chosen, struct gn_choice *best,
			      double *best_s, struct gn_err *err)
{
	size_t count;
	int sizes;
	const struct gn_algorithm *all = gn_algorithms(&count);
	const size_t *piece_bytes = gn_select_piece_bytes(&sizes);

	for (size_t i = 0; i < count; i++) {
		uint32_t seen[8];

		if (all[i].what != args->what)
			continue;
		for (int k = 0; k < sizes; k++) {
			struct gn_select_args one = *args;
			struct gn_select_form form;
			struct gn_choice c;
			double seconds;
			int again = 0;
			enum gn_status status;

			one.algo = all[i].name;
			one.piece_bytes = piece_bytes[k];
			status = gn_select(&one, &c, err);
			if (!status)
				status = gn_select_closed_form(args, &all[i], c.pieces, &form, err);
			if (status)
				return status;
			seen[k] = c.pieces;
			for (int j = 0; j < k; j++)
				again |= seen[j] == c.pieces;
			if (again || (c.algorithm == chosen->algorithm && c.pieces == chosen->pieces) ||
			    form.seconds > SIMULATED_FACTOR * chosen->predicted_s || form.steps * args->map->size > STEPS_MAX)
				continue;
			status = simulated_s(args, &all[i], c.pieces, &seconds, err);
			if (status)
				return status;
			if (cost_of(&c, seconds) < cost_of(best, *best_s)) {
				*best_s = seconds;
				*best = c;
			}
		}
	}
	return GN_OK;
}

static const struct pick *find_choice(const struct grid *g, const char *where)
{
	for (size_t i = 0; i < g->count; i++)
		if (!strcmp(g->choices[i].where, where))
			return &g->choices[i];
	return NULL;
}

static enum gn_status compare(struct grid *g, const struct gn_select_args *args, const char *where, struct gn_err *err)
{
	struct total *total = &g->totals[args->what];
	struct gn_select_form form;
	struct gn_choice c, other;
	double chosen_s, other_s, ratio, began = now_s();
	const struct pick *pick = find_choice(g, where);
	enum gn_status status = gn_select(args, &c, err);

	g->spent_s += now_s() - began;
	if (status)
		return status;
	if (g->list) {
		printf("%s\t%s\t%u\n", where, c.algorithm->name, c.pieces);
		return GN_OK;
	}
	status = simulated_s(args, c.algorithm, c.pieces, &chosen_s, err);
	other = c;
	other_s = chosen_s;
	if (!status && g->choices && pick) {
		other.algorithm = gn_algorithm_find(args->what, pick->algorithm);
		other.pieces = pick->pieces;
		status = gn_select_closed_form(args, other.algorithm, other.pieces, &form, err);
		other.connecting_s = form.connecting_s;
		if (!status)
			status = simulated_s(args, other.algorithm, other.pieces, &other_s, err);
	} else if (!status) {
		status = fastest(args, &c, &other, &other_s, err);
	}
	if (status)
		return status;
	ratio = cost_of(&c, chosen_s) / cost_of(&other, other_s);
	total->cases++;
	total->over += ratio > LIMIT && !is_accepted(where, ratio);
	total->slower += chosen_s > LIMIT * other_s;
	if (ratio > total->worst) {
		total->worst = ratio;
		snprintf(total->where, sizeof total->where, "%s", where);
	}
	printf("%s\t%s/%u\t%s/%u\t%.2f\t%.2f\t%.2f\t%.3f\n", where, c.algorithm->name, c.pieces, other.algorithm->name, other.pieces,
	       c.predicted_s * 1e6, chosen_s * 1e6, other_s * 1e6, ratio);
	return GN_OK;
}

static enum gn_status compare_lengths(struct grid *g, const struct gn_cost *cost, const char *fabric, const struct placement *p,
				      const struct gn_node_map *map, struct gn_err *err)
{
	for (int what = 0; what < GN_COLLECTIVE_COUNT; what++)
		for (size_t bytes = 64; bytes <= (size_t)32 << 20; bytes *= g->full ? 2 : 8) {
			struct gn_select_args args = {.what = (enum gn_collective)what, .bytes = bytes, .map = map, .cost = cost,
						      .algo = g->algo};
			char where[128];
			enum gn_status status;

			if (g->algo && !gn_algorithm_find(args.what, g->algo))
				break;
			snprintf(where, sizeof where, "%s\t%s\t%s\t%zu", gn_collective_name(args.what), fabric, p->name, bytes);
			status = compare(g, &args, where, err);
			if (status)
				return status;
			if (what == GN_COLLECTIVE_BARRIER)
				break;
		}
	fflush(stdout);
	return GN_OK;
}

static enum gn_status compare_all(struct grid *g, struct gn_err *err)
{
	for (size_t f = 0; f < sizeof fabrics / sizeof *fabrics; f++) {
		struct gn_net_device device = {.up = 1, .gbit_per_s = fabrics[f].gbit};
		struct gn_devices devices = {&device, 1};
		struct gn_cost cost;

		snprintf(device.name, sizeof device.name, "%s", strstr(fabrics[f].lanes, "mlx") ? "mlx5_0" : "eth0");
		gn_cost_guess(&devices, "posix/memory", fabrics[f].lanes, &cost);
		for (size_t k = 0; k < sizeof placements / sizeof *placements; k++) {
			const struct placement *p = &placements[k];
			struct gn_node_map *map;
			enum gn_status status;

			if (g->placement ? strcmp(g->placement, p->name) != 0 : !g->full && !(p->small && fabrics[f].small))
				continue;
			map = map_of(p);
			status = map ? compare_lengths(g, &cost, fabrics[f].name, p, map, err) : GN_ERR_NO_MEMORY;
			gn_node_map_destroy(map);
			if (status)
				return status;
		}
	}
	return GN_OK;
}

static int read_choices(struct grid *g, const char *path)
{
	FILE *in = fopen(path, "r");
	char line[512], what[32], fabric[32], placement[32];
	size_t room = 0, bytes;

	while (in && fgets(line, sizeof line, in)) {
		struct pick *p;

		if (g->count == room) {
			struct pick *moved = realloc(g->choices, (room = 2 * room + 1024) * sizeof *moved);

			if (!moved)
				break;
			g->choices = moved;
		}
		p = &g->choices[g->count];
		if (sscanf(line, "%31s %31s %31s %zu %47s %u", what, fabric, placement, &bytes, p->algorithm, &p->pieces) != 6)
			continue;
		snprintf(p->where, sizeof p->where, "%s\t%s\t%s\t%zu", what, fabric, placement, bytes);
		g->count++;
	}
	if (in)
		fclose(in);
	return in != NULL;
}

static int summarize(const struct grid *g)
{
	int over = 0;

	for (int what = 0; what < GN_COLLECTIVE_COUNT; what++) {
		const struct total *t = &g->totals[what];

		if (!t->cases)
			continue;
		printf("# %-14s %5d cases, %.2f %% within %.2f (%.2f %% without connecting), worst %.3f: %s\n",
		       gn_collective_name((enum gn_collective)what), t->cases,
		       100.0 * (t->cases - t->over) / t->cases, LIMIT,
		       100.0 * (t->cases - t->slower) / t->cases, t->worst, t->where);
		over += 100.0 * t->over > (100 - g->within) * t->cases;
	}
	printf("# selections took %.3f s in all\n", g->spent_s);
	return over;
}

int main(int argc, char **argv)
{
	struct grid g = {.within = 100};
	struct gn_err err;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--full"))
			g.full = 1;
		else if (!strcmp(argv[i], "--list"))
			g.list = 1;
		else if (!strcmp(argv[i], "--placement") && i + 1 < argc)
			g.placement = argv[++i];
		else if (!strcmp(argv[i], "--algo") && i + 1 < argc)
			g.algo = argv[++i];
		else if (!strcmp(argv[i], "--within") && i + 1 < argc)
			g.within = strtod(argv[++i], NULL);
		else if (strcmp(argv[i], "--choices") != 0 || i + 1 == argc || !read_choices(&g, argv[++i])) {
			fprintf(stderr, "usage: selection_grid [--full] [--list] [--placement NAME] [--algo NAME]\n"
					"                      [--choices FILE] [--within PERCENT]\n");
			return 2;
		}
	}
	if (compare_all(&g, &err)) {
		fprintf(stderr, "selection_grid: %s\n", err.text);
		return 2;
	}
	free(g.choices);
	return !g.list && summarize(&g) > 0;
}
