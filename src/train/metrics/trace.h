/* Timeline of each rank, kept in bounded memory and written as a Chrome trace (JSON for Perfetto and chrome://tracing) of all ranks
 * on rank 0's clock.
 *
 * Each rank keeps the spans of some steps in a ring buffer: of the requested steps, or of the last ones, as many as fit; the oldest
 * are dropped first. Writing is collective: ranks send their spans to rank 0 one after the other, and the file is written
 * atomically. When a run fails, each rank that is able to writes its own file instead. Clocks of hosts are compared twice
 * (below), and times in between are corrected by linear interpolation; the file's otherData has the offsets and the bounds
 * of their errors.
 *
 * In the file a process is a rank (pid: rank + 1). Thread 0 computes; threads from 1 are reductions in flight, each from its start
 * until this rank detects its end; threads from 100 read and decode (tid: pid + 1000000 * thread).
 *
 * Thread safety: gn_trace_add() from any thread; the rest from the training thread. A NULL trace records nothing.
 */
#ifndef GN_TRAIN_METRICS_TRACE_H
#define GN_TRAIN_METRICS_TRACE_H

#include "src/train/model/model.h"
#include "transport/coll/comm.h"

struct gn_trace;

enum gn_span {
	GN_SPAN_STEP, GN_SPAN_DATA,
	GN_SPAN_FORWARD, GN_SPAN_BACKWARD,	 /* detail: of a pipeline's stage the micro-batch + 1, else 0 */
	GN_SPAN_EXCHANGE, GN_SPAN_WAIT, GN_SPAN_OPTIMIZER,
	GN_SPAN_OP_FORWARD, GN_SPAN_OP_BACKWARD, /* detail: node of the model */
	GN_SPAN_BUCKET,				 /* detail: bucket number */
	GN_SPAN_DECODE,				 /* detail: number of images */
	GN_SPAN_EVALUATE, GN_SPAN_CHECKPOINT, GN_SPAN_LOG,
	GN_SPAN_COUNT
};
enum { GN_TRACE_MAIN = 0, GN_TRACE_SUMS = 1, GN_TRACE_SUMS_MAX = 32, GN_TRACE_DECODE = 100 };

struct gn_trace_options {
	const char *path;
	const char *steps;    /* "A:B", counted from 1, or "N": the last N */
	uint64_t step_spans;  /* approximate number of spans per step */
};

/* GN_ERR_USAGE for invalid steps. On rank 0 (log is its log) also checks that the file is writable. */
enum gn_status gn_trace_create(const struct gn_trace_options *options, const struct gn_comm *comm, struct gn_trace **out,
			       struct gn_err *err);
void gn_trace_destroy(struct gn_trace *t);
/* Collective: compares clocks. Call before the first step. */
enum gn_status gn_trace_begin(struct gn_trace *t, struct gn_comm *comm, struct gn_err *err);
/* Number of the step that starts, from 1: decides whether its spans are kept. */
void gn_trace_set_step(struct gn_trace *t, uint64_t step);
/* Whether spans are being kept: to avoid work for collecting them. */
int gn_trace_is_on(const struct gn_trace *t);
/* Adds a span. Cheap; does not allocate. */
void gn_trace_add(struct gn_trace *t, enum gn_span kind, int thread, uint32_t detail, uint64_t begin_ns, uint64_t end_ns);
/* Whether the last requested step is done and the file not yet written. */
int gn_trace_is_full(const struct gn_trace *t, uint64_t step);
/* Collective. Writes the file, once; all ranks agree on failure. model names the nodes; *spans (rank 0): their number. */
enum gn_status gn_trace_write(struct gn_trace *t, struct gn_comm *comm, const struct gn_model *model, uint64_t *spans,
			      struct gn_err *err);
/* For a run that has failed: writes this rank's spans alone to PATH.rankN.json, whose name is copied to path. Times are on rank 0's
 * clock, so that the files of all ranks fit together. No communication. *spans 0: there was nothing to write. */
enum gn_status gn_trace_write_part(struct gn_trace *t, const struct gn_comm *comm, const struct gn_model *model, const char *failure,
				   char *path, size_t path_size, uint64_t *spans, struct gn_err *err);
int gn_trace_is_written(const struct gn_trace *t);

/* Offsets of other hosts' monotonic clocks to rank 0's.
 *
 * Rank 0 exchanges messages with the first rank of each other node, which replies with its time. The offset computed from the
 * middle of the round trip is wrong by at most half the round trip (Cristian, "Probabilistic clock synchronization", 1989); the
 * shortest of several is used. Ranks of a node share its clock; those of rank 0's node have offset 0. */

struct gn_clock_offset {
	uint64_t at_ns;	       /* time of the comparison by this rank's clock */
	int64_t ahead_ns;      /* offset to rank 0's clock */
	int64_t uncertain_ns;  /* upper bound of the error */
};

/* Collective. Each rank receives its own offset. */
enum gn_status gn_clock_sync_compare(struct gn_comm *comm, struct gn_clock_offset *out, struct gn_err *err);

#endif
