#include "transport/sim/sim_run.h"

#include <stdlib.h>
#include <string.h>

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

#define ELEMENT_BYTES 4
#define NONE UINT32_MAX

struct builder {
	const struct gn_algorithm *a;
	struct gn_algo_args args;
	struct gn_sim_plan p;
	size_t count, room, dependents, dependents_room, bytes;
	uint64_t max_bytes;
	uint32_t *messages;
	size_t mask;
};

static double bytes_of(const struct builder *b, const struct gn_schedule *s, const struct gn_step *step)
{
	size_t first, last, len;

	gn_schedule_range(b->bytes / ELEMENT_BYTES, gn_schedule_chunks(s), step->chunk, &first, &len);
	gn_schedule_range(b->bytes / ELEMENT_BYTES, gn_schedule_chunks(s), step->chunk + step->chunk_count - 1, &last, &len);
	return (double)(last + len - first) * ELEMENT_BYTES;
}

/* Makes room for the steps of one more rank. Extrapolates from it to all ranks, so that excessive memory is detected at once. */
static enum gn_status make_room(struct builder *b, size_t steps, size_t dependencies, struct gn_err *err)
{
	/* pairing the messages needs a hash table of at least twice the number of steps */
	uint64_t step_bytes = sizeof *b->p.steps + 4 * sizeof *b->messages;
	uint64_t wanted_bytes = (steps * step_bytes + dependencies * sizeof *b->p.dependents) * (uint64_t)b->p.ranks;
	void *moved;

	if (wanted_bytes > b->max_bytes || (uint64_t)steps * (uint64_t)b->p.ranks >= NONE ||
	    (uint64_t)dependencies * (uint64_t)b->p.ranks >= NONE)
		return gn_err_set(err, GN_ERR_UNSUPPORTED,
				  "%s over %d ranks has %zu steps per rank, %.1f GB for the %d ranks to simulate: choose another "
				  "algorithm, or no jitter and no stragglers if it is rotation symmetric",
				  b->a->name, b->args.size, steps, (double)wanted_bytes / 1e9, b->p.ranks);
	if (b->count + steps + 1 > b->room) {
		b->room = 2 * b->room > b->count + steps + 1 ? 2 * b->room : (steps + 1) * (size_t)b->p.ranks + 1;
		if (b->room < b->count + steps + 1)
			b->room = 2 * (b->count + steps + 1);
		moved = realloc(b->p.steps, b->room * sizeof *b->p.steps);
		if (!moved)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu steps", b->room);
		b->p.steps = moved;
	}
	if (b->dependents + dependencies > b->dependents_room) {
		b->dependents_room = 2 * (b->dependents + dependencies);
		moved = realloc(b->p.dependents, (b->dependents_room + 1) * sizeof *b->p.dependents);
		if (!moved)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu dependencies", b->dependents_room);
		b->p.dependents = moved;
	}
	return GN_OK;
}

/* Inverts a rank's dependencies into lists of dependents, by global step numbers. */
static void add_dependents(struct builder *b, const struct gn_step *steps, size_t count, const uint32_t *dependencies, size_t total)
{
	struct gn_sim_plan_step *own = b->p.steps + b->count;
	uint32_t at = (uint32_t)b->dependents;

	for (size_t i = 0; i < count; i++)
		for (uint32_t d = 0; d < steps[i].dependency_count; d++)
			own[dependencies[steps[i].first_dependency + d]].first_dependent++;
	/* each step gets the end of its list; filling from the back moves it to the start */
	for (size_t i = 0; i < count; i++)
		own[i].first_dependent = at += own[i].first_dependent;
	for (size_t i = count; i-- > 0;)
		for (uint32_t d = 0; d < steps[i].dependency_count; d++) {
			struct gn_sim_plan_step *on = &own[dependencies[steps[i].first_dependency + d]];

			b->p.dependents[--on->first_dependent] = (uint32_t)(b->count + i);
		}
	b->dependents += total;
}

static enum gn_status add_rank(struct builder *b, struct gn_err *err)
{
	struct gn_schedule *s;
	enum gn_status status = gn_algorithm_schedule(b->a, &b->args, &s, err);
	const struct gn_step *steps;
	const uint32_t *dependencies;
	size_t count, total;

	if (status)
		return status;
	steps = gn_schedule_steps(s, &count);
	dependencies = gn_schedule_dependencies(s, &total);
	status = make_room(b, count, total, err);
	for (size_t i = 0; i < count && !status; i++)
		b->p.steps[b->count + i] = (struct gn_sim_plan_step){
			.partner = steps[i].message, /* until paired */
			.missing = steps[i].dependency_count, .rank = b->args.rank, .peer = steps[i].peer,
			.bytes = (float)bytes_of(b, s, &steps[i]), .op = steps[i].op,
		};
	if (!status) {
		add_dependents(b, steps, count, dependencies, total);
		b->p.first[b->args.rank] = b->count;
		b->count += count;
	}
	gn_schedule_destroy(s);
	return status;
}

/* Identifies a message: simulated receiver, distance of the sender from it, message number. */
static uint64_t key_of(const struct builder *b, const struct gn_sim_plan_step *s)
{
	int size = b->args.size, sends = s->op == GN_STEP_SEND;
	uint64_t receiver = (uint64_t)(sends ? s->peer % b->p.ranks : s->rank);
	uint64_t ahead = (uint64_t)((sends ? s->rank - s->peer : s->peer - s->rank) + size) % (uint64_t)size;

	return receiver << 42 ^ ahead << 24 ^ s->partner;
}

static uint32_t *find_message(const struct builder *b, const struct gn_sim_plan_step *s)
{
	uint64_t key = key_of(b, s), hash = key * 0x9e3779b97f4a7c15u;
	size_t at = (size_t)((hash ^ hash >> 32) * 0x9e3779b97f4a7c15u >> 20) & b->mask;

	while (b->messages[at] != NONE && key_of(b, &b->p.steps[b->messages[at]]) != key)
		at = (at + 1) & b->mask;
	return &b->messages[at];
}

/* Inserts all sends into a hash table, then looks up each receive. `partner` holds the message numbers until all are paired. */
static enum gn_status pair_messages(struct builder *b, struct gn_err *err)
{
	uint32_t *partner;

	for (b->mask = 15; b->mask < b->count; b->mask = b->mask * 2 + 1)
		;
	b->messages = malloc((b->mask + 1) * sizeof *b->messages);
	partner = malloc((b->count + 1) * sizeof *partner);
	if (!b->messages || !partner) {
		free(partner);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to pair the messages of %zu steps", b->count);
	}
	memset(b->messages, 0xff, (b->mask + 1) * sizeof *b->messages);
	memset(partner, 0xff, b->count * sizeof *partner);
	for (size_t i = 0; i < b->count; i++)
		if (b->p.steps[i].op == GN_STEP_SEND)
			*find_message(b, &b->p.steps[i]) = (uint32_t)i;
	for (size_t i = 0; i < b->count; i++) {
		uint32_t send;

		if (b->p.steps[i].op == GN_STEP_SEND || b->p.steps[i].op == GN_STEP_COPY)
			continue;
		send = *find_message(b, &b->p.steps[i]);
		partner[i] = send;
		if (send != NONE)
			partner[send] = (uint32_t)i;
	}
	for (size_t i = 0; i < b->count; i++)
		b->p.steps[i].partner = partner[i];
	free(partner);
	return GN_OK;
}

enum gn_status gn_sim_plan_create(const struct gn_algorithm *a, const struct gn_algo_args *args, int ranks, size_t bytes,
				  uint64_t max_bytes, struct gn_sim_plan *out, struct gn_err *err)
{
	struct builder b = {.a = a, .args = *args, .p = {.ranks = ranks}, .bytes = bytes, .max_bytes = max_bytes};
	enum gn_status status = GN_OK;

	b.p.first = calloc((size_t)ranks + 1, sizeof *b.p.first);
	if (!b.p.first)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
	for (b.args.rank = 0; b.args.rank < ranks && !status; b.args.rank++)
		status = add_rank(&b, err);
	if (!status) {
		b.p.first[ranks] = b.count;
		b.p.steps[b.count].first_dependent = (uint32_t)b.dependents;
		status = pair_messages(&b, err);
	}
	for (size_t i = 0; i < b.count && !status; i++)
		if (b.p.steps[i].op != GN_STEP_COPY && b.p.steps[i].partner == NONE)
			status = gn_err_set(err, GN_ERR_FAILED, "%s: a message of rank %d is not sent or not received", a->name,
					    b.p.steps[i].rank);
	free(b.messages);
	if (status)
		gn_sim_plan_release(&b.p);
	else
		*out = b.p;
	return status;
}

void gn_sim_plan_release(struct gn_sim_plan *p)
{
	free(p->first);
	free(p->steps);
	free(p->dependents);
	*p = (struct gn_sim_plan){0};
}
