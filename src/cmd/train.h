/* What the files of `gannet train` share: its option table, in a file of its own. */
#ifndef GN_CMD_TRAIN_H
#define GN_CMD_TRAIN_H

#include "src/cmd/cmd.h"
#include "src/train/loop/trainer.h"

/* Fills struct gn_train_options. */
extern const struct gn_command gn_train_command;

#endif
