/* Checkpoints: a folder per step, visible under its final name only when complete, verified before use.
 *
 *     DIR/step-00000120/manifest.json         contents, and size and SHA-256 of each file; written last
 *                       model.safetensors     parameters and batch norm buffers, torchvision's names (rank 0)
 *                       ema.safetensors       their moving average, with --ema (rank 0)
 *                       optimizer-00003.safetensors   node 3's part of the optimizer's slots, pieces named
 *                                             momentum/NAME@FIRST, variance/NAME@FIRST (until 0.2.0 and with --shard: rank 3's)
 *     DIR/latest -> step-00000120             updated only after the folder is complete
 *     DIR/best -> step-00000080               the checkpoint of the best evaluation, which is not removed, with --keep-best
 *     DIR/step-NNNNNNNN/keep                  an empty file: this checkpoint is never removed
 *     DIR/owner                               the run that may write there, owner.h
 *     DIR/local-id                            names its folder on the nodes' disks, with --checkpoint-local
 *
 * Saving (checkpoint_writer.h): rank 0 and the last rank of each node (with --shard all ranks) write into step-N.NONCE.tmp and sync;
 * all ranks agree on success; rank 0 writes and syncs the manifest, checks that the folder still belongs to its run, syncs the step's
 * folder, renames it, syncs the parent, updates `latest`, and removes old checkpoints (renaming them first). All ranks agree on a failure
 * of any rank, and temporary files are removed. Temporary files of a killed run are removed by the next run's save.
 * With a key each file is encrypted (src/base/cipher_file.h), sizes and digests in the manifest are of the ciphertext, the manifest (version 2)
 * also has "encryption", {"cipher", "salt", "key_check": HKDF(key, salt, "gannet checkpoint check 1")}, and ends with "mac", HKDF(key, salt,
 * "gannet checkpoint 1 " and the SHA-256 in hexadecimal of all bytes before `, "mac"`). So size and digests are verified without the key.
 * Pieces carry global offsets, so that N ranks write and M ranks read. Loading verifies sizes and digests and falls back to the
 * next older checkpoint with a warning, but not from one whose manifest has a newer format version.
 */
#ifndef GN_TRAIN_CHECKPOINT_CHECKPOINT_H
#define GN_TRAIN_CHECKPOINT_CHECKPOINT_H

#include "data/sample/options.h"
#include "data/shard/dataset.h"
#include "kernels/optim.h"
#include "src/base/data_key.h"
#include "src/base/json.h"
#include "src/train/model/model.h"
#include "transport/coll/agree.h"
#include "transport/coll/comm.h"

#include <limits.h>

struct gn_owner;

/* Everything that a run needs to resume exactly. */
struct gn_run_state {
	uint64_t step;	       /* finished updates */
	uint64_t epoch;	       /* finished epochs */
	uint64_t sample;       /* processed samples of the current epoch, over all ranks */
	uint64_t seed;
	uint64_t skipped;      /* of the steps, those without an update because of non-finite gradients */
};

struct gn_input_spec {
	double mean[3], deviation[3];
	int64_t resize_shorter;
	enum gn_interpolation interpolation;
	int exif_rotate; /* the images that it was trained on were turned as their EXIF orientation says; -1: not known, of foreign weights */
};

/* More than the names of all places where a network can be cut. */
enum { GN_CHECKPOINT_CUT_MAX = 4096 };

struct gn_checkpoint_info {
	struct gn_run_state state;
	struct gn_input_spec input;
	char model[32];
	int64_t classes, channels, side;
	int64_t global_batch, world_size;
	int64_t ranks;			/* more than world_size where a pipeline is one of these */
	char dataset_digest[65];
	char classes_digest[65];	/* of the class names, equal for train and val */
	/* when saving: the dataset whose class names are written, borrowed; NULL: none. When loading: NULL */
	const struct gn_dataset *names_of;
	char layout_digest[65];
	/* when saving: all options in the form of gn_options_describe(), borrowed; NULL: none. When loading: NULL */
	const char *options;
	/* when saving: files are encrypted with it, borrowed; NULL: they are not. When loading: NULL */
	const struct gn_data_key *key;
	int is_encrypted;	      /* when loading */
	enum gn_optim_kind optimizer; /* determines the meaning of the slots */
	int has_average;	      /* when loading: ema.safetensors exists */
	int64_t number;		      /* of checkpoints that the run has saved, with this one; 0: not said */
	char cut[GN_CHECKPOINT_CUT_MAX]; /* of a pipeline, as --cut takes it: where its stages begin; "": there are none */
	char convolution[16];	      /* as gn_convolution_name has it; "": not said, by versions that had direct ones */
	char compress[32];	      /* the method of compression that was in use, as gn_compress_name has it; "": not said */
};

/* What differs from rank to rank: arrays laid out as the parameters of model, by name; and numbers that are the same on all. part: which
 * of the network model is, "stage 1 of 2"; NULL: all of it. Borrowed. */
struct gn_checkpoint_rank_state {
	const struct gn_model *model;
	const char *part;
	int count;
	const char *const *names;
	float *const *arrays;
	float *shared;
	size_t shared_count;
};

/* The flat arrays of a run; slots and averages have the layout of the arrays that they belong to. Borrowed. */
struct gn_checkpoint_arrays {
	float *params, *buffers;
	float *slots[GN_OPTIM_SLOTS_MAX];
	float *average_params, *average_buffers; /* NULL: none */
	/* When saving: every rank has elements begin .. end - 1 of each slot, all ranks together all; else every rank has all of them. */
	int is_split;
	int in_layouts; /* a part that is all of it, in the layouts of the run */
	size_t begin, end;
	const struct gn_checkpoint_rank_state *own; /* when saving: of this rank; NULL: none */
};

/* The destination of checkpoints. Borrowed. */
struct gn_checkpoint_target {
	const char *directory;
	const char *nonce;	/* see owner.h; the same on all ranks */
	struct gn_owner *owner; /* on rank 0; NULL elsewhere */
	int keep;		/* number of checkpoints to keep, >= 1, beside the best one and those with a file `keep` */
	int keep_every;		/* which gets every so many-th of a run; 0: none */
	struct gn_log *log; /* receives warnings: an old checkpoint that cannot be removed, a `latest` that cannot be updated */
};

/* On rank 0. Points `best` at the checkpoint of step, which must be the newest, and removes what no longer has to stay. GN_ERR_EXISTS as
 * above. Blocks. */
enum gn_status gn_checkpoint_mark_best(const struct gn_checkpoint_target *target, uint64_t step, struct gn_err *err);
/* Collective, once rank 0 owns the folder. GN_ERR_IO: a node has another folder of that name, after 3 s of looking. */
enum gn_status gn_checkpoint_check_shared(struct gn_comm *comm, const struct gn_checkpoint_target *target, struct gn_err *err);
/* Collective. Whether a save can succeed: the folder is the same for all nodes, is writable, and has space for a checkpoint. Leaves
 * the folder unchanged. */
enum gn_status gn_checkpoint_try(struct gn_comm *comm, const struct gn_checkpoint_target *target,
				 const struct gn_checkpoint_info *info, const struct gn_model *model, int average,
				 struct gn_err *err);

/* One process. path: a checkpoint, or a folder of checkpoints, of which the newest valid one is used; each rejected one is logged
 * with the reason. found (PATH_MAX bytes) receives the checkpoint's folder. Verifies sizes and digests of all files, with a key (borrowed,
 * here and below; NULL: none) also the signature. GN_ERR_USAGE: a checkpoint has another key, or is not encrypted. GN_ERR_NOT_FOUND:
 * there is no checkpoint. GN_ERR_DATA: none is valid. GN_ERR_UNSUPPORTED: the newest candidate has a newer format version. */
enum gn_status gn_checkpoint_find(const char *path, const struct gn_data_key *key, struct gn_log *log, char found[PATH_MAX],
				  struct gn_checkpoint_info *info, struct gn_err *err);
/* One process. Fills the non-NULL arrays, and of slots any, from a checkpoint returned by gn_checkpoint_find(). GN_ERR_DATA for
 * another model, naming both, and for a requested average that is absent; GN_ERR_USAGE for a key that is missing. */
enum gn_status gn_checkpoint_load(const char *folder, const struct gn_checkpoint_info *info, const struct gn_data_key *key,
				  const struct gn_model *model, const struct gn_checkpoint_arrays *arrays,
				  struct gn_err *err);
/* One process: what rank of `ranks` has of a run of was_ranks. With the same number its own. With another it gets the sum of those of ranks
 * rank, rank + ranks, ..., times ranks / was_ranks: a mean over ranks that they were kept back from gets the same in the end. *fits becomes
 * 0, and nothing is read, where a file is of another part of the network, or of a part and the number of ranks is another. */
enum gn_status gn_checkpoint_load_rank(const char *folder, int64_t was_ranks, const struct gn_data_key *key, int rank, int ranks,
				       const struct gn_checkpoint_rank_state *state, int *fits, struct gn_err *err);
/* GN_ERR_USAGE if the checkpoint is encrypted and there is no key. */
enum gn_status gn_checkpoint_needs_key(const char *folder, const struct gn_checkpoint_info *info, const struct gn_data_key *key, struct gn_err *err);
/* The file with the weights, or with their moving average, which must exist (GN_ERR_DATA). */
enum gn_status gn_checkpoint_weights(const char *folder, const struct gn_checkpoint_info *info, int average,
				     char path[PATH_MAX], struct gn_err *err);
/* One process. *options: the options of the run that wrote it, freed by the caller; NULL for a manifest of an earlier version. */
enum gn_status gn_checkpoint_options(const char *folder, char **options, struct gn_err *err);
/* The preprocessing of images in evaluation, as an object of src/man/preprocessing.md. */
void gn_checkpoint_put_preprocessing(struct gn_json *j, const char *key, const struct gn_checkpoint_info *info);
/* One process. *names: the class names in the order of the labels as a JSON array, freed by the caller; NULL if the manifest has
 * none: an earlier version, or names longer than 8 MiB. */
enum gn_status gn_checkpoint_class_names(const char *folder, char **names, struct gn_err *err);
/* Whether directory contains the folder of a finished checkpoint; 0 for a directory that does not exist. */
int gn_checkpoint_any(const char *directory);

/* The manifest, for the implementation and tests. */
struct gn_checkpoint_file {
	char name[64];
	uint64_t len_bytes;
	char sha256[65];
};
enum gn_status gn_checkpoint_manifest_write(const char *folder, const struct gn_checkpoint_info *info,
					    const struct gn_checkpoint_file *files, size_t count, struct gn_err *err);
/* The member "files" of the object that is open. */
void gn_checkpoint_files_json(struct gn_json *j, const struct gn_checkpoint_file *files, size_t count);
/* The caller frees *files. GN_ERR_UNSUPPORTED: a newer format version. */
enum gn_status gn_checkpoint_manifest_read(const char *folder, struct gn_checkpoint_info *info,
					   struct gn_checkpoint_file **files, size_t *count, struct gn_err *err);

#endif
