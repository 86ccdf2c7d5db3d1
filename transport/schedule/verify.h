/* Verifies the schedules of a collective by symbolic execution of all ranks' steps.
 *
 * Checked: each message has one sender and one receiver, which agree on its chunks; two steps of a rank that access one chunk, one
 * of them writing, are ordered by dependencies, so that every order of execution gives the same result; there is no deadlock; each
 * chunk of the result holds each contribution that belongs there exactly once; and for allreduce all ranks combine the
 * contributions of a chunk in the same order.
 *
 * Buffering model: no message is sent before its receiver is ready (rendezvous, an eager limit of zero). A receive into place is
 * ready when its dependencies are met. A receive that reduces may land early in a buffer of the receiver, assigned strictly in the
 * schedule's order; schedules are run with one such buffer per rank (with none no two ranks could exchange and reduce a chunk) and
 * with the executor's maximum. Executing more never makes less possible, so one order of execution covers all; sender-side buffers
 * can only help.
 *
 * Memory and time grow with size * chunks * size / 8 bytes: a ring of 1000 ranks takes 128 MB. Thread safety: any thread, no shared
 * state.
 */
#ifndef GN_TRANSPORT_SCHEDULE_VERIFY_H
#define GN_TRANSPORT_SCHEDULE_VERIFY_H

#include "transport/schedule/algo.h"

/* One rank's schedule; borrowed. */
struct gn_verify_rank {
	const struct gn_step *steps;
	const uint32_t *dependencies;
	size_t count, dependency_count;
};

struct gn_verify_case {
	enum gn_collective what;
	int size, root;
	uint32_t chunks;
	int with_copy; /* out of place: the output is empty at first */
};

/* GN_OK, or GN_ERR_FAILED with the first fault: rank, step, chunk, message. Accepts any steps, however wrong. */
enum gn_status gn_schedule_verify(const struct gn_verify_case *c, const struct gn_verify_rank *ranks, struct gn_err *err);
/* Writes the schedules of all ranks and verifies them; args->rank is ignored. */
enum gn_status gn_verify_algorithm(const struct gn_algorithm *a, const struct gn_algo_args *args, struct gn_err *err);

#endif
