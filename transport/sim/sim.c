#include "transport/sim/sim.h"

#include "transport/sim/sim_run.h"

#include <math.h>
#include <stdlib.h>

#define PIECE_BYTES (256u << 10)
#define MEMORY_BYTES 8000000000u

static void count(const struct gn_sim_state *m, int size, struct gn_sim_result *out)
{
	struct gn_sim_result r = {.steps = m->plan.first[m->plan.ranks], .simulated_ranks = m->plan.ranks};
	uint64_t copies = (uint64_t)(size / m->plan.ranks);

	for (size_t i = 0; i < r.steps; i++) {
		const struct gn_sim_plan_step *s = &m->plan.steps[i];

		if (s->op != GN_STEP_SEND)
			continue;
		r.messages += copies;
		if (gn_sim_node_of(m->t, s->rank) != gn_sim_node_of(m->t, s->peer))
			r.network_bytes += (uint64_t)s->bytes * copies;
	}
	*out = r;
}

/* The time at which the slowest or the fastest rank completes. */
static double done_at(const struct gn_sim_state *m, int slowest)
{
	double at = slowest ? 0 : INFINITY;

	for (int r = 0; r < m->plan.ranks; r++)
		at = slowest ? fmax(at, m->ranks[r].done_at) : fmin(at, m->ranks[r].done_at);
	return at;
}

static enum gn_status prepare(struct gn_sim_state *m, int repeats, struct gn_err *err)
{
	size_t ranks = (size_t)m->plan.ranks, steps = m->plan.first[ranks];
	double longest = 0;

	m->ranks = calloc(ranks, sizeof *m->ranks);
	if (repeats > 1)
		m->missing = calloc(steps + 1, sizeof *m->missing);
	if (!m->ranks || (repeats > 1 && !m->missing))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to simulate %zu ranks", ranks);
	for (size_t i = 0; i < steps && m->missing; i++)
		m->missing[i] = m->plan.steps[i].missing;
	for (size_t i = 0; i < steps; i++)
		if (m->plan.steps[i].op == GN_STEP_RECV_REDUCE && m->plan.steps[i].bytes > longest)
			longest = m->plan.steps[i].bytes;
	m->slots = gn_schedule_slots((size_t)longest);
	gn_sim_net_delay_stragglers(&m->net);
	return GN_OK;
}

static enum gn_status run_rounds(struct gn_sim_state *m, int rounds, double from, struct gn_err *err)
{
	gn_sim_run_rounds(m, (uint32_t)rounds, from);
	if (m->events.status)
		return gn_err_set(err, m->events.status, "no memory for the simulation's events");
	if (m->left)
		return gn_err_set(err, GN_ERR_FAILED, "deadlock in the schedule: %zu steps wait for each other", m->left);
	return GN_OK;
}

/* As gannet bench measures: a barrier between warmup and measurement; the result is the mean of the slowest rank. */
static enum gn_status simulate(struct gn_sim_state *m, int size, struct gn_sim_result *out, struct gn_err *err)
{
	int repeats = m->t->repeats > 1 ? m->t->repeats : 1, warmup = m->t->warmup < repeats ? m->t->warmup : repeats - 1;
	enum gn_status status = prepare(m, repeats, err);
	struct gn_sim_result r;
	double from = 0;

	if (status)
		return status;
	count(m, size, &r);
	if (warmup > 0) {
		status = run_rounds(m, warmup, 0, err);
		from = done_at(m, 1);
	}
	if (!status)
		status = run_rounds(m, repeats - warmup, from, err);
	if (status)
		return status;
	r.time_s = (done_at(m, 1) - from) / (repeats - warmup);
	r.fastest_s = (done_at(m, 0) - from) / (repeats - warmup);
	*out = r;
	return GN_OK;
}

/* How many ranks to simulate: one leaf switch or node represents all if the run is symmetric. */
static int ranks_to_simulate(const struct gn_sim_topology *t, const struct gn_algorithm *a, int size)
{
	int group = t->map ? size : t->ranks_per_node * (t->leaf_nodes ? t->leaf_nodes : 1);

	return a->rotation_symmetric && !(t->jitter > 0) && !t->stragglers && size % group == 0 ? group : size;
}

static enum gn_status create_map(const struct gn_sim_topology *t, struct gn_node_map **out, struct gn_err *err)
{
	int size = gn_sim_ranks(t), *node_of = calloc((size_t)size, sizeof *node_of);
	enum gn_status status;

	if (!node_of)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", size);
	for (int r = 0; r < size; r++)
		node_of[r] = gn_sim_node_of(t, r);
	status = gn_node_map_create(node_of, size, out, err);
	free(node_of);
	return status;
}

/* With more rails than ranks the executor stripes messages over several rails: a rank gets one rail of their bandwidth together. */
static struct gn_sim_topology combine_rails(const struct gn_sim_topology *t)
{
	struct gn_sim_topology combined = *t;
	double each = t->map ? 1 : (double)t->rails / t->ranks_per_node;

	if (each <= 1)
		return combined;
	combined.rails = t->ranks_per_node;
	combined.link_bytes_per_s *= each;
	combined.burst_bytes *= each;
	combined.burst_bytes_per_s *= each;
	return combined;
}

static enum gn_status run(const struct gn_sim_topology *t, const struct gn_algorithm *a, size_t bytes, uint32_t pieces,
			  uint64_t max_bytes, struct gn_sim_result *out, struct gn_err *err)
{
	struct gn_algo_args args = {.size = gn_sim_ranks(t), .pieces = pieces};
	struct gn_sim_state m = {.t = t};
	struct gn_node_map *map = NULL;
	enum gn_status status = create_map(t, &map, err);
	double parts;
	int ranks;

	if (status)
		return status;
	args.map = map;
	ranks = ranks_to_simulate(t, a, args.size);
	if (!pieces)
		status = gn_algorithm_parts(a, &args, &parts, err);
	if (!pieces && !status)
		args.pieces = gn_algorithm_pieces(parts, bytes, PIECE_BYTES);
	do {
		if (!status)
			status = gn_sim_plan_create(a, &args, ranks, bytes, max_bytes ? max_bytes : MEMORY_BYTES, &m.plan, err);
		if (status != GN_ERR_UNSUPPORTED || pieces || args.pieces == 1)
			break;
		args.pieces /= 2;
		status = GN_OK;
	} while (1);
	if (!status)
		status = gn_sim_net_create(t, ranks, &m.net, err);
	if (!status && t->streams)
		status = gn_sim_streams_create(&m.net, &m.events, args.size, &m.streams, err);
	if (!status)
		status = simulate(&m, args.size, out, err);
	if (!status)
		out->pieces = args.pieces;
	gn_sim_streams_destroy(m.streams);
	gn_sim_events_release(&m.events);
	gn_sim_net_release(&m.net);
	gn_sim_plan_release(&m.plan);
	gn_node_map_destroy(map);
	free(m.ranks);
	free(m.missing);
	return status;
}

enum gn_status gn_sim_run(const struct gn_sim_topology *t, const struct gn_algorithm *a, size_t bytes, uint32_t pieces,
			  uint64_t max_bytes, struct gn_sim_result *out, struct gn_err *err)
{
	enum gn_status status = gn_sim_topology_check(t, err);
	struct gn_sim_topology combined;

	if (status)
		return status;
	combined = combine_rails(t);
	return run(&combined, a, bytes, pieces, max_bytes, out, err);
}

enum gn_status gn_sim_step_time(const struct gn_sim_topology *t, const struct gn_algorithm *a,
				const struct gn_sim_step *step, double *out, double *exposed_s, struct gn_err *err)
{
	double reduced_s = 0, bucket_s = 0;

	for (size_t i = 0; i < step->count && gn_sim_ranks(t) > 1; i++) {
		struct gn_sim_result r = {.time_s = bucket_s};
		enum gn_status status = GN_OK;

		/* buckets of equal size take equal time */
		if (!i || step->buckets[i].bytes != step->buckets[i - 1].bytes)
			status = gn_sim_run(t, a, step->buckets[i].bytes, 0, 0, &r, err);
		if (status)
			return status;
		bucket_s = r.time_s;
		reduced_s = fmax(reduced_s, step->buckets[i].ready_s) + bucket_s;
	}
	*out = fmax(reduced_s, step->compute_s - step->after_s) + step->after_s;
	*exposed_s = *out - step->compute_s;
	return GN_OK;
}
