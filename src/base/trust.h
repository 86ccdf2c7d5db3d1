/* Which paths another user could lead elsewhere.
 *
 * In a folder that all users may write (/tmp, a shared scratch disk) whoever is first can put a link or a folder where another
 * user will look for his own. The caller's effective user and root are trusted; so are members of a group that may write in a
 * folder.
 *
 * Thread safety: no state.
 */
#ifndef GN_BASE_TRUST_H
#define GN_BASE_TRUST_H

#include "src/base/log.h"
#include "src/base/status.h"

/* GN_ERR_IO when another user could lead path elsewhere: a link on it is neither the caller's nor root's, or a folder that all may
 * write holds the next name without the sticky bit, or holds one that is neither the caller's nor root's. What does not exist yet
 * is fine. */
enum gn_status gn_trust_check_path(const char *path, struct gn_err *err);
/* Less strict, for folders that users share: GN_ERR_IO when a folder that all may write holds a link on path that is neither the
 * caller's nor root's. */
enum gn_status gn_trust_check_links(const char *path, struct gn_err *err);
/* Of a folder that is there: one that belongs to another user than the caller and root is told to log, with the owner. When
 * for_writing is set and all users may write it and it is not sticky, that is GN_ERR_IO; a folder of the caller's or root's is told
 * then. */
enum gn_status gn_trust_check_folder(const char *path, int for_writing, struct gn_log *log, struct gn_err *err);

#endif
