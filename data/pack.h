/* Packs images into a dataset: shards and manifest, in one folder that appears under its name when all of it is there.
 *
 * Two passes. The first walks the sources, decodes every image to its end, and remembers for each a row (name, class,
 * length, checksum, size); images out of archives and PNG files turned into JPEG go into one spool file, because a
 * compressed archive cannot be read in another order. The second pass shuffles the rows by the seed and writes shard
 * after shard, reading images back from the spool or from their files. So memory holds rows and a bounded number of
 * images, never the dataset, and for archives the target needs twice the space while it works.
 *
 * The same images and seed give the same bytes at any number of threads: rows are sorted before they are shuffled.
 * Everything is written in OUT.tmp-pack next to OUT and renamed at the end; what a killed pack left there is removed by
 * the next one. Blocks; one pack at a time in a process (HDF5).
 */
#ifndef GN_DATA_PACK_H
#define GN_DATA_PACK_H

#include "src/base/log.h"
#include "src/base/progress.h"
#include "src/base/status.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

struct gn_pack_options {
	const char *out;	     /* folder to make; may be there when empty */
	const char *const *sources;  /* folders and archives; classes of the same name merge */
	size_t source_count;
	const char *classes_file;    /* one class a line, line number = label; NULL: the names found, sorted by bytes */
	uint64_t synthetic_count;    /* > 0: made-up images instead of sources */
	uint32_t synthetic_classes, synthetic_height, synthetic_width;
	uint64_t shard_bytes;	     /* of image data in a shard, > 0; a shard has at least one image */
	uint64_t seed;		     /* of the shuffle and of made-up images, <= INT64_MAX */
	int threads;		     /* >= 1 */
	int skip_bad;		     /* leave bad images out instead of failing */
	int refuse_png;		     /* PNG counts as bad instead of being converted */
	int quality;		     /* of converted and made-up images, 1..100 */
	struct gn_log *log;	     /* gets a line for each bad image; may be NULL */
	struct gn_progress *progress; /* ours while we work */
	const volatile sig_atomic_t *stop; /* non-zero: give up at the next image; may be NULL */
};

struct gn_pack_result {
	uint64_t samples, skipped, data_bytes;
	uint32_t classes, shards;
};

/* Errors: GN_ERR_DATA for bad images (after logging up to 100 of them), empty or unknown classes; GN_ERR_EXISTS when out
 * holds something; GN_ERR_STOPPED; GN_ERR_NO_SPACE, GN_ERR_IO. On failure nothing is left under out or next to it. */
enum gn_status gn_pack(const struct gn_pack_options *options, struct gn_pack_result *out, struct gn_err *err);

#endif
