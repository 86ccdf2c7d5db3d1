/* The execution behind verify.h. Private to verify*.c. */
#ifndef GN_TRANSPORT_SCHEDULE_VERIFY_INTERNAL_H
#define GN_TRANSPORT_SCHEDULE_VERIFY_INTERNAL_H

#include "transport/schedule/verify.h"

struct gn_verify_job {
	const struct gn_verify_case *c;
	const struct gn_verify_rank *ranks;
	size_t *first;	   /* per rank: the global number of its first step; size + 1 */
	uint32_t *partner; /* per global step: the other end of its message */
	int *rank_of;	   /* per global step */
};

static inline const struct gn_step *gn_verify_step(const struct gn_verify_job *j, size_t global)
{
	int r = j->rank_of[global];

	return &j->ranks[r].steps[global - j->first[r]];
}

/* slots >= 1: receptions of reductions that may land early. With 1 the results are checked, too. */
enum gn_status gn_verify_run(const struct gn_verify_job *j, uint32_t slots, struct gn_err *err);

#endif
