/* The listing of a file tree, and its data as one stream cut into chunks. Private to data/stage/.
 *
 * An entry is a folder, a regular file, a symbolic link or a FIFO, with permissions, modification time and hard links; sockets and
 * devices are left out with a warning. The data of all files, without holes, one after the other in the order of the listing, are the
 * stream; chunk k is its bytes from k * chunk_bytes on, so that small files share a chunk. Every node derives the same chunks
 * from the same listing, which travels as one block of memory in the byte order of the host.
 *
 * Thread safety: a listing is constant once made; chunks may be read from several threads. Everything blocks on the file system.
 */
#ifndef GN_DATA_STAGE_TREE_H
#define GN_DATA_STAGE_TREE_H

#include "src/base/log.h"
#include "src/base/sha256.h"
#include "src/base/status.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Of most trees; and of those whose files have less than 64 KiB on average, as a chunk takes as long as its files are many. */
#define GN_TREE_CHUNK_BYTES ((size_t)4 << 20)
#define GN_TREE_SMALL_CHUNK_BYTES ((size_t)1 << 20)
#define GN_TREE_NO_LINK UINT32_MAX

/* Part of a file that is no hole, in bytes. */
struct gn_tree_extent {
	uint64_t offset, len;
};

/* Precedes path, target (each with its terminator) and extents of an entry in the block; no padding. */
struct gn_tree_record {
	uint64_t size_bytes;
	int64_t mtime_s, mtime_ns;
	uint32_t mode, links_to, path_bytes, target_bytes, extent_count, unused;
};

struct gn_tree_entry {
	const char *path;   /* below the root: "", "/a/b" */
	const char *target; /* of a symbolic link, else "" */
	mode_t mode;	    /* type and permissions; without set-user-ID and set-group-ID if the file is another user's */
	uint32_t links_to;  /* the first entry with the same inode, if that is an earlier one; GN_TREE_NO_LINK */
	int64_t mtime_s, mtime_ns;
	uint64_t size_bytes;	/* of a regular file, else 0 */
	uint32_t extent_count;	/* 0 of a link to an earlier entry */
	const unsigned char *extents; /* struct gn_tree_extent, not aligned */
	uint64_t stream_at;	/* where its data begin */
};

struct gn_tree {
	struct gn_tree_entry *entries; /* parents before their children; the root first */
	size_t count;
	uint64_t data_bytes;
	size_t chunk_bytes;
	uint32_t chunks;
	void *block; /* what travels; entries point into it */
	size_t block_bytes;
	char layout[GN_SHA256_HEX];   /* digest of the block */
	char identity[GN_SHA256_HEX]; /* the same without extents, which depend on the file system */
};

/* from: a folder or a file, which may be a symbolic link to one. Holes are looked for with_holes, else no extents are listed. */
enum gn_status gn_tree_scan(const char *from, int with_holes, struct gn_log *log, struct gn_tree *out, struct gn_err *err);
/* Takes ownership of a malloc'ed block; frees it on failure: GN_ERR_MISMATCH for one that is malformed, or has a path that leads out of the
 * tree. */
enum gn_status gn_tree_take(void *block, size_t block_bytes, struct gn_tree *out, struct gn_err *err);
void gn_tree_release(struct gn_tree *t);

/* Where an entry of the tree at root is. */
enum gn_status gn_tree_path(const char *root, const struct gn_tree_entry *e, char path[PATH_MAX], struct gn_err *err);
size_t gn_tree_chunk_len(const struct gn_tree *t, uint32_t chunk);
/* Calls piece() for each part of a file in the chunk, in order, with its place in the chunk, until one fails. */
typedef enum gn_status (*gn_tree_piece_fn)(void *context, const struct gn_tree_entry *e, uint64_t offset, size_t at, size_t len,
					   struct gn_err *err);
enum gn_status gn_tree_chunk_pieces(const struct gn_tree *t, uint32_t chunk, gn_tree_piece_fn piece, void *context, struct gn_err *err);
/* Reads a chunk of the tree at root. data: gn_tree_chunk_len() bytes. GN_ERR_DATA: a file is not the one that was listed. */
enum gn_status gn_tree_chunk_read(const struct gn_tree *t, const char *root, uint32_t chunk, void *data, struct gn_err *err);

#endif
