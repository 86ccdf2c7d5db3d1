#include "transport/choose.h"

#include "src/base/strbuf.h"

#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAX 64
/* What simulating may cost, in steps of all ranks: some four milliseconds. */
#define STEPS_MAX 10000
/* Closed forms are off by less than this. */
#define HOPELESS 4

/* As many ranks on each node, next to each other: what the simulator takes. */
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

const size_t *gn_choose_piece_bytes(int *count)
{
	static const size_t all[] = {256 << 10, 64 << 10, 1 << 20, (size_t)1 << 40};

	*count = sizeof all / sizeof *all;
	return all;
}

static int add(const struct gn_choose_args *args, const struct gn_algorithm *a, uint32_t pieces, struct gn_choice *list,
	       int count)
{
	struct gn_algo_args how = {.size = args->map->size, .pieces = pieces, .map = args->map};

	for (int i = 0; i < count; i++)
		if (list[i].algorithm == a && list[i].pieces == pieces)
			return count;
	if (count == CANDIDATES_MAX)
		return count;
	list[count] = (struct gn_choice){.algorithm = a, .pieces = pieces, .chunks = a->chunks(&how)};
	return count + 1;
}

static enum gn_status add_algorithm(const struct gn_choose_args *args, const struct gn_algorithm *a,
				    struct gn_choice *list, int *count, struct gn_err *err)
{
	struct gn_algo_args how = {.size = args->map->size, .map = args->map};
	int sizes, first;
	const size_t *piece_bytes = gn_choose_piece_bytes(&sizes);
	enum gn_status status = GN_OK;

	/* the more ranks, the more messages there are anyway */
	first = args->map->size <= 256 ? 0 : sizes - 1;
	if (args->piece_bytes) {
		piece_bytes = &args->piece_bytes;
		first = 0;
		sizes = 1;
	}
	for (int i = first; i < sizes && !status; i++) {
		uint32_t pieces;

		status = gn_algorithm_pieces(a, &how, args->bytes, piece_bytes[i], &pieces, err);
		if (!status)
			*count = add(args, a, pieces, list, *count);
	}
	return status;
}

/* "auto|ring|recursive-doubling|..." */
static void names_of(enum gn_collective what, struct gn_strbuf *out)
{
	size_t count;
	const struct gn_algorithm *a = gn_algorithms(&count);

	gn_strbuf_puts(out, "auto");
	for (size_t i = 0; i < count; i++)
		if (a[i].what == what)
			gn_strbuf_printf(out, "|%s", a[i].name);
}

static enum gn_status list_all(const struct gn_choose_args *args, struct gn_choice *list, int *count, struct gn_err *err)
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
	names_of(args->what, &names);
	gn_err_set(err, GN_ERR_USAGE, "%s has no algorithm %s; there is %s", gn_collective_name(args->what),
		   any ? "at all" : args->algo, gn_strbuf_text(&names));
	gn_strbuf_release(&names);
	return GN_ERR_USAGE;
}

/* Ties by the table's order, so that all machines order them alike. */
static int by_time(const void *a, const void *b)
{
	const struct gn_choice *x = a, *y = b;

	if (x->predicted_s < y->predicted_s || x->predicted_s > y->predicted_s)
		return x->predicted_s < y->predicted_s ? -1 : 1;
	if (x->algorithm != y->algorithm)
		return x->algorithm < y->algorithm ? -1 : 1;
	return (x->pieces > y->pieces) - (x->pieces < y->pieces);
}

/* Steps of all ranks that have to be simulated. */
static enum gn_status steps_of(const struct gn_choose_args *args, const struct gn_choice *c, size_t *out,
			       struct gn_err *err)
{
	const struct gn_node_map *map = args->map;
	struct gn_algo_args how = {.size = map->size, .pieces = c->pieces, .map = map};
	struct gn_schedule *s;
	size_t count;
	enum gn_status status = gn_algorithm_schedule(c->algorithm, &how, &s, err);

	if (status)
		return status;
	gn_schedule_steps(s, &count);
	gn_schedule_destroy(s);
	*out = count * (size_t)(c->algorithm->turns ? map->size / map->nodes : map->size);
	return GN_OK;
}

static enum gn_status simulate_best(const struct gn_choose_args *args, struct gn_choice *list, int count,
				    struct gn_err *err)
{
	struct gn_sim_topology t;
	double hopeless = list[0].predicted_s * HOPELESS;
	size_t left = STEPS_MAX, steps;
	enum gn_status status = GN_OK;

	gn_cost_topology(args->cost, args->map->nodes, args->map->size / args->map->nodes, &t);
	for (int i = 0; i < count && !status && list[i].predicted_s <= hopeless; i++) {
		struct gn_sim_result r;

		status = steps_of(args, &list[i], &steps, err);
		if (status || steps > left)
			continue;
		left -= steps;
		status = gn_sim_run(&t, list[i].algorithm, args->bytes, list[i].pieces, 0, &r, err);
		if (status)
			break;
		list[i].predicted_s = r.time_s;
		list[i].simulated = 1;
	}
	return status;
}

/* Times of one kind are compared: where the most promising one is too much to simulate, closed forms decide. */
static const struct gn_choice *cheapest(const struct gn_choice *list, int count)
{
	const struct gn_choice *best = &list[0];

	for (int i = 1; i < count && list[0].simulated; i++)
		if (list[i].simulated && list[i].predicted_s < best->predicted_s)
			best = &list[i];
	return best;
}

enum gn_status gn_choose(const struct gn_choose_args *args, struct gn_choice *out, struct gn_err *err)
{
	struct gn_choice list[CANDIDATES_MAX];
	int count = 0;
	enum gn_status status = list_all(args, list, &count, err);

	for (int i = 0; i < count && !status && args->map->size > 1; i++)
		status = gn_choose_closed_form(args, list[i].algorithm, list[i].pieces, &list[i].predicted_s, err);
	if (status)
		return status;
	qsort(list, (size_t)count, sizeof *list, by_time);
	if (args->map->size > 1 && is_regular(args->map))
		status = simulate_best(args, list, count, err);
	if (!status)
		*out = *cheapest(list, count);
	return status;
}
