#include "transport/nccl/plugin/cm_internal.h"

#include "src/base/clock.h"
#include "transport/auth/net.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRANGER_NS (10 * 1000000000ull)
#define STRANGERS_MAX 512

void gn_incoming_drop(struct gn_worker *e, struct gn_incoming *in)
{
	struct gn_incoming **at = &e->meet->incoming;

	while (*at != in)
		at = &(*at)->next;
	*at = in->next;
	e->meet->strangers -= !in->listener;
	gn_nb_socket_close(&in->mail);
	if (in->conn)
		gn_conn_discard(in->conn);
	free(in);
}

static void let_in(struct gn_worker *e)
{
	struct gn_cm *m = e->meet;
	struct gn_incoming *in, **end = &m->incoming;
	int fd;

	/* first come, first served */
	while (*end)
		end = &(*end)->next;
	while (m->strangers < STRANGERS_MAX && (fd = gn_net_accept(m->fd)) >= 0) {
		in = calloc(1, sizeof *in);
		if (!in) {
			close(fd);
			return;
		}
		gn_net_peer(fd, in->host);
		if (gn_nb_socket_open(&in->mail, fd)) {
			free(in);
			return;
		}
		in->since_ns = gn_clock_ns();
		*end = in;
		end = &in->next;
		m->strangers++;
	}
}

/* Looks at every byte of every token, whichever it is. */
static struct gn_listener *who_is_meant(const struct gn_cm *m, const uint8_t *token)
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

static int answer(struct gn_worker *e, struct gn_incoming *in, const struct gn_hello *hello)
{
	struct gn_reply reply = {.name = e->name, .address_bytes = (uint32_t)e->address_bytes};
	struct gn_err err;
	enum gn_status status = gn_conn_create(e, 1, &in->conn, &err);
	struct gn_link *link;

	if (!status)
		status = gn_link_get(e, &hello->name, in->mail.in + sizeof *hello, in->host, &link, &err);
	if (status) {
		gn_plugin_log_warn(&e->report, "connection from %s: %s", in->host, err.text);
		return -1;
	}
	in->conn->link = link;
	link->conns++;
	in->conn->peer_number = hello->conn;
	reply.conn = in->conn->number;
	memcpy(reply.answer, in->listener->answer, sizeof reply.answer);
	return gn_nb_socket_put(&in->mail, &reply, sizeof reply) || gn_nb_socket_put(&in->mail, e->address, e->address_bytes) ? -1
															      : 0;
}

/* 1: answered; 0: not yet; -1: to be dropped. */
static int hear_hello(struct gn_worker *e, struct gn_incoming *in)
{
	int rc = gn_nb_socket_pull(&in->mail, sizeof(struct gn_hello));
	struct gn_hello hello;

	if (rc != 1)
		return rc || gn_clock_ns() - in->since_ns > STRANGER_NS ? -1 : 0;
	memcpy(&hello, in->mail.in, sizeof hello);
	if (!in->listener) {
		in->listener = hello.magic == GN_HANDLE_MAGIC ? who_is_meant(e->meet, hello.token) : NULL;
		if (!in->listener) {
			gn_plugin_log_warn(&e->report,
					   "refused a connection from %s: it does not know the token of any listener here",
					   in->host);
			return -1;
		}
		e->meet->strangers--;
	}
	if (hello.address_bytes > GN_NB_SOCKET_MAX - sizeof hello)
		return -1;
	rc = gn_nb_socket_pull(&in->mail, sizeof hello + hello.address_bytes);
	if (rc != 1)
		return rc;
	return answer(e, in, &hello) ? -1 : 1;
}

/* 1: it is a connection; 0: not yet; -1: to be dropped. */
static int hear_verdict(struct gn_worker *e, struct gn_incoming *in)
{
	struct gn_listener *l = in->listener;
	struct gn_conn **at = &l->ready;
	size_t before = in->mail.received;
	int rc = gn_nb_socket_push(&in->mail);

	(void)e;
	if (rc != 1)
		return rc;
	/* everything that was read so far is the hello */
	rc = gn_nb_socket_pull(&in->mail, before + 1);
	if (rc != 1)
		return rc;
	if (in->mail.in[before] == GN_CM_KEEP)
		gn_link_keep(in->conn->link, gn_nb_socket_detach(&in->mail));
	while (*at)
		at = &(*at)->next;
	in->conn->next = NULL;
	*at = in->conn;
	in->conn = NULL;
	return 1;
}

void gn_cm_serve(struct gn_worker *e)
{
	struct gn_incoming *next;

	let_in(e);
	for (struct gn_incoming *in = e->meet->incoming; in; in = next) {
		int rc = in->conn ? 1 : hear_hello(e, in);

		next = in->next;
		if (rc == 1)
			rc = hear_verdict(e, in);
		if (rc)
			gn_incoming_drop(e, in);
	}
}
