/* Journal of a pack, in a file of its temporary folder: a pack that was killed or stopped can resume.
 *
 * It has one record for each good image (its identity, and where its bytes are), for the order of all images once it is known, and
 * for each complete shard. Records are validated: each has a checksum, and an image is reused only when its source bytes and its
 * spooled bytes have the checksums of the record. The first record is a digest of arguments (except skip_bad, which changes no
 * image) and sources, to which the journal belongs. Files of other users are not read.
 *
 * Thread safety: any thread may find and add concurrently; the rest from one thread.
 */
#ifndef GN_DATA_PACK_PACK_JOURNAL_H
#define GN_DATA_PACK_PACK_JOURNAL_H

#include "data/pack/pack_options.h"
#include "data/shard/manifest.h"
#include "data/shard/names.h"
#include "src/base/data_key.h"

/* A processed image. */
struct gn_pack_done {
	uint32_t in_crc32c;    /* of the source image */
	uint64_t in_bytes;
	uint64_t spool_offset; /* offset in the spool, or GN_PACK_IN_FILE */
	uint32_t length_bytes; /* as it will be packed */
	uint32_t crc32c;
	uint16_t width, height;
	uint8_t converted, warned;
};

struct gn_pack_journal;

/* Opens the journal in folder if this user owns it and it belongs to the same options, key_id, classes and sources; *going_on is then 1.
 * key_id identifies the key of an encrypted pack, else NULL. Otherwise empties the folder and starts a new journal. Blocks on the file
 * system. */
enum gn_status gn_pack_journal_open(struct gn_pack_journal **out, const char *folder, const struct gn_pack_options *options,
				    const struct gn_data_key *key_id, const struct gn_names *classes, int *going_on, struct gn_err *err);
/* The file remains. NULL is fine. */
void gn_pack_journal_close(struct gn_pack_journal *j);
/* Removes the file. */
enum gn_status gn_pack_journal_remove(struct gn_pack_journal *j, struct gn_err *err);

/* Borrowed; NULL when the image has no record from an earlier pack. */
const struct gn_pack_done *gn_pack_journal_find(const struct gn_pack_journal *j, uint32_t source, const char *name);
enum gn_status gn_pack_journal_add(struct gn_pack_journal *j, uint32_t source, const char *name,
				   const struct gn_pack_done *done, struct gn_err *err);

/* Starts the second pass, with the order of all images identified by digest (64 hexadecimal digits). Shards of another order are
 * forgotten. */
enum gn_status gn_pack_journal_order(struct gn_pack_journal *j, const char *digest, struct gn_err *err);
/* Borrowed; NULL unless the shard is complete. */
const struct gn_manifest_shard *gn_pack_journal_shard(const struct gn_pack_journal *j, uint32_t index);
/* Records a complete and synced shard. */
enum gn_status gn_pack_journal_add_shard(struct gn_pack_journal *j, uint32_t index, const struct gn_manifest_shard *entry,
					 struct gn_err *err);

#endif
