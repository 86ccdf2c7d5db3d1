/* The parts of a pack: output folder, first pass (collect), class list, second pass (write). Private to data/pack*.c. */
#ifndef GN_DATA_PACK_PACK_PARTS_INTERNAL_H
#define GN_DATA_PACK_PACK_PARTS_INTERNAL_H

#include "data/pack/pack_options.h"
#include "data/pack/source.h"
#include "data/shard/manifest.h"
#include "data/shard/names.h"
#include "src/base/thread_pool.h"

#include <limits.h>

/* The folder being made. */
struct gn_pack_output {
	char final[PATH_MAX];
	char temporary[PATH_MAX];
	int lock;
	int keep; /* the temporary folder is not removed at the end */
};

/* Refuses an out that holds something or lies in a source; makes and locks the temporary folder, which is kept for now when
 * it was there already. */
enum gn_status gn_pack_output_begin(struct gn_pack_output *o, const struct gn_pack_options *options, struct gn_err *err);
/* Renames it to its final name, synced. */
enum gn_status gn_pack_output_commit(struct gn_pack_output *o, struct gn_err *err);
/* Removes everything in the temporary folder but the lock. */
enum gn_status gn_pack_output_sweep(const char *folder, struct gn_err *err);
/* Removes it unless committed or kept; safe to call after either. */
void gn_pack_output_end(struct gn_pack_output *o);

#define GN_PACK_IN_FILE UINT64_MAX

/* One good image. */
struct gn_pack_item {
	char *name;
	uint64_t spool_offset; /* or GN_PACK_IN_FILE: sources[source]/name */
	uint32_t source;
	uint32_t class_id;     /* while collecting its folder's (gn_pack_levels_note), then in set->classes; becomes the label */
	uint32_t length_bytes;
	uint32_t crc32c;
	uint16_t width, height;
	uint8_t converted, warned, rotated;
};

struct gn_pack_journal;

struct gn_pack_set {
	struct gn_pack_item *items;
	uint64_t count, capacity;
	uint64_t bad, converted, warned, passed, rotated;
	uint64_t data_bytes;
	struct gn_names *classes;      /* as met, or as the class file has them */
	struct gn_names *empty;	       /* of classes met as empty folders */
	struct gn_pack_journal *journal;
	uint64_t spool_end;	       /* where the next bytes go */
	int spool;		       /* file descriptor */
	char spool_path[PATH_MAX];
};

/* GN_ERR_STOPPED when somebody asked for it. */
enum gn_status gn_pack_check_stop(const struct gn_pack_options *options, struct gn_err *err);
/* Reads the class file; opens the journal and the spool in output's folder, those of an earlier pack when it can go on. */
enum gn_status gn_pack_set_init(struct gn_pack_set *set, const struct gn_pack_options *options,
				const struct gn_pack_output *output, struct gn_err *err);
void gn_pack_set_release(struct gn_pack_set *set);
/* A class's name for the manifest: any byte may stand in a folder's name, but JSON is UTF-8, so other bytes are written
 * \xHH. Writes at most size bytes. */
void gn_pack_class_text(const char *raw, char *out, size_t size);
/* Which level of folders the classes are, source by source: known when a source has been walked. One thread at a time. */
struct gn_pack_levels;
enum gn_status gn_pack_levels_create(struct gn_pack_levels **out, const struct gn_pack_options *options, struct gn_err *err);
void gn_pack_levels_destroy(struct gn_pack_levels *l);
/* A file, or an empty folder, of source; *id is its folder's number. GN_ERR_DATA when the class file has neither name. */
enum gn_status gn_pack_levels_note(struct gn_pack_levels *l, const struct gn_pack_set *set, uint32_t source, const char *name,
				   const struct gn_source_levels *levels, int empty, uint32_t *id, struct gn_err *err);
/* After the walk: fills set->classes and set->empty, and gives every item its class in set->classes. GN_ERR_DATA for an
 * archive that holds the parts of a dataset. */
enum gn_status gn_pack_levels_resolve(const struct gn_pack_levels *l, struct gn_pack_set *set, struct gn_err *err);

/* The first pass. */
enum gn_status gn_pack_collect(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err);
/* Turns class numbers into labels, checks for empty classes, sorts and shuffles the items. */
enum gn_status gn_pack_arrange(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err);
/* The second pass: shards into output's folder, described in m (initialised here, the caller's to release). */
enum gn_status gn_pack_write(const struct gn_pack_set *set, const struct gn_pack_options *options,
			     const struct gn_pack_output *output, struct gn_manifest *m, struct gn_err *err);

#endif
