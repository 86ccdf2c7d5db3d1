/* The last writer of each chunk and its readers since, while a schedule is built: from these come the dependencies of a step.
 *
 * Adjacent chunks with the same history are one run, so that a step over thousands of chunks costs as much as a step over one. The
 * cost of a step is O(runs touched) plus a scan of a bitmap. Private to schedule.c.
 *
 * Thread safety: one thread per object.
 */
#ifndef GN_TRANSPORT_SCHEDULE_CHUNK_HISTORY_H
#define GN_TRANSPORT_SCHEDULE_CHUNK_HISTORY_H

#include <stdint.h>

struct gn_chunk_history;

/* NULL when memory is exhausted. */
struct gn_chunk_history *gn_chunk_history_create(uint32_t chunks);
void gn_chunk_history_destroy(struct gn_chunk_history *t);
/* Calls visit() for each step that a step over [chunk, chunk + count) depends on, perhaps several times for one, then records the
 * step as reader or writer of these chunks. Returns 0, or -1 when memory is exhausted. */
int gn_chunk_history_add(struct gn_chunk_history *t, uint32_t step, uint32_t chunk, uint32_t count, int writes,
			 void (*visit)(void *context, uint32_t on), void *context);

#endif
