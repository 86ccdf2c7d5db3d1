#include "transport/nccl/plugin/cm_internal.h"

#include "src/base/clock.h"
#include "transport/auth/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The time after which the next address is tried as well. */
#define NEXT_NS 1000000000u

void gn_outgoing_drop(struct gn_worker *w, struct gn_outgoing *out)
{
	struct gn_outgoing **at = &w->cm->outgoing;

	while (*at != out)
		at = &(*at)->next;
	*at = out->next;
	for (int i = 0; i < out->started; i++)
		gn_nb_socket_close(&out->attempts[i].socket);
	if (out->conn)
		gn_conn_discard(out->conn);
	free(out);
}

static enum gn_status read_addresses(struct gn_outgoing *out, struct gn_err *err)
{
	const struct gn_handle *h = &out->handle;
	size_t at = 0;

	for (int i = 0; i < h->count; i++) {
		size_t len = at < sizeof h->addresses && h->addresses[at] == 4 ? 4 : 16;

		if (at + 1 + len > sizeof h->addresses || (h->addresses[at] != 4 && h->addresses[at] != 6) || i >= GN_ATTEMPTS_MAX)
			return gn_err_set(err, GN_ERR_USAGE, "invalid handle: not one of listen()");
		out->attempts[i].family = len == 4 ? AF_INET : AF_INET6;
		memcpy(out->attempts[i].address, h->addresses + at + 1, len);
		out->attempts[i].socket.fd = -1;
		at += 1 + len;
	}
	out->count = h->count;
	return out->count ? GN_OK : gn_err_set(err, GN_ERR_USAGE, "invalid handle: no address");
}

static enum gn_status begin(struct gn_worker *w, const struct gn_handle *handle, struct gn_outgoing **result,
			    struct gn_err *err)
{
	struct gn_outgoing *out = calloc(1, sizeof *out);
	enum gn_status status;

	if (!out)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a connection");
	out->handle = *handle;
	status = read_addresses(out, err);
	if (!status)
		status = gn_conn_create(w, 0, &out->conn, err);
	if (status) {
		free(out);
		return status;
	}
	out->next = w->cm->outgoing;
	w->cm->outgoing = out;
	*result = out;
	return GN_OK;
}

static void start_next(struct gn_worker *w, struct gn_outgoing *out)
{
	struct gn_attempt *a = &out->attempts[out->started++];
	struct gn_hello hello = {.magic = GN_HANDLE_MAGIC, .conn = out->conn->number, .name = w->name,
				 .address_bytes = (uint32_t)w->address_bytes};
	int fd = gn_nb_socket_connect(a->family, a->address, out->handle.port);

	out->started_ns = gn_clock_ns();
	if (fd < 0) {
		out->last_errno = errno;
		return;
	}
	memcpy(hello.token, out->handle.token, sizeof hello.token);
	if (gn_nb_socket_open(&a->socket, fd) || gn_nb_socket_put(&a->socket, &hello, sizeof hello) ||
	    gn_nb_socket_put(&a->socket, w->address, w->address_bytes))
		gn_nb_socket_close(&a->socket);
}

/* 1: the reply is complete; 0: not yet; -1: this address has failed. */
static int advance_address(struct gn_outgoing *out, struct gn_attempt *a)
{
	int rc = gn_nb_socket_push(&a->socket);
	struct gn_reply reply;
	unsigned differs = 0;

	if (rc == 1)
		rc = gn_nb_socket_pull(&a->socket, sizeof reply);
	if (rc != 1) {
		out->last_errno = rc < 0 ? errno : out->last_errno;
		return rc;
	}
	memcpy(&reply, a->socket.in, sizeof reply);
	for (int i = 0; i < GN_TOKEN_BYTES; i++)
		differs |= (unsigned)(reply.answer[i] ^ out->handle.answer[i]);
	if (differs || reply.address_bytes > GN_NB_SOCKET_MAX - sizeof reply)
		return -1;
	return gn_nb_socket_pull(&a->socket, sizeof reply + reply.address_bytes);
}

/* The server has authenticated: sets up the link and sends KEEP or DROP. */
static enum gn_status finish(struct gn_worker *w, struct gn_outgoing *out, struct gn_attempt *a, struct gn_conn **result,
			     struct gn_err *err)
{
	struct gn_conn *c = out->conn;
	struct gn_reply reply;
	struct gn_link *link;
	char host[INET6_ADDRSTRLEN] = "?", decision;
	enum gn_status status;

	memcpy(&reply, a->socket.in, sizeof reply);
	inet_ntop(a->family, a->address, host, sizeof host);
	status = gn_link_get(w, &reply.name, a->socket.in + sizeof reply, host, &link, err);
	if (status)
		return status;
	c->link = link;
	link->conns++;
	c->peer_number = reply.conn;
	decision = link->sockets[0] < 0 && link->sockets[1] < 0 ? GN_CM_KEEP : GN_CM_DROP;
	if (send(a->socket.fd, &decision, 1, MSG_NOSIGNAL) != 1)
		return gn_err_set(err, GN_ERR_PEER_LOST, "%s closed its socket during connection setup", host);
	if (decision == GN_CM_KEEP)
		gn_link_add_socket(link, gn_nb_socket_detach(&a->socket));
	out->conn = NULL;
	*result = c;
	return GN_OK;
}

/* *result stays NULL while the attempt is in progress. */
static enum gn_status advance(struct gn_worker *w, struct gn_outgoing *out, struct gn_conn **result, struct gn_err *err)
{
	int alive = 0;

	for (int i = 0; i < out->started; i++) {
		struct gn_attempt *a = &out->attempts[i];
		int rc = a->socket.fd < 0 ? -1 : advance_address(out, a);

		if (rc == 1)
			return finish(w, out, a, result, err);
		if (rc < 0)
			gn_nb_socket_close(&a->socket);
		alive += !rc;
	}
	if (out->started < out->count && (!alive || gn_clock_ns() - out->started_ns > NEXT_NS)) {
		start_next(w, out);
		return GN_OK;
	}
	if (alive)
		return GN_OK;
	gn_err_set(err, GN_ERR_PEER_LOST, "no listener at any of the %d addresses of the handle, port %d: %s", out->count,
		   out->handle.port, out->last_errno ? strerror(out->last_errno) : "connection closed");
	return GN_ERR_PEER_LOST;
}

enum gn_status gn_cm_connect(struct gn_worker *w, const struct gn_handle *handle, int *began, struct gn_conn **result,
			     struct gn_err *err)
{
	struct gn_conn *c = NULL;
	struct gn_outgoing *out;
	struct gn_cm *m = NULL;
	enum gn_status status = gn_cm_get(w, &m, err);

	if (status)
		return status;
	for (out = m->outgoing; out && memcmp(out->handle.token, handle->token, sizeof handle->token); out = out->next)
		;
	if (!out) {
		status = begin(w, handle, &out, err);
		if (status)
			return status;
		*began = 1;
	}
	status = advance(w, out, &c, err);
	if (status || c)
		gn_outgoing_drop(w, out);
	if (!status)
		*result = c;
	return status;
}

/* The time for a client to send its token. */
/* The time for a client to send its token. */
#define HELLO_NS (10 * 1000000000ull)
#define UNAUTHENTICATED_MAX 512

void gn_incoming_drop(struct gn_worker *w, struct gn_incoming *in)
{
	struct gn_incoming **at = &w->cm->incoming;

	while (*at != in)
		at = &(*at)->next;
	*at = in->next;
	w->cm->unauthenticated -= !in->listener;
	gn_nb_socket_close(&in->socket);
	if (in->conn)
		gn_conn_discard(in->conn);
	free(in);
}

static void accept_connections(struct gn_worker *w)
{
	struct gn_cm *m = w->cm;
	struct gn_incoming *in, **end = &m->incoming;
	int fd;

	/* append, to serve connections in the order of arrival */
	while (*end)
		end = &(*end)->next;
	while (m->unauthenticated < UNAUTHENTICATED_MAX && (fd = gn_net_accept(m->fd)) >= 0) {
		in = calloc(1, sizeof *in);
		if (!in) {
			close(fd);
			return;
		}
		gn_net_peer(fd, in->host);
		if (gn_nb_socket_open(&in->socket, fd)) {
			free(in);
			return;
		}
		in->since_ns = gn_clock_ns();
		*end = in;
		end = &in->next;
		m->unauthenticated++;
	}
}

/* The listener of a token. Compares all bytes of all tokens, so that the time does not depend on the token. */
static struct gn_listener *find_listener(const struct gn_cm *m, const uint8_t *token)
{
	struct gn_listener *found = NULL;

	for (struct gn_listener *l = m->listeners; l; l = l->next) {
		unsigned differs = 0;

		for (int i = 0; i < GN_TOKEN_BYTES; i++)
			differs |= (unsigned)(token[i] ^ l->token[i]);
		if (!differs)
			found = l;
	}
	return found;
}

static int send_reply(struct gn_worker *w, struct gn_incoming *in, const struct gn_hello *hello)
{
	struct gn_reply reply = {.name = w->name, .address_bytes = (uint32_t)w->address_bytes};
	struct gn_err err;
	enum gn_status status = gn_conn_create(w, 1, &in->conn, &err);
	struct gn_link *link;

	if (!status)
		status = gn_link_get(w, &hello->name, in->socket.in + sizeof *hello, in->host, &link, &err);
	if (status) {
		gn_plugin_log_warn(&w->log, "connection from %s: %s", in->host, err.text);
		return -1;
	}
	in->conn->link = link;
	link->conns++;
	in->conn->peer_number = hello->conn;
	reply.conn = in->conn->number;
	memcpy(reply.answer, in->listener->answer, sizeof reply.answer);
	return gn_nb_socket_put(&in->socket, &reply, sizeof reply) || gn_nb_socket_put(&in->socket, w->address,
										       w->address_bytes) ? -1
															      : 0;
}

/* 1: a reply is being sent; 0: incomplete; -1: to be dropped. */
static int receive_hello(struct gn_worker *w, struct gn_incoming *in)
{
	int rc = gn_nb_socket_pull(&in->socket, sizeof(struct gn_hello));
	struct gn_hello hello;

	if (rc != 1)
		return rc || gn_clock_ns() - in->since_ns > HELLO_NS ? -1 : 0;
	memcpy(&hello, in->socket.in, sizeof hello);
	if (!in->listener) {
		in->listener = hello.magic == GN_HANDLE_MAGIC ? find_listener(w->cm, hello.token) : NULL;
		if (!in->listener) {
			gn_plugin_log_warn(&w->log,
					   "refused a connection from %s: it does not have the token of any listener",
					   in->host);
			return -1;
		}
		w->cm->unauthenticated--;
	}
	if (hello.address_bytes > GN_NB_SOCKET_MAX - sizeof hello)
		return -1;
	rc = gn_nb_socket_pull(&in->socket, sizeof hello + hello.address_bytes);
	if (rc != 1)
		return rc;
	return send_reply(w, in, &hello) ? -1 : 1;
}

/* 1: the connection is complete; 0: not yet; -1: to be dropped. */
static int receive_decision(struct gn_worker *w, struct gn_incoming *in)
{
	struct gn_listener *l = in->listener;
	struct gn_conn **at = &l->ready;
	size_t before = in->socket.received;
	int rc = gn_nb_socket_push(&in->socket);

	(void)w;
	if (rc != 1)
		return rc;
	/* all that was read so far is the hello and the address: the next byte is KEEP or DROP */
	rc = gn_nb_socket_pull(&in->socket, before + 1);
	if (rc != 1)
		return rc;
	if (in->socket.in[before] == GN_CM_KEEP)
		gn_link_add_socket(in->conn->link, gn_nb_socket_detach(&in->socket));
	while (*at)
		at = &(*at)->next;
	in->conn->next = NULL;
	*at = in->conn;
	in->conn = NULL;
	return 1;
}

void gn_cm_progress(struct gn_worker *w)
{
	struct gn_incoming *next;

	accept_connections(w);
	for (struct gn_incoming *in = w->cm->incoming; in; in = next) {
		int rc = in->conn ? 1 : receive_hello(w, in);

		next = in->next;
		if (rc == 1)
			rc = receive_decision(w, in);
		if (rc)
			gn_incoming_drop(w, in);
	}
}
