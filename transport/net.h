/* Small TCP helpers shared by the meeting point and the watch: listeners, connecting within a time, whole messages, and
 * the addresses under which other machines may reach this one.
 *
 * All sockets are close-on-exec and send small messages at once. Nothing here raises SIGPIPE. Any thread.
 */
#ifndef GN_TRANSPORT_NET_H
#define GN_TRANSPORT_NET_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GN_NET_ADDRESS_MAX 64
#define GN_NET_ADDRESSES_MAX 16

/* Numeric addresses, best first: those of interfaces that are up, loopback last. Link-local ones are left out. */
struct gn_net_addresses {
	uint32_t count;
	char text[GN_NET_ADDRESSES_MAX][GN_NET_ADDRESS_MAX];
};

/* Listens on every address of this machine; *port is the wanted port, or 0 for any, and receives the real one. */
enum gn_status gn_net_listen(int *port, int *fd, struct gn_err *err);
void gn_net_addresses(struct gn_net_addresses *out);
/* Connects to a name or numeric address; every address of a name is tried, each for at most timeout_ms. The socket is left
 * blocking. */
enum gn_status gn_net_connect(const char *host, int port, int timeout_ms, int *fd, struct gn_err *err);
/* Accepts one connection; -1 when there is none now. The socket is blocking. */
int gn_net_accept(int listener);
/* The other end's address as text, "?" when it has none. */
void gn_net_peer(int fd, char text[GN_NET_ADDRESS_MAX]);
/* Waits until fd can be read, or written (1), the time is over (0), or fd is broken (-1). */
int gn_net_readable(int fd, int timeout_ms);
int gn_net_writable(int fd, int timeout_ms);
/* What is left until deadline_ns (gn_clock_ns), at most most_ms; 0 when it is over. */
int gn_net_left_ms(uint64_t deadline_ns, int most_ms);
/* What the kernel takes of it at once: bytes, 0 when it takes none now, -1 with errno. */
ssize_t gn_net_send_some(int fd, const void *data, size_t len_bytes);
/* All len_bytes, blocking at most timeout_ms altogether; 0, or -1 with errno (0 at end of stream, ETIMEDOUT). */
int gn_net_send_all(int fd, const void *data, size_t len_bytes, int timeout_ms);
int gn_net_receive_all(int fd, void *data, size_t len_bytes, int timeout_ms);

#endif
