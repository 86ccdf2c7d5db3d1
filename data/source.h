/* Sources of images: folders, and tar archives plain or compressed, also archives within an archive (ILSVRC2012's tar of
 * one tar a class). A source is walked once, front to back, and hands each regular file to a sink.
 *
 * The class of an image is the name of the folder, or of the inner archive less its ".tar", that holds it. In folders
 * links are followed; in archives links, devices, absolute paths and paths with ".." are refused, for an archive may come
 * from anyone.
 *
 * Thread safety: a walk belongs to one thread; the sink is called from it. Blocks on the file system and while the sink
 * does. Errors: GN_ERR_NOT_FOUND (no such source), GN_ERR_DATA (no archive, damaged, refused entry), GN_ERR_IO, and
 * whatever the sink returns, which ends the walk.
 */
#ifndef GN_DATA_SOURCE_H
#define GN_DATA_SOURCE_H

#include "src/base/status.h"

#include <stddef.h>

/* One regular file of a source. */
struct gn_source_file {
	const char *name;	/* its path inside the source; borrowed for the call */
	const char *class_name; /* borrowed for the call; NULL when no folder holds it */
	unsigned char *bytes;	/* of a file in an archive: malloc'd, the sink's to free; NULL in a folder, where
				 * SOURCE/name is there to be read */
	size_t len_bytes;
	const char *problem;	/* why it cannot be an image (too large, not a regular file), else NULL */
};

struct gn_source_sink {
	void *context;
	enum gn_status (*file)(void *context, const struct gn_source_file *file, struct gn_err *err);
	/* A folder or inner archive that holds nothing at all. */
	enum gn_status (*empty)(void *context, const char *name, const char *class_name, struct gn_err *err);
};

/* Walks path: a folder, in the order of its names, or a regular file, which must be a tar archive. */
enum gn_status gn_source_walk(const char *path, const struct gn_source_sink *sink, struct gn_err *err);

/* The two kinds; called by gn_source_walk. */
enum gn_status gn_source_walk_folder(const char *path, const struct gn_source_sink *sink, struct gn_err *err);
enum gn_status gn_source_walk_tar(const char *path, const struct gn_source_sink *sink, struct gn_err *err);

#endif
