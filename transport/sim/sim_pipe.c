#include "transport/sim/sim_pipe.h"

#include "transport/sim/sim_net.h"
#include "transport/sim/sim_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A stage of a pipeline. Ranks here are positions in the mesh: data index * stages + stage. */
struct worker {
	int next;	/* of its actions */
	int is_busy;
	double busy_s, ended_at;
};

struct state {
	const struct gn_sim_pipe *p;
	struct gn_sim_net net;
	struct gn_sim_events events;
	struct worker *workers;
	unsigned char *has; /* [message]: received; of an end of the pipeline nothing is needed */
	size_t left;	    /* actions */
	uint64_t network_bytes;
	double now;
};

/* The message that an action waits for, or sends: by its receiver. */
static uint32_t message(const struct state *m, int receiver, int batch, int is_backward)
{
	return ((uint32_t)receiver * (uint32_t)m->p->batches + (uint32_t)batch) * 2 + (uint32_t)is_backward;
}

static int stage_of(const struct state *m, int worker)
{
	return worker % m->p->stages;
}

static const struct gn_sim_pipe_action *action(const struct state *m, int worker)
{
	return &m->p->actions[(size_t)stage_of(m, worker) * 2 * (size_t)m->p->batches + (size_t)m->workers[worker].next];
}

static int needs_nothing(const struct state *m, int worker, int is_backward)
{
	return stage_of(m, worker) == (is_backward ? m->p->stages - 1 : 0);
}

static void start_next(struct state *m, int worker)
{
	struct worker *w = &m->workers[worker];
	const struct gn_sim_pipe_stage *cost = &m->p->costs[stage_of(m, worker)];
	const struct gn_sim_pipe_action *a;
	double seconds;

	if (w->is_busy || w->next == 2 * m->p->batches)
		return;
	a = action(m, worker);
	if (!needs_nothing(m, worker, a->is_backward) && !m->has[message(m, worker, a->batch, a->is_backward)])
		return;
	seconds = (a->is_backward ? cost->backward_s : cost->forward_s) *
		  gn_sim_net_jitter(&m->net, m->p->ranks[worker], (uint32_t)w->next);
	w->is_busy = 1;
	w->busy_s += seconds;
	gn_sim_events_push(&m->events, gn_sim_net_work(&m->net, m->p->ranks[worker], m->now, seconds), GN_SIM_COMPLETED, (uint32_t)worker);
}

static double bytes_between(const struct state *m, int a, int b)
{
	return m->p->costs[stage_of(m, a < b ? a : b)].out_bytes;
}

static void send(struct state *m, int from, int to, const struct gn_sim_pipe_action *a)
{
	int sender = m->p->ranks[from], receiver = m->p->ranks[to];
	double bytes = bytes_between(m, from, to), left, head;
	double at = gn_sim_net_work(&m->net, sender, m->now, gn_sim_net_send_cost(&m->net, sender, receiver, bytes));

	if (!gn_sim_net_same_node(&m->net, sender, receiver))
		m->network_bytes += (uint64_t)bytes;
	gn_sim_net_send(&m->net, sender, receiver, bytes, bytes, at, 1, &left, &head);
	gn_sim_events_push(&m->events, head, GN_SIM_HEAD_ARRIVED, message(m, to, a->batch, a->is_backward));
}

static void completed(struct state *m, int worker)
{
	struct worker *w = &m->workers[worker];
	const struct gn_sim_pipe_action *a = action(m, worker);
	int to = a->is_backward ? worker - 1 : worker + 1;

	if (!needs_nothing(m, worker, !a->is_backward))
		send(m, worker, to, a);
	w->is_busy = 0;
	w->ended_at = m->now;
	w->next++;
	m->left--;
	start_next(m, worker);
}

static int receiver_of(const struct state *m, uint32_t what)
{
	return (int)(what / 2 / (uint32_t)m->p->batches);
}

static void head_arrived(struct state *m, uint32_t what)
{
	int to = receiver_of(m, what), from = what % 2 ? to + 1 : to - 1;
	double last = gn_sim_net_arrive(&m->net, m->p->ranks[from], m->p->ranks[to], bytes_between(m, from, to), m->now, 1);

	gn_sim_events_push(&m->events, last, GN_SIM_RECEIVED, what);
}

static void received(struct state *m, uint32_t what)
{
	int to = receiver_of(m, what), from = what % 2 ? to + 1 : to - 1, sender = m->p->ranks[from], rank = m->p->ranks[to];

	gn_sim_net_work(&m->net, rank, m->now, gn_sim_net_receive_cost(&m->net, sender, rank, bytes_between(m, from, to)));
	m->has[what] = 1;
	start_next(m, to);
}

static enum gn_status simulate(struct state *m, struct gn_err *err)
{
	int workers = m->p->stages * m->p->data;

	for (int w = 0; w < workers; w++)
		start_next(m, w);
	while (m->events.count && !m->events.status) {
		struct gn_sim_event e = gn_sim_events_pop(&m->events);

		m->now = e.at;
		if (e.kind == GN_SIM_COMPLETED)
			completed(m, (int)e.what);
		else if (e.kind == GN_SIM_HEAD_ARRIVED)
			head_arrived(m, e.what);
		else
			received(m, e.what);
	}
	if (m->events.status)
		return gn_err_set(err, m->events.status, "no memory for the simulation's events");
	return m->left ? gn_err_set(err, GN_ERR_FAILED, "deadlock in the pipeline's schedule: %zu passes wait for each other", m->left) : GN_OK;
}

/* --- sums of gradients --- */

/* The number of stages that have ranks on this node. */
static int stages_on_node(const struct gn_sim_topology *t, const struct gn_sim_pipe *p, int node)
{
	int count = 0;

	for (int s = 0; s < p->stages; s++)
		for (int d = 0; d < p->data; d++)
			if (gn_sim_node_of(t, p->ranks[d * p->stages + s]) == node) {
				count++;
				break;
			}
	return count;
}

/* The nodes of a stage's ranks: 0, or how many ranks each has, in blocks, when these are equal. */
static int ranks_each(const int *node_of, int count)
{
	int each = 1;

	while (each < count && node_of[each] == node_of[0])
		each++;
	for (int i = 0; i < count; i++)
		if (count % each || node_of[i] != node_of[i / each * each] || (i && i % each == 0 && node_of[i] <= node_of[i - 1]))
			return 0;
	return each;
}

/* Ranks that are unevenly on nodes are simulated one by one: minutes above. */
enum { UNEVEN_MAX = 256 };

/* Seconds for the ranks of a stage alone; its share of the ports. */
static enum gn_status sum_stage(const struct gn_sim_topology *t, const struct gn_sim_pipe *p, int stage, const struct gn_algorithm *a,
				struct gn_sim_result *out, struct gn_err *err)
{
	struct gn_sim_topology group = *t;
	struct gn_node_map *map = NULL;
	int shared = stages_on_node(t, p, gn_sim_node_of(t, p->ranks[stage])), *node_of = calloc((size_t)p->data, sizeof *node_of);
	enum gn_status status = GN_OK;

	if (!node_of)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", p->data);
	for (int d = 0; d < p->data; d++)
		node_of[d] = gn_sim_node_of(t, p->ranks[d * p->stages + stage]);
	group.map = NULL;
	group.ranks_per_node = ranks_each(node_of, p->data);
	group.nodes = group.ranks_per_node ? p->data / group.ranks_per_node : 0;
	if (!group.ranks_per_node && p->data > UNEVEN_MAX)
		status = gn_err_set(err, GN_ERR_UNSUPPORTED, "the %d ranks of stage %d are unevenly on nodes, which is simulated rank by rank, for at "
				    "most %d: take stages of which the ranks of a node are a multiple or a divisor", p->data, stage, UNEVEN_MAX);
	else if (!group.ranks_per_node) {
		for (int d = p->data - 1; d >= 0; d--) /* a map wants numbers below its size, in any order */
			for (int k = 0; k <= d; k++)
				if (node_of[k] == node_of[d]) {
					node_of[d] = k;
					break;
				}
		status = gn_node_map_create(node_of, p->data, &map, err);
		group.map = map;
	}
	if (group.nodes != t->nodes) {
		group.leaf_nodes = 0;
		group.oversubscription = 1;
	}
	group.rails = t->rails / shared > 1 ? t->rails / shared : 1;
	group.link_bytes_per_s *= (double)t->rails / shared / group.rails;
	group.stragglers = 0;
	if (!status)
		status = gn_sim_run(&group, a, (size_t)p->costs[stage].gradient_bytes / 4 * 4, 0, 0, out, err);
	gn_node_map_destroy(map);
	free(node_of);
	return status;
}

/* When the sum of a stage is done, whose last backward has ended. */
static double sum_end(const struct gn_sim_pipe *p, const struct gn_sim_pipe_stage *cost, double ended, double sum_s)
{
	double buckets = p->bucket_bytes > 0 ? ceil(cost->gradient_bytes / p->bucket_bytes) : 1;

	if (buckets <= 1)
		return ended + sum_s;
	return fmax(ended + sum_s / buckets, ended - cost->backward_s * (1 - 1 / buckets) + sum_s);
}

static enum gn_status sum_all(const struct state *m, const struct gn_sim_topology *t, const struct gn_algorithm *a, struct gn_sim_pipe_result *out,
			      struct gn_err *err)
{
	const struct gn_sim_pipe *p = m->p;
	enum gn_status status = GN_OK;

	for (int s = 0; s < p->stages && !status; s++) {
		struct gn_sim_result r = {.time_s = 0};
		double ended = 0;

		if (p->data > 1 && p->costs[s].gradient_bytes >= 4)
			status = sum_stage(t, p, s, a, &r, err);
		for (int d = 0; d < p->data; d++)
			ended = fmax(ended, m->workers[d * p->stages + s].ended_at);
		out->step_s = fmax(out->step_s, sum_end(p, &p->costs[s], ended, r.time_s) + p->costs[s].update_s);
		out->pipe_s = fmax(out->pipe_s, ended);
		out->sum_s = fmax(out->sum_s, r.time_s);
		out->network_bytes += r.network_bytes;
	}
	return status;
}

enum { TRY_ALL_RANKS = 256 };

/* Adds the sums to *r. Those that the machine cannot have, or that take too much memory to simulate, do not count, as long as there is one. */
static enum gn_status sum_fastest(const struct state *m, const struct gn_sim_topology *t, struct gn_sim_pipe_result *r, struct gn_err *err)
{
	const int all = gn_sim_ranks(t) <= TRY_ALL_RANKS;
	const struct gn_sim_pipe_result before = *r;
	size_t count;
	const struct gn_algorithm *list = gn_algorithms(&count);
	enum gn_status status = m->p->data > 1 ? GN_OK : sum_all(m, t, NULL, r, err);

	for (size_t i = 0; i < count && m->p->data > 1 && (!status || status == GN_ERR_UNSUPPORTED); i++) {
		struct gn_sim_pipe_result one = before;

		if (list[i].what != GN_COLLECTIVE_ALLREDUCE || (!all && strcmp(list[i].name, "ring")))
			continue;
		status = sum_all(m, t, &list[i], &one, err);
		one.sum = &list[i];
		if (!status && (!r->sum || one.step_s < r->step_s))
			*r = one;
	}
	return r->sum && status == GN_ERR_UNSUPPORTED ? GN_OK : status;
}

enum gn_status gn_sim_pipe_run(const struct gn_sim_topology *t, const struct gn_sim_pipe *p, const struct gn_algorithm *sum,
			       struct gn_sim_pipe_result *out, struct gn_err *err)
{
	size_t workers = (size_t)p->stages * (size_t)p->data, messages = workers * (size_t)p->batches * 2;
	struct state m = {.p = p, .left = messages};
	struct gn_sim_pipe_result r = {.sum = p->data > 1 ? sum : NULL};
	enum gn_status status = gn_sim_topology_check(t, err);
	double busy = 0;

	if (status)
		return status;
	if (workers != (size_t)gn_sim_ranks(t))
		return gn_err_set(err, GN_ERR_USAGE, "%zu ranks of a mesh on %d ranks of a machine", workers, gn_sim_ranks(t));
	if (messages >> 31)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "a simulated step has at most 2^31 messages, not %zu", messages);
	m.workers = calloc(workers, sizeof *m.workers);
	m.has = calloc(messages, 1);
	status = m.workers && m.has ? gn_sim_net_create(t, (int)workers, &m.net, err)
				    : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to simulate %zu ranks", workers);
	if (!status) {
		gn_sim_net_delay_stragglers(&m.net);
		status = simulate(&m, err);
	}
	if (!status)
		status = sum ? sum_all(&m, t, sum, &r, err) : sum_fastest(&m, t, &r, err);
	for (size_t w = 0; w < workers && !status; w++)
		busy += m.workers[w].busy_s;
	if (!status) {
		r.bubble = r.pipe_s > 0 ? 1 - busy / ((double)workers * r.pipe_s) : 0;
		r.network_bytes += m.network_bytes;
		*out = r;
	}
	gn_sim_net_release(&m.net);
	gn_sim_events_release(&m.events);
	free(m.workers);
	free(m.has);
	return status;
}
