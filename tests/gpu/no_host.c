/* For builds without oneDNN, which tests on a GPU machine make: the host backend is not there, and says so. */
#include "kernels/backend.h"

#include <math.h>

int gn_host_winograd_lanes(void)
{
	return 0;
}

int gn_host_has_bf16(void)
{
	return 0;
}

enum gn_status gn_host_op_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	(void)base;
	(void)out;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "this build has no oneDNN: use --device cuda");
}

double gn_host_softmax_cross_entropy(int batch, int classes, const float *logits, const struct gn_targets *targets,
				     int counted, double smoothing, float *dlogits)
{
	(void)batch, (void)classes, (void)logits, (void)targets, (void)counted, (void)smoothing, (void)dlogits;
	return NAN;
}
