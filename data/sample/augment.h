/* Crop parameters: the part of an image that becomes a part of a sample, drawn as a pure function of (seed, epoch, index).
 *
 * They are geometry only: a box in the image, the rectangle of the sample that it fills, and whether the sample is mirrored. The
 * rest of the sample is black. decode.h and resize.h compute the pixels.
 *
 * Random resized crop is torchvision's RandomResizedCrop(scale=(0.08, 1), ratio=(3/4, 4/3)): ten tries, then the largest centre
 * crop within the ratio; small images are scaled up. The other modes first resize the image as torchvision's Resize does: its
 * shorter side becomes resize_shorter. If that is 0, evaluation and samples of 64 pixels and more use 8/7 of the sample's longer
 * side (256 for 224) for every image. Smaller samples and shifts use it only for images whose shorter side is larger than that or
 * smaller than 3/4 of the sample; images in between are not resized. Then the centre is cropped as by torchvision's CenterCrop,
 * with a black border around smaller images: digits of 28x28 are centred, unscaled, in 32x32. Shifting moves that window by up to
 * `pad` pixels in each direction: torchvision's RandomCrop(size, padding=pad).
 *
 * Thread safety: pure functions.
 */
#ifndef GN_DATA_SAMPLE_AUGMENT_H
#define GN_DATA_SAMPLE_AUGMENT_H

#include "data/sample/decode.h"
#include "data/sample/options.h"

struct gn_crop_params {
	double x, y, width, height;		  /* the box, in pixels of the image */
	/* pixels that may influence the result: a filter at the edge of the box may read beyond the box, but not beyond these */
	struct gn_region bounds;
	uint32_t to_x, to_y, to_width, to_height; /* the rectangle of the sample, before mirroring; may be empty */
	int flip;				  /* mirrored left to right */
	enum gn_interpolation interpolation;
};

/* Uses o's seed, height, width, augment, resize_shorter, interpolation and pad. width and height are those of the image, at least 1. */
void gn_crop_params_draw(const struct gn_loader_options *o, uint32_t epoch, uint64_t index, uint32_t width, uint32_t height,
		  struct gn_crop_params *out);
/* The length that o resizes the shorter side of every image to; 0: it depends on the image, or crops are random. */
uint32_t gn_crop_resize(const struct gn_loader_options *o);
/* The same of an evaluation's images, side by side. */
uint32_t gn_crop_resize_evaluation(int64_t side, int64_t resize_shorter);
/* Decoding parameters for a non-empty rectangle: the largest denominator up to most (1, 2, 4 or 8) at which the box is still at
 * least as large as its rectangle, and the region of the scaled image that the filter can read. */
void gn_crop_params_decoding(const struct gn_crop_params *v, uint32_t most, uint32_t *denominator, struct gn_region *out);

#endif
