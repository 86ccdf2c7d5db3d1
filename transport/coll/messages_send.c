#include "transport/coll/messages_internal.h"

#include <stdlib.h>
#include <string.h>

/* A call's number is its place, from 1 on, and how often that place has been used. */
#define CALL_BITS 20

/* --- sending --- */

void gn_message_make_busy(struct gn_messages *m, struct gn_message_peer *p)
{
	if (p->is_busy)
		return;
	p->is_busy = 1;
	p->next_busy = m->busy;
	m->busy = p;
}

struct gn_message_send_state *gn_message_take_send(struct gn_messages *m, int to)
{
	struct gn_message_send_state *s = m->free_sends;

	if (s)
		m->free_sends = s->next;
	else
		s = malloc(sizeof *s);
	if (!s)
		return NULL;
	memset(s, 0, offsetof(struct gn_message_send_state, wire));
	s->owner = m;
	s->to = to;
	return s;
}

void gn_message_return_send(struct gn_message_send_state *s)
{
	free(s->copy);
	s->next = s->owner->free_sends;
	s->owner->free_sends = s;
}

void gn_message_finish(struct gn_message_send_state *s, enum gn_status status)
{
	struct gn_messages *m = s->owner;

	s->is_finished = 1;
	s->status = status;
	s->next = NULL;
	*m->finished_end = s;
	m->finished_end = &s->next;
}

static void sent(struct gn_ucx_request *r)
{
	struct gn_message_send_state *s = (struct gn_message_send_state *)r;

	s->is_sent = 1;
	if (r->status)
		gn_message_finish(s, r->status);
	else if (!s->call || s->is_answered)
		gn_message_finish(s, s->status);
}

static enum gn_status connect_to(struct gn_messages *m, int rank, struct gn_err *err)
{
	struct gn_message_peer *p = &m->peers[rank];
	enum gn_status status = GN_OK;

	if (!p->is_connected)
		status = gn_ucx_connect(m->comm->ucx, rank, err);
	p->is_connected = !status;
	return status;
}

static void write_wire(struct gn_message_send_state *s, struct gn_message_wire *wire, const void *header)
{
	wire->token = s->owner->token;
	wire->from = (uint32_t)s->owner->rank;
	memcpy(s->wire, wire, sizeof *wire);
	if (header)
		memcpy(s->wire + sizeof *wire, header, wire->header_bytes);
	s->wire_bytes = sizeof *wire + wire->header_bytes;
}

/* Hands it to UCX, with the credits that the peer is owed. */
static void launch(struct gn_message_send_state *s)
{
	struct gn_message_peer *p = &s->owner->peers[s->to];
	struct gn_message_wire wire;
	struct gn_err why;

	memcpy(&wire, s->wire, sizeof wire);
	wire.credits = p->owed;
	if (wire.is == GN_MESSAGE_PLAIN)
		wire.sequence = p->send_sequence++;
	memcpy(s->wire, &wire, sizeof wire);
	p->owed = 0;
	s->request.complete = sent;
	if (!s->user)
		gn_message_list(&s->owner->without_user, s);
	if (gn_ucx_am_send(s->owner->comm->ucx, s->to, s->wire, s->wire_bytes, s->data, s->data_bytes, &s->request, &why)) {
		s->is_sent = 1;
		gn_message_finish(s, why.status);
	}
}

/* --- calls --- */

static enum gn_status number_call(struct gn_messages *m, struct gn_message_send_state *s, struct gn_err *err)
{
	uint32_t place = m->free_call;

	while (place < m->call_count && m->calls[place])
		place++;
	if (place == m->call_count) {
		uint32_t count = m->call_count ? 2 * m->call_count : 64;
		struct gn_message_send_state **calls = count < 1u << CALL_BITS ? realloc(m->calls, sizeof *calls * count) : NULL;

		if (!calls)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u calls that wait for answers", count);
		memset(calls + m->call_count, 0, sizeof *calls * (count - m->call_count));
		m->calls = calls;
		m->call_count = count;
	}
	m->calls[place] = s;
	m->free_call = place + 1;
	s->call = (uint32_t)(m->counts.sent << CALL_BITS) | (place + 1);
	return GN_OK;
}

struct gn_message_send_state *gn_message_call_of(struct gn_messages *m, uint32_t call, int rank)
{
	uint32_t place = call & ((1u << CALL_BITS) - 1);
	struct gn_message_send_state *s = place && place <= m->call_count ? m->calls[place - 1] : NULL;

	return s && s->call == call && s->to == rank && !s->is_answered ? s : NULL;
}

void gn_message_forget_call(struct gn_message_send_state *s)
{
	uint32_t place = s->call & ((1u << CALL_BITS) - 1);
	struct gn_messages *m = s->owner;

	if (!place || m->calls[place - 1] != s)
		return;
	m->calls[place - 1] = NULL;
	if (place - 1 < m->free_call)
		m->free_call = place - 1;
}

/* --- credits --- */

void gn_message_take_credits(struct gn_messages *m, struct gn_message_peer *p, uint32_t credits)
{
	if (credits > GN_MESSAGES_CREDITS - p->credits) {
		m->counts.dropped++;
		return;
	}
	p->credits += credits;
	if (credits && p->waiting)
		gn_message_make_busy(m, p);
}

void gn_message_launch_waiting(struct gn_messages *m, struct gn_message_peer *p)
{
	while (p->waiting && p->credits) {
		struct gn_message_send_state *s = p->waiting;

		p->waiting = s->next;
		if (!p->waiting)
			p->waiting_end = &p->waiting;
		p->credits--;
		m->counts.waiting--;
		launch(s);
	}
}

void gn_message_return_credits(struct gn_messages *m, struct gn_message_peer *p)
{
	struct gn_message_wire wire = {.is = GN_MESSAGE_CREDIT};
	int rank = gn_message_rank_of(m, p);
	struct gn_message_send_state *s;

	if (p->owed < GN_MESSAGES_OWED_MAX || p->is_lost || connect_to(m, rank, NULL))
		return;
	s = gn_message_take_send(m, rank);
	if (!s)
		return;
	write_wire(s, &wire, NULL);
	launch(s);
}

/* --- users' calls --- */

void gn_message_list(struct gn_message_send_state **newest, struct gn_message_send_state *s)
{
	s->older = *newest;
	if (s->older)
		s->older->newer = s;
	*newest = s;
}

void gn_message_unlist(struct gn_message_send_state *s)
{
	if (s->older)
		s->older->newer = s->newer;
	if (s->newer)
		s->newer->older = s->older;
	if (s->owner->newest == s)
		s->owner->newest = s->older;
	if (s->owner->without_user == s)
		s->owner->without_user = s->older;
	s->newer = s->older = NULL;
}

static enum gn_status check_send(const struct gn_messages *m, const struct gn_message_send *s, struct gn_err *err)
{
	if (s->to < 0 || s->to >= m->size || s->to == m->rank)
		return gn_err_set(err, GN_ERR_USAGE, "a message to rank %d, of %d ranks, at rank %d", s->to, m->size, m->rank);
	if (s->kind < 0 || s->kind >= GN_MESSAGE_KINDS || s->header_bytes > GN_MESSAGE_HEADER_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "a message of kind %d with a header of %zu bytes: kinds end before %d, headers hold "
				  "%d bytes", s->kind, s->header_bytes, GN_MESSAGE_KINDS, GN_MESSAGE_HEADER_MAX);
	if (s->state)
		return gn_err_set(err, GN_ERR_USAGE, "a message was sent again before it was complete");
	if (m->peers[s->to].is_lost)
		return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d on %s is lost", s->to,
				  gn_world_host_of(m->comm->world, s->to));
	return GN_OK;
}

/* Inside the communicator. */
static enum gn_status post(struct gn_messages *m, struct gn_message_send *user, int is_call, struct gn_err *err)
{
	struct gn_message_peer *p = &m->peers[user->to];
	struct gn_message_wire wire = {.is = GN_MESSAGE_PLAIN, .kind = (uint16_t)user->kind,
				       .header_bytes = (uint32_t)user->header_bytes};
	struct gn_message_send_state *s;
	enum gn_status status = connect_to(m, user->to, err);

	if (status)
		return status;
	s = gn_message_take_send(m, user->to);
	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a message");
	status = is_call ? number_call(m, s, err) : GN_OK;
	if (status) {
		gn_message_return_send(s);
		return status;
	}
	wire.call = s->call;
	s->user = user;
	s->data = user->data;
	s->data_bytes = user->data_bytes;
	write_wire(s, &wire, user->header);
	user->state = s;
	gn_message_list(&m->newest, s);
	user->answer_bytes = user->answer_header_bytes = 0;
	m->counts.sent++;
	if (p->credits && !p->waiting) {
		p->credits--;
		launch(s);
		return GN_OK;
	}
	s->next = NULL;
	*p->waiting_end = s;
	p->waiting_end = &s->next;
	m->counts.waiting++;
	return GN_OK;
}

static enum gn_status send_any(struct gn_messages *m, struct gn_message_send *s, int is_call, struct gn_err *err)
{
	enum gn_status status = check_send(m, s, err);

	if (status)
		return status;
	gn_comm_enter(m->comm);
	status = post(m, s, is_call, err);
	gn_comm_leave(m->comm);
	return status;
}

enum gn_status gn_message_send(struct gn_messages *m, struct gn_message_send *s, struct gn_err *err)
{
	return send_any(m, s, 0, err);
}

enum gn_status gn_message_call(struct gn_messages *m, struct gn_message_send *s, struct gn_err *err)
{
	return send_any(m, s, 1, err);
}

static enum gn_status give_data(struct gn_message_send_state *s, const void *data, size_t data_bytes, struct gn_err *err)
{
	s->data = data;
	s->data_bytes = data_bytes;
	if (!data_bytes || data_bytes > GN_UCX_AM_EAGER_BYTES)
		return GN_OK;
	s->copy = malloc(data_bytes);
	if (!s->copy)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an answer");
	s->data = memcpy(s->copy, data, data_bytes);
	return GN_OK;
}

enum gn_status gn_message_answer(struct gn_message *message, const void *header, size_t header_bytes, const void *data,
				 size_t data_bytes, void (*complete)(void *context), void *context, struct gn_err *err)
{
	struct gn_inbound *in = (struct gn_inbound *)message;
	struct gn_messages *m = in->owner;
	struct gn_message_wire wire = {.is = GN_MESSAGE_ANSWER, .call = in->wire.call, .header_bytes = (uint32_t)header_bytes};
	struct gn_message_send_state *s;
	enum gn_status status;

	if (!in->wire.call || in->is_answered || header_bytes > GN_MESSAGE_HEADER_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "an answer with a header of %zu bytes to a message %s", header_bytes,
				  in->is_answered ? "that was answered" : in->wire.call ? "with less room" : "that is no call");
	if (m->peers[message->from].is_lost)
		return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d on %s is lost", message->from,
				  gn_world_host_of(m->comm->world, message->from));
	gn_comm_enter(m->comm);
	status = connect_to(m, message->from, err);
	s = status ? NULL : gn_message_take_send(m, message->from);
	if (!status && !s)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an answer");
	if (!status)
		status = give_data(s, data, data_bytes, err);
	if (!status) {
		s->answered = complete;
		s->context = context;
		write_wire(s, &wire, header);
		in->is_answered = 1;
		launch(s);
	} else if (s) {
		gn_message_return_send(s);
	}
	gn_comm_leave(m->comm);
	return status;
}
