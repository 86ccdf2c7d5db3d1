/* The parts of tune.c: messages measured between one pair of ranks (tune_probe.c), and the model's parameters fitted to what was
 * measured (tune_fit.c).
 */
#ifndef GN_TRANSPORT_TUNE_TUNE_INTERNAL_H
#define GN_TRANSPORT_TUNE_TUNE_INTERNAL_H

#include "transport/tune/tune.h"
#include "transport/ucx/ucx.h"

/* --- tune_fit.c: pure functions --- */

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

/* --- tune_probe.c: one rank of the pair is the driver, the other answers. Failures are not agreed on: a rank that fails has to abort the
 * world (gn_world_give_up). --- */

struct gn_probe {
	struct gn_world *world;
	struct gn_ucx *fabric;
	int me, peer;
	int oversubscribed; /* sleeps while it waits, as a run would here */
	char *data, *spare; /* of max_bytes each, or the stream's, whichever is more */
	size_t max_bytes;
};

enum gn_status gn_probe_create(struct gn_world *world, struct gn_ucx *fabric, int oversubscribed, size_t max_bytes,
			       struct gn_probe *out, struct gn_err *err);
void gn_probe_release(struct gn_probe *p);

/* On the other side: answers until the driver says that it is done. */
enum gn_status gn_probe_answer(struct gn_probe *p, struct gn_err *err);
/* For those who wait: until rank tells them, by gn_probe_tell. */
enum gn_status gn_probe_await(struct gn_probe *p, int rank, struct gn_err *err);
enum gn_status gn_probe_tell(struct gn_probe *p, int rank, struct gn_err *err);

/* The driver's. */
enum gn_status gn_probe_end(struct gn_probe *p, struct gn_err *err);
/* Whether a message of so many bytes is sent before its receiver asks for it. */
enum gn_status gn_probe_is_eager(struct gn_probe *p, size_t bytes, int *out, struct gn_err *err);
/* chunks (at most GN_PROBE_CHUNKS) of gn_probe_chunk_bytes() at once after an idle time: when each was there, on the receiver's
 * clock, from some moment on. */
#define GN_PROBE_CHUNKS 2048
enum gn_status gn_probe_stream(struct gn_probe *p, int chunks, double idle_s, double *arrived_s, struct gn_err *err);
/* So long that a part of each goes by each rail to this peer: the stream's rate is that of all together. */
size_t gn_probe_chunk_bytes(const struct gn_probe *p);
/* The median of count one-way times (half of there and back), idle_s before each. */
enum gn_status gn_probe_one_way(struct gn_probe *p, size_t bytes, int count, double idle_s, double *out,
				struct gn_err *err);
/* Processor time to send one of several messages, and to take in one that has come. */
enum gn_status gn_probe_overheads(struct gn_probe *p, size_t bytes, double *send_s, double *receive_s, struct gn_err *err);

#endif
