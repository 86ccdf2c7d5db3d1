/* Sources, output and options of a pack. See pack.h. */
#ifndef GN_DATA_PACK_PACK_OPTIONS_H
#define GN_DATA_PACK_PACK_OPTIONS_H

#include "src/base/log.h"
#include "src/base/progress_bar.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

struct gn_pack_options {
	const char *out;	     /* output folder; may exist if empty */
	const char *const *sources;  /* folders and archives; classes of the same name merge */
	size_t source_count;
	/* one class per line, line number = label, or a packed dataset's folder, whose classes are used; NULL: the names found,
	 * sorted by bytes */
	const char *classes_file;
	const char *labels_file;     /* labels file (data/pack/labels.h); NULL: classes by folder */
	uint64_t synthetic_count;    /* > 0: synthetic images instead of sources */
	uint32_t synthetic_classes, synthetic_height, synthetic_width;
	uint64_t shard_bytes;	     /* bytes of image data per shard, > 0; a shard has at least one image */
	uint64_t seed;		     /* of the shuffle and of synthetic images, <= INT64_MAX */
	int threads;		     /* >= 1 */
	int skip_bad;		     /* skip bad images instead of failing */
	int refuse_png;		     /* treat PNG as bad instead of converting it */
	int exif_rotate;	     /* apply the EXIF orientation: such images are turned and encoded again */
	int quality;		     /* of converted and synthetic images, 1..100 */
	const char *split;	     /* "NAME=FRACTION": two datasets, see data/pack/split.h; NULL: one */
	const char *key_file;	     /* encrypt the samples with its key, data/shard/encryption.h; NULL: not encrypted */
	struct gn_log *log;	     /* receives a line per bad image; may be NULL */
	struct gn_progress_bar *progress; /* used exclusively by the pack */
	const volatile sig_atomic_t *stop; /* non-zero: stop at the next image; may be NULL */
};

#endif
