/* Packs images into a dataset: shards and manifest, in one folder that appears under its name when all of it is there.
 *
 * Two passes. The first walks the sources, decodes every image to its end, and remembers for each a row (name, class,
 * length, checksum, size); images out of archives and PNG files turned into JPEG go into one spool file, because a
 * compressed archive cannot be read in another order. The second pass shuffles the rows by the seed and writes shard
 * after shard, reading images back from the spool or from their files. So memory holds rows and a bounded number of
 * images, never the dataset, and for archives the target needs twice the space while it works.
 *
 * The class of an image is the folder of the first level that holds it, as torchvision's ImageFolder has it; when all of a
 * source lies in one such folder, and in folders inside that, it is the folder of the second level. With labels_file folders
 * mean nothing.
 *
 * The same images and seed give the same bytes at any number of threads: rows are sorted before they are shuffled.
 * Everything is written in OUT.tmp-pack next to OUT and renamed at the end. A pack that is stopped or killed leaves it, with
 * a journal (pack_journal.h); the next one with the same options, classes and sources reads the sources again, but decodes
 * and writes only what is not there yet, and gives the same bytes. With any others it starts anew. Blocks; one pack at a time
 * in a process (HDF5).
 */
#ifndef GN_DATA_PACK_PACK_H
#define GN_DATA_PACK_PACK_H

#include "data/pack/pack_options.h"
#include "src/base/status.h"

struct gn_pack_result {
	uint64_t samples, skipped, data_bytes;
	uint64_t converted; /* PNG and CMYK images turned into RGB JPEG, of samples */
	uint64_t warned;    /* images that libjpeg had a harmless warning about, of samples */
	uint64_t passed;    /* files and folders passed over */
	uint64_t rotated;   /* images with an EXIF orientation, which is not applied, of samples */
	uint32_t classes, shards;
};

/* Errors: GN_ERR_DATA for bad images (after logging up to 100 of them), empty or unknown classes; GN_ERR_EXISTS when out
 * holds something; GN_ERR_STOPPED; GN_ERR_NO_SPACE, GN_ERR_IO. On failure nothing is left under out, and next to it only after
 * GN_ERR_STOPPED, or what was there before when the options are wrong. */
enum gn_status gn_pack(const struct gn_pack_options *options, struct gn_pack_result *out, struct gn_err *err);

#endif
