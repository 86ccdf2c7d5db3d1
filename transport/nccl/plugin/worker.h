/* UCX for one device of one communicator: a context, a worker, and one link to each engine that a connection leads to.
 *
 * Both ends of all connections between two engines share one link, which is one UCX endpoint on either side, made once: UCX
 * pairs endpoints of two workers by the order in which they were made, and with one there is no order. A link lives as long
 * as its engine and is then given up; a link that broke is never found again, so that whoever connects anew gets a new one.
 *
 * A peer's death is seen by a TCP socket that the link keeps from its handshake, since UCX 1.13 tells nothing over shared
 * memory, and over verbs only when it sends. An engine that leaves in good order says so there first.
 *
 * Two kinds of message: data under UCX tags that name connection, group and part, for receptions that were posted before;
 * and short ones as UCX active messages (struct gn_wire): "I have posted these", "I am closing". Both are mixed with a word
 * that an engine draws and tells only those who hold a handle of its listeners. What arrives under no known tag is dropped.
 *
 * Nothing here asserts or aborts: UCX's callbacks only note what happened.
 *
 * Thread safety: every function but create and destroy wants the lock held. Private to ncclnet/.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_WORKER_H
#define GN_TRANSPORT_NCCL_PLUGIN_WORKER_H

#include "transport/nccl/plugin/plugin_log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

#define GN_WORKER_ID_BYTES 16
/* Receptions in one group. */
#define GN_GROUP_MAX 8

struct gn_conn;
struct gn_worker;
struct gn_progress_thread;
struct gn_cm;

/* Who an engine is, as told to peers. */
struct gn_worker_name {
	uint8_t id[GN_WORKER_ID_BYTES];
	uint64_t key; /* mixed into everything that is sent to it */
};

struct gn_link {
	struct gn_link *next;
	struct gn_worker *engine;
	struct gn_worker_name peer;
	char host[64]; /* the peer's address */
	ucp_ep_h ep;   /* NULL once it is broken */
	int sockets[2]; /* -1: none */
	int conns;	/* connections that use it */
	uint32_t send_flags;
	int broken; /* nothing comes or goes any more */
	int idle;   /* a connection's end has waited for the peer in vain: it makes no progress */
	uint64_t left_ns; /* when the peer said that it leaves; 0: it has not */
	char why[128];
};

/* One UCX operation. It stays in place while it is active. */
struct gn_op {
	struct gn_worker *worker;
	unsigned *active_of_conn; /* the connection's count of active operations */
	void *handle; /* UCX's, while active */
	const char *data; /* the caller's memory, NULL: none */
	size_t room_bytes, len_bytes;
	ucs_status_t status;
	int active;
};

enum gn_wire_kind { GN_WIRE_POSTED = 1, GN_WIRE_CLOSING = 2 };

/* A short message to a connection's other end. */
struct gn_wire {
	uint64_t key;
	uint32_t conn, kind;
	uint32_t group; /* POSTED: which; CLOSING: how many were sent (by a sender) */
	uint32_t count;
	int32_t tags[GN_GROUP_MAX];
	uint64_t sizes[GN_GROUP_MAX];
};

/* What a worker calls of its connections, with the lock held. */
struct gn_worker_callbacks {
	/* Inside ucp_worker_progress(): the message arrived for this connection. The callback starts no UCX operation. */
	void (*message)(struct gn_conn *c, const struct gn_wire *message);
	/* Frees the connections in `lingering` that UCX holds no operation of any more; all: every one, after the end of the UCX worker. */
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
	struct gn_plugin_log report;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	size_t address_bytes;
	struct gn_worker_name name;
	struct gn_link *links;
	struct gn_worker_slot *conns; /* by the low half of their numbers */
	uint32_t conn_room, conn_next;
	struct gn_cm *meet; /* how connections come to be; NULL until one is wanted */
	int epoll;	      /* of the links' sockets */
	unsigned turns, active; /* active: operations on callers' memory that UCX has, of all connections */
	int gpu_memory;		/* some was registered */
	uint64_t looked_ns;   /* when sockets and strays were last looked for */
	struct gn_closing *closing; /* endpoints that UCX has not closed yet */
	int broke;		    /* a link broke inside of UCX: its endpoint is still to be closed */
	struct gn_progress_thread *_Atomic keeper; /* NULL: nobody takes turns but callers */
	int frozen; /* UCX holds memory that is not the caller's any more: no turn is taken again */
	struct gn_conn *lingering;  /* closed connections that UCX still holds something of */
};

/* device is UCX's name for it, NULL or "" for all; traffic_class -1: UCX's own. callbacks is borrowed and outlives the worker. */
enum gn_status gn_worker_create(const struct gn_plugin_log *report, const char *device, int traffic_class,
				const struct gn_worker_callbacks *callbacks, struct gn_worker **out, struct gn_err *err);
/* No connection may be left. Closes links in good order, waiting up to a second for peers that are alive. */
void gn_worker_destroy(struct gn_worker *e);
/* One turn of UCX, and now and then a look at sockets. How much did it move? 0: nothing. */
unsigned gn_worker_progress(struct gn_worker *e);

/* The link to the engine of that name, made with address if it is not there; does not count a connection. */
enum gn_status gn_link_get(struct gn_worker *e, const struct gn_worker_name *peer, const void *address, const char *host,
			   struct gn_link **out, struct gn_err *err);
/* Takes a socket to watch the peer by. */
void gn_link_keep(struct gn_link *link, int fd);
void gn_link_break(struct gn_link *link, const char *why);
/* A connection less; frees a broken link that none uses. */
void gn_link_release(struct gn_link *link);
/* Notes what peers say by the links' sockets, and that they are gone. */
void gn_links_look(struct gn_worker *e);
/* After UCX's turn: closes endpoints of links that broke in it. */
void gn_links_mend(struct gn_worker *e);
/* At the end: says goodbye and closes them all. */
void gn_links_close(struct gn_worker *e);

/* Gives a connection its number. */
enum gn_status gn_worker_add(struct gn_worker *e, struct gn_conn *c, uint32_t *number, struct gn_err *err);
void gn_worker_remove(struct gn_worker *e, uint32_t number);
/* Start an operation; on failure op->status says why and it is not active. */
void gn_op_send(struct gn_op *op, struct gn_link *link, uint64_t tag, const void *data, size_t len_bytes);
void gn_op_receive(struct gn_op *op, struct gn_worker *e, uint64_t tag, void *data, size_t len_bytes);
void gn_op_tell(struct gn_op *op, struct gn_link *link, const struct gn_wire *message);
void gn_op_flush(struct gn_op *op, struct gn_link *link);
/* A reception that nothing has arrived for ends at once. */
void gn_op_cancel(struct gn_op *op, struct gn_worker *e);

/* Starts the thread unless the worker has it. */
enum gn_status gn_progress_thread_start(struct gn_worker *e, struct gn_err *err);
/* Blocks until the thread has ended, which may be in the midst of progress calls. It needs no lock and takes none: at the end of a
 * process nobody may release the worker's. */
void gn_progress_thread_stop(struct gn_worker *e);

/* The tag of part `part` of a group for connection `conn`. */
static inline uint64_t gn_tag(uint32_t conn, uint32_t group, int part)
{
	return (uint64_t)conn << 32 | (uint64_t)(group & 0xffffff) << 8 | (uint64_t)part;
}

#endif
