/* The walk: each step is visited once, when those that it depends on have been. */
#include "transport/select/critical_path_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- ports and processors: requests in the order of the walk, and byte streams that share an output port --- */

/* More messages at once leave a port one after the other. */
#define SHARED_MAX 64
/* As in sim_stream.c. */
#define FRAGMENT_BYTES 65536.0
#define FRAGMENTS_MAX 64
/* Of all messages in one busy time: longer ones take fewer turns then. */
#define TURNS_MAX 512.0

static void insert_gap(struct gn_path_resource *r, int at, double from, double to)
{
	if (r->count == GN_PATH_GAPS_MAX) {
		r->count--;
		memmove(r->gaps, r->gaps + 1, (size_t)r->count * sizeof *r->gaps);
		at -= at > 0;
	}
	memmove(r->gaps + at + 1, r->gaps + at, (size_t)(r->count - at) * sizeof *r->gaps);
	r->gaps[at] = (struct gn_path_gap){from, to};
	r->count++;
}

/* Uses a gap from `begin` on. */
static void fill_gap(struct gn_path_resource *r, int at, double begin, double end)
{
	double from = r->gaps[at].from, to = r->gaps[at].to;

	if (begin > from && end < to) {
		r->gaps[at].from = end;
		insert_gap(r, at, from, begin);
	} else if (end < to) {
		r->gaps[at].from = end;
	} else if (begin > from) {
		r->gaps[at].to = begin;
	} else {
		r->count--;
		memmove(r->gaps + at, r->gaps + at + 1, (size_t)(r->count - at) * sizeof *r->gaps);
	}
}

/* Returns when the request begins: at the first time from `at` on at which the resource is idle for so long. */
static double serve(struct gn_path_resource *r, double at, double seconds)
{
	int fits = -1;
	double begin;

	r->busy_s += seconds;
	for (int i = r->count - 1; i >= 0 && r->gaps[i].to > at; i--)
		if (fmax(at, r->gaps[i].from) + seconds <= r->gaps[i].to)
			fits = i;
	if (fits >= 0) {
		begin = fmax(at, r->gaps[fits].from);
		fill_gap(r, fits, begin, begin + seconds);
		return begin;
	}
	begin = fmax(at, r->free_at);
	if (begin > r->free_at)
		insert_gap(r, r->count, r->free_at, begin);
	r->free_at = begin + seconds;
	return begin;
}

/* The next message of another stream than the last one's, in turn; -1: none has come yet. */
static int next_in_turn(const struct gn_path_message *m, const double *left, size_t count, int last, double now)
{
	for (size_t k = 1; k <= count; k++) {
		size_t i = ((size_t)(last + 1) + k - 1) % count, j = 0;

		if (left[i] <= 0 || m[i].at > now)
			continue;
		while (j < i && !(left[j] > 0 && m[j].from == m[i].from && m[j].to == m[i].to))
			j++;
		if (j == i)
			return (int)i;
	}
	return -1;
}

/* Streams, as TCP's, take turns at a port with fragments of their messages; other messages leave it one after the other. So the
 * messages that leave a port in one busy time are through later, but for the last one. */
static void share_port(struct gn_path_message *m, size_t count, double bytes_per_s)
{
	double now = m->begin, left[SHARED_MAX];
	size_t open = count;
	int turn = -1;

	for (size_t i = 0; i < count; i++)
		left[i] = m[i].bytes;
	while (open) {
		int i = next_in_turn(m, left, count, turn, now);
		double fragment;

		if (i < 0) {
			double next = INFINITY;

			for (size_t k = 0; k < count; k++)
				next = left[k] > 0 ? fmin(next, m[k].at) : next;
			now = fmax(now, next);
			continue;
		}
		fragment = fmin(left[i], fmax(FRAGMENT_BYTES, m[i].bytes / fmin(FRAGMENTS_MAX, TURNS_MAX / (double)count)));
		now += fragment / bytes_per_s;
		left[i] -= fragment;
		turn = i;
		if (left[i] > 0)
			continue;
		open--;
		m[i].visit->done_at = now;
		m[i].visit->arrived_at = fmax(m[i].visit->arrived_at, now + m[i].latency_s);
	}
}

static int by_port(const void *a, const void *b)
{
	const struct gn_path_message *x = a, *y = b;

	if (x->port != y->port)
		return x->port < y->port ? -1 : 1;
	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Delays the messages in p->shared as byte streams that take turns at the output ports, and empties it. */
static void share_ports(struct gn_critical_path *p)
{
	struct gn_path_message *m = p->shared;

	if (p->shared_count > 1)
		qsort(m, p->shared_count, sizeof *m, by_port);
	for (size_t i = 0, end; i < p->shared_count; i = end) {
		double busy_until = m[i].begin + m[i].bytes / p->cost->link.bytes_per_s;

		for (end = i + 1; end < p->shared_count && m[end].port == m[i].port && m[end].at < busy_until; end++)
			busy_until += m[end].bytes / p->cost->link.bytes_per_s;
		if (end - i > 1 && end - i <= SHARED_MAX)
			share_port(&m[i], end - i, p->cost->link.bytes_per_s);
	}
	p->shared_count = 0;
}

/* Steps of a line that are looked at, in case the first of them wait. */
#define AHEAD 6

static void transmit(struct gn_critical_path *p, int to, struct gn_path_step *v, double bytes, double at)
{
	const struct gn_cost_path *path = v->between_nodes ? &p->cost->link : &p->cost->node;
	const struct gn_sim_range *r = gn_sim_range_of(&path->path, bytes);
	const struct gn_path_rank *from = &p->ranks[v->walked];
	struct gn_path_rank *receiver = &p->ranks[p->visits[v->partner].walked];
	struct gn_path_resource *in;
	double begin = at, takes = bytes / path->bytes_per_s, latency_s = r->latency_s + r->s_per_byte * bytes;

	if (v->between_nodes)
		begin = serve(&p->port_out[from->port], at, takes);
	v->done_at = begin + takes;
	in = v->between_nodes ? &p->port_in[receiver->port] : &receiver->in_node;
	v->arrived_at = serve(in, begin + latency_s, takes) + takes;
	if (p->streams && v->between_nodes && bytes > 0)
		p->shared[p->shared_count++] = (struct gn_path_message){v, from->port, from->rank, to, at, begin, bytes, latency_s};
}

/* When the step's dependencies are done; below zero: not all have been visited. */
static double ready_at(const struct gn_critical_path *p, const struct gn_path_rank *w, size_t i)
{
	const struct gn_step *s = &w->steps[i];
	double ready = 0;

	for (uint32_t d = 0; d < s->dependency_count; d++) {
		const struct gn_path_step *on = &p->visits[w->first + w->dependencies[s->first_dependency + d]];

		if (!on->state)
			return -1;
		ready = fmax(ready, on->done_at);
	}
	return ready;
}

static void visit_send(struct gn_critical_path *p, struct gn_path_rank *w, int to, struct gn_path_step *v, double bytes,
		       double ready)
{
	const struct gn_cost_path *path = v->between_nodes ? &p->cost->link : &p->cost->node;
	const struct gn_sim_range *r = gn_sim_range_of(&path->path, bytes);
	double at = serve(&w->processor, ready, r->send_s) + r->send_s;
	int eager = bytes <= path->path.eager_bytes || (v->between_nodes && p->streams);
	const struct gn_path_rank *receiver = &p->ranks[p->visits[v->partner].walked];
	double posted;

	p->ranks[p->visits[v->partner].walked].may_receive = w->may_receive = 1;
	v->state = GN_PATH_VISITED;
	if (eager || !v->waits) {
		transmit(p, to, v, bytes, eager ? at : at + 2 * r->latency_s);
		return;
	}
	posted = ready_at(p, receiver, v->partner - receiver->first);
	if (posted >= 0) {
		transmit(p, to, v, bytes, fmax(at + r->latency_s, posted) + r->latency_s);
		return;
	}
	v->state = GN_PATH_REQUESTED;
	v->done_at = at;
	v->arrived_at = at + r->latency_s;
}

static void visit_receive(struct gn_critical_path *p, struct gn_path_rank *w, struct gn_path_step *v, int reduces, double bytes,
			  double ready)
{
	const struct gn_cost_path *path = v->between_nodes ? &p->cost->link : &p->cost->node;
	const struct gn_sim_range *r = gn_sim_range_of(&path->path, bytes);
	struct gn_path_step *send = &p->visits[v->partner];
	double work_s = bytes / p->cost->reduce_bytes_per_s, received;

	if (send->state == GN_PATH_REQUESTED) {
		transmit(p, w->rank, send, bytes, fmax(send->arrived_at, ready) + r->latency_s);
		send->state = GN_PATH_VISITED;
	}
	received = send->arrived_at;
	v->done_at = serve(&w->processor, received, r->receive_s) + r->receive_s;
	/* an eager message that was early is copied into place */
	if (reduces || ready > received)
		v->done_at = serve(&w->processor, fmax(v->done_at, ready), work_s) + work_s;
	v->state = GN_PATH_VISITED;
}

/* A step that may be visited next: when it comes to the processor, and when its dependencies are done. */
struct next_step {
	uint32_t step;
	int line;
	double at, ready;
};

/* When a step comes to the processor; INFINITY: it waits for another one. */
static double comes_at(const struct gn_critical_path *p, const struct gn_path_rank *w, uint32_t step, double chunk_bytes,
		       double *ready)
{
	const struct gn_step *s = &w->steps[step];
	const struct gn_path_step *send;

	*ready = ready_at(p, w, step);
	if (*ready < 0)
		return INFINITY;
	if (s->op == GN_STEP_SEND || s->op == GN_STEP_COPY)
		return *ready;
	send = &p->visits[p->visits[w->first + step].partner];
	if (send->state == GN_PATH_REQUESTED) {
		const struct gn_cost_path *path = send->between_nodes ? &p->cost->link : &p->cost->node;
		double bytes = s->chunk_count * chunk_bytes;

		return fmax(send->arrived_at, *ready) + 2 * gn_sim_range_of(&path->path, bytes)->latency_s + bytes / path->bytes_per_s;
	}
	return send->state ? send->arrived_at : INFINITY;
}

/* The first to come of the next steps of the lines in [first, end); its time is INFINITY if all wait. */
static struct next_step first_of(const struct gn_critical_path *p, const struct gn_path_rank *w, int first, int end,
				 double chunk_bytes)
{
	struct next_step found = {.at = INFINITY};

	for (int line = first; line < end; line++) {
		uint32_t step = w->next[line];

		for (int i = 0; i < AHEAD && step != GN_PATH_END; step = p->visits[w->first + step].next) {
			double ready, at;

			if (p->visits[w->first + step].state)
				continue;
			i++;
			at = comes_at(p, w, step, chunk_bytes, &ready);
			if (at < found.at)
				found = (struct next_step){step, line, at, ready};
		}
	}
	return found;
}

static void visit(struct gn_critical_path *p, struct gn_path_rank *w, const struct next_step *c, double chunk_bytes)
{
	const struct gn_step *s = &w->steps[c->step];
	struct gn_path_step *v = &p->visits[w->first + c->step];
	double bytes = s->chunk_count * chunk_bytes, work_s = bytes / p->cost->reduce_bytes_per_s;

	if (s->op == GN_STEP_SEND) {
		visit_send(p, w, s->peer, v, bytes, c->ready);
	} else if (s->op == GN_STEP_COPY) {
		v->done_at = serve(&w->processor, c->ready, work_s) + work_s;
		v->state = GN_PATH_VISITED;
	} else {
		visit_receive(p, w, v, s->op == GN_STEP_RECV_REDUCE, bytes, c->ready);
	}
	while (w->next[c->line] != GN_PATH_END && p->visits[w->first + w->next[c->line]].state)
		w->next[c->line] = p->visits[w->first + w->next[c->line]].next;
}

static void free_resource(struct gn_path_resource *r)
{
	r->free_at = r->busy_s = 0;
	r->count = 0;
}

static void reset(struct gn_critical_path *p)
{
	for (int k = 0; k < p->count; k++) {
		memcpy(p->ranks[k].next, p->ranks[k].line, sizeof p->ranks[k].next);
		p->ranks[k].may_send = p->ranks[k].may_receive = 1;
		free_resource(&p->ranks[k].processor);
		free_resource(&p->ranks[k].in_node);
	}
	for (size_t i = 0; i < p->ports; i++) {
		free_resource(&p->port_out[i]);
		free_resource(&p->port_in[i]);
	}
	for (size_t i = 0; i < p->steps; i++)
		p->visits[i].state = GN_PATH_NOT_VISITED;
}

/* What is known to arrive before a rank can send comes to its processor before that. */
static int send_all(struct gn_critical_path *p, double chunk_bytes)
{
	int moved = 0;

	for (int k = 0; k < p->count; k++) {
		struct gn_path_rank *w = &p->ranks[k];
		struct next_step send;

		if (!w->may_send)
			continue;
		send = first_of(p, w, GN_PATH_LINE_SEND_REDUCED, GN_PATH_LINE_REDUCE, chunk_bytes);
		w->may_send = send.at < INFINITY && send.at <= first_of(p, w, GN_PATH_LINE_REDUCE, GN_PATH_LINES, chunk_bytes).at;
		if (w->may_send)
			visit(p, w, &send, chunk_bytes);
		moved |= w->may_send;
	}
	return moved;
}

static int receive_all(struct gn_critical_path *p, double chunk_bytes)
{
	int moved = 0;

	for (int k = 0; k < p->count; k++) {
		struct gn_path_rank *w = &p->ranks[k];
		struct next_step receive;

		if (!w->may_receive)
			continue;
		receive = first_of(p, w, GN_PATH_LINE_REDUCE, GN_PATH_LINES, chunk_bytes);
		w->may_receive = receive.at < INFINITY;
		if (!w->may_receive)
			continue;
		visit(p, w, &receive, chunk_bytes);
		w->may_send = moved = 1;
	}
	return moved;
}

/* A step of each rank in turn, so that those of a node reach its ports in about the order of time, and all that can be sent before
 * anything is received. */
double gn_critical_path_seconds(struct gn_critical_path *p, double bytes)
{
	double chunk_bytes = bytes / p->chunks, seconds = 0;

	reset(p);
	do {
		while (send_all(p, chunk_bytes))
			;
		share_ports(p);
	} while (receive_all(p, chunk_bytes));
	for (size_t i = 0; i < p->steps; i++)
		seconds = fmax(seconds, p->visits[i].state ? p->visits[i].done_at : INFINITY);
	return seconds;
}
