/* The parts of tune.h: measurements between one pair of ranks (tune_probe.c), and the fit of the model's parameters to them
 * (tune_fit.c).
 */
#ifndef GN_TRANSPORT_TUNE_TUNE_INTERNAL_H
#define GN_TRANSPORT_TUNE_TUNE_INTERNAL_H

#include "transport/tune/tune.h"
#include "transport/ucx/ucx.h"

/* --- tune_fit.c: pure functions --- */

/* Fits p->path.ranges to samples, which ascend by length, splitting them where that reduces the residuals considerably. p holds
 * eager_bytes, lanes and the rates of gn_tune_fit_stream(), which the samples refine. overheads: as in struct gn_tune_path. */
void gn_tune_fit_path(const struct gn_tune_sample *samples, int count, const double overheads[2][2],
		      struct gn_cost_path *p, struct gn_tune_fit fits[GN_SIM_RANGES]);

/* Sets p's bytes_per_s, burst_bytes and burst_bytes_per_s from the arrival times of a stream of chunks after an idle time.
 * arrived_s[0] is 0. */
void gn_tune_fit_stream(const double *arrived_s, int chunks, double chunk_bytes, struct gn_cost_path *p);

/* The median of an odd number of streams by burst_bytes; sorts them. A receiver that was descheduled at the wrong moment hides or
 * fakes a burst; the median has one when most streams do. */
const struct gn_cost_path *gn_tune_middle_stream(struct gn_cost_path *streams, int count);

/* --- tune_probe.c: one rank of the pair is the driver, the other answers. All calls but release block. Failures are not agreed on:
 * a rank that fails has to abort the world (gn_world_abort). --- */

struct gn_probe {
	struct gn_world *world;
	struct gn_ucx *ucx;
	int me, peer;
	int oversubscribed; /* waits block, as in a collective */
	char *data, *spare; /* max_bytes each */
	size_t max_bytes;
};

enum gn_status gn_probe_create(struct gn_world *world, struct gn_ucx *ucx, int oversubscribed, size_t max_bytes,
			       struct gn_probe *out, struct gn_err *err);
void gn_probe_release(struct gn_probe *p);

/* The other rank: answers until the driver's gn_probe_end(). */
enum gn_status gn_probe_answer(struct gn_probe *p, struct gn_err *err);
/* All other ranks: wait for the driver `rank`, which calls gn_probe_notify() for each. */
enum gn_status gn_probe_wait(struct gn_probe *p, int rank, struct gn_err *err);
enum gn_status gn_probe_notify(struct gn_probe *p, int rank, struct gn_err *err);

/* The driver: ends the measurements. */
enum gn_status gn_probe_end(struct gn_probe *p, struct gn_err *err);
/* Whether messages of so many bytes are sent eagerly: they complete before the receive is posted. */
enum gn_status gn_probe_is_eager(struct gn_probe *p, size_t bytes, int *out, struct gn_err *err);
/* Sends `chunks` messages (at most GN_PROBE_CHUNKS) of gn_probe_chunk_bytes() at once after idle_s. arrived_s: when each arrived,
 * by the receiver's clock with an arbitrary origin. */
#define GN_PROBE_CHUNKS 2048
enum gn_status gn_probe_stream(struct gn_probe *p, int chunks, double idle_s, double *arrived_s, struct gn_err *err);
/* Long enough to be striped over all rails to the peer, so that the stream measures all of them together. */
size_t gn_probe_chunk_bytes(const struct gn_probe *p);
/* The median of `count` one-way times (half a round trip), each after idle_s. */
enum gn_status gn_probe_one_way(struct gn_probe *p, size_t bytes, int count, double idle_s, double *out,
				struct gn_err *err);
/* CPU time to send one of several messages, and to receive one that has arrived. */
enum gn_status gn_probe_overheads(struct gn_probe *p, size_t bytes, double *send_s, double *receive_s, struct gn_err *err);

#endif
