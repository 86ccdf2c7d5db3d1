/* Which images a run trains on, by rank: a line for each batch in DIR/world-W-rank-R.jsonl, written when the batch is taken, so before the
 * step's sums.
 *
 *     {"step": 12, "epoch": 0, "samples": [4711, 12, ...]}
 *
 * step: as the run's log counts it. Steps after that of the next world's "resume" in the run's log were not finished in world W.
 * Thread safety: one thread. Internal to src/train.
 */
#ifndef GN_TRAIN_LOOP_SAMPLE_LOG_H
#define GN_TRAIN_LOOP_SAMPLE_LOG_H

#include "src/base/log.h"

#include <stddef.h>
#include <stdint.h>

struct gn_sample_log;

/* Makes the folder, which may be there. warnings may be NULL, is borrowed. */
enum gn_status gn_sample_log_open(const char *directory, uint64_t world, int rank, struct gn_log *warnings, struct gn_sample_log **out,
				  struct gn_err *err);
/* A line that cannot be written is lost, with a warning for the first one. NULL: nothing. */
void gn_sample_log_batch(struct gn_sample_log *l, uint64_t step, uint64_t epoch, const uint64_t *samples, size_t count);
/* NULL is fine. */
void gn_sample_log_close(struct gn_sample_log *l);

#endif
