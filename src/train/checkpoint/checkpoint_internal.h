/* Between the files of this folder. */
#ifndef GN_TRAIN_CHECKPOINT_CHECKPOINT_INTERNAL_H
#define GN_TRAIN_CHECKPOINT_CHECKPOINT_INTERNAL_H

#include "src/train/checkpoint/checkpoint.h"

enum { GN_CHECKPOINT_RANK_FILES = 4 };

struct gn_checkpoint_paths {
	char folder[PATH_MAX];	  /* DIR/step-N */
	char temporary[PATH_MAX]; /* DIR/step-N.NONCE.tmp */
	char leaf[48];		  /* step-N */
};

/* --- checkpoint_folder.c; all block on the file system --- */

enum gn_status gn_checkpoint_name_paths(const struct gn_checkpoint_target *t, uint64_t step, struct gn_checkpoint_paths *p,
					struct gn_err *err);
/* Any rank. The temporary folder; one that is there is fine, for another rank may have made it. */
enum gn_status gn_checkpoint_make_temporary(const struct gn_checkpoint_paths *p, struct gn_err *err);
/* Rank 0. The same, after a check of the owner; removes unfinished checkpoints but this one. */
enum gn_status gn_checkpoint_prepare(const struct gn_checkpoint_target *t, const struct gn_checkpoint_paths *p, struct gn_err *err);
/* Rank 0. A temporary folder that has all files and the manifest becomes the checkpoint, the run's number-th. Once the folder has its
 * final name the checkpoint exists: what fails after that is a warning. */
enum gn_status gn_checkpoint_place(const struct gn_checkpoint_target *t, const struct gn_checkpoint_paths *p, int64_t number,
				   struct gn_err *err);

/* --- checkpoint_write.c --- */

/* Where every rank holds all slots one per node writes, on the first node not rank 0, which writes the model. It also writes what is of
 * a node in local folders. */
int gn_checkpoint_writes_slots(const struct gn_comm *c);
/* The node of a rank of c. */
int gn_checkpoint_node(const struct gn_comm *c, int rank);
/* Files of this rank: [0] its node's or its own part of the optimizer, [1] the model, [2] its average (rank 0), [3] what this rank alone
 * has. Names of files that it does not write are empty. Local: of comm only the world's layout is read. Blocks. */
enum gn_status gn_checkpoint_write_files(struct gn_comm *comm, const char *folder, const struct gn_checkpoint_info *info,
					 const struct gn_model *model, const struct gn_checkpoint_arrays *a,
					 struct gn_checkpoint_file files[GN_CHECKPOINT_RANK_FILES], struct gn_err *err);
/* Writes the file of a rank, and fills in *file; nothing where s is NULL or empty. Blocks. */
enum gn_status gn_checkpoint_rank_write(const char *folder, int rank, const struct gn_data_key *key,
					const struct gn_checkpoint_rank_state *s, struct gn_checkpoint_file *file, struct gn_err *err);
/* The manifest of all that was gathered, names of no file left out. */
enum gn_status gn_checkpoint_write_manifest_of(const char *folder, const struct gn_checkpoint_info *info,
					       const struct gn_checkpoint_file *all, size_t count, struct gn_err *err);

/* Makes a manifest, text of a JSON object, that of an encrypted checkpoint, and signs it. Nothing without memory: gn_strbuf_failed(). */
enum gn_status gn_checkpoint_sign(struct gn_strbuf *text, const struct gn_data_key *key, struct gn_err *err);

/* --- checkpoint_local.c --- */

/* DIR/step-N-node-M and its temporary name. local: as gn_checkpoint_local_begin() gives it. */
enum gn_status gn_checkpoint_local_paths(const char *local, const char *nonce, uint64_t step, int node, struct gn_checkpoint_paths *p,
					 struct gn_err *err);
/* One rank of a node: what ranks of the node have written, with the manifest of all files, gets its final name. Older parts go, but for
 * the newest of them. */
enum gn_status gn_checkpoint_local_commit(const char *local, const char *nonce, const struct gn_checkpoint_paths *p, uint64_t step,
					  const struct gn_checkpoint_info *info, const struct gn_checkpoint_file *all, size_t count,
					  struct gn_err *err);

#endif
