/* UCX for one network device of one communicator: a UCX context, a UCX worker, and one link to each peer worker.
 *
 * All connections between two workers share one link, which is one UCX endpoint on either side, created once: UCX matches the
 * endpoints of two workers by the order of their creation, and with one there is no order. A link lives as long as its worker. A
 * broken link is not reused: a new connection to that peer gets a new link.
 *
 * A peer's death is detected by a TCP socket that the link keeps from connection setup, because UCX 1.13 does not report it over
 * shared memory, and over verbs only when it sends. A worker that closes in an orderly way announces it on that socket first.
 *
 * Two kinds of messages: data, under UCX tags that name connection, group and part, for receives that were posted before; and
 * control messages (struct gn_wire), sent as UCX active messages: POSTED and CLOSING. Both are combined with a random key that a
 * worker gives only to holders of a handle of its listeners. Messages under an unknown tag are dropped.
 *
 * Nothing asserts or aborts: UCX's callbacks only record what happened.
 *
 * Thread safety: all functions but create, destroy and gn_progress_thread_stop() require the worker's lock. None blocks unless it
 * says so. Private to the plugin.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_WORKER_H
#define GN_TRANSPORT_NCCL_PLUGIN_WORKER_H

#include "src/base/status.h"
#include "transport/nccl/plugin/abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

/* Messages of the plugin go to NCCL's log (NCCL_DEBUG) only. Thread safety: any thread. */

struct gn_plugin_log {
	gn_nccl_logger *logger; /* NULL: no messages */
};

void gn_plugin_log_warn(const struct gn_plugin_log *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gn_plugin_log_info(const struct gn_plugin_log *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Warns with err's text unless status is GN_OK, and returns NCCL's code for status. */
enum gn_nccl_result gn_plugin_log_result(const struct gn_plugin_log *r, enum gn_status status, const struct gn_err *err);

#define GN_WORKER_ID_BYTES 16
/* Receives in one group. */
#define GN_GROUP_MAX 8

struct gn_conn;
struct gn_worker;
struct gn_progress_thread;
struct gn_cm;

/* The identity of a worker, given to peers. */
struct gn_worker_name {
	uint8_t id[GN_WORKER_ID_BYTES];
	uint64_t key; /* combined with the tag of all messages to it */
};

struct gn_link {
	struct gn_link *next;
	struct gn_worker *worker;
	struct gn_worker_name peer;
	char host[64]; /* the peer's address */
	ucp_ep_h ep;   /* NULL once it is broken */
	int sockets[2]; /* -1: none */
	int conns;	/* the connections that use it */
	uint32_t send_flags;
	int broken; /* no longer usable */
	int unresponsive;   /* a connection's end has waited for the peer in vain: it makes no progress */
	uint64_t peer_left_ns; /* when the peer announced that it closes; 0: it has not */
	char why[128]; /* of broken */
};

/* One UCX operation. It stays in place while it is active. */
struct gn_op {
	struct gn_worker *worker;
	unsigned *active_of_conn; /* the connection's count of active operations */
	void *handle; /* UCX's request while active */
	const char *data; /* the caller's memory; NULL: none */
	size_t room_bytes, len_bytes;
	ucs_status_t status;
	int active;
};

enum gn_wire_kind { GN_WIRE_POSTED = 1, GN_WIRE_CLOSING = 2 };

/* A control message to the other end of a connection. */
struct gn_wire {
	uint64_t key;
	uint32_t conn, kind;
	uint32_t group; /* POSTED: the group; CLOSING, from a sender: the number of groups sent */
	uint32_t count;
	int32_t tags[GN_GROUP_MAX];
	uint64_t sizes[GN_GROUP_MAX];
};

/* What a worker calls of its connections, with the lock held. */
struct gn_worker_callbacks {
	/* Inside ucp_worker_progress(): the message arrived for this connection. The callback starts no UCX operation. */
	void (*message)(struct gn_conn *c, const struct gn_wire *message);
	/* Frees the connections in `lingering` that UCX holds no operation of any more; all: every one, after the end of the UCX
	 * worker. */
	void (*reap)(struct gn_worker *w, int all);
};

/* A connection in the table of a worker. */
struct gn_worker_slot {
	struct gn_conn *conn; /* NULL: free */
	uint32_t number;
};

struct gn_worker {
	pthread_mutex_t lock;
	const struct gn_worker_callbacks *callbacks;
	struct gn_plugin_log log;
	ucp_context_h ucp_context;
	ucp_worker_h ucp_worker;
	ucp_address_t *address;
	size_t address_bytes;
	struct gn_worker_name name;
	struct gn_link *links;
	struct gn_worker_slot *conns; /* by the low half of their numbers */
	uint32_t conn_room, conn_next;
	struct gn_cm *cm; /* connections being set up; NULL until the first */
	int epoll;	      /* for the links' sockets */
	unsigned progress_calls, active; /* active: operations on callers' memory in progress, of all connections */
	int gpu_memory;		/* GPU memory was registered */
	uint64_t checked_ns;   /* when sockets and unexpected messages were last checked */
	struct gn_closing *closing; /* endpoints being closed */
	int link_broke;		    /* a link broke in a callback of UCX: its endpoint is still to be closed */
	struct gn_progress_thread *_Atomic progress_thread; /* NULL: none */
	int frozen; /* UCX holds memory that was deregistered: the UCX worker is never progressed again */
	struct gn_conn *lingering;  /* closed connections with operations that are still active */
};

/* device is UCX's name for it, NULL or "" for all; traffic_class -1: UCX's own. callbacks is borrowed and outlives the worker. */
enum gn_status gn_worker_create(const struct gn_plugin_log *log, const char *device, int traffic_class,
				const struct gn_worker_callbacks *callbacks, struct gn_worker **out, struct gn_err *err);
/* Requires that no connection is left. Closes the links in an orderly way; blocks for up to a second for peers that are alive. */
void gn_worker_destroy(struct gn_worker *w);
/* Progresses UCX and now and then checks the sockets. Returns the number of events handled. */
unsigned gn_worker_progress(struct gn_worker *w);

/* The link to the worker of that name; created with its UCX address if there is none. Does not count a connection. */
enum gn_status gn_link_get(struct gn_worker *w, const struct gn_worker_name *peer, const void *address, const char *host,
			   struct gn_link **out, struct gn_err *err);
/* Takes ownership of a TCP socket to the peer, by which its death is detected. */
void gn_link_add_socket(struct gn_link *link, int fd);
/* Marks the link as broken and closes its sockets and its endpoint by force. Only the first reason is kept. */
void gn_link_break(struct gn_link *link, const char *why);
/* Ends the use by one connection; frees a broken link that has no others. */
void gn_link_release(struct gn_link *link);
/* Reads the links' sockets: announcements of closing, and closed sockets. */
void gn_links_poll(struct gn_worker *w);
/* After ucp_worker_progress(): closes the endpoints of links that broke in it. */
void gn_links_close_broken(struct gn_worker *w);
/* Announces the end to all peers and closes all links. Blocks for up to a second. */
void gn_links_close(struct gn_worker *w);

/* Assigns a number to a connection, whose high half is random. */
enum gn_status gn_worker_add_conn(struct gn_worker *w, struct gn_conn *c, uint32_t *number, struct gn_err *err);
void gn_worker_remove_conn(struct gn_worker *w, uint32_t number);
/* Start an operation. It stays active until UCX has completed it; on failure it is not active and op->status is the error. */
void gn_op_send(struct gn_op *op, struct gn_link *link, uint64_t tag, const void *data, size_t len_bytes);
void gn_op_receive(struct gn_op *op, struct gn_worker *w, uint64_t tag, void *data, size_t len_bytes);
void gn_op_send_message(struct gn_op *op, struct gn_link *link, const struct gn_wire *message);
void gn_op_flush(struct gn_op *op, struct gn_link *link);
/* Cancels a receive: one whose message has not begun to arrive ends at once. */
void gn_op_cancel(struct gn_op *op, struct gn_worker *w);

/* Blocks until the thread has ended, perhaps between two of its progress calls. Does not take the worker's lock: at the end of a
 * process its holder may never release it. */
void gn_progress_thread_stop(struct gn_worker *w);

/* The tag of part `part` of a group for connection `conn`. */
static inline uint64_t gn_tag(uint32_t conn, uint32_t group, int part)
{
	return (uint64_t)conn << 32 | (uint64_t)(group & 0xffffff) << 8 | (uint64_t)part;
}

#endif
