#include "transport/sim.h"

#include "src/base/philox.h"
#include "transport/sim_net.h"
#include "transport/sim_plan.h"
#include "transport/sim_stream.h"

#include <math.h>
#include <stdlib.h>

#define PIECE_BYTES (256u << 10)
#define MEMORY_BYTES 8000000000u

enum { OFFERED = 1, ARRIVED = 2, POSTED = 4, DUE = 8 };

struct machine {
	const struct gn_sim_topology *t;
	struct gn_sim_net net;
	struct gn_sim_plan plan;
	struct gn_sim_streams *streams; /* NULL: messages of their own, as RDMA's */
	struct gn_sim_events events;
	uint32_t slots, *next_reduction, *free_slots; /* per rank */
	uint32_t *missing;		       /* per step, as at the start; NULL unless there are repeats */
	size_t left;
	double now, *start_at, *done_at; /* per rank */
};

static void push(struct machine *m, double at, enum gn_sim_kind kind, uint32_t what)
{
	gn_sim_events_push(&m->events, at, kind, what);
}

/* --- steps --- */

static double work(struct machine *m, uint32_t step, double seconds)
{
	int rank = m->plan.steps[step].rank;

	return gn_sim_net_work(&m->net, rank, m->now, seconds * gn_sim_net_jitter(&m->net, rank, 2 * step));
}

static int is_eager(const struct machine *m, uint32_t step)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[step];

	return gn_sim_net_is_eager(&m->net, s->rank, s->peer, s->bytes);
}

static int by_stream(const struct machine *m, const struct gn_sim_plan_step *s)
{
	return m->streams && !gn_sim_net_same_node(&m->net, s->rank, s->peer);
}

static struct gn_sim_message message_of(const struct machine *m, uint32_t send)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[send];

	return (struct gn_sim_message){s->rank, s->peer, send, s->partner, s->bytes,
				       gn_sim_net_jitter(&m->net, s->rank, 2 * send + 1)};
}

/* Nothing but kind goes from the sender to the receiver, or back. */
static void signal(struct machine *m, uint32_t send, int back, enum gn_sim_kind kind)
{
	struct gn_sim_message g = message_of(m, send);

	if (back) {
		g.from = m->plan.steps[send].peer;
		g.to = m->plan.steps[send].rank;
	}
	if (by_stream(m, &m->plan.steps[send]))
		gn_sim_streams_signal(m->streams, &g, kind, m->now);
	else
		push(m, gn_sim_net_signal(&m->net, g.from, g.to, g.bytes, m->now), kind, send);
}

static void ask(struct machine *m, uint32_t send)
{
	signal(m, send, 0, GN_SIM_ASKED);
}

/* The receiver's answer goes back, then the message sets off. */
static void clear_to_send(struct machine *m, uint32_t send)
{
	signal(m, send, 1, GN_SIM_SET_OFF);
}

static void post(struct machine *m, uint32_t recv)
{
	struct gn_sim_plan_step *s = &m->plan.steps[recv];

	s->state |= POSTED;
	if (m->plan.steps[s->partner].state & OFFERED)
		clear_to_send(m, s->partner);
}

/* A request to send is at the receiver. */
static void asked(struct machine *m, uint32_t send)
{
	m->plan.steps[send].state |= OFFERED;
	if (m->plan.steps[m->plan.steps[send].partner].state & POSTED)
		clear_to_send(m, send);
}

static void post_early(struct machine *m, int rank)
{
	while (m->free_slots[rank]) {
		uint32_t *i = &m->next_reduction[rank];

		while (*i < m->plan.first[rank + 1] && m->plan.steps[*i].op != GN_STEP_RECV_REDUCE)
			++*i;
		if (*i == m->plan.first[rank + 1])
			break;
		m->free_slots[rank]--;
		post(m, (*i)++);
	}
}

static void reduce(struct machine *m, uint32_t step)
{
	push(m, work(m, step, m->plan.steps[step].bytes * m->t->reduce_s_per_byte), GN_SIM_FINISHED, step);
}

static void ready(struct machine *m, uint32_t step)
{
	struct gn_sim_plan_step *s = &m->plan.steps[step];
	double at;

	s->state |= DUE;
	switch (s->op) {
	case GN_STEP_COPY:
		push(m, work(m, step, s->bytes * m->t->reduce_s_per_byte), GN_SIM_FINISHED, step);
		break;
	case GN_STEP_SEND:
		at = work(m, step, gn_sim_net_send_cost(&m->net, s->rank, s->peer, s->bytes));
		push(m, at, is_eager(m, step) ? GN_SIM_SET_OFF : GN_SIM_ASK, step);
		break;
	case GN_STEP_RECV:
		post(m, step);
		if (s->state & ARRIVED) /* an eager one came early: it is copied into place */
			push(m, work(m, step, s->bytes * m->t->reduce_s_per_byte), GN_SIM_FINISHED, step);
		break;
	default:
		if (s->state & ARRIVED)
			reduce(m, step);
	}
}

static void set_off(struct machine *m, uint32_t step)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[step];
	struct gn_sim_message g = message_of(m, step);
	double left, head;

	if (by_stream(m, s)) {
		gn_sim_streams_send(m->streams, &g, m->now);
		return;
	}
	gn_sim_net_send(&m->net, g.from, g.to, g.bytes, g.bytes, m->now, g.stretch, &left, &head);
	push(m, left, GN_SIM_FINISHED, step);
	push(m, head, GN_SIM_HEAD, s->partner);
}

static void head(struct machine *m, uint32_t step)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[step];
	double stretch = gn_sim_net_jitter(&m->net, m->plan.steps[s->partner].rank, 2 * s->partner + 1);
	double through = gn_sim_net_arrive(&m->net, s->peer, s->rank, s->bytes, m->now, stretch);

	push(m, through, GN_SIM_LANDED, step);
}

static void landed(struct machine *m, uint32_t step)
{
	struct gn_sim_plan_step *s = &m->plan.steps[step];
	double at = work(m, step, gn_sim_net_receive_cost(&m->net, s->peer, s->rank, s->bytes));

	s->state |= ARRIVED;
	if (!(s->state & DUE))
		return;
	if (s->op == GN_STEP_RECV)
		push(m, at, GN_SIM_FINISHED, step);
	else
		reduce(m, step);
}

static void finished(struct machine *m, uint32_t step)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[step];

	m->left--;
	m->done_at[s->rank] = m->now;
	for (uint32_t d = s->first_dependent; d < s[1].first_dependent; d++)
		if (--m->plan.steps[m->plan.dependents[d]].missing == 0)
			push(m, m->now, GN_SIM_READY, m->plan.dependents[d]);
	if (s->op == GN_STEP_RECV_REDUCE) {
		m->free_slots[s->rank]++;
		post_early(m, s->rank);
	}
}

static void start(struct machine *m, uint32_t rank)
{
	post_early(m, (int)rank);
	for (size_t i = m->plan.first[rank]; i < m->plan.first[rank + 1]; i++)
		if (!m->plan.steps[i].missing)
			push(m, m->now, GN_SIM_READY, (uint32_t)i);
}

static void part(struct machine *m, uint32_t what)
{
	gn_sim_streams_part(m->streams, what, m->now);
}

static void through(struct machine *m, uint32_t what)
{
	gn_sim_streams_through(m->streams, what, m->now);
}

static void port(struct machine *m, uint32_t what)
{
	gn_sim_streams_port(m->streams, what, m->now);
}

static void run(struct machine *m)
{
	static void (*const handlers[])(struct machine *m, uint32_t what) = {
		[GN_SIM_START] = start,	    [GN_SIM_READY] = ready, [GN_SIM_ASK] = ask,	      [GN_SIM_ASKED] = asked,
		[GN_SIM_SET_OFF] = set_off, [GN_SIM_HEAD] = head,   [GN_SIM_LANDED] = landed, [GN_SIM_FINISHED] = finished,
		[GN_SIM_PART] = part,	    [GN_SIM_THROUGH] = through, [GN_SIM_PORT] = port,
	};

	while (m->events.count && !m->events.status) {
		struct gn_sim_event e = gn_sim_events_pop(&m->events);

		m->now = e.at;
		handlers[e.kind](m, e.what);
	}
}

/* --- setting up --- */

/* stragglers' processors are busy with something else at first */
static void delay_stragglers(struct machine *m)
{
	struct gn_rng rng;

	gn_rng_init(&rng, m->t->seed, GN_RNG_SIM, UINT32_MAX, 0);
	for (int k = 0; k < m->t->stragglers; k++)
		m->net.processor[gn_rng_below(&rng, (uint32_t)m->plan.ranks)] = m->t->straggler_s;
}

/* Each rank begins where it was done with the time before. */
static void begin(struct machine *m)
{
	size_t steps = m->plan.first[m->plan.ranks];

	m->left = steps;
	for (size_t i = 0; i < steps && m->missing; i++) {
		m->plan.steps[i].missing = m->missing[i];
		m->plan.steps[i].state = 0;
	}
	for (int r = 0; r < m->plan.ranks; r++) {
		m->next_reduction[r] = (uint32_t)m->plan.first[r];
		m->free_slots[r] = m->slots;
		m->start_at[r] = m->done_at[r];
		push(m, m->start_at[r], GN_SIM_START, (uint32_t)r);
	}
}

static void count(const struct machine *m, int size, struct gn_sim_result *out)
{
	struct gn_sim_result r = {.steps = m->plan.first[m->plan.ranks], .simulated_ranks = m->plan.ranks};
	uint64_t alike = (uint64_t)(size / m->plan.ranks);
	int per_node = m->t->ranks_per_node;

	for (size_t i = 0; i < r.steps; i++) {
		const struct gn_sim_plan_step *s = &m->plan.steps[i];

		if (s->op != GN_STEP_SEND)
			continue;
		r.messages += alike;
		if (s->rank / per_node != s->peer / per_node)
			r.network_bytes += (uint64_t)s->bytes * alike;
	}
	*out = r;
}

static void add_times(const struct machine *m, int of, struct gn_sim_result *out)
{
	double slowest = 0, fastest = INFINITY;

	for (int k = 0; k < m->plan.ranks; k++) {
		slowest = fmax(slowest, m->done_at[k] - m->start_at[k]);
		fastest = fmin(fastest, m->done_at[k] - m->start_at[k]);
	}
	out->time_s += slowest / of;
	out->fastest_s += fastest / of;
}

static enum gn_status prepare(struct machine *m, int repeats, struct gn_err *err)
{
	size_t ranks = (size_t)m->plan.ranks, steps = m->plan.first[ranks];
	double longest = 0;

	m->next_reduction = calloc(ranks, sizeof *m->next_reduction);
	m->free_slots = calloc(ranks, sizeof *m->free_slots);
	m->start_at = calloc(ranks, sizeof *m->start_at);
	m->done_at = calloc(ranks, sizeof *m->done_at);
	if (repeats > 1)
		m->missing = calloc(steps + 1, sizeof *m->missing);
	if (!m->next_reduction || !m->free_slots || !m->start_at || !m->done_at || (repeats > 1 && !m->missing))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to simulate %zu ranks", ranks);
	for (size_t i = 0; i < steps && m->missing; i++)
		m->missing[i] = m->plan.steps[i].missing;
	for (size_t i = 0; i < steps; i++)
		if (m->plan.steps[i].op == GN_STEP_RECV_REDUCE && m->plan.steps[i].bytes > longest)
			longest = m->plan.steps[i].bytes;
	m->slots = gn_schedule_slots((size_t)longest);
	delay_stragglers(m);
	return GN_OK;
}

static enum gn_status simulate(struct machine *m, int size, struct gn_sim_result *out, struct gn_err *err)
{
	int repeats = m->t->repeats > 1 ? m->t->repeats : 1, warmup = m->t->warmup < repeats ? m->t->warmup : repeats - 1;
	enum gn_status status = prepare(m, repeats, err);
	struct gn_sim_result r;

	if (status)
		return status;
	count(m, size, &r);
	for (int i = 0; i < repeats; i++) {
		begin(m);
		run(m);
		if (m->events.status)
			return gn_err_set(err, m->events.status, "no memory for the simulation's events");
		if (m->left)
			return gn_err_set(err, GN_ERR_FAILED, "the schedule never ends: %zu steps wait for each other", m->left);
		if (i >= warmup)
			add_times(m, repeats - warmup, &r);
	}
	*out = r;
	return GN_OK;
}

/* How many ranks stand for all. */
static int ranks_to_simulate(const struct gn_sim_topology *t, const struct gn_algorithm *a, int size)
{
	int alike = t->ranks_per_node * (t->leaf_nodes ? t->leaf_nodes : 1);

	return a->turns && !(t->jitter > 0) && !t->stragglers && size % alike == 0 ? alike : size;
}

static enum gn_status make_map(const struct gn_sim_topology *t, struct gn_node_map **out, struct gn_err *err)
{
	int size = t->nodes * t->ranks_per_node, *node_of = calloc((size_t)size, sizeof *node_of);
	enum gn_status status;

	if (!node_of)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", size);
	for (int r = 0; r < size; r++)
		node_of[r] = r / t->ranks_per_node;
	status = gn_node_map_create(node_of, size, out, err);
	free(node_of);
	return status;
}

enum gn_status gn_sim_run(const struct gn_sim_topology *t, const struct gn_algorithm *a, size_t bytes, uint32_t pieces,
			  uint64_t max_bytes, struct gn_sim_result *out, struct gn_err *err)
{
	struct gn_algo_args args = {.size = t->nodes * t->ranks_per_node, .pieces = pieces};
	struct machine m = {.t = t};
	struct gn_node_map *map = NULL;
	enum gn_status status = gn_sim_topology_check(t, err);
	int ranks;

	if (!status)
		status = make_map(t, &map, err);
	if (status)
		return status;
	args.map = map;
	ranks = ranks_to_simulate(t, a, args.size);
	if (!pieces)
		status = gn_algorithm_pieces(a, &args, bytes, PIECE_BYTES, &args.pieces, err);
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
	free(m.next_reduction);
	free(m.free_slots);
	free(m.done_at);
	free(m.start_at);
	free(m.missing);
	return status;
}
