/* Small TCP helpers shared by the meeting point and the watch: listeners, connecting within a time, whole messages, and
 * the addresses under which other machines may reach this one.
 *
 * All sockets are close-on-exec and send small messages at once. Nothing here raises SIGPIPE. Any thread.
 */
#ifndef GN_TRANSPORT_AUTH_NET_H
#define GN_TRANSPORT_AUTH_NET_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GN_NET_ADDRESS_MAX 64
#define GN_NET_LOOPBACK "127.0.0.1"
#define GN_NET_ADDRESSES_MAX 16

/* Numeric addresses of interfaces that are up, best first: IPv4, then IPv6, loopback last. Link-local ones are left out. */
struct gn_net_addresses {
	uint32_t count;
	char text[GN_NET_ADDRESSES_MAX][GN_NET_ADDRESS_MAX];
};

/* Listens on a numeric address, or (NULL) on every address of this machine; *port is the wanted port, or 0 for any, and
 * receives the real one. */
enum gn_status gn_net_listen(const char *address, int *port, int *fd, struct gn_err *err);
/* Whether an interface is chosen by a list as NCCL_SOCKET_IFNAME has it: prefixes of names separated by commas; whole names after
 * an =, which begins the list or a name; with a ^ before all of that, every interface but these. NULL or "": every one. */
int gn_net_ifname_matches(const char *list, const char *name);
void gn_net_addresses(struct gn_net_addresses *out);
/* Of the interfaces that the list chooses the best address of each; loopback only where there is no other. GN_ERR_USAGE when there is
 * none, with all interfaces of this machine in its text. */
enum gn_status gn_net_choose(const char *list, struct gn_net_addresses *out, struct gn_err *err);
/* Connects to a name or numeric address; every address of a name is tried, each for at most timeout_ms. The socket is left
 * blocking. GN_ERR_PEER_LOST: it was refused, so nobody listens there. */
enum gn_status gn_net_connect(const char *host, int port, int timeout_ms, int *fd, struct gn_err *err);
/* Accepts one connection; -1 with errno when there is none now (EAGAIN), or it cannot be taken. The socket is blocking. */
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
