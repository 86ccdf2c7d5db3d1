/* The ports and processors of a walk: requests in the order of the walk, and byte streams that share an output port. */
#include "transport/select/critical_path_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

double gn_path_serve(struct gn_path_resource *r, double at, double seconds)
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

void gn_path_share_ports(struct gn_critical_path *p)
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
