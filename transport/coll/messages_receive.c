#include "transport/coll/messages_internal.h"

#include <stdlib.h>
#include <string.h>

/* Handlers of one sender's messages in one call of progress: others wait, too. */
enum { HANDLED_AT_ONCE = 16 };

static void drop(struct gn_inbound *in)
{
	struct gn_messages *m = in->owner;

	if (in->kept)
		gn_ucx_am_release(m->comm->ucx, in->kept);
	m->held_bytes -= in->counted_bytes;
	free(in->memory);
	free(in);
}

/* Data of a rendezvous have come, or failed. In UCX's progress. */
static void received(struct gn_ucx_request *r)
{
	struct gn_inbound *in = (struct gn_inbound *)((char *)r - offsetof(struct gn_inbound, request));
	struct gn_messages *m = in->owner;
	struct gn_message_send_state *s;

	in->state = GN_INBOUND_HERE;
	m->coming--;
	if (in->wire.is == GN_MESSAGE_PLAIN) {
		if (m->peers[in->message.from].is_lost)
			drop(in);
		else
			gn_message_make_busy(m, &m->peers[in->message.from]);
		return;
	}
	s = gn_message_call_of(m, in->wire.call, in->message.from);
	if (s) {
		s->is_answered = 1;
		s->status = r->status;
		m->counts.answered++;
		if (s->is_sent)
			gn_message_finish(s, s->status);
	}
	drop(in);
}

/* --- arrival --- */

static struct gn_inbound *create(struct gn_messages *m, const struct gn_message_wire *wire, const struct gn_ucx_am *am)
{
	struct gn_inbound *in = calloc(1, sizeof *in);

	if (!in)
		return NULL;
	in->owner = m;
	in->wire = *wire;
	memcpy(in->header, (const char *)am->header + sizeof *wire, wire->header_bytes);
	in->message = (struct gn_message){.from = (int)wire->from, .kind = wire->kind, .header = in->header,
					  .header_bytes = wire->header_bytes, .data_bytes = am->data_bytes};
	if (am->is_rendezvous) {
		in->kept = am->data;
		return in;
	}
	in->state = GN_INBOUND_HERE;
	if (!am->data_bytes)
		return in;
	in->memory = malloc(am->data_bytes);
	if (!in->memory) {
		free(in);
		return NULL;
	}
	in->message.data = memcpy(in->memory, am->data, am->data_bytes);
	return in;
}

/* Returns 0, for a message of which nothing is kept. */
static int reject(struct gn_messages *m)
{
	m->counts.dropped++;
	return 0;
}

static int take_plain(struct gn_messages *m, struct gn_message_peer *p, const struct gn_message_wire *wire,
		      const struct gn_ucx_am *am)
{
	struct gn_inbound **at = &p->inbound, *in;

	if (wire->sequence - p->receive_sequence >= GN_MESSAGES_CREDITS || wire->kind >= GN_MESSAGE_KINDS)
		return reject(m);
	while (*at && (*at)->wire.sequence - p->receive_sequence < wire->sequence - p->receive_sequence)
		at = &(*at)->next;
	in = *at && (*at)->wire.sequence == wire->sequence ? NULL : create(m, wire, am);
	if (!in)
		return reject(m);
	in->next = *at;
	*at = in;
	m->counts.received++;
	if (++m->counts.held > m->counts.held_max)
		m->counts.held_max = m->counts.held;
	gn_message_make_busy(m, p);
	return am->is_rendezvous;
}

static int take_answer(struct gn_messages *m, const struct gn_message_wire *wire, const struct gn_ucx_am *am)
{
	struct gn_message_send_state *s = gn_message_call_of(m, wire->call, (int)wire->from);
	struct gn_message_send *user = s ? s->user : NULL;
	struct gn_inbound *in = NULL;
	int fits = user && am->data_bytes <= user->answer_room_bytes;

	if (!user)
		return reject(m);
	user->answer_header_bytes = wire->header_bytes;
	memcpy(user->answer_header, (const char *)am->header + sizeof *wire, wire->header_bytes);
	user->answer_bytes = am->data_bytes;
	if (fits && am->is_rendezvous) {
		in = create(m, wire, am);
		if (in) {
			in->next = m->answers;
			m->answers = in;
			return 1;
		}
	}
	if (fits && !am->is_rendezvous && am->data_bytes)
		memcpy(user->answer, am->data, am->data_bytes);
	s->is_answered = 1;
	s->status = !fits ? GN_ERR_MISMATCH : am->is_rendezvous ? GN_ERR_NO_MEMORY : GN_OK;
	m->counts.answered++;
	if (s->is_sent)
		gn_message_finish(s, s->status);
	return 0;
}

int gn_message_arrived(void *context, const struct gn_ucx_am *am)
{
	struct gn_messages *m = context;
	struct gn_message_peer *p;
	struct gn_message_wire wire;

	if (am->header_bytes < sizeof wire)
		return reject(m);
	memcpy(&wire, am->header, sizeof wire);
	if (wire.token != m->token || wire.from >= (uint32_t)m->size || wire.from == (uint32_t)m->rank ||
	    wire.header_bytes > GN_MESSAGE_HEADER_MAX || wire.header_bytes != am->header_bytes - sizeof wire)
		return reject(m);
	p = &m->peers[wire.from];
	if (p->is_lost)
		return 0;
	gn_message_take_credits(m, p, wire.credits);
	switch (wire.is) {
	case GN_MESSAGE_PLAIN:
		return take_plain(m, p, &wire, am);
	case GN_MESSAGE_ANSWER:
		return take_answer(m, &wire, am);
	default:
		return 0;
	}
}

/* --- rendezvous --- */

static void begin(struct gn_inbound *in, void *into)
{
	struct gn_messages *m = in->owner;
	void *descriptor = in->kept;
	struct gn_err why;

	in->message.data = into;
	in->state = GN_INBOUND_COMING;
	in->kept = NULL;
	m->coming++;
	in->request.complete = received;
	if (gn_ucx_am_receive(m->comm->ucx, descriptor, into, in->message.data_bytes, &in->request, &why)) {
		in->request.status = why.status;
		received(&in->request);
	}
}

/* Memory for its data; NULL: not now. */
static void *find_place(struct gn_inbound *in)
{
	struct gn_messages *m = in->owner;
	const struct gn_message_kind *k = &m->kinds[in->message.kind];
	size_t len = in->message.data_bytes;
	void *place = k->place ? k->place(k->context, &in->message) : NULL;

	if (place)
		return place;
	if (m->held_bytes && (len > GN_MESSAGES_RECEIVE_BYTES || m->held_bytes > GN_MESSAGES_RECEIVE_BYTES - len))
		return NULL;
	in->memory = malloc(len);
	if (!in->memory)
		return NULL;
	in->counted_bytes = len;
	m->held_bytes += len;
	if (m->held_bytes > m->counts.held_bytes_max)
		m->counts.held_bytes_max = m->held_bytes;
	return in->memory;
}

void gn_message_receive_offered(struct gn_messages *m, struct gn_message_peer *p)
{
	uint32_t next = p->receive_sequence;

	/* in order, or one that has to wait for others could take the memory that these need */
	for (struct gn_inbound *in = p->inbound; in && in->wire.sequence == next; in = in->next, next++) {
		void *place;

		if (in->state != GN_INBOUND_OFFERED)
			continue;
		if (!m->kinds[in->message.kind].handle)
			return;
		place = find_place(in);
		if (!place)
			return;
		begin(in, place);
		if (p->is_lost) /* with all that came from it */
			return;
	}
}

void gn_message_receive_answers(struct gn_messages *m)
{
	while (m->answers) {
		struct gn_inbound *in = m->answers;
		struct gn_message_send_state *s = gn_message_call_of(m, in->wire.call, in->message.from);

		m->answers = in->next;
		if (s && s->user)
			begin(in, s->user->answer);
		else
			drop(in);
	}
}

/* --- delivery --- */

int gn_message_has_work(const struct gn_messages *m, const struct gn_message_peer *p)
{
	const struct gn_inbound *in = p->inbound;

	return (p->waiting && p->credits) || (in && in->wire.sequence == p->receive_sequence && in->state != GN_INBOUND_COMING &&
					      m->kinds[in->message.kind].handle);
}

/* Inside the communicator. */
static void finish(struct gn_inbound *in)
{
	struct gn_messages *m = in->owner;
	struct gn_message_peer *p = &m->peers[in->message.from];

	/* nobody waits for ever for a handler that forgot */
	if (in->wire.call && !in->is_answered && !p->is_lost) {
		gn_comm_leave(m->comm);
		gn_message_answer(&in->message, NULL, 0, NULL, 0, NULL, NULL, NULL);
		gn_comm_enter(m->comm);
	}
	m->counts.held--;
	p->owed++;
	gn_message_make_busy(m, p);
	drop(in);
}

unsigned gn_message_deliver(struct gn_messages *m, struct gn_message_peer *p)
{
	unsigned count = 0;

	while (count < HANDLED_AT_ONCE && p->inbound && p->inbound->wire.sequence == p->receive_sequence &&
	       p->inbound->state == GN_INBOUND_HERE && m->kinds[p->inbound->message.kind].handle) {
		struct gn_inbound *in = p->inbound;
		const struct gn_message_kind *k = &m->kinds[in->message.kind];

		p->inbound = in->next;
		p->receive_sequence++;
		in->state = GN_INBOUND_HANDLED;
		count++;
		if (in->request.status) {
			m->counts.dropped++;
		} else {
			gn_comm_leave(m->comm);
			k->handle(k->context, &in->message);
			gn_comm_enter(m->comm);
		}
		if (!in->is_kept)
			finish(in);
	}
	return count;
}

int gn_message_is_call(const struct gn_message *message)
{
	return ((const struct gn_inbound *)message)->wire.call != 0;
}

void gn_message_keep(struct gn_message *message)
{
	((struct gn_inbound *)message)->is_kept = 1;
}

void gn_message_done(struct gn_message *message)
{
	struct gn_inbound *in = (struct gn_inbound *)message;
	const struct gn_comm *c = in->owner->comm;

	gn_comm_enter(c);
	finish(in);
	gn_comm_leave(c);
}

void gn_message_drop_all(struct gn_messages *m, struct gn_message_peer *p)
{
	for (struct gn_inbound *in = p->inbound, *next; in; in = next) {
		next = in->next;
		m->counts.held--;
		/* UCX writes into it until its request ends, which drops it */
		if (in->state != GN_INBOUND_COMING)
			drop(in);
	}
	p->inbound = NULL;
}

void gn_messages_handle(struct gn_messages *m, int kind, const struct gn_message_kind *how)
{
	gn_comm_enter(m->comm);
	m->kinds[kind] = *how;
	for (int r = 0; r < m->size; r++)
		if (m->peers[r].inbound)
			gn_message_make_busy(m, &m->peers[r]);
	gn_comm_leave(m->comm);
}
