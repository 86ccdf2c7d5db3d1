/* Writes checkpoints beside training: a copy of the state is taken between two steps, and a thread of low priority writes it.
 *
 * A checkpoint goes through stages; in each of them ranks write in their own threads, and between them all ranks meet:
 *     local     with --checkpoint-local: each rank its files, on the node's disk
 *     shared    a rank of each node commits the local part; each rank its files, in the shared folder
 *     commit    rank 0: manifest, rename, `latest`, old checkpoints; where it is the only rank, in the stage before
 * The ranks learn from the sums of a step that no thread is busy any more (gn_checkpoint_writer_is_busy() is summed with gradients), and
 * call gn_checkpoint_writer_advance() after the same step. One checkpoint is written at a time. A failure in the local stage is a
 * warning; a failure later means that no checkpoint of this step exists, earlier ones are unchanged, and another one may succeed.
 *
 * Thread safety: one thread, which is the communicator's.
 */
#ifndef GN_TRAIN_CHECKPOINT_CHECKPOINT_WRITER_H
#define GN_TRAIN_CHECKPOINT_CHECKPOINT_WRITER_H

#include "src/train/checkpoint/checkpoint.h"
#include "src/train/plan/weight_layouts.h"

struct gn_checkpoint_writer;

struct gn_checkpoint_writer_options {
	struct gn_comm *comm;			/* borrowed, as the next two */
	const struct gn_model *model;
	const struct gn_weight_layouts *layouts, *own_layouts; /* of the arrays, and of this rank's own; copied */
	struct gn_checkpoint_target target;	/* what it points to is borrowed */
	const char *local;			/* as gn_checkpoint_local_begin() gives it; copied; NULL: none */
};

/* Local. */
enum gn_status gn_checkpoint_writer_create(const struct gn_checkpoint_writer_options *options, struct gn_checkpoint_writer **out,
					   struct gn_err *err);
/* Local; waits for this rank's thread. What is unfinished is removed. NULL is fine. */
void gn_checkpoint_writer_destroy(struct gn_checkpoint_writer *w);
/* Local. Allocates what copies of arrays like these need; slots that are split may be NULL. *len_bytes: of this rank. */
enum gn_status gn_checkpoint_writer_reserve(struct gn_checkpoint_writer *w, enum gn_optim_kind optimizer,
					    const struct gn_checkpoint_arrays *arrays, size_t *len_bytes, struct gn_err *err);
/* On all ranks, when none is being written; local. Copies the arrays, which are in the run's order of weights (what is split in torch's),
 * and starts the first stage. All slots of info's optimizer must be set. A failure is that of the stage. */
void gn_checkpoint_writer_begin(struct gn_checkpoint_writer *w, const struct gn_checkpoint_info *info,
				const struct gn_checkpoint_arrays *arrays);
/* Local, at once. Whether a checkpoint is between begin and the end; and whether this rank's thread works on it. */
int gn_checkpoint_writer_is_open(const struct gn_checkpoint_writer *w);
int gn_checkpoint_writer_is_busy(const struct gn_checkpoint_writer *w);
/* Local, when the last one has ended. Processor seconds, of user and system, that this rank's threads took for it. */
double gn_checkpoint_writer_cpu_s(const struct gn_checkpoint_writer *w);
/* Local, on rank 0, when the last one has ended: when it was in its place. */
uint64_t gn_checkpoint_writer_ended_ns(const struct gn_checkpoint_writer *w);
/* Collective, while one is open; waits for the threads of the present stage. Starts the next stage, or, after the last one or a failure,
 * ends. err is required. All ranks agree on a failure: GN_ERR_IO, GN_ERR_NO_SPACE, GN_ERR_NOT_FOUND, GN_ERR_NO_MEMORY; GN_ERR_EXISTS: another run has
 * taken over the folder. */
enum gn_status gn_checkpoint_writer_advance(struct gn_checkpoint_writer *w, struct gn_err *err);

/* --- the nodes' disks, checkpoint_local.c --- */

/* Collective. Where parts of this run's checkpoints are on this node, below base, which exists: base/ID. ID is in the file `local-id`
 * of the shared folder, so that parts of another run are never used; a new one unless goes_on. Checks that it can be written; failures
 * are agreed on. */
enum gn_status gn_checkpoint_local_begin(struct gn_comm *comm, const struct gn_checkpoint_target *target, const char *base, int goes_on,
					 char local[PATH_MAX], struct gn_err *err);
/* Collective. If a checkpoint on the nodes' disks is newer than all in the shared folder, and all its files are there and whole, it is
 * copied to the shared folder and committed there. What is incomplete is told and left alone. */
enum gn_status gn_checkpoint_local_recover(struct gn_comm *comm, const struct gn_checkpoint_target *target, const char *local,
					   struct gn_err *err);

#endif
