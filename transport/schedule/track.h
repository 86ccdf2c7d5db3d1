/* Who wrote each chunk last and who has read it since, while a schedule is built.
 *
 * Neighbouring chunks with one history are kept as one run, so that steps over thousands of chunks cost what steps over one
 * do. Times are O(runs touched), and a scan of a bitmap. Private to schedule.c. Thread safety: none.
 */
#ifndef GN_TRANSPORT_SCHEDULE_TRACK_H
#define GN_TRANSPORT_SCHEDULE_TRACK_H

#include <stddef.h>
#include <stdint.h>

struct gn_track;

/* NULL when there is no memory. */
struct gn_track *gn_track_create(uint32_t chunks);
void gn_track_destroy(struct gn_track *t);
/* Tells visit() each step that a step over [chunk, chunk + count) has to wait for, perhaps several times, then notes the
 * step itself as reader or as writer. Returns 0, or -1 without memory. */
int gn_track_step(struct gn_track *t, uint32_t step, uint32_t chunk, uint32_t count, int writes,
		  void (*visit)(void *context, uint32_t on), void *context);

#endif
