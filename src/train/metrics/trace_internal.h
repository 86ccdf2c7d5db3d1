/* Shared by trace.c (recording and gathering) and trace_file.c (output). */
#ifndef GN_TRAIN_METRICS_TRACE_INTERNAL_H
#define GN_TRAIN_METRICS_TRACE_INTERNAL_H

#include "src/base/json.h"
#include "src/train/metrics/trace.h"

#include <pthread.h>

struct gn_trace_span {
	uint64_t begin_ns, end_ns, step;
	uint32_t detail;
	uint16_t kind, thread;
};

struct gn_trace {
	char *path;
	uint64_t first, last; /* steps; last 0: the last `first` steps */
	uint64_t step;
	int on, written;
	struct gn_clock_offset begun; /* offset of this rank's clock at the start */
	pthread_mutex_t lock;
	struct gn_trace_span *ring;
	size_t room, next, count;
};

/* Sent by each rank before its spans. */
struct gn_trace_header {
	struct gn_clock_offset begun, ended;
	uint64_t count;
	uint64_t dropped_steps; /* requested steps that did not fit into memory */
};

/* The file under its temporary name. */
struct gn_trace_file {
	const struct gn_model *model;
	struct gn_json json;
	struct gn_strbuf text;
	char path[4096], temporary[4096];
	int fd;
	uint64_t zero_ns; /* start of the trace on rank 0's clock */
	uint64_t spans;
};

/* Converts a time to rank 0's clock by linear interpolation between both comparisons. */
uint64_t gn_trace_move(const struct gn_trace_header *h, uint64_t at_ns);
enum gn_status gn_trace_file_open(struct gn_trace_file *o, const char *path, struct gn_err *err);
/* Appends one rank's spans, in order of thread and time. */
enum gn_status gn_trace_file_put(struct gn_trace_file *o, const struct gn_world *world, int rank,
				 const struct gn_trace_header *h, const struct gn_trace_span *spans, struct gn_err *err);
/* Appends the clock offsets of ranks first .. first + count - 1, whose headers are all[0 ..], and renames the file. failure: why
 * the trace is incomplete; NULL: it is complete. */
enum gn_status gn_trace_file_finish(struct gn_trace_file *o, const struct gn_world *world, const struct gn_trace_header *all,
				    int first, int count, const char *failure, struct gn_err *err);
/* Removes an unfinished file. */
void gn_trace_file_release(struct gn_trace_file *o);

#endif
