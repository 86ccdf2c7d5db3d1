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

/* Filter of resizing. */
enum gn_interpolation { GN_BILINEAR, GN_BICUBIC };
/* "bilinear" or "bicubic". */
const char *gn_interpolation_name(enum gn_interpolation interpolation);
/* GN_ERR_USAGE for other texts. */
enum gn_status gn_interpolation_parse(const char *text, enum gn_interpolation *out, struct gn_err *err);

enum gn_policy { GN_POLICY_NONE, GN_POLICY_RAND, GN_POLICY_TRIVIAL, GN_POLICY_IMAGENET };
enum { GN_POLICY_BINS = 31 };

/* See data/sample/auto_augment.h. Zeroed: nothing. */
struct gn_auto_augment {
	enum gn_policy policy;
	uint32_t ops, magnitude; /* RandAugment: operations per sample, and the bin of their magnitudes, below GN_POLICY_BINS */
	double jitter[4];	 /* brightness, contrast, saturation, each at least 0, and hue, 0 to 0.5 */
};

/* What a sample is made of: normalised floats, the same rounded to bfloat16, or pixels in 0..255. */
enum gn_sample_type { GN_SAMPLE_F32, GN_SAMPLE_BF16, GN_SAMPLE_U8 };

struct gn_loader_options {
	uint64_t seed;
	uint32_t rank, ranks;
	uint32_t batch;		/* samples per rank */
	uint32_t step_batches;	/* see struct gn_order; 0: each rank takes one */
	uint32_t channels;	/* 1 (grey) or 3 (RGB) */
	uint32_t height, width; /* of the samples */
	enum gn_augment augment;
	/* shorter side before the centre crop, except for random crops; 0: by the rule in data/sample/augment.h (8/7 of height for
	 * evaluation from 64 on) */
	uint32_t resize_shorter;
	enum gn_interpolation interpolation;
	uint32_t pad;		     /* for shifts: pixels on each side; less than height and width */
	float mean[3], deviation[3]; /* of pixel values in 0..1, per channel */
	int crops;		     /* deliver crops for a GPU instead of samples; needs training, three channels, !gn_loader_needs_floats */
	double mixup, cutmix;	     /* 0: none; else alpha of Beta(alpha, alpha), see data/sample/mixup.h */
	struct gn_auto_augment auto_augment;
	double erasing;		     /* probability of gn_random_erase() */
	const struct gn_balance *balance; /* training: see data/sample/order.h; borrowed; NULL: every sample once an epoch */
	/* training: permuted, incomplete last batch dropped, JPEG files decoded at a sufficient scale; else evaluation: all
	 * pixels */
	int training;
	int in_order, keeps_last;    /* training, but not permuted; but with the last batch, as in evaluation */
	enum gn_sample_type type;    /* U8: not with gn_loader_needs_floats() */
	int channels_last;	     /* samples are [height][width][channels] */
	int threads;		     /* worker threads, >= 1 */
	/* memory for batches in flight; at least three batches. Each thread needs room for one decoded image in addition, and for
	 * one sample with crops */
	size_t prefetch_bytes;
	/* Called by worker thread `thread` (from 0) after it has built samples; times of gn_clock_ns(). May be NULL. */
	void (*profiler)(void *context, int thread, uint32_t samples, uint64_t began_ns, uint64_t ended_ns);
	void *profiler_context;
};

/* Whether samples are blended with others: mixup or cutmix. */
int gn_loader_mixes(const struct gn_loader_options *options);
/* Whether samples are changed after normalisation, or blended: they cannot be delivered as crops. */
int gn_loader_needs_floats(const struct gn_loader_options *options);
/* Bytes of one delivered sample: its floats, or the space for the pixels of its crop. */
size_t gn_loader_sample_bytes(const struct gn_loader_options *options);

/* Checks all options that do not depend on a dataset: channels, sides, padding, mean, deviation, threads. GN_ERR_USAGE. */
enum gn_status gn_loader_options_check(const struct gn_loader_options *options, struct gn_err *err);

#endif
