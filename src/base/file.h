/* File operations: complete reads and writes, directories, and files that appear under their final name complete or not at all.
 *
 * Every function blocks on the file system and may be called from any thread.
 */
#ifndef GN_BASE_FILE_H
#define GN_BASE_FILE_H

#include "src/base/status.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* One read(2), repeated after EINTR. Returns -1 with errno on failure. */
ssize_t gn_read_some(int fd, void *data, size_t len_bytes);
/* The beginning of a file, size - 1 bytes at the most, which is all of one that the kernel makes, with a zero byte behind. Returns its length; -1
 * with errno when the file cannot be read, and text is "". */
ssize_t gn_file_read_start(const char *path, char *text, size_t size);
/* Reads exactly len_bytes at offset; GN_ERR_DATA when the file ends earlier. path appears only in the message. */
enum gn_status gn_pread_full(int fd, void *data, size_t len_bytes, uint64_t offset, const char *path,
			     struct gn_err *err);
/* Writes all len_bytes at the file's position. */
enum gn_status gn_write_full(int fd, const void *data, size_t len_bytes, const char *path, struct gn_err *err);
enum gn_status gn_pwrite_full(int fd, const void *data, size_t len_bytes, uint64_t offset, const char *path,
			      struct gn_err *err);

/* Writes "directory/name" into out; GN_ERR_USAGE when it does not fit. */
enum gn_status gn_path_join(char *out, size_t out_size, const char *directory, const char *name, struct gn_err *err);
/* The folder that path is in: "." for a name without '/'. */
void gn_path_parent(const char *path, char out[PATH_MAX]);

/* path as it lies from the folder of this program's file, such as "../etc/x"; NULL: that file itself. */
enum gn_status gn_path_from_program(const char *path, char *out, size_t out_size, struct gn_err *err);

/* Whether both paths are there and lead to one file or folder. */
int gn_file_is_same(const char *a, const char *b);

/* Creates path and its missing parents (mode 0777 less the umask). An existing folder is fine. GN_ERR_IO when gn_trust_check_links() finds
 * another user's link on path. */
enum gn_status gn_make_dirs(const char *path, struct gn_err *err);
/* Removes path and everything below it without following symbolic links. A missing path is fine. */
enum gn_status gn_remove_tree(const char *path, struct gn_err *err);
/* fsync of a directory: names created or renamed in it survive a crash. */
enum gn_status gn_sync_dir(const char *path, struct gn_err *err);
/* fsync of the directory that contains path. */
enum gn_status gn_sync_parent(const char *path, struct gn_err *err);
/* Bytes that this user can still write to the file system of path. */
enum gn_status gn_free_bytes(const char *path, uint64_t *out, struct gn_err *err);

/* Reads a whole regular file of at most max_bytes and appends a zero byte. The caller frees *out. len_bytes may be NULL. A larger
 * file is GN_ERR_DATA. */
enum gn_status gn_file_load(const char *path, size_t max_bytes, char **out, size_t *len_bytes, struct gn_err *err);
/* The same for text in UTF-8 that people write: a byte order mark is dropped, CR LF becomes LF. A zero byte is GN_ERR_DATA. */
enum gn_status gn_file_load_text(const char *path, size_t max_bytes, char **out, size_t *len_bytes, struct gn_err *err);
/* GN_ERR_IO when path is a device, a FIFO, a socket or a folder, which rename() would replace or fail on, or when gn_trust_check_links()
 * finds another user's link on it. */
enum gn_status gn_file_check_replaceable(const char *path, struct gn_err *err);
/* The same, and GN_ERR_USAGE, naming --option, when no file can be made in the folder of path: before the work whose result it is to
 * hold. */
enum gn_status gn_file_check_folder(const char *path, const char *option, struct gn_err *err);
/* GN_ERR_USAGE when path is a file that does not begin with `beginning`: it is somebody's, and not `what`. A missing or empty one is fine. */
enum gn_status gn_file_check_own(const char *path, const char *beginning, const char *what, struct gn_err *err);
/* Replaces path atomically: temporary file in the same folder, fsync, rename, fsync of the folder. Readers see the old or the new
 * file, complete. On failure the temporary file is removed. Calls gn_file_check_replaceable(). */
enum gn_status gn_file_replace(const char *path, const void *data, size_t len_bytes, struct gn_err *err);
/* Unsynced: for a file that is rewritten every few seconds; readers see one of both files, complete, but a crash of the machine may lose both.
 * Public: unsynced with mode 0644, whatever the umask, for readers that are other users. */
enum gn_replace { GN_REPLACE_SYNCED, GN_REPLACE_UNSYNCED, GN_REPLACE_PUBLIC };
struct gn_strbuf;
/* The same with text, which may have failed: GN_ERR_NO_MEMORY. */
enum gn_status gn_file_replace_text(const char *path, const struct gn_strbuf *text, enum gn_replace how, struct gn_err *err);

#endif
