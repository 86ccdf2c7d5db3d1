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

#include "transport/nccl/plugin/worker.h"

/* A connection: one end of a one-way stream of messages between two communicators.
 *
 * The receiver posts its buffers in groups and sends a POSTED message for each; only then does the sender send. So no message
 * arrives without a buffer, a send without a matching receive costs nothing, and closing one end during a transfer leaves no data
 * of it in the other's memory. A send belongs to the first group with unsent parts; its tag selects the part.
 *
 * The first failure is kept, and every later call returns it. Closing never waits for a dead peer, and at most two seconds for one
 * that is alive but unresponsive. */

/* The groups that a receiver may have posted at the same time; twice what NCCL asks for. */
#define GN_GROUPS_MAX 64
#define GN_SENDS_MAX (GN_GROUPS_MAX * GN_GROUP_MAX)

struct gn_context;
struct gn_request;

struct gn_group {
	int count, used[GN_GROUP_MAX], left;
	int32_t tags[GN_GROUP_MAX];
	uint64_t sizes[GN_GROUP_MAX];
};

/* Private to conn.c and cm*.c, but for context, worker and receives. */
struct gn_conn {
	struct gn_context *context;
	struct gn_worker *worker;
	struct gn_link *link;
	struct gn_conn *next; /* in a listener's queue or among the lingering */
	uint32_t number, peer_number;
	int receives; /* whether this is the receiver */
	unsigned active; /* operations in progress in UCX */
	enum gn_status failed; /* the first failure */
	char why[160];
	uint64_t peer_closed_ns; /* when CLOSING arrived; 0: it has not */
	uint32_t peer_groups;	 /* receiver: the groups that the sender has sent, once it has closed */
	uint32_t group;		 /* receiver: the next to post; sender: the first with unsent parts */
	uint32_t posted;	 /* sender: the groups that the receiver has posted */
	struct gn_group *groups; /* sender: a ring of GN_GROUPS_MAX */
	struct gn_request *requests, *free_requests;
	unsigned request_count, requests_max;
	struct gn_op closing, flush;
	struct gn_wire closing_message;
};

/* For gn_worker_create(). */
extern const struct gn_worker_callbacks gn_conn_callbacks;

/* Lock held. Registers the connection with its worker; the caller sets link. */
enum gn_status gn_conn_create(struct gn_worker *w, int receives, struct gn_conn **out, struct gn_err *err);
/* Lock held. Destroys a connection that was never returned to NCCL. */
void gn_conn_discard(struct gn_conn *c);

/* Start a send, or the receives of a group. *out is NULL when the caller has to retry later. tags of the receives are matched with
 * the tags of sends. */
enum gn_status gn_conn_send(struct gn_conn *c, const void *data, size_t len_bytes, int tag, struct gn_request **out,
			    struct gn_err *err);
enum gn_status gn_conn_receive(struct gn_conn *c, int count, void *const *data, const size_t *sizes, const int *tags,
			       struct gn_request **out, struct gn_err *err);
/* Progresses the worker and tests a request. sizes (may be NULL) receives the bytes of each part. A request that is done is
 * freed. */
enum gn_status gn_request_test(struct gn_request *r, int *done, int *sizes, struct gn_err *err);
/* Records that operations on GPU memory follow. */
void gn_conn_use_gpu_memory(struct gn_conn *c);
/* When it returns nothing accesses this memory any more: NCCL frees it after deregMr and before close, also when it aborts. Blocks
 * for operations on it as closing does, then ends them by breaking the link, and as a last resort never progresses the worker
 * again. */
void gn_conn_release_memory(struct gn_conn *c, const void *data, size_t len_bytes);
/* The log of the request's worker. */
const struct gn_plugin_log *gn_request_log(const struct gn_request *r);
/* Closes the connection, whatever is in progress; blocks for up to two seconds. It is freed once UCX holds none of its
 * operations. */
void gn_conn_close(struct gn_conn *c);

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
