/* How two ends find each other: a handle, a TCP connection, and what the ends tell each other there.
 *
 * An engine listens on one TCP port for all its listeners. A handle holds that port, this machine's addresses, and two words
 * of 128 random bits: whoever connects has to say the first, which tells the listener, too, and whoever answers has to say
 * the second. NCCL carries handles over its own bootstrap; who cannot read that cannot connect, and who took over the port of
 * a listener that is gone is not believed. Tokens are compared in constant time. Who does not say one within ten seconds, or
 * a wrong one, is cut off.
 *
 *     sender -> receiver   struct gn_hello, UCX address
 *     receiver -> sender   struct gn_reply, UCX address
 *     sender -> receiver   KEEP or DROP: whether this socket stays open as the link's sign of life
 *
 * Nothing blocks: each call does what can be done now. A sender tries the handle's addresses one after the other, a second
 * apart while none answers. What a connect() has begun is found again by the token, wherever the caller keeps the handle.
 *
 * Thread safety: all functions want the engine's lock held. Private to ncclnet/.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_CM_H
#define GN_TRANSPORT_NCCL_PLUGIN_CM_H

#include "transport/nccl/plugin/conn.h"

#define GN_TOKEN_BYTES 16
#define GN_HANDLE_MAGIC 0x474e4831u /* "GNH1", in the byte order of whoever wrote it */

struct gn_handle {
	uint32_t magic;
	uint16_t port;
	uint8_t count, unused; /* of addresses: family (4 or 6) and its bytes, one after the other */
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

struct gn_context;
struct gn_listener;

enum gn_status gn_listener_create(struct gn_worker *e, struct gn_context *owner, struct gn_handle *handle,
				  struct gn_listener **out, struct gn_err *err);
struct gn_worker *gn_listener_engine(const struct gn_listener *l);
struct gn_context *gn_listener_owner(const struct gn_listener *l);
/* Connections that nobody took are closed. */
void gn_listener_destroy(struct gn_listener *l);
/* *out is NULL while nobody has come. */
enum gn_status gn_listener_accept(struct gn_listener *l, struct gn_conn **out, struct gn_err *err);
/* *out is NULL while it is under way; *began is set when this call was the first of it. */
enum gn_status gn_cm_connect(struct gn_worker *e, const struct gn_handle *handle, int *began, struct gn_conn **out,
			       struct gn_err *err);
/* Ends listeners and attempts that nobody will ask for again, as after an init that was aborted. How many were they? */
unsigned gn_cm_destroy(struct gn_worker *e);

#endif
