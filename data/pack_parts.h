/* The parts of a pack: output folder, first pass (collect), class list, second pass (write). Private to data/pack*.c. */
#ifndef GN_DATA_PACK_PARTS_H
#define GN_DATA_PACK_PARTS_H

#include "data/manifest.h"
#include "data/names.h"
#include "data/pack.h"
#include "src/base/pool.h"

#include <limits.h>

/* The folder being made. */
struct gn_pack_output {
	char final[PATH_MAX];
	char temporary[PATH_MAX];
	int lock;
};

/* Refuses an out that holds something or lies in a source; makes and locks the temporary folder, empty. */
enum gn_status gn_pack_output_begin(struct gn_pack_output *o, const struct gn_pack_options *options, struct gn_err *err);
/* Renames it to its final name, synced. */
enum gn_status gn_pack_output_commit(struct gn_pack_output *o, struct gn_err *err);
/* Removes it unless committed; safe to call after either. */
void gn_pack_output_end(struct gn_pack_output *o);

#define GN_PACK_IN_FILE UINT64_MAX

/* One good image. */
struct gn_pack_item {
	char *name;
	uint64_t spool_offset; /* or GN_PACK_IN_FILE: sources[source]/name */
	uint32_t source;
	uint32_t class_id;     /* in the order first met; becomes the label */
	uint32_t length_bytes;
	uint32_t crc32c;
	uint16_t width, height;
};

struct gn_pack_set {
	struct gn_pack_item *items;
	uint64_t count, capacity;
	uint64_t bad;
	uint64_t data_bytes;
	struct gn_names *classes;      /* as met, or as the class file has them */
	struct gn_names *empty;	       /* of classes met as empty folders */
	int spool;		       /* file descriptor */
	char spool_path[PATH_MAX];
};

/* GN_ERR_STOPPED when somebody asked for it. */
enum gn_status gn_pack_check_stop(const struct gn_pack_options *options, struct gn_err *err);
/* Opens the spool in output's folder, reads the class file. */
enum gn_status gn_pack_set_init(struct gn_pack_set *set, const struct gn_pack_options *options,
				const struct gn_pack_output *output, struct gn_err *err);
void gn_pack_set_release(struct gn_pack_set *set);
/* A class's name for the manifest: any byte may stand in a folder's name, but JSON is UTF-8, so other bytes are written
 * \xHH. Writes at most size bytes. */
void gn_pack_class_text(const char *raw, char *out, size_t size);
/* The first pass. */
enum gn_status gn_pack_collect(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err);
/* Turns class numbers into labels, checks for empty classes, sorts and shuffles the items. */
enum gn_status gn_pack_arrange(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err);
/* The second pass: shards into output's folder, described in m (initialised here, the caller's to release). */
enum gn_status gn_pack_write(const struct gn_pack_set *set, const struct gn_pack_options *options,
			     const struct gn_pack_output *output, struct gn_manifest *m, struct gn_err *err);

#endif
