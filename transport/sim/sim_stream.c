#include "transport/sim/sim_stream.h"

#include <math.h>
#include <stdlib.h>

#define PART_BYTES 65536.0
#define PARTS 64  /* of a message at most */
#define WINDOW 4  /* parts of a stream on their way */
#define NONE UINT32_MAX

/* A message in a stream. */
struct item {
	uint32_t next; /* in the stream */
	struct gn_sim_message m;
	double left; /* bytes that have not left the port */
	double part_bytes;
};

struct part {
	uint32_t next;
	struct gn_sim_message m;
	double bytes;
	uint32_t stream;
	int last;
};

struct stream {
	uint64_t key;
	uint32_t first, final; /* items */
	uint32_t next;	       /* of those that have something for the port, in a ring */
	uint32_t port;
	double on_the_way;
};

struct port {
	uint32_t last; /* of the ring: its next is to be served first */
	uint32_t count;
	int busy;
};

/* Things by index. Those that come and go begin with the index of the next free one. */
struct pool {
	void *things;
	size_t each;
	uint32_t count, room, free; /* free: the first of a list */
};

struct gn_sim_streams {
	struct gn_sim_net *net;
	struct gn_sim_events *events;
	int size;
	struct port *ports;
	struct pool items, parts, streams;
	uint32_t *table; /* of streams by key: open addressing, at most half full */
	uint32_t table_size;
};

static uint32_t pool_add(struct gn_sim_streams *s, struct pool *p)
{
	if (p->count == p->room) {
		uint32_t wanted = p->room ? 2 * p->room : 256;
		void *moved = wanted < NONE / 2 ? realloc(p->things, wanted * p->each) : NULL;

		if (!moved) {
			s->events->status = GN_ERR_NO_MEMORY;
			return NONE;
		}
		p->things = moved;
		p->room = wanted;
	}
	return p->count++;
}

static struct item *item_at(const struct gn_sim_streams *s, uint32_t i)
{
	return (struct item *)s->items.things + i;
}

static struct part *part_at(const struct gn_sim_streams *s, uint32_t i)
{
	return (struct part *)s->parts.things + i;
}

static struct stream *stream_at(const struct gn_sim_streams *s, uint32_t i)
{
	return (struct stream *)s->streams.things + i;
}

static uint32_t *next_free(const struct pool *p, uint32_t i)
{
	return (void *)((char *)p->things + i * p->each);
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

/* --- streams by their ends --- */

static uint32_t place_of(const uint32_t *table, uint32_t size, const struct stream *all, uint64_t key)
{
	uint32_t i = (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (size - 1);

	while (table[i] != NONE && all[table[i]].key != key)
		i = (i + 1) & (size - 1);
	return i;
}

static int grow_table(struct gn_sim_streams *s)
{
	uint32_t wanted = s->table_size ? 2 * s->table_size : 64;
	uint32_t *table = malloc(wanted * sizeof *table);

	if (!table) {
		s->events->status = GN_ERR_NO_MEMORY;
		return 0;
	}
	for (uint32_t i = 0; i < wanted; i++)
		table[i] = NONE;
	for (uint32_t i = 0; i < s->streams.count; i++)
		table[place_of(table, wanted, s->streams.things, stream_at(s, i)->key)] = i;
	free(s->table);
	s->table = table;
	s->table_size = wanted;
	return 1;
}

/* In the folded machine a rank stands for others, and its streams for theirs: what counts is how far they go. */
static uint32_t stream_of(struct gn_sim_streams *s, const struct gn_sim_message *m)
{
	uint64_t ahead = (uint64_t)((m->to - m->from + s->size) % s->size);
	uint64_t key = (uint64_t)(m->from % s->net->ranks) << 32 | ahead;
	uint32_t place, new;

	if (2 * s->streams.count >= s->table_size && !grow_table(s))
		return NONE;
	place = place_of(s->table, s->table_size, s->streams.things, key);
	if (s->table[place] != NONE)
		return s->table[place];
	new = pool_add(s, &s->streams);
	if (new == NONE)
		return NONE;
	*stream_at(s, new) = (struct stream){key, NONE, NONE, NONE, (uint32_t)gn_sim_net_port(s->net, m->from), 0};
	return s->table[place] = new;
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

/* The first stream has nothing more for the port. */
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

/* The next part of the stream's first message goes through the port. */
static void serve_part(struct gn_sim_streams *s, uint32_t stream, double now)
{
	struct stream *st = stream_at(s, stream);
	struct item *item = item_at(s, st->first);
	double bytes = fmin(item->left, item->part_bytes), left, head;
	uint32_t part = pool_take(s, &s->parts);

	if (part == NONE)
		return;
	gn_sim_net_send(s->net, item->m.from, item->m.to, item->m.bytes, bytes, now, item->m.stretch, &left, &head);
	item->left -= bytes;
	*part_at(s, part) = (struct part){NONE, item->m, bytes, stream, item->left <= 0};
	st->on_the_way += bytes;
	s->ports[st->port].busy = 1;
	gn_sim_events_push(s->events, head, GN_SIM_PART, part);
	gn_sim_events_push(s->events, left, GN_SIM_PORT, st->port);
	if (item->left <= 0) {
		gn_sim_events_push(s->events, left, GN_SIM_FINISHED, item->m.send);
		drop_first(s, &s->ports[st->port], st);
	}
}

static int is_held_up(const struct gn_sim_streams *s, const struct stream *st, const struct item *item)
{
	double latency = gn_sim_net_latency(s->net, item->m.from, item->m.to, item->m.bytes);
	double window = fmax(WINDOW * item->part_bytes, 2 * latency * s->net->t->link_bytes_per_s);

	return st->on_the_way > 0 && st->on_the_way + fmin(item->left, item->part_bytes) > window;
}

/* What is first in the streams' turn, as long as the port is free. */
static void kick(struct gn_sim_streams *s, uint32_t port, double now)
{
	struct port *p = &s->ports[port];

	for (uint32_t held_up = 0; !p->busy && held_up < p->count && !s->events->status;) {
		uint32_t stream = stream_at(s, p->last)->next;
		struct stream *st = stream_at(s, stream);
		struct item *item = item_at(s, st->first);

		if (is_held_up(s, st, item)) {
			p->last = stream;
			held_up++;
			continue;
		}
		serve_part(s, stream, now);
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
	*item_at(s, i) = (struct item){NONE, *m, m->bytes, fmax(PART_BYTES, m->bytes / PARTS)};
	if (st->first == NONE) {
		st->first = i;
		enter_ring(s, stream);
	} else {
		item_at(s, st->final)->next = i;
	}
	st->final = i;
	kick(s, st->port, now);
}

void gn_sim_streams_part(struct gn_sim_streams *s, uint32_t part, double now)
{
	const struct part *p = part_at(s, part);
	double through = gn_sim_net_arrive(s->net, p->m.from, p->m.to, p->bytes, now, p->m.stretch);

	gn_sim_events_push(s->events, through, GN_SIM_THROUGH, part);
	if (p->last)
		gn_sim_events_push(s->events, through, GN_SIM_LANDED, p->m.receive);
}

void gn_sim_streams_through(struct gn_sim_streams *s, uint32_t part, double now)
{
	struct part *p = part_at(s, part);
	struct stream *st = stream_at(s, p->stream);

	st->on_the_way -= p->bytes;
	pool_give(&s->parts, part);
	kick(s, st->port, now);
}

void gn_sim_streams_port(struct gn_sim_streams *s, uint32_t port, double now)
{
	s->ports[port].busy = 0;
	kick(s, port, now);
}

enum gn_status gn_sim_streams_create(struct gn_sim_net *net, struct gn_sim_events *events, int size,
				     struct gn_sim_streams **out, struct gn_err *err)
{
	struct gn_sim_streams *s = calloc(1, sizeof *s);
	size_t ports = (size_t)(net->ranks / net->t->ranks_per_node) * (size_t)net->t->rails;

	if (s)
		s->ports = calloc(ports, sizeof *s->ports);
	if (!s || !s->ports) {
		free(s);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the streams of %zu ports", ports);
	}
	s->net = net;
	s->events = events;
	s->size = size;
	s->items = (struct pool){.each = sizeof(struct item), .free = NONE};
	s->parts = (struct pool){.each = sizeof(struct part), .free = NONE};
	s->streams = (struct pool){.each = sizeof(struct stream), .free = NONE};
	*out = s;
	return GN_OK;
}

void gn_sim_streams_destroy(struct gn_sim_streams *s)
{
	if (!s)
		return;
	free(s->ports);
	free(s->items.things);
	free(s->parts.things);
	free(s->streams.things);
	free(s->table);
	free(s);
}
