/* A part of an image on its way to a sample: pixels as they were decoded, and the box of them that is to become the sample's.
 *
 * The loader cuts crops out of images (data/loader/loader.h), and a GPU crops, resizes, mirrors and normalises them
 * (kernels/cuda/kernels.h), with the filter of data/sample/resize.h. Where a sample is not reached by its box it is black.
 */
#ifndef GN_BASE_CROP_H
#define GN_BASE_CROP_H

#include <stddef.h>
#include <stdint.h>

struct gn_crop {
	const uint8_t *pixels;	/* [height][width][3], red, green, blue; in the memory of who reads them; not owned */
	uint32_t width, height; /* 0 with an empty rectangle: all is black */
	double x, y, from_width, from_height;	  /* the box, in pixels of the crop, which it may reach out of */
	uint32_t to_x, to_y, to_width, to_height; /* the sample's rectangle that the box becomes, before mirroring; may be empty */
	int32_t flip;				  /* the whole sample is mirrored left to right */
};

static inline size_t gn_crop_bytes(const struct gn_crop *p)
{
	return (size_t)p->width * p->height * 3;
}

/* Room for a crop of a square sample: an image is halved, up to three times, until its box is less than twice as large as the
 * sample in one direction; boxes are at most a third longer in the other, and filters reach a few pixels out of them. That holds
 * up to 16 times the sample; a larger crop is resized before, and comes as the sample itself. */
static inline size_t gn_crop_room_bytes(uint32_t height, uint32_t width)
{
	return (2 * (size_t)height + 16) * (2 * (size_t)width + 16) * 4;
}

#endif
