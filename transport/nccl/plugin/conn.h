/* A connection: one end of a one-way stream of messages between two communicators.
 *
 * The receiver posts its buffers and tells the sender about each group; only then does a message leave. So nothing arrives
 * that has no place, a send that no receiver waits for costs nothing, and closing one end in the middle leaves nothing of it
 * in the other's memory. A send belongs to the first group that has parts left; its tag says to which part.
 *
 * A failure is noted where it is seen, and every later call tells it. Closing never waits for a peer that is dead, nor more
 * than two seconds for one that is alive but does not move.
 *
 * Thread safety: functions lock the engine themselves unless they say that the lock is held.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_CONN_H
#define GN_TRANSPORT_NCCL_PLUGIN_CONN_H

#include "transport/nccl/plugin/worker.h"

/* Groups that a receiver has under way at most; twice what NCCL asks for. */
#define GN_GROUPS_MAX 64
#define GN_SENDS_MAX (GN_GROUPS_MAX * GN_GROUP_MAX)

struct gn_context;
struct gn_request;

struct gn_group {
	int count, used[GN_GROUP_MAX], left;
	int32_t tags[GN_GROUP_MAX];
	uint64_t sizes[GN_GROUP_MAX];
};

/* Private to ncclnet/conn*.c and meet.c. */
struct gn_conn {
	struct gn_context *context;
	struct gn_worker *engine;
	struct gn_link *link;
	struct gn_conn *next; /* in a listener's queue, among the lingering */
	uint32_t number, peer_number;
	int receives;
	unsigned active; /* operations that UCX has */
	enum gn_status failed;
	char why[160];
	uint64_t peer_closed_ns; /* 0: it has not */
	uint32_t peer_groups;	 /* receiver: how many groups the sender has filled, once it has closed */
	uint32_t group;		 /* receiver: the next to post; sender: the first with parts left */
	uint32_t posted;	 /* sender: how many were told */
	struct gn_group *groups; /* sender: a ring of GN_GROUPS_MAX */
	struct gn_request *requests, *free_requests;
	unsigned request_count, requests_max;
	struct gn_op goodbye, flush;
	struct gn_wire goodbye_message;
};

/* What a worker that has connections is created with. */
extern const struct gn_worker_callbacks gn_conn_callbacks;

/* Lock held. In neither engine's books but its own; link is still to be set. */
enum gn_status gn_conn_create(struct gn_worker *e, int receives, struct gn_conn **out, struct gn_err *err);
/* Lock held. Of one that was never handed out. */
void gn_conn_discard(struct gn_conn *c);

/* *out is NULL when it has to be tried again. */
enum gn_status gn_conn_send(struct gn_conn *c, const void *data, size_t len_bytes, int tag, struct gn_request **out,
			    struct gn_err *err);
enum gn_status gn_conn_receive(struct gn_conn *c, int count, void *const *data, const size_t *sizes, const int *tags,
			       struct gn_request **out, struct gn_err *err);
/* sizes may be NULL; takes one for each part of the group. A request that is done is gone. */
enum gn_status gn_request_test(struct gn_request *r, int *done, int *sizes, struct gn_err *err);
/* GPU memory may be under way from now on. */
void gn_conn_note_gpu(struct gn_conn *c);
/* When it returns nothing reads or writes this memory any more: NCCL frees it behind deregMr and before close, also when it aborts.
 * Waits for what is under way in it as closing does, and then ends it at the price of the link. */
void gn_conn_forget(struct gn_conn *c, const void *data, size_t len_bytes);
/* For messages. */
const struct gn_plugin_log *gn_request_report(const struct gn_request *r);
/* Ends it, whatever is under way, and frees it as soon as UCX holds nothing of it. */
void gn_conn_close(struct gn_conn *c);

#endif
