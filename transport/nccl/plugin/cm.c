#include "transport/nccl/plugin/cm_internal.h"

#include "transport/auth/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
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

/* --- non-blocking sockets --- */

/* TCP keepalive: a host that is gone without closing its connections is detected within 15 s. */
static void set_options(int fd)
{
	static const int options[][2] = {{TCP_KEEPIDLE, 5}, {TCP_KEEPINTVL, 2}, {TCP_KEEPCNT, 5}, {TCP_NODELAY, 1}};
	int yes = 1;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
	for (size_t i = 0; i < sizeof options / sizeof *options; i++)
		setsockopt(fd, IPPROTO_TCP, options[i][0], &options[i][1], sizeof options[i][1]);
}

int gn_nb_socket_open(struct gn_nb_socket *m, int fd)
{
	*m = (struct gn_nb_socket){.fd = fd, .in = malloc(GN_NB_SOCKET_MAX)};
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	set_options(fd);
	if (m->in)
		return 0;
	gn_nb_socket_close(m);
	return -1;
}

int gn_nb_socket_detach(struct gn_nb_socket *m)
{
	int fd = m->fd;

	m->fd = -1;
	gn_nb_socket_close(m);
	return fd;
}

void gn_nb_socket_close(struct gn_nb_socket *m)
{
	if (m->fd >= 0)
		close(m->fd);
	free(m->out);
	free(m->in);
	*m = (struct gn_nb_socket){.fd = -1};
}

int gn_nb_socket_put(struct gn_nb_socket *m, const void *data, size_t bytes)
{
	uint8_t *more = realloc(m->out, m->to_send + bytes);

	if (!more)
		return -1;
	memcpy(more + m->to_send, data, bytes);
	m->out = more;
	m->to_send += bytes;
	return 0;
}

int gn_nb_socket_push(struct gn_nb_socket *m)
{
	while (m->sent < m->to_send) {
		ssize_t n = send(m->fd, m->out + m->sent, m->to_send - m->sent, MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR || errno == ENOTCONN ? 0 : -1;
		m->sent += (size_t)n;
	}
	return 1;
}

int gn_nb_socket_pull(struct gn_nb_socket *m, size_t bytes)
{
	if (bytes > GN_NB_SOCKET_MAX)
		return -1;
	while (m->received < bytes) {
		ssize_t n = recv(m->fd, m->in + m->received, bytes - m->received, 0);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR || errno == ENOTCONN ? 0 : -1;
		if (!n) {
			errno = ECONNRESET;
			return -1;
		}
		m->received += (size_t)n;
	}
	return 1;
}

int gn_nb_socket_connect(int family, const void *address, int port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	const struct sockaddr *to = family == AF_INET6 ? (const void *)&six : (const void *)&four;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), failure;

	if (fd < 0)
		return -1;
	memcpy(family == AF_INET6 ? (void *)&six.sin6_addr : (void *)&four.sin_addr, address, family == AF_INET6 ? 16 : 4);
	if (!connect(fd, to, family == AF_INET6 ? sizeof six : sizeof four) || errno == EINPROGRESS)
		return fd;
	failure = errno;
	close(fd);
	errno = failure;
	return -1;
}
