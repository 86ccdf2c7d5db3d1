/* Between the files of this folder. */
#ifndef GN_TRAIN_CHECKPOINT_CHECKPOINT_INTERNAL_H
#define GN_TRAIN_CHECKPOINT_CHECKPOINT_INTERNAL_H

#include "src/train/checkpoint/checkpoint.h"

/* Writes the file of a rank, and fills in *file; nothing where s is NULL or empty. Blocks. */
enum gn_status gn_checkpoint_rank_write(const char *folder, int rank, const struct gn_model *model,
					const struct gn_checkpoint_rank_state *s, struct gn_checkpoint_file *file, struct gn_err *err);

#endif
