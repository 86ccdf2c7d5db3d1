/* What finding and making the copy of a tree share. */
#ifndef GN_DATA_STAGE_TREE_TARGET_INTERNAL_H
#define GN_DATA_STAGE_TREE_TARGET_INTERNAL_H

#include "data/stage/tree_target.h"

#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

/* The first line of marker and journal, with the digest of the listing. */
#define GN_TREE_HEAD "gannet-stage-tree 1 %s\n"
/* A chunk, its digest, line feed: a line that was cut by a death does not match */
#define GN_TREE_LINE "%010u %s\n"
#define GN_TREE_LINE_BYTES (10 + 1 + 64 + 1)

struct gn_tree_target {
	const struct gn_tree *tree;
	struct gn_log *log;
	char to[PATH_MAX];
	char part[PATH_MAX];	 /* TO.gannet-part */
	char root[PATH_MAX];	 /* where the data are: TO, or the tree in part */
	char marker[PATH_MAX];	 /* TO.gannet-stage */
	char old[PATH_MAX];	 /* in part: what TO was before */
	uint64_t quota_bytes;
	int lock, journal;
	int was_complete, replaces; /* replaces: TO is an earlier copy */
	int is_new;		    /* nothing of an earlier run is in root */
	char (*digests)[GN_SHA256_HEX]; /* "" of a chunk that is not there */
	pthread_mutex_t mutex;		/* of digests and journal, and of */
	size_t unsynced_bytes;		/* in small files */
	int is_syncing;
	pthread_mutex_t syncing;	/* held while the disk is synced; of */
	int sync_errno;			/* 0: no sync has failed */
};

/* Makes folders, and files of their sizes, in root; what is there of an earlier run is used. In a new root files that lie in one chunk are
 * made when that is written. */
enum gn_status gn_tree_make(const struct gn_tree_target *t, struct gn_err *err);
/* Writes the marker of the tree in its place; synced: not lost in a crash of the machine. */
enum gn_status gn_tree_save_marker(const struct gn_tree_target *t, int synced, struct gn_err *err);
/* Removes path, which lies in part, with folders that forbid it. A missing path is fine. */
enum gn_status gn_tree_remove(const char *path, struct gn_err *err);
/* Keeps readers away from the earlier copy at TO, by *out (-1: nobody can hold it). GN_ERR_EXISTS: a program holds it. */
enum gn_status gn_tree_claim_old(const struct gn_tree_target *t, int *out, struct gn_err *err);

#endif
