/* Sources of images: folders, and tar archives plain or compressed, also archives within an archive (ILSVRC2012's tar of
 * one tar a class). A source is walked once and hands each regular file to a sink.
 *
 * An inner archive counts as a folder named as it is, less its ".tar". Hidden files and folders, __MACOSX, Thumbs.db,
 * desktop.ini and text files (by their ending) are passed over. In folders links are followed. An archive may come from
 * anyone: its symbolic links are files with a problem and never followed; hard links, devices, absolute paths and paths with
 * ".." are refused.
 *
 * Folders are listed by the pool's workers, some ahead of the walk, and by the type that readdir gives: only links, and
 * entries of file systems that give none, are looked at one by one.
 *
 * Thread safety: a walk belongs to one thread, which is none of the pool's; the sink is called from it. Blocks on the file
 * system and while the sink does. Errors: GN_ERR_NOT_FOUND (no such source), GN_ERR_DATA (no archive, damaged, refused
 * entry), GN_ERR_IO, and whatever the sink returns, which ends the walk.
 */
#ifndef GN_DATA_PACK_SOURCE_H
#define GN_DATA_PACK_SOURCE_H

#include "src/base/thread_pool.h"
#include "src/base/status.h"

#include <stddef.h>

/* The first two folders of a path; borrowed for the call. */
struct gn_source_levels {
	const char *first;  /* NULL when no folder holds the file */
	const char *second; /* the folder in it, or NULL */
	int deeper;	    /* a folder of second holds the file */
};

/* One regular file of a source. */
struct gn_source_file {
	const char *name;	/* its path inside the source; borrowed for the call */
	struct gn_source_levels levels;
	unsigned char *bytes;	/* of a file in an archive: malloc'd, the sink's to free; NULL in a folder, where
				 * SOURCE/name is there to be read */
	size_t len_bytes;	/* of bytes */
	const char *problem;	/* why it cannot be an image (too large, not a regular file), else NULL */
	int is_link;		/* a symbolic link in an archive: with a problem, and no sign of a class */
};

struct gn_source_sink {
	void *context;
	enum gn_status (*file)(void *context, const struct gn_source_file *file, struct gn_err *err);
	/* A folder or inner archive that holds nothing, or nothing but what is passed over. */
	enum gn_status (*empty)(void *context, const char *name, const struct gn_source_levels *levels, struct gn_err *err);
	/* A file or a whole folder that is passed over. */
	void (*passed)(void *context);
};

/* Walks path: a folder, in the order of its names, or a regular file, which must be a tar archive. */
enum gn_status gn_source_walk(const char *path, struct gn_thread_pool *pool, const struct gn_source_sink *sink, struct gn_err *err);

/* The two kinds; called by gn_source_walk. */
enum gn_status gn_source_walk_folder(const char *path, struct gn_thread_pool *pool, const struct gn_source_sink *sink,
				     struct gn_err *err);
enum gn_status gn_source_walk_tar(const char *path, const struct gn_source_sink *sink, struct gn_err *err);

/* Non-zero for what is passed over: one component of a path. */
int gn_source_passes_over(const char *component, int is_folder);
/* Non-zero for the name of a part of a dataset (train, val, test ...), which is rarely a class. */
int gn_source_is_split(const char *component);
/* GN_ERR_DATA when path, or the one folder that is all path holds, is a folder whose only entries are two or more such parts,
 * with folders in them. */
enum gn_status gn_source_check_splits(const char *path, struct gn_err *err);
/* The levels of name, written to buffer. inner_len is the length of the inner archive's own path in name, 0 without. */
struct gn_source_levels gn_source_levels_of(const char *name, size_t inner_len, char *buffer, size_t size);

#endif
