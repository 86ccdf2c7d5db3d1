/* What a pack has done so far, in a file of its temporary folder, so that one that was killed or stopped can go on.
 *
 * One record for each good image (what it was, and where its row's bytes are), for the order of all images once it is known,
 * and for each shard that is complete. Nothing in it is believed: a record has a checksum, an image is used again only when
 * the bytes at hand, and those in the spool, have the checksums of its record. It belongs to one set of arguments and
 * sources: their digest is its first record. Files of other users are not read.
 *
 * Thread safety: finding and adding may be done from any thread at once; all else from one.
 */
#ifndef GN_DATA_PACK_PACK_JOURNAL_H
#define GN_DATA_PACK_PACK_JOURNAL_H

#include "data/pack/pack_options.h"
#include "data/shard/manifest.h"
#include "data/shard/names.h"

/* One image that is done. */
struct gn_pack_done {
	uint32_t in_crc32c;    /* of the image as found */
	uint64_t in_bytes;
	uint64_t spool_offset; /* or GN_PACK_IN_FILE */
	uint32_t length_bytes; /* as it will be packed */
	uint32_t crc32c;
	uint16_t width, height;
	uint8_t converted, warned;
};

struct gn_pack_journal;

/* Opens folder's journal when it is ours and was written for the same options, classes and sources; *going_on is then 1.
 * Otherwise empties the folder and begins one. Blocks on the file system. */
enum gn_status gn_pack_journal_open(struct gn_pack_journal **out, const char *folder, const struct gn_pack_options *options,
				    const struct gn_names *classes, int *going_on, struct gn_err *err);
/* NULL is fine. The file stays. */
void gn_pack_journal_close(struct gn_pack_journal *j);
/* Removes the file. */
enum gn_status gn_pack_journal_remove(struct gn_pack_journal *j, struct gn_err *err);

/* Borrowed; NULL when the image has no record from an earlier pack. */
const struct gn_pack_done *gn_pack_journal_find(const struct gn_pack_journal *j, uint32_t source, const char *name);
enum gn_status gn_pack_journal_add(struct gn_pack_journal *j, uint32_t source, const char *name,
				   const struct gn_pack_done *done, struct gn_err *err);

/* The second pass begins, with all images in the order that digest (64 hexadecimal digits) stands for: shards of another
 * order are forgotten. */
enum gn_status gn_pack_journal_order(struct gn_pack_journal *j, const char *digest, struct gn_err *err);
/* Borrowed; NULL when the shard is not known to be complete. */
const struct gn_manifest_shard *gn_pack_journal_shard(const struct gn_pack_journal *j, uint32_t index);
/* The shard is complete and synced. */
enum gn_status gn_pack_journal_add_shard(struct gn_pack_journal *j, uint32_t index, const struct gn_manifest_shard *entry,
					 struct gn_err *err);

#endif
