#include "transport/sim/sim_run.h"

#include "src/base/alloc.h"

#include <math.h>
#include <stdlib.h>

#define FRAGMENT_BYTES 65536.0
#define FRAGMENTS_MAX 64 /* of a message */
#define WINDOW 4  /* fragments of a stream in flight */
#define NONE UINT32_MAX

/* A message queued in a stream. */
struct item {
	uint32_t next; /* item of the stream */
	struct gn_sim_message m;
	double left; /* bytes not sent yet */
	double fragment_bytes;
};

struct fragment {
	uint32_t next;
	struct gn_sim_message m;
	double bytes;
	uint32_t stream;
	int last;
};

struct stream {
	uint64_t key;
	uint32_t first, last_item; /* items */
	uint32_t next;	       /* in the ring of the port's streams that have data to send */
	uint32_t port;
	double in_flight;
};

struct port {
	uint32_t last; /* the last stream of the ring: the one after it is served next */
	uint32_t count; /* streams in the ring */
	int busy;
};

/* An array of entries by index. A free entry begins with the index of the next free one. */
struct pool {
	void *entries;
	size_t entry_bytes, room;
	uint32_t count, free; /* free: the first free entry, NONE: none */
};

struct gn_sim_streams {
	struct gn_sim_net *net;
	struct gn_sim_events *events;
	int size;
	struct port *ports;
	struct pool items, fragments, streams;
	uint32_t *table; /* of streams by key: open addressing, at most half full */
	uint32_t table_size;
};

static uint32_t pool_add(struct gn_sim_streams *s, struct pool *p)
{
	if (p->count > NONE / 4 || gn_array_grow(&p->entries, &p->room, p->count, p->entry_bytes)) {
		s->events->status = GN_ERR_NO_MEMORY;
		return NONE;
	}
	return p->count++;
}

static struct item *item_at(const struct gn_sim_streams *s, uint32_t i)
{
	return (struct item *)s->items.entries + i;
}

static struct fragment *fragment_at(const struct gn_sim_streams *s, uint32_t i)
{
	return (struct fragment *)s->fragments.entries + i;
}

static struct stream *stream_at(const struct gn_sim_streams *s, uint32_t i)
{
	return (struct stream *)s->streams.entries + i;
}

static uint32_t *next_free(const struct pool *p, uint32_t i)
{
	return (void *)((char *)p->entries + i * p->entry_bytes);
}

static uint32_t pool_take(struct gn_sim_streams *s, struct pool *p)
{
	uint32_t i = p->free;

	if (i == NONE)
		return pool_add(s, p);
	p->free = *next_free(p, i);
	return i;
}

static void pool_give(struct pool *p, uint32_t i)
{
	*next_free(p, i) = p->free;
	p->free = i;
}

/* --- streams by their two ranks --- */

static uint32_t slot_of(const uint32_t *table, uint32_t size, const struct stream *all, uint64_t key)
{
	uint32_t i = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (size - 1);

	while (table[i] != NONE && all[table[i]].key != key)
		i = (i + 1) & (size - 1);
	return i;
}

static int grow_table(struct gn_sim_streams *s)
{
	uint32_t room = s->table_size ? 2 * s->table_size : 64;
	uint32_t *table = malloc(room * sizeof *table);

	if (!table) {
		s->events->status = GN_ERR_NO_MEMORY;
		return 0;
	}
	for (uint32_t i = 0; i < room; i++)
		table[i] = NONE;
	for (uint32_t i = 0; i < s->streams.count; i++)
		table[slot_of(table, room, s->streams.entries, stream_at(s, i)->key)] = i;
	free(s->table);
	s->table = table;
	s->table_size = room;
	return 1;
}

/* When only some ranks are simulated, a rank's streams represent those of others: streams are identified by the simulated sender
 * and the distance to the receiver. */
static uint32_t stream_of(struct gn_sim_streams *s, const struct gn_sim_message *m)
{
	uint64_t distance = (uint64_t)((m->to - m->from + s->size) % s->size);
	uint64_t key = (uint64_t)(m->from % s->net->ranks) << 32 | distance;
	uint32_t slot, new;

	if (2 * s->streams.count >= s->table_size && !grow_table(s))
		return NONE;
	slot = slot_of(s->table, s->table_size, s->streams.entries, key);
	if (s->table[slot] != NONE)
		return s->table[slot];
	new = pool_add(s, &s->streams);
	if (new == NONE)
		return NONE;
	*stream_at(s, new) = (struct stream){key, NONE, NONE, NONE, (uint32_t)gn_sim_net_port(s->net, m->from), 0};
	return s->table[slot] = new;
}

/* --- ports --- */

static void enter_ring(struct gn_sim_streams *s, uint32_t stream)
{
	struct stream *new = stream_at(s, stream);
	struct port *p = &s->ports[new->port];

	if (p->count++) {
		new->next = stream_at(s, p->last)->next;
		stream_at(s, p->last)->next = stream;
	} else {
		new->next = stream;
	}
	p->last = stream;
}

/* Removes the first stream of the ring, which has no more data to send. */
static void leave_ring(struct gn_sim_streams *s, struct port *p)
{
	struct stream *last = stream_at(s, p->last);

	last->next = stream_at(s, last->next)->next;
	p->count--;
}

static void drop_first(struct gn_sim_streams *s, struct port *p, struct stream *st)
{
	uint32_t i = st->first;

	st->first = item_at(s, i)->next;
	pool_give(&s->items, i);
	if (st->first == NONE)
		leave_ring(s, p);
}

/* Sends the next fragment of the stream's first message through the port. */
static void send_fragment(struct gn_sim_streams *s, uint32_t stream, double now)
{
	struct stream *st = stream_at(s, stream);
	struct item *item = item_at(s, st->first);
	double bytes = fmin(item->left, item->fragment_bytes), left, head;
	uint32_t fragment = pool_take(s, &s->fragments);

	if (fragment == NONE)
		return;
	gn_sim_net_send(s->net, item->m.from, item->m.to, item->m.bytes, bytes, now, item->m.stretch, &left, &head);
	item->left -= bytes;
	*fragment_at(s, fragment) = (struct fragment){NONE, item->m, bytes, stream, item->left <= 0};
	st->in_flight += bytes;
	s->ports[st->port].busy = 1;
	gn_sim_events_push(s->events, head, GN_SIM_FRAGMENT_ARRIVED, fragment);
	gn_sim_events_push(s->events, left, GN_SIM_PORT_FREE, st->port);
	if (item->left <= 0) {
		gn_sim_events_push(s->events, left, GN_SIM_COMPLETED, item->m.send);
		drop_first(s, &s->ports[st->port], st);
	}
}

static int is_blocked(const struct gn_sim_streams *s, const struct stream *st, const struct item *item)
{
	double latency = gn_sim_net_latency(s->net, item->m.from, item->m.to, item->m.bytes);
	double window = fmax(WINDOW * item->fragment_bytes, 2 * latency * s->net->t->link_bytes_per_s);

	return st->in_flight > 0 && st->in_flight + fmin(item->left, item->fragment_bytes) > window;
}

/* Serves the port's streams round-robin while the port is free; skips streams whose window is full. */
static void serve_port(struct gn_sim_streams *s, uint32_t port, double now)
{
	struct port *p = &s->ports[port];

	for (uint32_t blocked = 0; !p->busy && blocked < p->count && !s->events->status;) {
		uint32_t stream = stream_at(s, p->last)->next;
		struct stream *st = stream_at(s, stream);
		struct item *item = item_at(s, st->first);

		if (is_blocked(s, st, item)) {
			p->last = stream;
			blocked++;
			continue;
		}
		send_fragment(s, stream, now);
		if (st->first != NONE)
			p->last = stream;
	}
}

void gn_sim_streams_send(struct gn_sim_streams *s, const struct gn_sim_message *m, double now)
{
	uint32_t stream = stream_of(s, m), i = stream == NONE ? NONE : pool_take(s, &s->items);
	struct stream *st;

	if (i == NONE)
		return;
	st = stream_at(s, stream);
	*item_at(s, i) = (struct item){NONE, *m, m->bytes, fmax(FRAGMENT_BYTES, m->bytes / FRAGMENTS_MAX)};
	if (st->first == NONE) {
		st->first = i;
		enter_ring(s, stream);
	} else {
		item_at(s, st->last_item)->next = i;
	}
	st->last_item = i;
	serve_port(s, st->port, now);
}

void gn_sim_streams_fragment_arrived(struct gn_sim_streams *s, uint32_t fragment, double now)
{
	const struct fragment *p = fragment_at(s, fragment);
	double received = gn_sim_net_arrive(s->net, p->m.from, p->m.to, p->bytes, now, p->m.stretch);

	gn_sim_events_push(s->events, received, GN_SIM_FRAGMENT_RECEIVED, fragment);
	if (p->last)
		gn_sim_events_push(s->events, received, GN_SIM_RECEIVED, p->m.receive);
}

void gn_sim_streams_fragment_received(struct gn_sim_streams *s, uint32_t fragment, double now)
{
	struct fragment *p = fragment_at(s, fragment);
	struct stream *st = stream_at(s, p->stream);

	st->in_flight -= p->bytes;
	pool_give(&s->fragments, fragment);
	serve_port(s, st->port, now);
}

void gn_sim_streams_port_free(struct gn_sim_streams *s, uint32_t port, double now)
{
	s->ports[port].busy = 0;
	serve_port(s, port, now);
}

enum gn_status gn_sim_streams_create(struct gn_sim_net *net, struct gn_sim_events *events, int size,
				     struct gn_sim_streams **out, struct gn_err *err)
{
	struct gn_sim_streams *s = calloc(1, sizeof *s);
	size_t ports = (size_t)(net->t->map ? net->t->map->nodes : net->ranks / net->t->ranks_per_node) * (size_t)net->t->rails;

	if (s)
		s->ports = calloc(ports, sizeof *s->ports);
	if (!s || !s->ports) {
		free(s);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the streams of %zu ports", ports);
	}
	s->net = net;
	s->events = events;
	s->size = size;
	s->items = (struct pool){.entry_bytes = sizeof(struct item), .free = NONE};
	s->fragments = (struct pool){.entry_bytes = sizeof(struct fragment), .free = NONE};
	s->streams = (struct pool){.entry_bytes = sizeof(struct stream), .free = NONE};
	*out = s;
	return GN_OK;
}

void gn_sim_streams_destroy(struct gn_sim_streams *s)
{
	if (!s)
		return;
	free(s->ports);
	free(s->items.entries);
	free(s->fragments.entries);
	free(s->streams.entries);
	free(s->table);
	free(s);
}

static int before(const struct gn_sim_event *a, const struct gn_sim_event *b)
{
	if (a->at < b->at || a->at > b->at)
		return a->at < b->at;
	return a->kind < b->kind || (a->kind == b->kind && a->what < b->what);
}

void gn_sim_events_push(struct gn_sim_events *e, double at, enum gn_sim_kind kind, uint32_t what)
{
	struct gn_sim_event new = {at, what, kind};
	size_t i;

	if (gn_array_grow(&e->heap, &e->room, e->count, sizeof *e->heap)) {
		e->status = GN_ERR_NO_MEMORY;
		return;
	}
	for (i = e->count++; i && before(&new, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
		e->heap[i] = e->heap[(i - 1) / 2];
	e->heap[i] = new;
}

struct gn_sim_event gn_sim_events_pop(struct gn_sim_events *e)
{
	struct gn_sim_event top = e->heap[0], last = e->heap[--e->count];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < e->count) {
		if (child + 1 < e->count && before(&e->heap[child + 1], &e->heap[child]))
			child++;
		if (!before(&e->heap[child], &last))
			break;
		e->heap[i] = e->heap[child];
		i = child;
	}
	e->heap[i] = last;
	return top;
}

void gn_sim_events_release(struct gn_sim_events *e)
{
	free(e->heap);
	*e = (struct gn_sim_events){0};
}
