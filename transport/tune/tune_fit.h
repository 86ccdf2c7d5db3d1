/* Fits the model's parameters to measured messages. No communication: a pure function. Private to tune*.c and its test. */
#ifndef GN_TRANSPORT_TUNE_TUNE_FIT_H
#define GN_TRANSPORT_TUNE_TUNE_FIT_H

#include "transport/select/cost.h"

#define GN_TUNE_SAMPLES 32

/* Messages of a length between two ranks that waited for each other. */
struct gn_tune_sample {
	double bytes, one_way_s;
};

/* What of a range's fit is left, relative to the measured times. */
struct gn_tune_fit {
	double rms, worst;
	int samples;
};

/* p holds eager_bytes, lanes and a stream's rates, which the samples refine; its ranges are set here, cut where that makes
 * the residuals a good deal smaller.
 * Samples ascend. overheads[0] is a small message's (send_s, receive_s), [1] that of one of some KiB. */
void gn_tune_fit_path(const struct gn_tune_sample *samples, int count, const double overheads[2][2],
		      struct gn_cost_path *p, struct gn_tune_fit fits[GN_SIM_RANGES]);

/* The times at which so much had arrived of a stream of chunks that began at 0 say how fast a port is, and how much it lets
 * through at which rate when it was idle. Sets bytes_per_s, burst_bytes, burst_bytes_per_s. */
void gn_tune_fit_stream(const double *arrived_s, int chunks, double chunk_bytes, struct gn_cost_path *p);

/* A receiver that looked away at the wrong moment hides a burst, or makes one up. Of an odd number of streams' paths the one
 * in the middle by burst, that has one when most do; sorts them. */
const struct gn_cost_path *gn_tune_middle_stream(struct gn_cost_path *streams, int count);

#endif
