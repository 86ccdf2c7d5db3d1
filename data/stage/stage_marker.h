/* The marker of a staged dataset, file .gannet-stage: for each shard the verified digest and the file's properties at that time.
 * Private to data/stage/. And of the marker of other copies, the line that says which copy it is of.
 *
 * Any change to a file changes its ctime: while the properties match, the shard need not be read again. Only files, and only a
 * marker, that belong to this user and that nobody else can write are trusted.
 */
#ifndef GN_DATA_STAGE_STAGE_MARKER_H
#define GN_DATA_STAGE_STAGE_MARKER_H

#include "data/shard/folders.h"
#include "data/shard/manifest.h"
#include "src/base/strbuf.h"

#include <time.h>

#define GN_STAGE_MARKER_NAME GN_HOLD_MARKER
#define GN_STAGE_LOCK_NAME ".gannet-stage.lock"
/* What is in the making: a shard, a tree; and a download. */
#define GN_STAGE_PART_ENDING ".gannet-part"
#define GN_STAGE_FETCH_ENDING ".gannet-fetch"

/* Sets trusted[i] = 1 for each shard of m in directory whose file is unchanged since it was verified. A missing or unreadable
 * marker leaves all 0. */
void gn_stage_marker_load(const struct gn_manifest *m, const char *directory, unsigned char *trusted);
/* The same, from all 0 and if another process has written the marker since *seen, its time, which is {0} at first and then set. Returns
 * whether it has. */
int gn_stage_marker_follow(const struct gn_manifest *m, const char *directory, unsigned char *trusted, struct timespec *seen);
/* Writes the marker for the shards of m with right[i] in their present state. */
enum gn_status gn_stage_marker_save(const struct gn_manifest *m, const char *directory, const unsigned char *right, struct gn_err *err);
/* Appends the two lines that end the marker of any other copy, which lies beside it: the identity of its listing (tree.h), and what tells its
 * root from one that somebody else has put there, inode and time of birth. */
void gn_stage_marker_root(const char *root, const char *identity, struct gn_strbuf *out);
/* Whether root is what its marker, which must be this user's alone, was written for. */
int gn_stage_marker_is_of(const char *marker, const char *root);
/* Whether files of it were added, changed or removed since, as names, sizes, times and permissions tell; 0 for an earlier marker, which has no
 * identity. Reads all its folders. */
int gn_stage_marker_is_changed(const char *marker, const char *root);

#endif
