/* Copies a packed dataset to a node-local folder, once for all ranks of the node.
 *
 * A lock file in the target makes callers take turns: the first copies, the others wait and then find everything there.
 * Each shard is copied under a temporary name, its SHA-256 checked on the way, synced, and renamed; the manifest comes
 * last, so a target with a manifest is whole. A shard that is there is kept when a stamp file vouches that it has not been
 * touched since it was right (size, times and inode), or when its digest is right; so an interrupted copy goes on where
 * it was. Another dataset in the target is replaced; files that are none of ours are left alone.
 *
 * The target must be the caller's own: the right to write there is taken from its group, and a folder for all users (sticky
 * or world-writable) and a path that another user could lead elsewhere are refused (src/base/trust.h). Of what lies there,
 * files of other users count as wrong. A target that belongs to another user is read only, without lock and stamp: every
 * shard is digested, and it is used when all are right. Its owner can still change it later. The caller's umask should keep
 * others from writing what is made.
 *
 * Blocks on the file system and for the lock. Errors: GN_ERR_NO_SPACE before anything is copied, GN_ERR_DATA when a
 * source shard is damaged, GN_ERR_NOT_FOUND, GN_ERR_IO, also for a target of another user that is not whole and right. On
 * failure the target has no manifest, or a right one.
 */
#ifndef GN_DATA_STAGE_STAGE_H
#define GN_DATA_STAGE_STAGE_H

#include "src/base/log.h"
#include "src/base/progress_bar.h"
#include "src/base/status.h"

#include <stdint.h>

struct gn_stage_options {
	const char *from, *to;
	int threads;		      /* shards copied at a time, >= 1 */
	int check;		      /* do not trust the stamp: digest everything that is there */
	struct gn_log *log;	      /* may be NULL */
	struct gn_progress_bar *progress; /* ours while we work */
};

struct gn_stage_result {
	uint64_t samples;
	uint64_t copied_bytes, kept_bytes;
	uint32_t copied, kept; /* shards */
	int foreign;	       /* the target belongs to another user, owner */
	uint32_t owner;	       /* user number */
	double copy_s, wait_s; /* copying; waiting for the lock */
};

enum gn_status gn_stage(const struct gn_stage_options *options, struct gn_stage_result *out, struct gn_err *err);

#endif
