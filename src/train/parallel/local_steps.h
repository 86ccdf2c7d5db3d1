/* Post-local SGD (Lin et al. 2018, arXiv 1808.07217): from an epoch on each rank takes steps by its own gradients, and every so many steps
 * the ranks average parameters and optimizer state.
 *
 * The tail of the gradient array (BN buffers, loss, flags) is summed in every step all the same, so that all ranks stop, save and skip a
 * step together; a rank whose gradients are not finite turns the loss of all into NaN. Internal to src/train.
 */
#ifndef GN_TRAIN_PARALLEL_LOCAL_STEPS_H
#define GN_TRAIN_PARALLEL_LOCAL_STEPS_H

#include <stdint.h>

struct gn_local_steps {
	uint64_t every;	     /* steps between averages; 0 and 1: gradients are summed in every step */
	uint64_t from_epoch;
	int is_active;	     /* in the present step; set before it */
	float *flag;	     /* a number of the tail: NaN makes all ranks skip the step */
	int has_drifted;     /* ranks' parameters differ */
};

#endif
