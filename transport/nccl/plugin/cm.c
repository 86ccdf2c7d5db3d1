#include "transport/nccl/plugin/cm_internal.h"

#include "transport/auth/net.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum gn_status gn_cm_get(struct gn_worker *w, struct gn_cm **out, struct gn_err *err)
{
	if (!w->cm) {
		w->cm = calloc(1, sizeof *w->cm);
		if (!w->cm)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for connections");
		w->cm->fd = -1;
	}
	*out = w->cm;
	return GN_OK;
}

/* Encodes an address; returns its bytes, 0 when it is invalid or there is no room. */
static size_t put_address(const char *text, uint8_t *to, size_t room)
{
	uint8_t bytes[16];
	int family = inet_pton(AF_INET, text, bytes) == 1 ? 4 : inet_pton(AF_INET6, text, bytes) == 1 ? 6 : 0;
	size_t len = family == 4 ? 4 : 16;

	if (!family || 1 + len > room)
		return 0;
	to[0] = (uint8_t)family;
	memcpy(to + 1, bytes, len);
	return 1 + len;
}

static void write_handle(const struct gn_listener *l, int port, struct gn_handle *out)
{
	struct gn_handle h = {.magic = GN_HANDLE_MAGIC, .port = (uint16_t)port};
	struct gn_net_addresses mine;
	size_t at = 0;

	memcpy(h.token, l->token, sizeof h.token);
	memcpy(h.answer, l->answer, sizeof h.answer);
	gn_net_addresses(&mine);
	for (uint32_t i = 0; i < mine.count && h.count < GN_ATTEMPTS_MAX; i++) {
		size_t len = put_address(mine.text[i], h.addresses + at, sizeof h.addresses - at);

		at += len;
		h.count = (uint8_t)(h.count + (len > 0));
	}
	/* the caller's buffer need not be aligned */
	memcpy(out, &h, sizeof h);
}

enum gn_status gn_listener_create(struct gn_worker *w, struct gn_context *owner, struct gn_handle *handle,
				  struct gn_listener **out, struct gn_err *err)
{
	struct gn_listener *l = NULL;
	struct gn_cm *m = NULL;
	enum gn_status status = gn_cm_get(w, &m, err);

	if (!status && m->fd < 0) {
		m->port = 0;
		status = gn_net_listen(NULL, &m->port, &m->fd, err);
	}
	if (status)
		return status;
	l = calloc(1, sizeof *l);
	if (!l)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a listener");
	if (getrandom(l->token, sizeof l->token, 0) != sizeof l->token ||
	    getrandom(l->answer, sizeof l->answer, 0) != sizeof l->answer) {
		free(l);
		return gn_err_set(err, GN_ERR_FAILED, "no random numbers available");
	}
	l->owner = owner;
	l->worker = w;
	l->next = m->listeners;
	m->listeners = l;
	write_handle(l, m->port, handle);
	*out = l;
	return GN_OK;
}

struct gn_worker *gn_listener_worker(const struct gn_listener *l)
{
	return l->worker;
}

struct gn_context *gn_listener_owner(const struct gn_listener *l)
{
	return l->owner;
}

void gn_listener_destroy(struct gn_listener *l)
{
	struct gn_cm *m = l->worker->cm;
	struct gn_listener **at = &m->listeners;
	struct gn_incoming *next;
	struct gn_conn *c;

	for (struct gn_incoming *in = m->incoming; in; in = next) {
		next = in->next;
		if (in->listener == l)
			gn_incoming_drop(l->worker, in);
	}
	while ((c = l->ready)) {
		l->ready = c->next;
		gn_conn_discard(c);
	}
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	free(l);
}

enum gn_status gn_listener_accept(struct gn_listener *l, struct gn_conn **out, struct gn_err *err)
{
	struct gn_conn *c;

	(void)err;
	gn_cm_progress(l->worker);
	c = l->ready;
	if (c)
		l->ready = c->next;
	*out = c;
	return GN_OK;
}

unsigned gn_cm_destroy(struct gn_worker *w)
{
	struct gn_cm *m = w->cm;
	unsigned ended = 0;

	if (!m)
		return 0;
	while (m->incoming)
		gn_incoming_drop(w, m->incoming);
	for (; m->outgoing; ended++)
		gn_outgoing_drop(w, m->outgoing);
	for (; m->listeners; ended++)
		gn_listener_destroy(m->listeners);
	if (m->fd >= 0)
		close(m->fd);
	free(m);
	w->cm = NULL;
	return ended;
}
