/* What a file is by its first bytes: formats that people bring and that are not read here, so that messages name them.
 *
 * Thread safety: no state.
 */
#ifndef GN_BASE_FILE_KIND_H
#define GN_BASE_FILE_KIND_H

#include <stddef.h>

/* "a HEIC image", "a zip archive"; kinds of images have " image" in it. NULL: not known. Static text. len_bytes of at least 512 (or the
 * whole file) find all kinds. */
const char *gn_file_kind(const void *head, size_t len_bytes);
/* The same of a regular file; NULL also for one that cannot be read. Blocks on the file system. */
const char *gn_file_kind_at(const char *path);

#endif
