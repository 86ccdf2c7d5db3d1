/* How many threads compute on how many processors, where they are fewest.
 *
 * Ranks are counted by the kernel they run on, not by host name: the nodes of a virtual cluster share one machine. What ranks may
 * run on (their affinity masks) is what there is; loader and progress threads are not counted. Internal to src/train.
 */
#ifndef GN_TRAIN_PLAN_PROCESSORS_H
#define GN_TRAIN_PLAN_PROCESSORS_H

#include "transport/coll/comm.h"

#include <sched.h>

/* Of one rank. */
struct gn_processors_rank {
	char kernel[64];   /* boot_id, or the host's name where that cannot be read */
	cpu_set_t allowed;
	int32_t threads;   /* that compute */
};

/* Of the kernel with the most threads for each of its processors. */
struct gn_processors {
	int ranks, threads, processors;
};

/* Pure. count >= 1; of equals the first rank's. */
void gn_processors_count(const struct gn_processors_rank *ranks, int count, struct gn_processors *out);
/* Collective; blocks until all ranks have called it. threads: of this rank. */
enum gn_status gn_processors_gather(struct gn_comm *comm, int threads, struct gn_processors *out, struct gn_err *err);
/* Whether threads have to take turns. */
int gn_processors_shared(const struct gn_processors *p);

#endif
