/* Sources of images: folders, and tar archives, plain or compressed, with one level of archives inside (ILSVRC2012's tar of one tar
 * per class). A source is walked once; each regular file is passed to a sink.
 *
 * An inner archive counts as a folder of its name without ".tar". Hidden files and folders, __MACOSX, Thumbs.db, desktop.ini and
 * text files (by extension) are ignored. In folders symbolic links are followed. Archives are not trusted: their symbolic links are
 * reported as a problem and never followed; hard links name another file of the archive; devices, absolute paths and paths with ".." are
 * refused. Concatenated archives are read to the end, as by tar --ignore-zeros.
 *
 * The pool's workers list folders ahead of the walk. Entry types come from readdir(); only links, and entries of file systems
 * without types, need stat().
 *
 * Thread safety: a walk belongs to one thread outside the pool, which calls the sink. Blocks on the file system and in the sink.
 * Errors: GN_ERR_NOT_FOUND (no such source), GN_ERR_DATA (no archive, damaged, refused entry), GN_ERR_IO, and errors of the sink,
 * which end the walk.
 */
#ifndef GN_DATA_PACK_SOURCE_H
#define GN_DATA_PACK_SOURCE_H

#include "src/base/thread_pool.h"
#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

/* The first two folders of a path; borrowed during the call. */
struct gn_source_levels {
	const char *first;  /* NULL: the file is not in a folder */
	const char *second; /* the folder in it, or NULL */
	int deeper;	    /* a folder of second holds the file */
};

/* A regular file of a source. */
struct gn_source_file {
	const char *name;	/* path inside the source; borrowed during the call */
	struct gn_source_levels levels;
	/* contents of a file in an archive, allocated by malloc, owned by the sink; NULL in a folder: read SOURCE/name */
	unsigned char *bytes;
	size_t len_bytes;	/* of bytes */
	const char *problem;	/* why it cannot be an image (too large, not a regular file), else NULL */
	const char *same_as;	/* a hard link, without bytes: the path of the file that has them; borrowed; NULL */
	int is_link;		/* a symbolic link in an archive: has a problem, and its name is no evidence of a class */
};

struct gn_source_sink {
	void *context;
	enum gn_status (*file)(void *context, const struct gn_source_file *file, struct gn_err *err);
	/* A folder or inner archive that is empty or holds only ignored entries. NULL: they are left out. */
	enum gn_status (*empty)(void *context, const char *name, const struct gn_source_levels *levels, struct gn_err *err);
	uint64_t *passed; /* ignored files and folders are added to it */
};

/* Walks path: a folder, in the order of its names, or a tar archive. */
enum gn_status gn_source_walk(const char *path, struct gn_thread_pool *pool, const struct gn_source_sink *sink, struct gn_err *err);

/* The two kinds; called by gn_source_walk. */
enum gn_status gn_source_walk_folder(const char *path, struct gn_thread_pool *pool, const struct gn_source_sink *sink,
				     struct gn_err *err);
enum gn_status gn_source_walk_tar(const char *path, const struct gn_source_sink *sink, struct gn_err *err);

/* Whether a path component is ignored. */
int gn_source_passes_over(const char *component, int is_folder);
/* Whether a name is that of a split (train, val, test ...), which is rarely a class. */
int gn_source_is_split(const char *component);
/* GN_ERR_DATA when path, or the only folder in it, contains nothing but two or more splits with folders in them. */
enum gn_status gn_source_check_splits(const char *path, struct gn_err *err);
/* GN_ERR_DATA when path is a folder of files without a class folder, or, unless may_be_empty, when a class folder of it (or of the only
 * folder in it) is empty. Reads no file; what only a walk can tell is left to it. */
enum gn_status gn_source_check_classes(const char *path, int may_be_empty, struct gn_err *err);
/* Writes the levels of name to buffer. inner_len: length of the inner archive's path in name, 0 without one. */
struct gn_source_levels gn_source_levels_of(const char *name, size_t inner_len, char *buffer, size_t size);

#endif
