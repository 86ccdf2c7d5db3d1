/* The parts of a pack: output folder, first pass (collect), class list, second pass (write). Private to data/pack/. */
#ifndef GN_DATA_PACK_PACK_PARTS_INTERNAL_H
#define GN_DATA_PACK_PACK_PARTS_INTERNAL_H

#include "data/pack/pack_options.h"
#include "data/pack/source.h"
#include "data/shard/manifest.h"
#include "data/shard/names.h"
#include "src/base/data_key.h"

#include <limits.h>
#include <pthread.h>

/* The temporary output folder. */
struct gn_pack_output {
	char final[PATH_MAX];
	char temporary[PATH_MAX];
	int lock;
	int keep; /* keep the temporary folder at the end */
};

/* Removes everything in the temporary folder except the lock. */
enum gn_status gn_pack_output_sweep(const char *folder, struct gn_err *err);

#define GN_PACK_IN_FILE UINT64_MAX

/* A good image. */
struct gn_pack_item {
	char *name;
	uint64_t spool_offset; /* or GN_PACK_IN_FILE: sources[source]/name */
	uint32_t source;
	uint32_t number; /* in the order of the walk */
	/* during the first pass the id of its folder (gn_pack_levels_note), then the number in set->classes; finally the label */
	uint32_t class_id;
	uint32_t length_bytes;
	uint32_t crc32c;
	uint16_t width, height;
	uint8_t converted, warned, rotated;
	uint8_t held_out; /* with a split: of the dataset that it names */
};

struct gn_pack_journal;

struct gn_pack_set {
	struct gn_pack_item *items;
	size_t count, capacity;
	uint64_t bad, converted, warned, passed, rotated;
	uint64_t data_bytes;
	struct gn_names *classes;      /* in the order found, or of the class file */
	struct gn_names *empty;	       /* classes found as empty folders */
	struct gn_pack_journal *journal;
	uint64_t spool_end;	       /* end of the spool */
	int spool;		       /* file descriptor */
	char spool_path[PATH_MAX];
	int encrypt;
	struct gn_data_key key; /* with encrypt */
};

/* Reads an item's image from spool or file, into a buffer as above, and checks that it is the one of the first pass. */
enum gn_status gn_pack_item_read(const struct gn_pack_set *set, const struct gn_pack_options *options, const struct gn_pack_item *item,
				 void *buffer, struct gn_err *err);

/* GN_ERR_STOPPED after a stop request. */
enum gn_status gn_pack_check_stop(const struct gn_pack_options *options, struct gn_err *err);
/* Reads the class file; opens journal and spool in output's folder, resuming those of an earlier pack if possible. */
enum gn_status gn_pack_set_init(struct gn_pack_set *set, const struct gn_pack_options *options,
				const struct gn_pack_output *output, struct gn_err *err);
void gn_pack_set_release(struct gn_pack_set *set);
/* Determines, per source, which level of folders holds the classes: known after the source has been walked. One thread at a
 * time. */
struct gn_pack_levels;
enum gn_status gn_pack_levels_create(struct gn_pack_levels **out, const struct gn_pack_options *options, struct gn_err *err);
void gn_pack_levels_destroy(struct gn_pack_levels *l);
/* Notes a file or an empty folder of source; *id is the number of its folder. GN_ERR_DATA when the class file has neither name. */
enum gn_status gn_pack_levels_note(struct gn_pack_levels *l, const struct gn_pack_set *set, uint32_t source, const char *name,
				   const struct gn_source_levels *levels, int empty, uint32_t *id, struct gn_err *err);
/* After the walk: fills set->classes and set->empty, and sets the class of every item. GN_ERR_DATA for an archive that contains
 * splits (train, val). */
enum gn_status gn_pack_levels_resolve(const struct gn_pack_levels *l, struct gn_pack_set *set, struct gn_err *err);

/* The first pass. */
enum gn_status gn_pack_collect(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err);
/* Converts class numbers to labels, checks for empty classes, sorts and shuffles the items. */
enum gn_status gn_pack_arrange(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err);
/* A dataset of the output: items first .. first + count - 1, in folder. */
struct gn_pack_part {
	char folder[PATH_MAX];
	uint64_t first, count;
	uint32_t first_shard; /* number of its first shard in the journal */
};

/* After gn_pack_arrange(): notes the order of all items in the journal, so that shards of another order are forgotten. */
enum gn_status gn_pack_note_order(const struct gn_pack_set *set, struct gn_err *err);
/* The second pass: writes the shards of a part into its folder and describes them in m, which it initialises and the caller releases. */
enum gn_status gn_pack_write(const struct gn_pack_set *set, const struct gn_pack_options *options,
			     const struct gn_pack_part *part, struct gn_manifest *m, struct gn_err *err);

#endif
