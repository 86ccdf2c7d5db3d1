/* Proves that a collective's schedules do what they say, by symbolic execution of all ranks' steps.
 *
 * What is shown: every message has one sender and one receiver that agree on chunks, and none is left unread; two steps of a
 * rank that touch one chunk, one of them writing, are ordered by dependencies, so that every order of execution gives the
 * same result; no deadlock; and in the result each chunk holds each contribution that belongs there exactly once, in one
 * order of combination on all ranks for allreduce.
 *
 * Buffering: nothing is sent before its receiver is ready for it (rendezvous, eager limit zero). A reception into place is
 * ready when its dependencies are met; one that reduces may land early in a buffer of the receiver's, of which each rank
 * has one, and then as many as the executor at most, given out strictly in the schedule's order. (With none, no two ranks could
 * ever exchange and reduce one chunk.) More done never means less possible, so one order of execution stands for all; more
 * buffers at the sender only help.
 *
 * Memory and time grow with size * chunks * size / 8 bytes: a ring of 1000 ranks takes 128 MB. Thread safety: no state.
 */
#ifndef GN_TRANSPORT_SCHEDULE_VERIFY_H
#define GN_TRANSPORT_SCHEDULE_VERIFY_H

#include "transport/schedule/algo.h"

struct gn_verify_rank {
	const struct gn_step *steps;
	const uint32_t *dependencies;
	size_t count, dependency_count;
};

struct gn_verify_case {
	enum gn_collective what;
	int size, root;
	uint32_t chunks;
	int with_copy; /* nothing is in the output at first */
};

/* GN_OK, or GN_ERR_FAILED with the first fault: rank, step, chunk, message. Any steps are fine, however wrong. */
enum gn_status gn_schedule_verify(const struct gn_verify_case *c, const struct gn_verify_rank *ranks, struct gn_err *err);
/* Writes all ranks' schedules and verifies them; args->rank does not matter. */
enum gn_status gn_verify_algorithm(const struct gn_algorithm *a, const struct gn_algo_args *args, struct gn_err *err);

#endif
