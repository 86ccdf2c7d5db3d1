#include "transport/select/select.h"

#include "src/base/strbuf.h"

#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAX 64
#define SIZES_MAX 4
/* The simulation budget, in steps of all ranks: about 4 ms. */
#define STEPS_MAX 10000
/* A pick is kept up to this factor, because the model's error is tens of percent. */
#define PICK_FACTOR 1.5
/* Candidates beyond this factor of the best closed form are not simulated: its error is smaller. */
#define SIMULATE_FACTOR 4

/* Whether each node has the same number of consecutive ranks, as the simulator requires. */
static int is_regular(const struct gn_node_map *map)
{
	int local = map->size / map->nodes;

	if (local * map->nodes != map->size)
		return 0;
	for (int r = 0; r < map->size; r++)
		if (map->node[r] != r / local)
			return 0;
	return 1;
}

const size_t *gn_select_piece_bytes(int *count)
{
	static const size_t all[SIZES_MAX] = {256 << 10, 64 << 10, 1 << 20, (size_t)1 << 40};

	*count = sizeof all / sizeof *all;
	return all;
}

struct candidate {
	struct gn_choice choice;
	double steps; /* of the busiest rank */
};

/* The candidate numbers of slices, without duplicates. */
static enum gn_status list_slice_counts(const struct gn_select_args *args, const struct gn_algorithm *a, uint32_t *out, int *count,
				  struct gn_err *err)
{
	struct gn_algo_args how = {.size = args->map->size, .map = args->map};
	int sizes;
	const size_t *piece_bytes = gn_select_piece_bytes(&sizes);
	double parts;
	enum gn_status status = gn_algorithm_parts(a, &how, &parts, err);

	if (args->piece_bytes) {
		piece_bytes = &args->piece_bytes;
		sizes = 1;
	}
	*count = 0;
	for (int i = 0; i < sizes && !status; i++) {
		int k = 0;

		out[*count] = gn_algorithm_pieces(parts, args->bytes, piece_bytes[i]);
		while (out[k] != out[*count])
			k++;
		*count += k == *count;
	}
	return status;
}

/* One slice, and a slice size that the caller asked for, may have any number of steps. */
static int has_too_many_steps(const struct gn_select_args *args, const struct gn_choice *c, double steps)
{
	return !args->piece_bytes && c->pieces > 1 && steps > GN_SELECT_STEPS_MAX;
}

static enum gn_status add_algorithm(const struct gn_select_args *args, const struct gn_algorithm *a, struct candidate *list,
				    int *count, struct gn_err *err)
{
	uint32_t pieces[SIZES_MAX];
	struct gn_select_form forms[SIZES_MAX] = {{.seconds = 0}};
	int sizes;
	enum gn_status status = list_slice_counts(args, a, pieces, &sizes, err);

	if (!status && args->map->size > 1)
		status = gn_select_closed_form(args, a, pieces, sizes, forms, err);
	for (int i = 0; i < sizes && !status && *count < CANDIDATES_MAX; i++) {
		struct gn_algo_args how = {.size = args->map->size, .pieces = pieces[i], .map = args->map};
		struct gn_choice c = {.algorithm = a, .pieces = pieces[i], .chunks = a->chunks(&how),
				      .predicted_s = forms[i].seconds, .connecting_s = forms[i].connecting_s};

		if (!has_too_many_steps(args, &c, forms[i].steps))
			list[(*count)++] = (struct candidate){c, forms[i].steps};
	}
	return status;
}

/* "auto|ring|recursive-doubling|..." */
static void append_names(enum gn_collective what, struct gn_strbuf *out)
{
	size_t count;
	const struct gn_algorithm *a = gn_algorithms(&count);

	gn_strbuf_puts(out, "auto");
	for (size_t i = 0; i < count; i++)
		if (a[i].what == what)
			gn_strbuf_printf(out, "|%s", a[i].name);
}

static enum gn_status list_candidates(const struct gn_select_args *args, struct candidate *list, int *count, struct gn_err *err)
{
	size_t all;
	const struct gn_algorithm *a = gn_algorithms(&all);
	int any = !args->algo || !strcmp(args->algo, "auto");
	enum gn_status status = GN_OK;
	struct gn_strbuf names;

	for (size_t i = 0; i < all && !status; i++)
		if (a[i].what == args->what && (any || !strcmp(a[i].name, args->algo)))
			status = add_algorithm(args, &a[i], list, count, err);
	if (status || *count)
		return status;
	gn_strbuf_init(&names);
	append_names(args->what, &names);
	gn_err_set(err, GN_ERR_USAGE, "%s has no algorithm %s; it has %s", gn_collective_name(args->what),
		   any ? "at all" : args->algo, gn_strbuf_text(&names));
	gn_strbuf_release(&names);
	return GN_ERR_USAGE;
}

static double cost_of(const struct gn_choice *c)
{
	return c->predicted_s + c->connecting_s / GN_SELECT_USES;
}

/* Ties are ordered by the table of algorithms, so that all ranks order them alike. */
static int by_cost(const void *a, const void *b)
{
	const struct gn_choice *x = &((const struct candidate *)a)->choice, *y = &((const struct candidate *)b)->choice;

	if (cost_of(x) < cost_of(y) || cost_of(x) > cost_of(y))
		return cost_of(x) < cost_of(y) ? -1 : 1;
	if (x->algorithm != y->algorithm)
		return x->algorithm < y->algorithm ? -1 : 1;
	return (x->pieces > y->pieces) - (x->pieces < y->pieces);
}

static enum gn_status simulate_best(const struct gn_select_args *args, struct candidate *list, int count,
				    struct gn_err *err)
{
	const struct gn_node_map *map = args->map;
	struct gn_sim_topology t;
	double limit = cost_of(&list[0].choice) * SIMULATE_FACTOR, left = STEPS_MAX;
	enum gn_status status = GN_OK;

	gn_cost_topology(args->cost, map->nodes, map->size / map->nodes, &t);
	for (int i = 0; i < count && !status; i++) {
		struct gn_choice *c = &list[i].choice;
		double steps = list[i].steps * (c->algorithm->rotation_symmetric ? map->size / map->nodes : map->size);
		struct gn_sim_result r;

		if (cost_of(c) > limit)
			break;
		if (steps > left)
			continue;
		left -= steps;
		status = gn_sim_run(&t, c->algorithm, args->bytes, c->pieces, 0, &r, err);
		if (status)
			break;
		c->predicted_s = r.time_s;
		c->simulated = 1;
	}
	return status;
}

/* If the best candidate by closed form was too large to simulate, it is selected. Otherwise candidates that were too large compete
 * by closed form with the simulated ones. */
static const struct gn_choice *cheapest(const struct candidate *list, int count)
{
	const struct gn_choice *best = &list[0].choice;

	for (int i = 1; i < count && list[0].choice.simulated; i++)
		if (cost_of(&list[i].choice) < cost_of(best))
			best = &list[i].choice;
	return best;
}

enum gn_status gn_select(const struct gn_select_args *args, struct gn_choice *out, struct gn_err *err)
{
	struct candidate list[CANDIDATES_MAX];
	int count = 0;
	enum gn_status status = list_candidates(args, list, &count, err);

	if (status)
		return status;
	qsort(list, (size_t)count, sizeof *list, by_cost);
	if (args->map->size > 1 && is_regular(args->map))
		status = simulate_best(args, list, count, err);
	if (!status)
		*out = *cheapest(list, count);
	return status;
}

static enum gn_status is_pick_good(const struct gn_cost *c, const struct gn_cost_pick *pick, const struct gn_node_map *map, int *out,
				  struct gn_err *err)
{
	struct gn_select_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .bytes = (size_t)pick->bytes, .map = map, .cost = c};
	struct gn_choice best, picked;
	enum gn_status status = gn_select(&args, &best, err);

	args.algo = pick->algorithm;
	args.piece_bytes = (size_t)pick->piece_bytes;
	if (!status)
		status = gn_select(&args, &picked, err);
	if (!status)
		*out = picked.predicted_s < PICK_FACTOR * best.predicted_s;
	return status;
}

enum gn_status gn_select_keep_picks(struct gn_cost *c, const struct gn_node_map *map, struct gn_err *err)
{
	int kept = 0, good = 0;
	enum gn_status status = GN_OK;

	if (c->tuned_nodes == map->nodes)
		return GN_OK;
	gn_cost_use_at(c, map->nodes);
	for (int i = 0; i < c->pick_count && !status; i++) {
		status = is_pick_good(c, &c->picks[i], map, &good, err);
		if (!status && good)
			c->picks[kept++] = c->picks[i];
	}
	if (!status)
		c->pick_count = kept;
	return status;
}
