#include "transport/select/select_cost_model.h"

#include "transport/select/critical_path.h"

#include <math.h>
#include <stdlib.h>

#define WALKS 6

/* The time is that of the path with `pieces` slices up to one of these numbers; with more it grows linearly, by as much for each as
 * between half as many and so many, but by no less than the busiest processor or port has to do for one. The first slices fill the
 * pipeline, the others follow at the pace of the slowest. */
static const uint32_t slices[WALKS] = {1, 2, 4, 8, 16, 32};
/* So many are walked if all walked ranks have no more steps with them. */
static const double steps_max[WALKS] = {INFINITY, 0, 40000, 10000, 600, 600};

struct gn_cost_model {
	const struct gn_algorithm *algorithm;
	const struct gn_node_map *map;
	const struct gn_cost *cost;
	struct gn_critical_path *paths[WALKS]; /* by slices; NULL: not needed yet */
	int most;			       /* the last of them that is walked */
};

static enum gn_status path_of(struct gn_cost_model *m, int i, struct gn_err *err)
{
	return m->paths[i] ? GN_OK : gn_critical_path_create(m->algorithm, m->map, m->cost, slices[i], &m->paths[i], err);
}

enum gn_status gn_cost_model_create(const struct gn_algorithm *a, const struct gn_node_map *map, const struct gn_cost *cost,
				    struct gn_cost_model **out, struct gn_err *err)
{
	struct gn_cost_model *m = calloc(1, sizeof *m);
	enum gn_status status;

	if (!m)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the cost of %s", a->name);
	*m = (struct gn_cost_model){.algorithm = a, .map = map, .cost = cost};
	status = path_of(m, 0, err);
	if (status) {
		gn_cost_model_destroy(m);
		return status;
	}
	for (m->most = WALKS - 1; gn_critical_path_steps(m->paths[0]) * slices[m->most] > steps_max[m->most];)
		m->most--;
	*out = m;
	return GN_OK;
}

void gn_cost_model_destroy(struct gn_cost_model *m)
{
	if (!m)
		return;
	for (int i = 0; i < WALKS; i++)
		gn_critical_path_destroy(m->paths[i]);
	free(m);
}

double gn_cost_model_bound(struct gn_cost_model *m, double bytes, uint32_t pieces, double *guess)
{
	double path_s = gn_critical_path_seconds(m->paths[0], bytes / pieces), busy_s = gn_critical_path_busy_s(m->paths[0]);

	*guess = path_s + busy_s * (pieces - 1);
	return fmax(path_s, busy_s * pieces);
}

/* Few slices that are none of those of `slices` are walked by themselves. */
static enum gn_status walk_few(struct gn_cost_model *m, double bytes, uint32_t pieces, double *out, struct gn_err *err)
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

enum gn_status gn_cost_model_seconds(struct gn_cost_model *m, double bytes, uint32_t pieces, double *out, struct gn_err *err)
{
	uint32_t many = slices[m->most], few = m->most ? slices[m->most - 1] : 0;
	double few_s = 0, many_s, busy_s;
	enum gn_status status;

	if (pieces <= many)
		return walk_few(m, bytes, pieces, out, err);
	if (!m->most) {
		gn_cost_model_bound(m, bytes, pieces, out);
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

double gn_cost_model_steps(const struct gn_cost_model *m, uint32_t pieces)
{
	uint32_t many = slices[m->most], few = m->most ? slices[m->most - 1] : 0;

	return gn_critical_path_steps(m->paths[0]) * (pieces <= many ? pieces : few + many);
}

double gn_cost_model_messages(const struct gn_cost_model *m)
{
	return gn_critical_path_messages(m->paths[0]);
}

double gn_cost_model_connect_s(const struct gn_cost_model *m)
{
	return gn_critical_path_connect_s(m->paths[0]);
}
