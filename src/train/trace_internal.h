/* What trace.c keeps and trace_write.c writes. */
#ifndef GN_TRAIN_TRACE_INTERNAL_H
#define GN_TRAIN_TRACE_INTERNAL_H

#include "src/train/clocks.h"
#include "src/train/trace.h"

#include <pthread.h>

struct gn_trace_span {
	uint64_t begin_ns, end_ns, step;
	uint32_t detail;
	uint16_t kind, thread;
};

struct gn_trace {
	char *path;
	uint64_t first, last; /* steps; last 0: the newest ones, first of them */
	uint64_t step;
	int on, written;
	struct gn_clock_offset begun; /* of this rank's clock */
	pthread_mutex_t lock;
	struct gn_trace_span *ring;
	size_t room, next, count;
};

#endif
