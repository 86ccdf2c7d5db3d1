/* A copy of what a rank writes of a checkpoint, or of all that a run has: as rank 0, with slots.
 *
 * Thread safety: one thread at a time.
 */
#ifndef GN_TRAIN_CHECKPOINT_CHECKPOINT_SNAPSHOT_H
#define GN_TRAIN_CHECKPOINT_CHECKPOINT_SNAPSHOT_H

#include "src/train/checkpoint/checkpoint.h"
#include "src/train/plan/weight_layouts.h"

enum { GN_CHECKPOINT_OWN_MAX = 4 };

/* Zeroed: there is none. */
struct gn_checkpoint_snapshot {
	char *memory;
	size_t len_bytes;
	struct gn_checkpoint_arrays arrays; /* in memory; those that this rank does not write are NULL */
	struct gn_checkpoint_rank_state own;
	const char *own_names[GN_CHECKPOINT_OWN_MAX];
	float *own_arrays[GN_CHECKPOINT_OWN_MAX];
};

/* Memory for these arrays is allocated and touched, so that the first copy is as fast as later ones. Slots that are split may be NULL. */
enum gn_status gn_checkpoint_snapshot_reserve(struct gn_checkpoint_snapshot *s, const struct gn_model *model, int rank, int with_slots,
					      enum gn_optim_kind optimizer, const struct gn_checkpoint_arrays *arrays, struct gn_err *err);
/* Copies them, with all of the caller's OpenMP threads. */
enum gn_status gn_checkpoint_snapshot_take(struct gn_checkpoint_snapshot *s, const struct gn_model *model, int rank, int with_slots,
					   enum gn_optim_kind optimizer, const struct gn_checkpoint_arrays *arrays, struct gn_err *err);
/* From the run's order of weights to torch's, once; what is split is in torch's order already. own: layouts of what is this
 * rank's own. */
void gn_checkpoint_snapshot_to_plain(struct gn_checkpoint_snapshot *s, struct gn_weight_layouts *layouts, struct gn_weight_layouts *own);
void gn_checkpoint_snapshot_release(struct gn_checkpoint_snapshot *s);

#endif
