/* What one rank does in a collective, as data: a list of steps over chunks, with dependencies.
 *
 * A schedule knows nothing of transports, element types or sizes: chunk i of n covers the elements gn_schedule_range()
 * says, whatever the count. The executor (coll.h) runs it over UCX; tests run all ranks' schedules symbolically.
 *
 * A step covers chunk_count chunks from chunk on, which lie side by side: one message however many.
 *
 * Invariants: steps are in an order in which they could be run one after the other on every rank without deadlock; a step
 * depends only on earlier ones; between two ranks no two messages of one schedule carry the same number; what rank a
 * sends to b under a number is as many chunks as b receives under it. verify.h proves these, and more.
 *
 * RECV_REDUCE may take the message in early, into memory of the executor's; its dependencies hold back the reduction.
 * Dependencies come from the order by themselves: a step waits for the last writer of its chunks, and a writer for their
 * readers, too.
 *
 * Thread safety: none while building; afterwards read-only.
 */
#ifndef GN_TRANSPORT_SCHEDULE_SCHEDULE_H
#define GN_TRANSPORT_SCHEDULE_SCHEDULE_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum gn_step_op {
	GN_STEP_COPY,	     /* chunk of the input to chunk of the output (out-of-place collectives begin so) */
	GN_STEP_SEND,	     /* chunk of the output, or of the input when from_input, to peer */
	GN_STEP_RECV,	     /* chunk of the output from peer */
	GN_STEP_RECV_REDUCE  /* chunk = chunk op message, or message op chunk when from_left */
};

struct gn_step {
	uint8_t op;	   /* enum gn_step_op */
	uint8_t from_left; /* the message is the left operand: both ends of an exchange compute the very same bits */
	uint8_t from_input;
	int32_t peer;
	uint32_t chunk, chunk_count;
	uint32_t message;  /* number between the two ranks */
	uint32_t first_dependency, dependency_count; /* in gn_schedule_dependencies() */
};

struct gn_schedule;

/* rank's schedule in a group of size, over chunks chunks. Empty at first. */
enum gn_status gn_schedule_create(int rank, int size, uint32_t chunks, struct gn_schedule **out, struct gn_err *err);
void gn_schedule_destroy(struct gn_schedule *s);

/* Append a step over one chunk. A failed allocation is remembered and reported by gn_schedule_finish(). */
void gn_schedule_copy(struct gn_schedule *s, uint32_t chunk);
void gn_schedule_send(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message);
void gn_schedule_recv(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message);
void gn_schedule_recv_reduce(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message, int from_left);
/* Append any step; its dependencies are worked out here, whatever the fields say. */
void gn_schedule_add(struct gn_schedule *s, struct gn_step step);
/* Ends the building. GN_ERR_NO_MEMORY when some append had none, or named a chunk that is not there. */
enum gn_status gn_schedule_finish(struct gn_schedule *s, struct gn_err *err);

int gn_schedule_rank(const struct gn_schedule *s);
int gn_schedule_size(const struct gn_schedule *s);
uint32_t gn_schedule_chunks(const struct gn_schedule *s);
const struct gn_step *gn_schedule_steps(const struct gn_schedule *s, size_t *count);
/* Indices of earlier steps; a step's are [first_dependency, first_dependency + dependency_count). */
const uint32_t *gn_schedule_dependencies(const struct gn_schedule *s, size_t *count);

/* Elements [*first, *first + *len) of count that chunk of chunks covers; sizes differ by one at most. */
void gn_schedule_range(size_t count, uint32_t chunks, uint32_t chunk, size_t *first, size_t *len);

/* Of how many reductions a rank takes the messages in at once, each into memory of its own, when the longest has so many bytes: as
 * many as fit into 8 MiB, 2 at least and GN_SLOTS_MAX at most. Enough to cover what is on its way while a request and its answer
 * wait behind other messages: three nodes at 100 Mbit/s, whose switch keeps 50 ms of data, sum 8 MiB in two trees in 1.50 s
 * with 8 messages of 64 KiB and in 1.15 s with 64, by recursive doubling in 1.81 s with 32 of 128 KiB and in 1.45 s with 64. */
#define GN_SLOTS_MAX 64
uint32_t gn_schedule_slots(size_t longest_bytes);

#endif
