/* gannet train, in parts: its options (train_options.c), what of them does not fit together and a run in one world (train.c), and
 * one in several (train_elastic.c).
 *
 * Thread safety: one thread. Internal to src/cmd.
 */
#ifndef GN_CMD_TRAIN_INTERNAL_H
#define GN_CMD_TRAIN_INTERNAL_H

#include "src/cmd/cmd.h"
#include "src/cmd/world_options.h"
#include "src/train/loop/options.h"

#include <signal.h>

extern const struct gn_command gn_train_command;
/* Names of options that may differ between ranks, ending with NULL. */
const char *const *gn_train_own_options(const struct gn_train_options *o);
/* Names of those that a file of options does not repeat: where a run writes, and from where it goes on. */
extern const char *const gn_train_unrepeated[];

/* Collective; blocks. Trains on the ranks of world until the run ends or a rank is lost. *told: as in gn_train_run(). */
enum gn_status gn_train_in_world(const struct gn_train_options *given, struct gn_world *world, const volatile sig_atomic_t *stop,
				 struct gn_log *log, int *told, struct gn_err *err);
/* The same from the first world on, or from the one that takes this process in; *world: NULL for one that joins. It is destroyed. */
enum gn_status gn_train_elastic(const struct gn_train_options *given, const struct gn_world_options *how, struct gn_world **world,
				const volatile sig_atomic_t *stop, struct gn_log *log, int *told, struct gn_err *err);

#endif
