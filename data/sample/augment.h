/* Which part of an image becomes which part of a sample, drawn as a pure function of (seed, epoch, index).
 *
 * A view is geometry only: a box in the image, the rectangle of the sample that it fills, and whether it is mirrored.
 * What the box does not fill is black. Making the pixels is left to decode.h and resize.h.
 *
 * Random resized crop is torchvision's RandomResizedCrop(scale=(0.08, 1), ratio=(3/4, 4/3)): ten tries, then the
 * largest centre crop within the ratio; small images are scaled up. The other modes first fit the image to the sample,
 * as torchvision's Resize does: its shorter side becomes resize_shorter. Without one, no augmentation and a sample of 64
 * and more take 8/7 of the sample's longer side (256 for 224) for every image. Smaller samples and shifts take that for an
 * image whose shorter side is above it or below 3/4 of the sample; one in between keeps its pixels. Then the centre is cut
 * as by torchvision's CenterCrop, with black around an image that is smaller: digits of 28x28 lie unscaled in the middle of
 * 32x32. Shifting moves that window by up to `pad` each way, which is torchvision's RandomCrop(size, padding=pad).
 *
 * Thread safety: pure functions.
 */
#ifndef GN_DATA_SAMPLE_AUGMENT_H
#define GN_DATA_SAMPLE_AUGMENT_H

#include "data/sample/decode.h"
#include "data/sample/options.h"

struct gn_crop_params {
	double x, y, width, height;		  /* the box, in pixels of the image */
	struct gn_region bounds;		  /* pixels that may count in the result; a filter at the box's edge may
						   * reach out of the box, not out of these */
	uint32_t to_x, to_y, to_width, to_height; /* what the box becomes, before mirroring; may be empty */
	int flip;				  /* mirrored left to right */
};

/* o's seed, height, width, augment, resize_shorter and pad count. width and height of the image are at least 1. */
void gn_crop_params_draw(const struct gn_loader_options *o, uint32_t epoch, uint64_t index, uint32_t width, uint32_t height,
		  struct gn_crop_params *out);
/* What o makes the shorter side of every image; 0: it depends on the image, or crops are random. */
uint32_t gn_crop_resize(const struct gn_loader_options *o);
/* How to decode for a view that is not empty, of an image of width x height: the largest denominator up to most (1, 2, 4
 * or 8) that leaves the box at least as large as what it becomes, and the region of the image so scaled that its filter
 * can touch. */
void gn_crop_params_decoding(const struct gn_crop_params *v, uint32_t most, uint32_t *denominator, struct gn_region *out);

#endif
