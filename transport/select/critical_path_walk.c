/* The walk: each step is visited once, when those that it depends on have been. */
#include "transport/select/critical_path_internal.h"

#include <math.h>
#include <string.h>

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
		begin = gn_path_serve(&p->port_out[from->port], at, takes);
	v->done_at = begin + takes;
	in = v->between_nodes ? &p->port_in[receiver->port] : &receiver->in_node;
	v->arrived_at = gn_path_serve(in, begin + latency_s, takes) + takes;
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
	double at = gn_path_serve(&w->processor, ready, r->send_s) + r->send_s;
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
	v->done_at = gn_path_serve(&w->processor, received, r->receive_s) + r->receive_s;
	/* an eager message that was early is copied into place */
	if (reduces || ready > received)
		v->done_at = gn_path_serve(&w->processor, fmax(v->done_at, ready), work_s) + work_s;
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
		v->done_at = gn_path_serve(&w->processor, c->ready, work_s) + work_s;
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
		gn_path_share_ports(p);
	} while (receive_all(p, chunk_bytes));
	for (size_t i = 0; i < p->steps; i++)
		seconds = fmax(seconds, p->visits[i].state ? p->visits[i].done_at : INFINITY);
	return seconds;
}
