/* Checks whether another user could redirect a path.
 *
 * In a world-writable folder (/tmp, a shared scratch disk) another user can create a symbolic link or a folder at a path before its
 * owner does. Trusted are the caller's effective user, root, and the members of a group that may write to a folder.
 *
 * Thread safety: no state.
 */
#ifndef GN_BASE_TRUST_H
#define GN_BASE_TRUST_H

#include "src/base/log.h"
#include "src/base/status.h"

/* GN_ERR_IO when another user could redirect path: a symbolic link on it belongs to neither the caller nor root; or a
 * world-writable folder on it lacks the sticky bit, or holds a component that belongs to neither the caller nor root. Components
 * that do not exist are fine. */
enum gn_status gn_trust_check_path(const char *path, struct gn_err *err);
/* The less strict check for shared folders: GN_ERR_IO when a world-writable folder holds a symbolic link on path that belongs to
 * neither the caller nor root. */
enum gn_status gn_trust_check_links(const char *path, struct gn_err *err);
/* Checks an existing folder. One that belongs to neither the caller nor root is logged with its owner. With for_writing, one that
 * is world-writable without the sticky bit is GN_ERR_IO, or a warning when it belongs to the caller or root. */
enum gn_status gn_trust_check_folder(const char *path, int for_writing, struct gn_log *log, struct gn_err *err);
/* Checks an open file that is to be a secret: GN_ERR_USAGE unless it is a regular file of this user that nobody else can access. what:
 * "the key file"; for messages. */
enum gn_status gn_trust_check_secret(int fd, const char *path, const char *what, struct gn_err *err);

#endif
