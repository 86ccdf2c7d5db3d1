/* Connection setup: a handle, a TCP connection, and the messages that the two ends exchange over it.
 *
 * A worker listens on one TCP port for all its listeners. A handle holds that port, this host's addresses and two random 128-bit
 * numbers. The client sends the first, which also selects the listener; the server answers with the second. NCCL distributes
 * handles over its own bootstrap: without a handle nobody can connect, and a process that has taken over the port of a former
 * listener is not trusted. Tokens are compared in constant time. A client that does not send a valid token within ten seconds is
 * disconnected.
 *
 *     client -> server   struct gn_hello, UCX address
 *     server -> client   struct gn_reply, UCX address
 *     client -> server   KEEP or DROP: whether this socket stays open to detect the peer's death
 *
 * No function blocks: each does what is possible now. A client tries the handle's addresses in order, starting the next after a
 * second without an answer. An attempt in progress is found again by its token, wherever the caller keeps the handle.
 *
 * Thread safety: the caller holds the worker's lock. Private to the plugin.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_CM_H
#define GN_TRANSPORT_NCCL_PLUGIN_CM_H

#include "transport/nccl/plugin/conn.h"

#define GN_TOKEN_BYTES 16
#define GN_HANDLE_MAGIC 0x474e4831u /* "GNH1", in the host's byte order */

struct gn_handle {
	uint32_t magic;
	uint16_t port;
	uint8_t count, unused; /* count: addresses, each a byte for the family (4 or 6) and its bytes */
	uint8_t token[GN_TOKEN_BYTES], answer[GN_TOKEN_BYTES];
	uint8_t addresses[GN_NCCL_HANDLE_BYTES - 8 - 2 * GN_TOKEN_BYTES];
};
_Static_assert(sizeof(struct gn_handle) == GN_NCCL_HANDLE_BYTES, "NCCL's handles have that size");

struct gn_hello {
	uint32_t magic, conn;
	uint8_t token[GN_TOKEN_BYTES];
	struct gn_worker_name name;
	uint32_t address_bytes, unused;
};

struct gn_reply {
	uint8_t answer[GN_TOKEN_BYTES];
	struct gn_worker_name name;
	uint32_t conn, address_bytes;
};

struct gn_listener;

/* Creates a listener and writes its handle, which need not be aligned. */
enum gn_status gn_listener_create(struct gn_worker *w, struct gn_context *owner, struct gn_handle *handle,
				  struct gn_listener **out, struct gn_err *err);
struct gn_worker *gn_listener_worker(const struct gn_listener *l);
struct gn_context *gn_listener_owner(const struct gn_listener *l);
/* Closes connections that were not accepted. */
void gn_listener_destroy(struct gn_listener *l);
/* *out is NULL while no connection is complete. */
enum gn_status gn_listener_accept(struct gn_listener *l, struct gn_conn **out, struct gn_err *err);
/* *out is NULL while the attempt is in progress; *began is set to 1 when this call began it. GN_ERR_PEER_LOST: no listener answers;
 * GN_ERR_USAGE: an invalid handle. */
enum gn_status gn_cm_connect(struct gn_worker *w, const struct gn_handle *handle, int *began, struct gn_conn **out,
			     struct gn_err *err);
/* Destroys all listeners and attempts; returns their number. */
unsigned gn_cm_destroy(struct gn_worker *w);

#endif
