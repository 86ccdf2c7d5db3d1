#include "transport/nccl/plugin/cm_internal.h"

#include "src/base/clock.h"
#include "transport/auth/net.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
