/* Copies a packed dataset to a node-local folder, once for all ranks of the node.
 *
 * A lock file in the target serialises callers: the first copies, the others wait and then find a complete copy. Each shard is
 * copied under a temporary name with its SHA-256 verified, synced, and renamed; the manifest is written last, so that a target with
 * a manifest is complete; the marker grows with each shard. An existing shard is kept when the stage marker shows that it is
 * unchanged since it was verified (size, times and inode), or when its digest is right: an interrupted copy continues where it
 * stopped. Another dataset that was staged to the target is replaced, unless a program holds it (data/shard/folders.h); what no stage
 * has put there is left alone.
 *
 * The target must belong to the caller: write permission of group and others is removed, and a shared folder (sticky or
 * world-writable) or a path that another user could redirect is refused (src/base/trust.h). Files of other users in it count as
 * wrong. A target that belongs to another user is only read, without lock and marker: every shard is verified, and the target is
 * used when all are right. Its owner can still change it later. The caller's umask should deny write permission to others.
 *
 * Blocks on the file system and for the lock. Errors: GN_ERR_NO_SPACE before anything is copied, GN_ERR_DATA for a damaged source
 * shard, GN_ERR_EXISTS when a shard, a dataset or a staged tree that no stage of a dataset has put there is in the way, or another dataset
 * that a program reads, GN_ERR_NOT_FOUND, GN_ERR_IO, also for an incomplete or damaged target of another user. On failure the target has
 * no manifest, or a valid one.
 */
#ifndef GN_DATA_STAGE_STAGE_H
#define GN_DATA_STAGE_STAGE_H

#include "src/base/log.h"
#include "src/base/progress_bar.h"
#include "src/base/status.h"

#include <stdatomic.h>
#include <stdint.h>

struct gn_stage_options {
	const char *from;
	const char *to; /* or several folders, FOLDER:FOLDER (data/shard/folders.h): the shards are divided among them by free space */
	const unsigned char *only; /* [shards of from] those that are copied; NULL: all */
	const char *digest;   /* of the manifest of from, to which ready() refers: another one is GN_ERR_DATA; NULL: any */
	int threads;		      /* shards copied concurrently, >= 1 */
	int check;		      /* ignore the marker: verify the digests of all existing shards */
	uint64_t quota_bytes;	      /* of gn_staged_make_room(); 0: none */
	struct gn_log *log;	      /* may be NULL */
	struct gn_progress_bar *progress; /* used exclusively by the copy; may be NULL */
	const atomic_int *stop;	      /* set by any thread: GN_ERR_STOPPED, also while another process copies; may be NULL */
	/* May be NULL. Once for each shard of the source, by number, when it lies in a folder of `to` and was verified, be it by another process that
	 * copies; one call at a time, from any thread. */
	void (*ready)(void *context, uint32_t shard, const char *folder);
	void *context;
};

struct gn_stage_result {
	uint64_t samples;
	uint64_t copied_bytes, kept_bytes;
	uint32_t copied, kept; /* shards */
	int foreign;	       /* the target belongs to another user, owner */
	uint32_t owner;	       /* user number */
	double copy_s, wait_s; /* seconds of copying, and of waiting for the lock */
};

enum gn_status gn_stage(const struct gn_stage_options *options, struct gn_stage_result *out, struct gn_err *err);

#endif
