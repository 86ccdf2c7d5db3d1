/* What samples look like, and which of them a rank gets: for the loader and for what makes a single sample.
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

struct gn_loader_options {
	uint64_t seed;
	uint32_t rank, ranks;
	uint32_t batch;		/* samples per rank */
	uint32_t channels;	/* 1 (grey) or 3 (RGB) */
	uint32_t height, width; /* of the images delivered */
	enum gn_augment augment;
	uint32_t resize_shorter;     /* all but random crops: the shorter side before the centre crop; 0: what
				      * data/sample/augment.h says, 8/7 of height for evaluation from 64 on */
	uint32_t pad;		     /* for shifts, in pixels on each side; less than height and width */
	float mean[3], deviation[3]; /* of pixel values in 0..1, per channel */
	int crops;		     /* instead of samples what a GPU makes them of; training, three channels, no mixup */
	double mixup;		     /* 0: none; else alpha of Beta(alpha, alpha), data/sample/mixup.h */
	int training;		     /* permuted, incomplete last batch dropped, JPEG files decoded at a scale where that is
				      * enough; or evaluation: of all pixels */
	int threads;		     /* worker threads, >= 1 */
	size_t prefetch_bytes;	     /* memory for batches in flight; at least three batches are kept whatever it says.
				      * Each thread has room for one decoded image on top, and one sample with crops. */
	/* Who wants to know when a thread (0 ..) made samples ready: times of gn_clock_ns. Called by that thread. NULL: nobody. */
	void (*profiler)(void *context, int thread, uint32_t samples, uint64_t began_ns, uint64_t ended_ns);
	void *profiler_context;
};

/* Room for one sample as it is delivered: its floats, or the pixels of its crop. */
size_t gn_loader_sample_bytes(const struct gn_loader_options *options);

/* Everything about options that needs no dataset, GN_ERR_USAGE: channels, sides, padding, mean, deviation, threads. */
enum gn_status gn_loader_options_check(const struct gn_loader_options *options, struct gn_err *err);

#endif
