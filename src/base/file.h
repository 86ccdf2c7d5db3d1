/* Files done carefully: whole reads and writes, directories made and synced, and files that appear under their final name
 * complete or not at all.
 *
 * Everything here blocks on the file system and may be called from any thread.
 */
#ifndef GN_BASE_FILE_H
#define GN_BASE_FILE_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* read(2) once, again after EINTR; -1 with errno on failure. */
ssize_t gn_read_some(int fd, void *data, size_t len_bytes);
/* Exactly len_bytes from offset; a file that ends earlier is GN_ERR_DATA. path is for the message only. */
enum gn_status gn_pread_full(int fd, void *data, size_t len_bytes, uint64_t offset, const char *path,
			     struct gn_err *err);
/* All of it, at the file's position. */
enum gn_status gn_write_full(int fd, const void *data, size_t len_bytes, const char *path, struct gn_err *err);
enum gn_status gn_pwrite_full(int fd, const void *data, size_t len_bytes, uint64_t offset, const char *path,
			      struct gn_err *err);

/* "directory/name" into out; GN_ERR_USAGE when it does not fit. */
enum gn_status gn_path_join(char *out, size_t out_size, const char *directory, const char *name, struct gn_err *err);

/* Makes path and its missing parents (mode 0777 less the umask); fine when it is there. */
enum gn_status gn_make_dirs(const char *path, struct gn_err *err);
/* Removes path and everything under it without following links; fine when it is not there. */
enum gn_status gn_remove_tree(const char *path, struct gn_err *err);
/* fsync of a directory, so that names made or moved in it survive a crash. */
enum gn_status gn_sync_dir(const char *path, struct gn_err *err);
/* fsync of the directory that holds path. */
enum gn_status gn_sync_parent(const char *path, struct gn_err *err);
/* Free bytes for this user where path lies. */
enum gn_status gn_free_bytes(const char *path, uint64_t *out, struct gn_err *err);

/* The whole of a file of at most max_bytes, with a zero byte after it; *out is the caller's to free. len_bytes may be
 * NULL. A larger file is GN_ERR_DATA. */
enum gn_status gn_file_load(const char *path, size_t max_bytes, char **out, size_t *len_bytes, struct gn_err *err);
/* GN_ERR_IO when a device, a FIFO, a socket or a folder is at path, which a rename would take away or fail on. */
enum gn_status gn_file_check_replaceable(const char *path, struct gn_err *err);
/* Writes path by way of a temporary name in the same folder, fsync, rename and fsync of the folder: a reader sees the old
 * file or the new one, whole. On failure nothing is left behind. */
enum gn_status gn_file_replace(const char *path, const void *data, size_t len_bytes, struct gn_err *err);

#endif
