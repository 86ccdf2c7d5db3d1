#include "transport/select/select.h"

#include "src/base/strbuf.h"
#include "transport/select/cost.h"
#include "transport/select/critical_path.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the closed form of one algorithm's time: the critical path of its first slices, and a constant time for each of the others --- */
#define WALKS 6

/* The time is that of the path with `pieces` slices up to one of these numbers; with more it grows linearly, by as much for each as
 * between half as many and so many, but by no less than the busiest processor or port has to do for one. The first slices fill the
 * pipeline, the others follow at the pace of the slowest. */
static const uint32_t slices[WALKS] = {1, 2, 4, 8, 16, 32};
/* So many are walked if all walked ranks have no more steps with them. */
static const double steps_max[WALKS] = {INFINITY, 0, 40000, 10000, 600, 600};

struct cost_model {
	const struct gn_algorithm *algorithm;
	const struct gn_node_map *map;
	const struct gn_cost *cost;
	struct gn_critical_path *paths[WALKS]; /* by slices; NULL: not needed yet */
	int most;			       /* the last of them that is walked */
};

static enum gn_status path_of(struct cost_model *m, int i, struct gn_err *err)
{
	return m->paths[i] ? GN_OK : gn_critical_path_create(m->algorithm, m->map, m->cost, slices[i], &m->paths[i], err);
}

/* NULL is fine. */
static void cost_model_destroy(struct cost_model *m)
{
	if (!m)
		return;
	for (int i = 0; i < WALKS; i++)
		gn_critical_path_destroy(m->paths[i]);
	free(m);
}

/* map and cost are borrowed and outlive *out. */
static enum gn_status cost_model_create(const struct gn_algorithm *a, const struct gn_node_map *map, const struct gn_cost *cost,
				    struct cost_model **out, struct gn_err *err)
{
	struct cost_model *m = calloc(1, sizeof *m);
	enum gn_status status;

	if (!m)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the cost of %s", a->name);
	*m = (struct cost_model){.algorithm = a, .map = map, .cost = cost};
	status = path_of(m, 0, err);
	if (status) {
		cost_model_destroy(m);
		return status;
	}
	for (m->most = WALKS - 1; gn_critical_path_steps(m->paths[0]) * slices[m->most] > steps_max[m->most];)
		m->most--;
	*out = m;
	return GN_OK;
}

/* A lower bound of the seconds with so many slices: the path of one slice, and what the busiest processor or port has to do; *guess
 * = an estimate: the path of the first slice, and what the busiest has to do for the others. */
static double cost_model_bound(struct cost_model *m, double bytes, uint32_t pieces, double *guess)
{
	double path_s = gn_critical_path_seconds(m->paths[0], bytes / pieces), busy_s = gn_critical_path_busy_s(m->paths[0]);

	*guess = path_s + busy_s * (pieces - 1);
	return fmax(path_s, busy_s * pieces);
}

/* Few slices that are none of those of `slices` are walked by themselves. */
static enum gn_status walk_few(struct cost_model *m, double bytes, uint32_t pieces, double *out, struct gn_err *err)
{
	struct gn_critical_path *p;
	enum gn_status status;

	for (int i = 0; i < WALKS; i++)
		if (slices[i] == pieces) {
			status = path_of(m, i, err);
			if (!status)
				*out = gn_critical_path_seconds(m->paths[i], bytes);
			return status;
		}
	status = gn_critical_path_create(m->algorithm, m->map, m->cost, pieces, &p, err);
	if (status)
		return status;
	*out = gn_critical_path_seconds(p, bytes);
	gn_critical_path_destroy(p);
	return GN_OK;
}

/* *out = seconds with so many slices. */
static enum gn_status cost_model_seconds(struct cost_model *m, double bytes, uint32_t pieces, double *out, struct gn_err *err)
{
	uint32_t many = slices[m->most], few = m->most ? slices[m->most - 1] : 0;
	double few_s = 0, many_s, busy_s;
	enum gn_status status;

	if (pieces <= many)
		return walk_few(m, bytes, pieces, out, err);
	if (!m->most) {
		cost_model_bound(m, bytes, pieces, out);
		return GN_OK;
	}
	status = walk_few(m, bytes / pieces * few, few, &few_s, err);
	if (!status)
		status = walk_few(m, bytes / pieces * many, many, &many_s, err);
	if (status)
		return status;
	busy_s = gn_critical_path_busy_s(m->paths[m->most]) / many;
	*out = many_s + fmax(busy_s, (many_s - few_s) / (many - few)) * (pieces - many);
	return GN_OK;
}

/* How many steps cost_model_seconds walks. */
static double cost_model_steps(const struct cost_model *m, uint32_t pieces)
{
	uint32_t many = slices[m->most], few = m->most ? slices[m->most - 1] : 0;

	return gn_critical_path_steps(m->paths[0]) * (pieces <= many ? pieces : few + many);
}

/* Messages of the busiest rank with one slice. */
static double cost_model_messages(const struct cost_model *m)
{
	return gn_critical_path_messages(m->paths[0]);
}

/* Seconds to connect a rank to its peers, once. */
static double cost_model_connect_s(const struct cost_model *m)
{
	return gn_critical_path_connect_s(m->paths[0]);
}

#define CANDIDATES_MAX 64
#define SIZES_MAX 4
/* Steps of all candidates, about 6 ms. */
#define WALKED_MAX 60000.0
#define ALGORITHMS_MAX (CANDIDATES_MAX / SIZES_MAX)
/* A pick is kept up to this factor, because the model's error is tens of percent. */
#define PICK_FACTOR 1.5

const size_t *gn_select_piece_bytes(int *count)
{
	static const size_t all[SIZES_MAX] = {256 << 10, 64 << 10, 1 << 20, (size_t)1 << 40};

	*count = sizeof all / sizeof *all;
	return all;
}

struct candidate {
	struct gn_choice choice; /* predicted_s: a guess, until it is walked */
	double bound_s;		 /* of predicted_s */
	struct cost_model *model;
};

struct candidates {
	struct candidate list[CANDIDATES_MAX];
	int count, models_count;
	struct cost_model *models[ALGORITHMS_MAX];
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

static enum gn_status add_algorithm(const struct gn_select_args *args, const struct gn_algorithm *a, struct candidates *all,
				    struct gn_err *err)
{
	uint32_t pieces[SIZES_MAX];
	struct cost_model *m = NULL;
	double bound_s = 0;
	int sizes;
	enum gn_status status = list_slice_counts(args, a, pieces, &sizes, err);

	if (!status && args->map->size > 1)
		status = cost_model_create(a, args->map, args->cost, &m, err);
	if (status)
		return status;
	all->models[all->models_count++] = m;
	for (int i = 0; i < sizes && all->count < CANDIDATES_MAX; i++) {
		struct gn_algo_args how = {.size = args->map->size, .pieces = pieces[i], .map = args->map};
		struct gn_choice c = {.algorithm = a, .pieces = pieces[i], .chunks = a->chunks(&how)};

		if (m && has_too_many_steps(args, &c, cost_model_messages(m) * pieces[i]))
			continue;
		if (m) {
			bound_s = cost_model_bound(m, (double)args->bytes, pieces[i], &c.predicted_s);
			c.connecting_s = cost_model_connect_s(m);
		}
		all->list[all->count++] = (struct candidate){c, bound_s, m};
	}
	return GN_OK;
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

static enum gn_status list_candidates(const struct gn_select_args *args, struct candidates *out, struct gn_err *err)
{
	size_t all;
	const struct gn_algorithm *a = gn_algorithms(&all);
	int any = !args->algo || !strcmp(args->algo, "auto");
	enum gn_status status = GN_OK;
	struct gn_strbuf names = {0};

	for (size_t i = 0; i < all && out->models_count < ALGORITHMS_MAX && !status; i++)
		if (a[i].what == args->what && (any || !strcmp(a[i].name, args->algo)))
			status = add_algorithm(args, &a[i], out, err);
	if (status || out->count)
		return status;
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

/* Walks the candidates that may be cheaper than the best so far, in the order of the guesses, until too many steps were walked. */
static enum gn_status find_cheapest(const struct gn_select_args *args, struct candidates *all, struct gn_choice *out,
				    struct gn_err *err)
{
	const struct candidate *best = NULL;
	double walked = 0, best_cost = 0;
	enum gn_status status = GN_OK;

	qsort(all->list, (size_t)all->count, sizeof *all->list, by_cost);
	for (int i = 0; i < all->count && !status; i++) {
		struct candidate *c = &all->list[i];

		if (best && (walked > WALKED_MAX || best_cost <= c->bound_s + c->choice.connecting_s / GN_SELECT_USES))
			continue;
		if (c->model) {
			walked += cost_model_steps(c->model, c->choice.pieces);
			status = cost_model_seconds(c->model, (double)args->bytes, c->choice.pieces, &c->choice.predicted_s, err);
		}
		if (!best || by_cost(c, best) < 0)
			best = c;
		best_cost = cost_of(&best->choice);
	}
	if (!status)
		*out = best->choice;
	return status;
}

enum gn_status gn_select(const struct gn_select_args *args, struct gn_choice *out, struct gn_err *err)
{
	struct candidates all = {.count = 0};
	enum gn_status status = list_candidates(args, &all, err);

	if (!status)
		status = find_cheapest(args, &all, out, err);
	for (int i = 0; i < all.models_count; i++)
		cost_model_destroy(all.models[i]);
	return status;
}

enum gn_status gn_select_closed_form(const struct gn_select_args *args, const struct gn_algorithm *a, uint32_t pieces,
				     struct gn_select_form *out, struct gn_err *err)
{
	struct cost_model *m;
	enum gn_status status = cost_model_create(a, args->map, args->cost, &m, err);

	if (status)
		return status;
	status = cost_model_seconds(m, (double)args->bytes, pieces, &out->seconds, err);
	out->connecting_s = cost_model_connect_s(m);
	out->steps = cost_model_messages(m) * pieces;
	cost_model_destroy(m);
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
