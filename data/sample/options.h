/* Options of samples and of the part of the dataset that a rank loads.
 *
 * Thread safety: pure functions.
 */
#ifndef GN_DATA_SAMPLE_OPTIONS_H
#define GN_DATA_SAMPLE_OPTIONS_H

#include "src/base/crop.h"
#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum gn_augment {
	GN_AUGMENT_NONE,      /* evaluation: resize the shorter side, centre crop */
	GN_AUGMENT_CROP_FLIP, /* random resized crop (area 0.08..1, ratio 3/4..4/3) and horizontal flip: photographs */
	GN_AUGMENT_SHIFT,     /* pad, shift and crop back, without flip: digits */
	GN_AUGMENT_SHIFT_FLIP /* pad, shift, crop and flip: small photographs */
};

struct gn_balance;

struct gn_loader_options {
	uint64_t seed;
	uint32_t rank, ranks;
	uint32_t batch;		/* samples per rank */
	uint32_t channels;	/* 1 (grey) or 3 (RGB) */
	uint32_t height, width; /* of the samples */
	enum gn_augment augment;
	/* shorter side before the centre crop, except for random crops; 0: by the rule in data/sample/augment.h (8/7 of height for
	 * evaluation from 64 on) */
	uint32_t resize_shorter;
	uint32_t pad;		     /* for shifts: pixels on each side; less than height and width */
	float mean[3], deviation[3]; /* of pixel values in 0..1, per channel */
	int crops;		     /* deliver crops for a GPU instead of samples; needs training, three channels, no mixup */
	double mixup;		     /* 0: none; else alpha of Beta(alpha, alpha), see data/sample/mixup.h */
	const struct gn_balance *balance; /* training: see data/sample/balance.h; borrowed; NULL: every sample once an epoch */
	/* training: permuted, incomplete last batch dropped, JPEG files decoded at a sufficient scale; else evaluation: all
	 * pixels */
	int training;
	int threads;		     /* worker threads, >= 1 */
	/* memory for batches in flight; at least three batches. Each thread needs room for one decoded image in addition, and for
	 * one sample with crops */
	size_t prefetch_bytes;
	/* Called by worker thread `thread` (from 0) after it has built samples; times of gn_clock_ns(). May be NULL. */
	void (*profiler)(void *context, int thread, uint32_t samples, uint64_t began_ns, uint64_t ended_ns);
	void *profiler_context;
};

/* Bytes of one delivered sample: its floats, or the space for the pixels of its crop. */
size_t gn_loader_sample_bytes(const struct gn_loader_options *options);

/* Checks all options that do not depend on a dataset: channels, sides, padding, mean, deviation, threads. GN_ERR_USAGE. */
enum gn_status gn_loader_options_check(const struct gn_loader_options *options, struct gn_err *err);

#endif
