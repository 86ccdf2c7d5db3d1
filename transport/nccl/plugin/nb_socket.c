#include "transport/nccl/plugin/nb_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
