/* The copy of a tree on one node, in the making or complete. Private to data/stage/.
 *
 * For the target TO there are, beside it: TO.gannet-part, a private folder with the tree that is being filled and the journal of its
 * verified chunks; TO.gannet-stage, which says that TO is complete, with the digest of its listing and of each chunk; and
 * TO.gannet-stage.lock. TO gets its name by a rename when it is whole. After a death the journal's chunks are verified again, on the
 * node's own disk, and kept.
 *
 * Nothing is written through a symbolic link, and nothing of another user is written to or replaced. Thread safety:
 * gn_tree_target_write(), _mark() and _get() of different chunks, and _sync(), may run concurrently. Everything blocks on the file system.
 */
#ifndef GN_DATA_STAGE_TREE_TARGET_H
#define GN_DATA_STAGE_TREE_TARGET_H

#include "data/stage/tree.h"

struct gn_tree_target;

struct gn_tree_target_options {
	const char *from, *to;
	int check;	/* verify the chunks of a complete copy */
	uint64_t quota_bytes; /* of gn_staged_make_room(); 0: none */
	int wait;	/* for another process that has the lock; 0: GN_ERR_EXISTS */
	struct gn_log *log; /* may be NULL */
};

/* Takes the lock and finds what is there already; makes folders and files of their sizes otherwise. tree and options are borrowed.
 * GN_ERR_NO_SPACE before anything is made; GN_ERR_EXISTS: TO was not staged, or is another user's. */
enum gn_status gn_tree_target_create(const struct gn_tree_target_options *options, const struct gn_tree *tree, struct gn_tree_target **out,
				     struct gn_err *err);
/* The lock is freed; what is incomplete stays for the next run. NULL is fine. */
void gn_tree_target_destroy(struct gn_tree_target *t);
/* Whether a chunk is there. */
int gn_tree_target_has(struct gn_tree_target *t, uint32_t chunk);
/* The digest of a chunk that is there, else "". */
void gn_tree_target_digest(struct gn_tree_target *t, uint32_t chunk, char out[GN_SHA256_HEX]);
/* Writes a chunk, which counts as there only once it is marked. */
enum gn_status gn_tree_target_write(struct gn_tree_target *t, uint32_t chunk, const void *data, struct gn_err *err);
/* A chunk that was written has the right digest, this one: for this run and later ones. */
enum gn_status gn_tree_target_mark(struct gn_tree_target *t, uint32_t chunk, const char *digest, struct gn_err *err);
/* A chunk turned out to be wrong. GN_ERR_DATA if the copy is complete and in its place. One that is not there is fine. */
enum gn_status gn_tree_target_forget(struct gn_tree_target *t, uint32_t chunk, struct gn_err *err);
/* Reads a chunk that is there, and verifies it. */
enum gn_status gn_tree_target_get(struct gn_tree_target *t, uint32_t chunk, void *data, struct gn_err *err);
/* Bytes of a tree that is one file, which count as there only with their chunk; and back, not verified. */
enum gn_status gn_tree_target_write_at(struct gn_tree_target *t, uint64_t offset, const void *data, size_t len_bytes, struct gn_err *err);
enum gn_status gn_tree_target_read_at(struct gn_tree_target *t, uint64_t offset, void *data, size_t len_bytes, struct gn_err *err);
/* Before a tree that is one file is finished, and all of it is there. GN_ERR_DATA: its SHA-256 is another one; an incomplete copy is removed. */
enum gn_status gn_tree_target_check_file(struct gn_tree_target *t, const char *sha256, struct gn_err *err);
/* Whether so much was written in small files since the last time that the disk should begin with it: then the caller calls _sync() soon. */
int gn_tree_target_wants_sync(struct gn_tree_target *t);
enum gn_status gn_tree_target_sync(struct gn_tree_target *t, struct gn_err *err);
/* All chunks are there: links, permissions and times; synced; renamed. */
enum gn_status gn_tree_target_finish(struct gn_tree_target *t, struct gn_err *err);

#endif
