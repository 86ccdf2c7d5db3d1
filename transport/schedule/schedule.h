/* One rank's part in a collective as data: a list of steps over chunks, with dependencies.
 *
 * A schedule is independent of transports, element types and sizes: chunk i of n covers the elements that gn_schedule_range()
 * returns for any count. The executor (transport/coll) runs it over UCX, the verifier (verify.h) runs all ranks' schedules
 * symbolically, the simulator (sim.h) times them.
 *
 * A step covers chunk_count adjacent chunks from chunk on, in one message.
 *
 * Invariants: steps are in an order in which all ranks could run them one after the other without deadlock; a step depends only on
 * earlier steps; the messages of a schedule between two ranks have distinct numbers; sender and receiver of a message agree on the
 * number of chunks. verify.h checks these and more.
 *
 * GN_STEP_RECV_REDUCE may receive early, into memory of the executor: its dependencies only delay the reduction. Dependencies
 * follow from the order of the steps: a step depends on the last writer of its chunks, and a writer also on their readers since.
 *
 * Thread safety: one thread while building; afterwards read-only.
 */
#ifndef GN_TRANSPORT_SCHEDULE_SCHEDULE_H
#define GN_TRANSPORT_SCHEDULE_SCHEDULE_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum gn_step_op {
	GN_STEP_COPY,	     /* copies chunks of the input to the output; out-of-place collectives begin with it */
	GN_STEP_SEND,	     /* sends chunks of the output, or of the input if from_input, to peer */
	GN_STEP_RECV,	     /* receives chunks of the output from peer */
	GN_STEP_RECV_REDUCE  /* chunk = chunk op message, or message op chunk if from_left */
};

struct gn_step {
	uint8_t op;	   /* enum gn_step_op */
	uint8_t from_left; /* the message is the left operand: both ranks of an exchange compute the same bits */
	uint8_t from_input;
	int32_t peer;
	uint32_t chunk, chunk_count;
	uint32_t message;  /* number of the message between the two ranks */
	uint32_t first_dependency, dependency_count; /* in gn_schedule_dependencies() */
};

struct gn_schedule;

/* An empty schedule of `rank` in a group of `size`, over `chunks` chunks. */
enum gn_status gn_schedule_create(int rank, int size, uint32_t chunks, struct gn_schedule **out, struct gn_err *err);
void gn_schedule_destroy(struct gn_schedule *s);

/* Append a step over one chunk. A failed allocation is reported by gn_schedule_finish(). */
void gn_schedule_copy(struct gn_schedule *s, uint32_t chunk);
void gn_schedule_send(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message);
void gn_schedule_recv(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message);
void gn_schedule_recv_reduce(struct gn_schedule *s, int peer, uint32_t chunk, uint32_t message, int from_left);
/* Appends any step; its dependency fields are computed and overwritten. */
void gn_schedule_add(struct gn_schedule *s, struct gn_step step);
/* Ends the building. GN_ERR_NO_MEMORY when an append had no memory or a step had an invalid chunk. */
enum gn_status gn_schedule_finish(struct gn_schedule *s, struct gn_err *err);

uint32_t gn_schedule_chunks(const struct gn_schedule *s);
/* Borrowed. */
const struct gn_step *gn_schedule_steps(const struct gn_schedule *s, size_t *count);
/* Indices of earlier steps; those of a step are [first_dependency, first_dependency + dependency_count). Borrowed. */
const uint32_t *gn_schedule_dependencies(const struct gn_schedule *s, size_t *count);

/* The elements [*first, *first + *len) of `count` that chunk `chunk` of `chunks` covers; chunk sizes differ by one at most. */
void gn_schedule_range(size_t count, uint32_t chunks, uint32_t chunk, size_t *first, size_t *len);

/* The number of messages that a rank receives early at the same time for reduction, each into its own memory, when the longest has
 * longest_bytes: as many as fit into 8 MiB, at least 2 and at most GN_SLOTS_MAX. This covers the messages in flight while a request
 * and its answer are queued behind other messages. Measured on three nodes at 100 Mbit/s whose switch buffers 50 ms of data,
 * allreduce of 8 MiB: in two trees 1.50 s with 8 messages of 64 KiB and 1.15 s with 64; by recursive doubling 1.81 s with 32 of 128
 * KiB and 1.45 s with 64. */
#define GN_SLOTS_MAX 64
uint32_t gn_schedule_slots(size_t longest_bytes);

#endif
