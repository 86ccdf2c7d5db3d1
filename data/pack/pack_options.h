/* What is packed, into what, and how. See pack.h. */
#ifndef GN_DATA_PACK_PACK_OPTIONS_H
#define GN_DATA_PACK_PACK_OPTIONS_H

#include "src/base/log.h"
#include "src/base/progress_bar.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

struct gn_pack_options {
	const char *out;	     /* folder to make; may be there when empty */
	const char *const *sources;  /* folders and archives; classes of the same name merge */
	size_t source_count;
	const char *classes_file;    /* one class a line, line number = label, or a packed dataset's folder, whose classes
				      * are taken; NULL: the names found, sorted by bytes */
	const char *labels_file;     /* an image's class by its name (data/pack/labels.h); NULL: by its folder */
	uint64_t synthetic_count;    /* > 0: made-up images instead of sources */
	uint32_t synthetic_classes, synthetic_height, synthetic_width;
	uint64_t shard_bytes;	     /* of image data in a shard, > 0; a shard has at least one image */
	uint64_t seed;		     /* of the shuffle and of made-up images, <= INT64_MAX */
	int threads;		     /* >= 1 */
	int skip_bad;		     /* leave bad images out instead of failing */
	int refuse_png;		     /* PNG counts as bad instead of being converted */
	int quality;		     /* of converted and made-up images, 1..100 */
	struct gn_log *log;	     /* gets a line for each bad image; may be NULL */
	struct gn_progress_bar *progress; /* ours while we work */
	const volatile sig_atomic_t *stop; /* non-zero: give up at the next image; may be NULL */
};

#endif
