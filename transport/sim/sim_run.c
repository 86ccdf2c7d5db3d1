#include "transport/sim/sim_run.h"

/* The state of a step: its request to send has arrived; its message has been received; it is posted; its dependencies are met. */
enum { RTS_RECEIVED = 1, DATA_RECEIVED = 2, POSTED = 4, DEPENDENCIES_MET = 8 };

static void push(struct gn_sim_state *m, double at, enum gn_sim_kind kind, uint32_t what)
{
	gn_sim_events_push(&m->events, at, kind, what);
}

/* --- steps --- */

static double processor_done(struct gn_sim_state *m, uint32_t step, double seconds)
{
	int rank = m->plan.steps[step].rank;

	return gn_sim_net_work(&m->net, rank, m->now, seconds * gn_sim_net_jitter(&m->net, rank, 2 * step));
}

static int uses_stream(const struct gn_sim_state *m, const struct gn_sim_plan_step *s)
{
	return m->streams && !gn_sim_net_same_node(&m->net, s->rank, s->peer);
}

/* The receiver answers a request to send; the sender begins when the answer arrives. */
static void send_clear_to_send(struct gn_sim_state *m, uint32_t send)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[send];

	push(m, gn_sim_net_signal(&m->net, s->peer, s->rank, s->bytes, m->now), GN_SIM_SEND_BEGIN, send);
}

/* Whether both ends of a message are in the same round; otherwise the request to send waits for the later one. */
static int same_round(const struct gn_sim_state *m, const struct gn_sim_plan_step *a, const struct gn_sim_plan_step *b)
{
	return m->ranks[a->rank].round == m->ranks[b->rank].round;
}

static void post(struct gn_sim_state *m, uint32_t recv)
{
	struct gn_sim_plan_step *s = &m->plan.steps[recv], *partner = &m->plan.steps[s->partner];

	s->state |= POSTED;
	if (partner->state & RTS_RECEIVED && same_round(m, s, partner))
		send_clear_to_send(m, s->partner);
}

static void rts_arrived(struct gn_sim_state *m, uint32_t send)
{
	struct gn_sim_plan_step *s = &m->plan.steps[send], *partner = &m->plan.steps[s->partner];

	s->state |= RTS_RECEIVED;
	if (partner->state & POSTED && same_round(m, s, partner))
		send_clear_to_send(m, send);
}

static void post_early(struct gn_sim_state *m, int rank)
{
	while (m->ranks[rank].free_slots) {
		uint32_t *i = &m->ranks[rank].next_reduction;

		while (*i < m->plan.first[rank + 1] && m->plan.steps[*i].op != GN_STEP_RECV_REDUCE)
			++*i;
		if (*i == m->plan.first[rank + 1])
			break;
		m->ranks[rank].free_slots--;
		post(m, (*i)++);
	}
}

static void reduce(struct gn_sim_state *m, uint32_t step)
{
	push(m, processor_done(m, step, m->plan.steps[step].bytes * m->t->reduce_s_per_byte), GN_SIM_COMPLETED, step);
}

static void ready(struct gn_sim_state *m, uint32_t step)
{
	struct gn_sim_plan_step *s = &m->plan.steps[step];
	double at;

	s->state |= DEPENDENCIES_MET;
	switch (s->op) {
	case GN_STEP_COPY:
		push(m, processor_done(m, step, s->bytes * m->t->reduce_s_per_byte), GN_SIM_COMPLETED, step);
		break;
	case GN_STEP_SEND:
		at = processor_done(m, step, gn_sim_net_send_cost(&m->net, s->rank, s->peer, s->bytes));
		if (uses_stream(m, s) || gn_sim_net_is_eager(&m->net, s->rank, s->peer, s->bytes))
			push(m, at, GN_SIM_SEND_BEGIN, step);
		else
			push(m, gn_sim_net_signal(&m->net, s->rank, s->peer, s->bytes, at), GN_SIM_RTS_ARRIVED, step);
		break;
	case GN_STEP_RECV:
		post(m, step);
		if (s->state & DATA_RECEIVED) /* an eager one came early: it is copied into place */
			push(m, processor_done(m, step, s->bytes * m->t->reduce_s_per_byte), GN_SIM_COMPLETED, step);
		break;
	default:
		if (s->state & DATA_RECEIVED)
			reduce(m, step);
	}
}

static void send_begin(struct gn_sim_state *m, uint32_t step)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[step];
	double left, first, stretch = gn_sim_net_jitter(&m->net, s->rank, 2 * step + 1);
	struct gn_sim_message message = {s->rank, s->peer, step, s->partner, s->bytes, stretch};

	if (uses_stream(m, s)) {
		gn_sim_streams_send(m->streams, &message, m->now);
		return;
	}
	gn_sim_net_send(&m->net, s->rank, s->peer, s->bytes, s->bytes, m->now, stretch, &left, &first);
	push(m, left, GN_SIM_COMPLETED, step);
	push(m, first, GN_SIM_HEAD_ARRIVED, s->partner);
}

static void head_arrived(struct gn_sim_state *m, uint32_t step)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[step];
	double stretch = gn_sim_net_jitter(&m->net, m->plan.steps[s->partner].rank, 2 * s->partner + 1);
	double last = gn_sim_net_arrive(&m->net, s->peer, s->rank, s->bytes, m->now, stretch);

	push(m, last, GN_SIM_RECEIVED, step);
}

static void received(struct gn_sim_state *m, uint32_t step)
{
	struct gn_sim_plan_step *s = &m->plan.steps[step];
	double at = processor_done(m, step, gn_sim_net_receive_cost(&m->net, s->peer, s->rank, s->bytes));

	/* this round's message has been received: this one is for the next round, its sender is ahead */
	if (s->state & DATA_RECEIVED) {
		s->early++;
		return;
	}
	s->state |= DATA_RECEIVED;
	if (!(s->state & DEPENDENCIES_MET))
		return;
	if (s->op == GN_STEP_RECV)
		push(m, at, GN_SIM_COMPLETED, step);
	else
		reduce(m, step);
}

static void begin_round(struct gn_sim_state *m, int rank)
{
	struct gn_sim_rank *r = &m->ranks[rank];

	r->left = m->plan.first[rank + 1] - m->plan.first[rank];
	r->next_reduction = (uint32_t)m->plan.first[rank];
	r->free_slots = m->slots;
	push(m, m->now, GN_SIM_START, (uint32_t)rank);
}

/* Resets the rank's steps for its next round and keeps messages that were received for it. */
static void end_round(struct gn_sim_state *m, int rank)
{
	for (size_t i = m->plan.first[rank]; i < m->plan.first[rank + 1] && m->missing; i++) {
		struct gn_sim_plan_step *s = &m->plan.steps[i];

		s->missing = m->missing[i];
		s->state = s->early ? DATA_RECEIVED : 0;
		s->early -= s->early > 0;
	}
	if (++m->ranks[rank].round % m->rounds)
		begin_round(m, rank);
}

static void completed(struct gn_sim_state *m, uint32_t step)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[step];
	struct gn_sim_rank *r = &m->ranks[s->rank];

	m->left--;
	r->done_at = m->now;
	for (uint32_t d = s->first_dependent; d < s[1].first_dependent; d++)
		if (--m->plan.steps[m->plan.dependents[d]].missing == 0)
			push(m, m->now, GN_SIM_READY, m->plan.dependents[d]);
	if (s->op == GN_STEP_RECV_REDUCE) {
		r->free_slots++;
		post_early(m, s->rank);
	}
	if (--r->left == 0)
		end_round(m, s->rank);
}

static void start(struct gn_sim_state *m, uint32_t rank)
{
	post_early(m, (int)rank);
	for (size_t i = m->plan.first[rank]; i < m->plan.first[rank + 1]; i++)
		if (!m->plan.steps[i].missing)
			push(m, m->now, GN_SIM_READY, (uint32_t)i);
}

static void fragment_arrived(struct gn_sim_state *m, uint32_t what)
{
	gn_sim_streams_fragment_arrived(m->streams, what, m->now);
}

static void fragment_received(struct gn_sim_state *m, uint32_t what)
{
	gn_sim_streams_fragment_received(m->streams, what, m->now);
}

static void port_free(struct gn_sim_state *m, uint32_t what)
{
	gn_sim_streams_port_free(m->streams, what, m->now);
}

void gn_sim_run_rounds(struct gn_sim_state *m, uint32_t rounds, double from)
{
	static void (*const handlers[])(struct gn_sim_state *m, uint32_t what) = {
		[GN_SIM_START] = start,
		[GN_SIM_READY] = ready,
		[GN_SIM_RTS_ARRIVED] = rts_arrived,
		[GN_SIM_SEND_BEGIN] = send_begin,
		[GN_SIM_HEAD_ARRIVED] = head_arrived,
		[GN_SIM_RECEIVED] = received,
		[GN_SIM_COMPLETED] = completed,
		[GN_SIM_FRAGMENT_ARRIVED] = fragment_arrived,
		[GN_SIM_FRAGMENT_RECEIVED] = fragment_received,
		[GN_SIM_PORT_FREE] = port_free,
	};

	m->rounds = rounds;
	m->left = rounds * m->plan.first[m->plan.ranks];
	m->now = from;
	for (int r = 0; r < m->plan.ranks; r++) {
		m->ranks[r].round = 0;
		begin_round(m, r);
	}
	while (m->events.count && !m->events.status) {
		struct gn_sim_event e = gn_sim_events_pop(&m->events);

		m->now = e.at;
		handlers[e.kind](m, e.what);
	}
}
