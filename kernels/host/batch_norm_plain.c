#define GN_NORM_LOOPS gn_norm_loops_plain
#include "kernels/host/batch_norm_loops.h"
