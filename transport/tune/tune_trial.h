/* Which algorithm is the fastest is found by trying, where that is possible: the model orders algorithms whose times differ
 * much, and is wrong by tens of percents about what waking, copying and crowded processors cost small messages.
 *
 * The likely algorithms of an allreduce of some lengths take turns on the communicator that is given, and then the sizes of pieces of
 * the fastest; what wins becomes cost.h's picks. What the model would take stays where it is as fast.
 */
#ifndef GN_TRANSPORT_TUNE_TUNE_TRIAL_H
#define GN_TRANSPORT_TUNE_TUNE_TRIAL_H

#include "transport/coll/comm.h"
#include "transport/select/cost.h"

/* Collective; the same picks on all ranks. cost: what the communicator was made with. seconds: roughly, for each algorithm and
 * length; what takes longer than that once is not tried. max_bytes: the longest. Sets cost->picks and pick_count: none where all
 * ranks share memory, since no messages are sent there. Blocks for some seconds. */
enum gn_status gn_tune_trials(struct gn_comm *c, double seconds, size_t max_bytes, struct gn_cost *cost, struct gn_err *err);

#endif
