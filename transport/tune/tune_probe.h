/* One pair of ranks measuring messages between them. The driver calls, the other answers. Private to tune*.c.
 *
 * Nothing is agreed on failure: a rank that fails has to give the world up.
 */
#ifndef GN_TRANSPORT_TUNE_TUNE_PROBE_H
#define GN_TRANSPORT_TUNE_TUNE_PROBE_H

#include "transport/ucx/ucx.h"

struct gn_probe {
	struct gn_world *world;
	struct gn_ucx *fabric;
	int me, peer;
	int crowded; /* sleeps while it waits, as a run would here */
	char *data, *spare; /* of max_bytes each, or the stream's, whichever is more */
	size_t max_bytes;
};

enum gn_status gn_probe_create(struct gn_world *world, struct gn_ucx *fabric, int crowded, size_t max_bytes,
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
