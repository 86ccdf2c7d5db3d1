/* Checkpoints: a folder per step, visible under its final name only when complete, verified before use.
 *
 *     DIR/step-00000120/manifest.json         what it is, and size and SHA-256 of each file; written last
 *                       model.safetensors     parameters and BN buffers, torchvision's names (rank 0)
 *                       ema.safetensors       their moving average, when the run keeps one (rank 0)
 *                       optimizer-00003.safetensors   node 3's share of the optimizer's slots, pieces named
 *                                             momentum/NAME@FIRST, variance/NAME@FIRST (until 0.2.0: rank 3's)
 *     DIR/latest -> step-00000120             moved only after the folder is in place
 *     DIR/owner                               the run that may write there, owner.h
 *
 * Saving: rank 0 and the last rank of each node write into step-N.NONCE.tmp and sync; all agree; rank 0 writes and syncs the
 * manifest, makes sure that the folder is still its run's, syncs the step's folder, renames it, syncs the parent, moves `latest`,
 * removes what is too old, by way of a temporary name. Any failure on any rank is agreed on by all and leaves no trace. What a dead
 * run has left under temporary names is removed when its heir saves.
 * Pieces carry global offsets, so N ranks write and M read. Loading verifies sizes and digests and falls back to the next
 * older checkpoint, saying so; but not from one whose manifest has a newer format version.
 */
#ifndef GN_TRAIN_CHECKPOINT_CHECKPOINT_H
#define GN_TRAIN_CHECKPOINT_CHECKPOINT_H

#include "data/shard/dataset.h"
#include "kernels/optim.h"
#include "src/base/json.h"
#include "src/train/model/model.h"
#include "transport/coll/agree.h"
#include "transport/coll/comm.h"

#include <limits.h>

struct gn_owner;

/* All that a run needs to go on as if it had not been stopped. */
struct gn_run_state {
	uint64_t step;	       /* updates done */
	uint64_t epoch;	       /* epochs done */
	uint64_t sample;       /* samples of the current epoch done, over all ranks */
	uint64_t seed;
	uint64_t skipped;      /* of the steps, those that updated nothing because a gradient was not finite */
};

struct gn_input_spec {
	double mean[3], deviation[3];
	int64_t resize_shorter;
};

struct gn_checkpoint_info {
	struct gn_run_state state;
	struct gn_input_spec input;
	char model[32];
	int64_t classes, channels, side;
	int64_t global_batch, world_size;
	char dataset_digest[65];
	char classes_digest[65];	/* of the class names, which train and val share */
	const struct gn_dataset *names_of; /* written: whose class names go into the manifest, borrowed; NULL: none. Read: NULL */
	char layout_digest[65];
	const char *options;	      /* written: all options as gn_options_describe writes them, borrowed, NULL: none. Read: NULL */
	enum gn_optim_kind optimizer; /* what the slots mean */
	int has_average;	      /* read: there is an ema.safetensors */
};

/* The flat arrays of a run; slots and averages laid out as what they belong to. Borrowed. */
struct gn_checkpoint_arrays {
	float *params, *buffers;
	float *slots[GN_OPTIM_SLOTS_MAX];
	float *average_params, *average_buffers; /* NULL: none */
};

/* Where checkpoints go. Borrowed. */
struct gn_checkpoint_target {
	const char *directory;
	const char *nonce;	/* owner.h; the same on all ranks */
	struct gn_owner *owner; /* on rank 0; elsewhere NULL */
	int keep;		/* the newest to keep (>= 1) */
	struct gn_log *log; /* for what is no reason to fail: an old checkpoint that cannot be removed, `latest` that cannot be moved */
};

/* Collective. Writes DIR/step-NNNNNNNN and removes what is older than those to keep. All slots of info's optimizer are there.
 * GN_ERR_IO, GN_ERR_NO_SPACE, GN_ERR_NOT_FOUND, GN_ERR_NO_MEMORY, agreed on by all: there is no checkpoint of this step, earlier
 * ones are as they were, and a later call may succeed. GN_ERR_EXISTS: another run has taken the folder over. */
enum gn_status gn_checkpoint_save(struct gn_comm *comm, const struct gn_checkpoint_target *target,
				  const struct gn_checkpoint_info *info, const struct gn_model *model,
				  const struct gn_checkpoint_arrays *arrays, struct gn_err *err);
/* Collective. Whether that would succeed now: that the folder is the same one for all nodes, can be written, and has room for one
 * checkpoint. It is as it was afterwards. */
enum gn_status gn_checkpoint_try(struct gn_comm *comm, const struct gn_checkpoint_target *target,
				 const struct gn_checkpoint_info *info, const struct gn_model *model, int average,
				 struct gn_err *err);

/* One process. path is a checkpoint folder, or a folder of them, whose newest whole one is taken; each one passed over is
 * told to log with the reason. found (PATH_MAX) gets the folder. Sizes and digests of all files are verified.
 * GN_ERR_NOT_FOUND: there is none at all. GN_ERR_DATA: none is whole. GN_ERR_UNSUPPORTED: the newest that may be whole has a
 * newer format version than this program knows. */
enum gn_status gn_checkpoint_find(const char *path, struct gn_log *log, char found[PATH_MAX],
				  struct gn_checkpoint_info *info, struct gn_err *err);
/* One process. Fills those of the arrays that are not NULL from a checkpoint that gn_checkpoint_find gave. A model that does
 * not fit is GN_ERR_DATA that names both, and so is an average that is wanted and not there. */
enum gn_status gn_checkpoint_load(const char *folder, const struct gn_checkpoint_info *info,
				  const struct gn_model *model, const struct gn_checkpoint_arrays *arrays,
				  struct gn_err *err);
/* The file with the weights, or with their moving average, which has to be there (GN_ERR_DATA). */
enum gn_status gn_checkpoint_weights(const char *folder, const struct gn_checkpoint_info *info, int average,
				     char path[PATH_MAX], struct gn_err *err);
/* One process. *options: those of the run that wrote it, the caller's to free; NULL: its manifest, of an earlier version, has none. */
enum gn_status gn_checkpoint_options(const char *folder, char **options, struct gn_err *err);
/* How evaluation makes an image the network's input, as an object of src/man/preprocessing.md. */
void gn_checkpoint_put_preprocessing(struct gn_json *j, const char *key, const struct gn_checkpoint_info *info);
/* One process. *names: the class names in the order of the labels, text of a JSON array, the caller's to free; NULL where the
 * manifest has none: it is of an earlier version, or they are longer than 8 MiB. */
enum gn_status gn_checkpoint_class_names(const char *folder, char **names, struct gn_err *err);
/* Whether directory holds any folder of a finished checkpoint; a folder that is not there holds none. */
int gn_checkpoint_any(const char *directory);

/* For implementation and tests: the manifest. */
struct gn_checkpoint_file {
	char name[64];
	uint64_t len_bytes;
	char sha256[65];
};
enum gn_status gn_checkpoint_manifest_write(const char *folder, const struct gn_checkpoint_info *info,
					    const struct gn_checkpoint_file *files, size_t count, struct gn_err *err);
/* *files is the caller's to free. GN_ERR_UNSUPPORTED: of a newer format version. */
enum gn_status gn_checkpoint_manifest_read(const char *folder, struct gn_checkpoint_info *info,
					   struct gn_checkpoint_file **files, size_t *count, struct gn_err *err);

#endif
