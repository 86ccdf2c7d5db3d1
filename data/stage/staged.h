/* The copies that gannet stage has made directly below a folder of this node: what they are, who uses them, and their removal.
 *
 * Only what this user's gannet stage has made is listed: the marker of a copy names the files, or the identity of its listing and the
 * inode and time of birth of its root, and anything else of that name is `changed`. Removed is a copy only while nobody holds it
 * (data/shard/folders.h) and nobody stages it: it is locked, moved to NAME.gannet-part, and deleted there, so that no half of it is ever
 * under its name; what a death leaves is listed as incomplete. A copy was last used when a program of this user's that holds it opened
 * it, or when it was staged, be it to find it complete.
 *
 * Thread safety: a list belongs to one thread; several processes may remove and stage. Blocks on the file system.
 */
#ifndef GN_DATA_STAGE_STAGED_H
#define GN_DATA_STAGE_STAGED_H

#include "src/base/log.h"
#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum gn_staged_state {
	GN_STAGED_COMPLETE,
	GN_STAGED_INCOMPLETE, /* a copy that broke off */
	GN_STAGED_IN_USE,
	GN_STAGED_IN_WORK, /* being staged or removed now */
	GN_STAGED_CHANGED, /* has files that were not staged: never removed */
	GN_STAGED_REMOVED
};

struct gn_staged {
	char *name;
	const char *kind; /* "dataset", "tree", "file" */
	enum gn_staged_state state;
	uint64_t bytes; /* on disk */
	int64_t used_s; /* since 1970 */
};

struct gn_staged_list {
	char *folder;
	struct gn_staged *items; /* the least recently used first */
	size_t count;
};

/* GN_ERR_NOT_FOUND: no such folder. */
enum gn_status gn_staged_list_load(const char *folder, struct gn_staged_list *out, struct gn_err *err);
void gn_staged_list_release(struct gn_staged_list *l);
/* "complete", "in use". Never NULL. */
const char *gn_staged_state_name(enum gn_staged_state state);
/* Removes one; its state is then GN_STAGED_REMOVED. GN_ERR_EXISTS when it is held, staged now or changed. */
enum gn_status gn_staged_remove(const struct gn_staged_list *l, struct gn_staged *s, struct gn_err *err);
/* Removes the least recently used until those that are left, without the one named except (may be NULL), and needed_bytes more take at most
 * quota_bytes. GN_ERR_NO_SPACE when too many cannot be removed; what could be is. Logs a line each. */
enum gn_status gn_staged_shrink(struct gn_staged_list *l, const char *except, uint64_t needed_bytes, uint64_t quota_bytes, struct gn_log *log,
				struct gn_err *err);
/* Before a dataset is staged to the folder `to`: GN_ERR_EXISTS when that is a staged tree. *begun: whether a dataset was staged there before,
 * be it in part; nothing that lies there otherwise may be removed. */
enum gn_status gn_staged_check_target(const char *to, int *begun, struct gn_err *err);
/* Before a copy of needed_bytes is made at `to`, or where it is found there: the same for the folder that holds it. quota_bytes 0: nothing. */
enum gn_status gn_staged_make_room(const char *to, uint64_t needed_bytes, uint64_t quota_bytes, struct gn_log *log, struct gn_err *err);

#endif
