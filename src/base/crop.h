/* A crop of a decoded image and the box in it that becomes a sample.
 *
 * The loader cuts crops out of images (data/loader/loader.h); a GPU resizes, mirrors and normalises them (kernels/cuda/kernels.h)
 * with the filter of data/sample/resize.h. The part of a sample outside its rectangle is black.
 */
#ifndef GN_BASE_CROP_H
#define GN_BASE_CROP_H

#include <stddef.h>
#include <stdint.h>

struct gn_crop {
	const uint8_t *pixels;	/* [height][width][3], RGB; borrowed; in the memory of the device that reads it */
	uint32_t width, height; /* 0 with an empty rectangle: the whole sample is black */
	double x, y, from_width, from_height;	  /* the box, in pixels of the crop; may extend beyond it */
	/* the rectangle of the sample that the box becomes, before mirroring; may be empty */
	uint32_t to_x, to_y, to_width, to_height;
	int32_t flip;				  /* non-zero: the whole sample is mirrored left to right */
};

static inline size_t gn_crop_bytes(const struct gn_crop *p)
{
	return (size_t)p->width * p->height * 3;
}

/* Bytes reserved for the crop of one sample. The decoder halves an image up to three times, until its box is less than twice the
 * sample in one direction; a box is at most a third longer in the other, and filters read a few pixels beyond it. This holds for
 * boxes of up to 16 times the sample. A larger crop is resized on the host and passed as the finished sample. */
static inline size_t gn_crop_room_bytes(uint32_t height, uint32_t width)
{
	return (2 * (size_t)height + 16) * (2 * (size_t)width + 16) * 4;
}

#endif
