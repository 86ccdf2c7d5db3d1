#include "transport/sim/sim_run.h"

enum { OFFERED = 1, ARRIVED = 2, POSTED = 4, DUE = 8 };

static void push(struct gn_sim_state *m, double at, enum gn_sim_kind kind, uint32_t what)
{
	gn_sim_events_push(&m->events, at, kind, what);
}

/* --- steps --- */

static double work(struct gn_sim_state *m, uint32_t step, double seconds)
{
	int rank = m->plan.steps[step].rank;

	return gn_sim_net_work(&m->net, rank, m->now, seconds * gn_sim_net_jitter(&m->net, rank, 2 * step));
}

static int by_stream(const struct gn_sim_state *m, const struct gn_sim_plan_step *s)
{
	return m->streams && !gn_sim_net_same_node(&m->net, s->rank, s->peer);
}

static int is_eager(const struct gn_sim_state *m, uint32_t step)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[step];

	return by_stream(m, s) || gn_sim_net_is_eager(&m->net, s->rank, s->peer, s->bytes);
}

/* The receiver's answer goes back, then the message sets off. */
static void clear_to_send(struct gn_sim_state *m, uint32_t send)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[send];

	push(m, gn_sim_net_signal(&m->net, s->peer, s->rank, s->bytes, m->now), GN_SIM_SET_OFF, send);
}

/* Whether both are in the same round; else what one of them has to say to the other waits. */
static int same_round(const struct gn_sim_state *m, const struct gn_sim_plan_step *a, const struct gn_sim_plan_step *b)
{
	return m->ranks[a->rank].round == m->ranks[b->rank].round;
}

static void post(struct gn_sim_state *m, uint32_t recv)
{
	struct gn_sim_plan_step *s = &m->plan.steps[recv], *partner = &m->plan.steps[s->partner];

	s->state |= POSTED;
	if (partner->state & OFFERED && same_round(m, s, partner))
		clear_to_send(m, s->partner);
}

/* A request to send is at the receiver. */
static void asked(struct gn_sim_state *m, uint32_t send)
{
	struct gn_sim_plan_step *s = &m->plan.steps[send], *partner = &m->plan.steps[s->partner];

	s->state |= OFFERED;
	if (partner->state & POSTED && same_round(m, s, partner))
		clear_to_send(m, send);
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
	push(m, work(m, step, m->plan.steps[step].bytes * m->t->reduce_s_per_byte), GN_SIM_FINISHED, step);
}

static void ready(struct gn_sim_state *m, uint32_t step)
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
		if (is_eager(m, step))
			push(m, at, GN_SIM_SET_OFF, step);
		else
			push(m, gn_sim_net_signal(&m->net, s->rank, s->peer, s->bytes, at), GN_SIM_ASKED, step);
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

static void set_off(struct gn_sim_state *m, uint32_t step)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[step];
	double left, head, stretch = gn_sim_net_jitter(&m->net, s->rank, 2 * step + 1);
	struct gn_sim_message message = {s->rank, s->peer, step, s->partner, s->bytes, stretch};

	if (by_stream(m, s)) {
		gn_sim_streams_send(m->streams, &message, m->now);
		return;
	}
	gn_sim_net_send(&m->net, s->rank, s->peer, s->bytes, s->bytes, m->now, stretch, &left, &head);
	push(m, left, GN_SIM_FINISHED, step);
	push(m, head, GN_SIM_HEAD, s->partner);
}

static void head(struct gn_sim_state *m, uint32_t step)
{
	const struct gn_sim_plan_step *s = &m->plan.steps[step];
	double stretch = gn_sim_net_jitter(&m->net, m->plan.steps[s->partner].rank, 2 * s->partner + 1);
	double through = gn_sim_net_arrive(&m->net, s->peer, s->rank, s->bytes, m->now, stretch);

	push(m, through, GN_SIM_LANDED, step);
}

static void landed(struct gn_sim_state *m, uint32_t step)
{
	struct gn_sim_plan_step *s = &m->plan.steps[step];
	double at = work(m, step, gn_sim_net_receive_cost(&m->net, s->peer, s->rank, s->bytes));

	/* this round's is here: its sender is ahead */
	if (s->state & ARRIVED) {
		s->early++;
		return;
	}
	s->state |= ARRIVED;
	if (!(s->state & DUE))
		return;
	if (s->op == GN_STEP_RECV)
		push(m, at, GN_SIM_FINISHED, step);
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

/* For the next: what has come for it is kept. */
static void end_round(struct gn_sim_state *m, int rank)
{
	for (size_t i = m->plan.first[rank]; i < m->plan.first[rank + 1] && m->missing; i++) {
		struct gn_sim_plan_step *s = &m->plan.steps[i];

		s->missing = m->missing[i];
		s->state = s->early ? ARRIVED : 0;
		s->early -= s->early > 0;
	}
	if (++m->ranks[rank].round % m->rounds)
		begin_round(m, rank);
}

static void finished(struct gn_sim_state *m, uint32_t step)
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

static void part(struct gn_sim_state *m, uint32_t what)
{
	gn_sim_streams_part(m->streams, what, m->now);
}

static void through(struct gn_sim_state *m, uint32_t what)
{
	gn_sim_streams_through(m->streams, what, m->now);
}

static void port(struct gn_sim_state *m, uint32_t what)
{
	gn_sim_streams_port(m->streams, what, m->now);
}

void gn_sim_go(struct gn_sim_state *m, uint32_t rounds, double from)
{
	static void (*const handlers[])(struct gn_sim_state *m, uint32_t what) = {
		[GN_SIM_START] = start,	  [GN_SIM_READY] = ready,	[GN_SIM_ASKED] = asked, [GN_SIM_SET_OFF] = set_off,
		[GN_SIM_HEAD] = head,	  [GN_SIM_LANDED] = landed, [GN_SIM_FINISHED] = finished,
		[GN_SIM_PART] = part,	  [GN_SIM_THROUGH] = through, [GN_SIM_PORT] = port,
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
