/* TCP helpers of rendezvous and heartbeat: listening, connecting with a time limit, whole messages, and the addresses by which
 * other hosts may reach this one.
 *
 * All sockets are close-on-exec and have TCP_NODELAY. No function raises SIGPIPE. Thread safety: any thread, no shared state.
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

/* Numeric addresses in the order of preference. */
struct gn_net_addresses {
	uint32_t count;
	char text[GN_NET_ADDRESSES_MAX][GN_NET_ADDRESS_MAX];
};

/* Listens on a numeric address, or on all addresses of this host when address is NULL. *port is the port to use, 0 for any; it
 * receives the actual port. *fd is non-blocking and owned by the caller. */
enum gn_status gn_net_listen(const char *address, int *port, int *fd, struct gn_err *err);
/* Whether a list with the syntax of NCCL_SOCKET_IFNAME selects an interface: prefixes of names separated by commas; "=" in front of
 * the list or of a name means an exact match; "^" in front of the list selects all interfaces but these. NULL or "" selects all. */
int gn_net_ifname_matches(const char *list, const char *name);
/* The addresses of all interfaces that are up: IPv4 first, then IPv6, loopback last, no link-local addresses. Empty on failure. */
void gn_net_addresses(struct gn_net_addresses *out);
/* The preferred address of each interface that the list selects; loopback only when there is no other. GN_ERR_USAGE when there is
 * none: the text lists all interfaces of this host. */
enum gn_status gn_net_choose(const char *list, struct gn_net_addresses *out, struct gn_err *err);
/* GN_ERR_NOT_FOUND when a host name or address is unknown here. May block as long as the resolver does. */
enum gn_status gn_net_check_host(const char *host, struct gn_err *err);
/* Connects to a host name or numeric address; blocks for at most timeout_ms per address of the name. *fd is blocking and owned by
 * the caller. GN_ERR_PEER_LOST: connection refused; GN_ERR_NOT_FOUND: the name is unknown. */
enum gn_status gn_net_connect(const char *host, int port, int timeout_ms, int *fd, struct gn_err *err);
/* Accepts one connection without blocking. Returns a blocking socket; -1 with errno when none is waiting (EAGAIN) or accept()
 * fails. */
int gn_net_accept(int listener);
/* The peer's numeric address; "?" when it is unknown. */
void gn_net_peer(int fd, char text[GN_NET_ADDRESS_MAX]);
/* Blocks until fd is readable, or writable (1), timeout_ms have passed or a signal has arrived (0), or poll() fails (-1). */
int gn_net_readable(int fd, int timeout_ms);
int gn_net_writable(int fd, int timeout_ms);
/* Milliseconds until deadline_ns (gn_clock_ns), at most most_ms; 0 when it has passed. */
int gn_net_left_ms(uint64_t deadline_ns, int most_ms);
/* Sends without blocking. Returns the bytes sent, 0 when the send buffer is full, -1 with errno. */
ssize_t gn_net_send_some(int fd, const void *data, size_t len_bytes);
/* Transfers all len_bytes; blocks for at most timeout_ms. Returns 0, or -1 with errno: 0 at the end of the stream, ETIMEDOUT. */
int gn_net_send_all(int fd, const void *data, size_t len_bytes, int timeout_ms);
int gn_net_receive_all(int fd, void *data, size_t len_bytes, int timeout_ms);

#endif
