/* What augmentation costs: processor time for one image, for gannet bench decode. Blocks for about a second. */
#ifndef GN_CMD_BENCH_AUGMENT_H
#define GN_CMD_BENCH_AUGMENT_H

#include "data/sample/image_op.h"
#include "src/base/status.h"

enum { GN_BENCH_AUGMENT_ROWS = 6 + GN_OP_COUNT - 1 };

struct gn_bench_augment_row {
	const char *name; /* static */
	double image_us;
};

/* Images of side x side pixels and three channels. Policies and the like first, then single operations. */
enum gn_status gn_bench_augment(uint32_t side, struct gn_bench_augment_row rows[GN_BENCH_AUGMENT_ROWS], struct gn_err *err);

#endif
