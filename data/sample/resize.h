/* Antialiased bilinear or bicubic resize of a box to a sample, with normalisation and mirroring, from 8-bit pixels to float planes.
 *
 * The filter is a triangle as wide as the distance between samples when scaling down (two pixels wide when scaling up), with
 * weights renormalised at the borders: as Pillow and torchvision's antialias=True, without their rounding to 8 bits. At scale 1 it
 * copies. The bicubic filter is Keys's with a = -0.5, twice as wide; its values may lie outside the range of the pixels.
 *
 * Lifecycle: create, run for each image, destroy. Thread safety: one thread per resizer. Results depend only on the arguments.
 */
#ifndef GN_DATA_SAMPLE_RESIZE_H
#define GN_DATA_SAMPLE_RESIZE_H

#include "data/sample/decode.h"
#include "data/sample/options.h"

struct gn_resizer;

struct gn_resize_target {
	float *data; /* [channels][height][width] */
	uint32_t height, width;
	uint32_t to_x, to_y, to_width, to_height; /* the rectangle to fill; the rest is unchanged */
	int flip;				  /* mirrors the whole sample, including the position of the rectangle */
	enum gn_interpolation interpolation;
	float scale[3], bias[3];		  /* per channel: value = pixel * scale + bias */
};

enum gn_status gn_resizer_create(struct gn_resizer **out, struct gn_err *err);
void gn_resizer_destroy(struct gn_resizer *r);
/* Disables the vector path of this processor: slower, with the same bits. For tests. */
void gn_resizer_be_plain(struct gn_resizer *r);
/* Resizes the box at (x, y) of src, in pixels and possibly fractional, to the target's rectangle. src needs 16 readable bytes after
 * its last pixel. Fails only with GN_ERR_NO_MEMORY. */
enum gn_status gn_resizer_run(struct gn_resizer *r, const struct gn_pixels *src, double x, double y, double width,
			      double height, const struct gn_resize_target *target, struct gn_err *err);
/* Radius of the filter in source pixels when length source pixels become count. */
double gn_resize_reach(double length, uint32_t count, enum gn_interpolation interpolation);

#endif
