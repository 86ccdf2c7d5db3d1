/* Messages between any two ranks in any order: handlers by kind, calls with answers, flow control by credits.
 *
 * A message has a kind, a header of up to GN_MESSAGE_HEADER_MAX bytes and data. The receiver's handler of that kind runs inside
 * gn_messages_progress() or gn_messages_wait() of the thread that calls these, never by itself. It may send, call, and answer. A
 * call is a message that is answered exactly once.
 *
 * Order: handlers see the messages of one sender in the order in which they were sent. Answers come in any order.
 *
 * Memory: a sender has GN_MESSAGES_CREDITS messages to one receiver under way. Further ones wait with the sender, in the
 * structures that the caller owns, until the receiver has finished earlier ones. Data longer than GN_UCX_AM_EAGER_BYTES stay with
 * the sender until the receiver has room (a handler's place, or GN_MESSAGES_RECEIVE_BYTES in all). So a receiver holds at most
 * size * GN_MESSAGES_CREDITS short messages and GN_MESSAGES_RECEIVE_BYTES, however slow it is; it slows its senders down.
 *
 * Failures: when a rank is lost, all that concerns it ends with GN_ERR_PEER_LOST in the next progress (gn_messages_lost); other
 * ranks are not affected. The loss of rank 0, and a failure of the job, end gn_messages_wait(). Messages of processes that do not
 * know the job's secret are dropped and counted.
 *
 * Thread safety: one thread, the one that drives the communicator.
 */
#ifndef GN_TRANSPORT_COLL_MESSAGES_H
#define GN_TRANSPORT_COLL_MESSAGES_H

#include "transport/coll/comm.h"

#define GN_MESSAGE_HEADER_MAX 128
#define GN_MESSAGE_KINDS 32
#define GN_MESSAGES_CREDITS 32
#define GN_MESSAGES_RECEIVE_BYTES ((size_t)64 << 20) /* for data without a place, at most one message more than that */

struct gn_messages;

/* One that has arrived. Borrowed: valid until the handler returns, or with gn_message_keep until gn_message_done. */
struct gn_message {
	int from; /* world rank */
	int kind;
	const void *header;
	size_t header_bytes;
	void *data;
	size_t data_bytes;
};

/* A failure of the handler's own is its business: messages have no status that goes back but an answer. */
typedef void (*gn_message_fn)(void *context, struct gn_message *m);
/* Where data longer than GN_UCX_AM_EAGER_BYTES go: memory of data_bytes that stays valid until the handler has run; NULL: memory of
 * the receiver's own, within GN_MESSAGES_RECEIVE_BYTES. m has everything but data. */
typedef void *(*gn_message_place_fn)(void *context, const struct gn_message *m);

struct gn_message_kind {
	gn_message_fn handle;
	gn_message_place_fn place; /* NULL: never */
	void *context;
};

/* One to be sent. The caller sets the first part, zeroes the rest before the first use, and keeps it, header and data in place
 * until complete was called, which happens inside gn_messages_progress() or gn_messages_wait(). It may then be used again, also from
 * within complete. */
struct gn_message_send {
	int to; /* world rank, not this one */
	int kind;
	const void *header;
	size_t header_bytes;
	const void *data;
	size_t data_bytes;
	void *answer; /* gn_message_call: memory for the answer's data */
	size_t answer_room_bytes;
	void (*complete)(struct gn_message_send *s); /* NULL: nobody waits */
	void *context;				     /* the caller's own */

	/* set when complete is called */
	enum gn_status status; /* GN_ERR_MISMATCH: the answer does not fit */
	size_t answer_bytes, answer_header_bytes;
	unsigned char answer_header[GN_MESSAGE_HEADER_MAX];

	struct gn_message_send_state *state; /* private */
};

struct gn_messages_counts {
	uint64_t sent, received, answered; /* messages, calls among them; answers that came */
	uint64_t dropped;		   /* not from this job, or against the rules */
	size_t waiting;			   /* sends that wait for credits now */
	size_t held, held_max;		   /* messages that have arrived and are not done: now, and the most at once */
	size_t held_bytes_max;		   /* of data without a place, the most at once */
};

/* Collective in so far as no rank sends before all have created theirs: a barrier ends it. One for each communicator of a world. */
enum gn_status gn_messages_create(struct gn_comm *c, struct gn_messages **out, struct gn_err *err);
/* Local. Finish with a barrier of those who send and receive. If something is still under way to a rank that is not lost, or
 * long data come, the communicator and all groups can only be destroyed afterwards; memory for such data and answers may be freed once
 * this has returned. NULL is fine. */
void gn_messages_destroy(struct gn_messages *m);
/* Local. kind: 0 .. GN_MESSAGE_KINDS - 1. A message without a handler waits until one is set. */
void gn_messages_handle(struct gn_messages *m, int kind, const struct gn_message_kind *how);

/* Complete when data may be changed again, which says nothing about the handler. GN_ERR_USAGE: no such rank or kind, or s is in
 * use; GN_ERR_PEER_LOST: the rank is lost. */
enum gn_status gn_message_send(struct gn_messages *m, struct gn_message_send *s, struct gn_err *err);
/* Complete when the answer is there. */
enum gn_status gn_message_call(struct gn_messages *m, struct gn_message_send *s, struct gn_err *err);
/* In or after the handler of a call, once: data are copied when short, else kept by the caller until complete (may be NULL for
 * none) is called with context. */
enum gn_status gn_message_answer(struct gn_message *m, const void *header, size_t header_bytes, const void *data, size_t data_bytes,
				 void (*complete)(void *context), void *context, struct gn_err *err);
/* Whether the sender waits for an answer. */
int gn_message_is_call(const struct gn_message *m);
/* In the handler: the message stays, and counts against its sender's credits, until gn_message_done. */
void gn_message_keep(struct gn_message *m);
void gn_message_done(struct gn_message *m);

/* Makes progress, runs handlers and completions. Returns non-zero when something happened. Does not block. */
unsigned gn_messages_progress(struct gn_messages *m);
/* After a progress without events: sleeps until there may be one, wake_fd is readable (-1: none), or for some milliseconds. */
void gn_messages_rest(struct gn_messages *m, int wake_fd);
/* Blocks until is_done(context), or the loss of rank 0 or a failure of the job (gn_world_check_ranks); sleeps when there is nothing
 * to do. Who waits for messages of a rank that may be lost looks at gn_world_is_lost() in is_done. */
enum gn_status gn_messages_wait(struct gn_messages *m, int (*is_done)(void *context), void *context, struct gn_err *err);
/* Local: what is under way to or from the rank ends with GN_ERR_PEER_LOST, as does what is sent to it later. Lost ranks need no
 * call. */
void gn_messages_lost(struct gn_messages *m, int rank);
void gn_messages_count(const struct gn_messages *m, struct gn_messages_counts *out);

#endif
