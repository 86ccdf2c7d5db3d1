/* The symbolic execution behind verify.h. Private to verify.c and verify_run.c. */
#ifndef GN_TRANSPORT_SCHEDULE_VERIFY_INTERNAL_H
#define GN_TRANSPORT_SCHEDULE_VERIFY_INTERNAL_H

#include "transport/schedule/verify.h"

/* The steps of all ranks, numbered globally: rank 0's first. */
struct gn_verify_job {
	const struct gn_verify_case *c;
	const struct gn_verify_rank *ranks;
	size_t *first;	   /* [rank]: the global number of its first step; [size]: the number of all steps */
	uint32_t *partner; /* [step]: the step at the other end of its message */
	int *rank_of;	   /* [step] */
};

static inline const struct gn_step *gn_verify_step(const struct gn_verify_job *j, size_t global)
{
	int r = j->rank_of[global];

	return &j->ranks[r].steps[global - j->first[r]];
}

/* Runs all steps; slots >= 1: how many receives that reduce may land early on each rank. With 1 the results are checked, too. */
enum gn_status gn_verify_run(const struct gn_verify_job *j, uint32_t slots, struct gn_err *err);

#endif
