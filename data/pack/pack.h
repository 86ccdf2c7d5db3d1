/* Packs images into a dataset: shards and manifest in one folder that appears under its name only when it is complete.
 *
 * Two passes. The first walks the sources, decodes every image completely, and keeps a row for each (name, class, length, checksum,
 * size). Images from archives and converted images go into a spool file, because a compressed archive cannot be read in another
 * order. The second pass shuffles the rows by the seed and writes the shards, reading images from the spool or from their files.
 * Memory holds rows and a bounded number of images, never the dataset; for archives the target temporarily needs twice the space.
 *
 * The class of an image is its folder of the first level, as in torchvision's ImageFolder. When a whole source lies in one such
 * folder, and in folders inside that, the second level counts. With labels_file folders have no meaning.
 *
 * The same images and seed give the same bytes with any number of threads: rows are sorted before they are shuffled; with a key_file
 * they give other ciphertext each time. Everything is written in OUT.tmp-pack next to OUT and renamed at the end. A pack that is
 * stopped or killed, or that fails because of bad images, leaves it, with a journal (pack_journal.h). The next one with the same
 * options (except skip_bad), classes and sources reads the sources again, but decodes and writes only what is missing, with the same
 * result; with others it starts from the beginning. With a split the folder holds two datasets, data/pack/split.h. Blocks; one pack at
 * a time per process (HDF5).
 */
#ifndef GN_DATA_PACK_PACK_H
#define GN_DATA_PACK_PACK_H

#include "data/pack/pack_options.h"
#include "src/base/status.h"

struct gn_pack_result {
	uint64_t samples, skipped, data_bytes;
	uint64_t converted; /* PNG and CMYK images converted to RGB JPEG, among samples */
	uint64_t warned;    /* images with a harmless libjpeg warning, among samples */
	uint64_t passed;    /* ignored files and folders */
	uint64_t rotated;   /* images with an EXIF orientation, which only exif_rotate applies, among samples */
	uint32_t classes, shards;
	uint64_t split_samples; /* with a split: in the dataset that it names; the rest of samples is in "train" */
	char split_name[64];	/* "": no split */
};

/* Errors: GN_ERR_DATA for bad images (after logging up to 100 of them) and empty or unknown classes; GN_ERR_EXISTS when out is not
 * empty; GN_ERR_STOPPED; GN_ERR_NO_SPACE, GN_ERR_IO. On failure nothing remains under out; OUT.tmp-pack remains after
 * GN_ERR_STOPPED, and after wrong options if it existed before. */
enum gn_status gn_pack(const struct gn_pack_options *options, struct gn_pack_result *out, struct gn_err *err);

#endif
