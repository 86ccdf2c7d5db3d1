/* Messages of one length that one rank sends to another, one after the other: activations of a pipeline in one direction.
 *
 * Each end has two slots, so that a message is on its way while the next one is written or read. A step has a number of messages that both
 * ends know; receives are posted for no more than that, and none is left when a step ends.
 *
 * Failures are those of gn_p2p. Thread safety: one thread, the communicator's. Internal to src/train.
 */
#ifndef GN_TRAIN_PARALLEL_PIPE_LINK_H
#define GN_TRAIN_PARALLEL_PIPE_LINK_H

#include "transport/coll/p2p.h"

struct gn_pipe_link;

struct gn_pipe_link_options {
	struct gn_comm *comm; /* borrowed */
	int peer;	      /* rank in it */
	uint32_t tag;
	size_t bytes;
	int sends;	      /* or receives */
};

/* Local. */
enum gn_status gn_pipe_link_create(const struct gn_pipe_link_options *options, struct gn_pipe_link **out, struct gn_err *err);
/* Local; nothing may be on its way. NULL is fine. */
void gn_pipe_link_destroy(struct gn_pipe_link *l);
/* A step with so many messages. Does not block. NULL is fine, here and in end. */
enum gn_status gn_pipe_link_begin(struct gn_pipe_link *l, int messages, struct gn_err *err);
/* There are fewer messages than begin said, which both ends have learnt before the last two of them. Does not block. NULL is fine. */
void gn_pipe_link_shorten(struct gn_pipe_link *l, int messages);
/* Sender: memory for the next message; blocks until a slot is free. Then sends it, without blocking. */
enum gn_status gn_pipe_link_room(struct gn_pipe_link *l, void **memory, struct gn_err *err);
enum gn_status gn_pipe_link_send(struct gn_pipe_link *l, struct gn_err *err);
/* Receiver: blocks until the next message is there; it is valid until gn_pipe_link_done, which does not block. */
enum gn_status gn_pipe_link_take(struct gn_pipe_link *l, const void **data, struct gn_err *err);
enum gn_status gn_pipe_link_done(struct gn_pipe_link *l, struct gn_err *err);
/* Blocks until what was sent has left. */
enum gn_status gn_pipe_link_end(struct gn_pipe_link *l, struct gn_err *err);
/* Since creation: what room, take and end have blocked. */
uint64_t gn_pipe_link_waited_ns(const struct gn_pipe_link *l);
/* Local. Bytes per second between ranks of a node, or of different nodes, as the communicator's costs have it. */
double gn_pipe_link_rate(const struct gn_comm *comm, int other_node);

#endif
