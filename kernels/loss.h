/* What a loss is when it has been computed on a device. Compiled as C and as CUDA. */
#ifndef GN_KERNELS_LOSS_H
#define GN_KERNELS_LOSS_H

#include <stdint.h>

struct gn_loss {
	double loss;	 /* mean over the labels >= 0; 0 without any */
	int32_t counted; /* labels >= 0 */
	int32_t bad;	 /* images whose label or mate is no class: their gradient is zero and they add no loss; an error */
};

#endif
