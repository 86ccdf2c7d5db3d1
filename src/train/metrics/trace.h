/* What a rank did when, kept in bounded memory and written as a Chrome trace (the JSON that Perfetto and chrome://tracing open)
 * of all ranks on rank 0's clock.
 *
 * Each rank keeps the spans of some steps in a ring: of the steps asked for, or of the last ones, as many as fit; the oldest go
 * first. Writing is collective: ranks send their spans to rank 0 one after the other, and the file appears whole or not at all.
 * When a run fails, each rank that can writes a file of its own instead.
 * Clocks of hosts are compared twice (clock_sync.h), and times in between moved along the line through both; the file's otherData
 * says by how much, and how far off that may be.
 *
 * In the file a process is a rank (pid: rank + 1). Its thread 0 is the one that computes; from 1 on come sums under way, each
 * from its start to when this rank saw its end; from 100 on the threads that read and decode (tid: pid + 1000000 * thread).
 *
 * Thread safety: gn_trace_add from any thread; the rest from the one that trains. A NULL trace records nothing.
 */
#ifndef GN_TRAIN_METRICS_TRACE_H
#define GN_TRAIN_METRICS_TRACE_H

#include "src/train/model/model.h"
#include "transport/coll/comm.h"

struct gn_trace;

enum gn_span {
	GN_SPAN_STEP, GN_SPAN_DATA, GN_SPAN_FORWARD, GN_SPAN_BACKWARD, GN_SPAN_EXCHANGE, GN_SPAN_WAIT, GN_SPAN_OPTIMIZER,
	GN_SPAN_OP_FORWARD, GN_SPAN_OP_BACKWARD, /* detail: node of the model */
	GN_SPAN_BUCKET,				 /* detail: its number */
	GN_SPAN_DECODE,				 /* detail: images */
	GN_SPAN_EVALUATE, GN_SPAN_CHECKPOINT, GN_SPAN_LOG,
	GN_SPAN_COUNT
};
enum { GN_TRACE_MAIN = 0, GN_TRACE_SUMS = 1, GN_TRACE_SUMS_MAX = 32, GN_TRACE_DECODE = 100 };

struct gn_trace_options {
	const char *path;
	const char *steps;    /* "A:B", counted from 1, or "N": the last N */
	uint64_t step_spans;  /* how many a step has, about */
};

/* GN_ERR_USAGE: steps that make no sense. On rank 0 (log its) also looks whether the file could be written. */
enum gn_status gn_trace_create(const struct gn_trace_options *options, const struct gn_comm *comm, struct gn_trace **out,
			       struct gn_err *err);
void gn_trace_destroy(struct gn_trace *t);
/* Collective: compares clocks, before the first step. */
enum gn_status gn_trace_begin(struct gn_trace *t, struct gn_comm *comm, struct gn_err *err);
/* The step that begins, counted from 1: whether its spans are kept. */
void gn_trace_set_step(struct gn_trace *t, uint64_t step);
/* Whether spans are kept now: for those who would have work to find them. */
int gn_trace_is_on(const struct gn_trace *t);
/* Cheap. */
void gn_trace_add(struct gn_trace *t, enum gn_span kind, int thread, uint32_t detail, uint64_t begin_ns, uint64_t end_ns);
/* Whether the last step asked for is done, and the file not yet written. */
int gn_trace_is_full(const struct gn_trace *t, uint64_t step);
/* Collective. Writes the file, once; failures are agreed on. model names the nodes; *spans (rank 0): how many. */
enum gn_status gn_trace_write(struct gn_trace *t, struct gn_comm *comm, const struct gn_model *model, uint64_t *spans,
			      struct gn_err *err);
/* For a run that has failed, when nobody can be waited for: this rank's spans alone, in a file of their own whose name is put into
 * path, PATH.rankN.json. Times are rank 0's clock's own, so that the parts of all ranks fit together. Sends nothing. *spans 0:
 * there was nothing to write. */
enum gn_status gn_trace_write_part(struct gn_trace *t, const struct gn_comm *comm, const struct gn_model *model, const char *failure,
				   char *path, size_t path_size, uint64_t *spans, struct gn_err *err);
int gn_trace_is_written(const struct gn_trace *t);

#endif
