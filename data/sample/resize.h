/* Box to sample: antialiased bilinear resize, normalisation and mirroring in one go, 8-bit pixels to float planes.
 *
 * The filter is a triangle as wide as the step between samples when scaling down (and two pixels wide when scaling up),
 * with weights renormalised at the borders: what Pillow and torchvision's antialias=True compute, without their
 * rounding to 8 bits in between. At scale 1 it copies.
 *
 * Lifecycle: create, run for image after image, destroy. Thread safety: one thread per resizer. Results depend on
 * nothing but the arguments.
 */
#ifndef GN_DATA_SAMPLE_RESIZE_H
#define GN_DATA_SAMPLE_RESIZE_H

#include "data/sample/decode.h"

struct gn_resizer;

struct gn_resize_target {
	float *data; /* [channels][height][width] */
	uint32_t height, width;
	uint32_t to_x, to_y, to_width, to_height; /* the rectangle to fill; the rest is not touched */
	int flip;				  /* mirrors the whole sample, the rectangle's place included */
	float scale[3], bias[3];		  /* per channel: value = pixel * scale + bias */
};

enum gn_status gn_resizer_create(struct gn_resizer **out, struct gn_err *err);
void gn_resizer_destroy(struct gn_resizer *r);
/* From now on without the vectors that this processor has: slower, and the same bits. */
void gn_resizer_be_plain(struct gn_resizer *r);
/* The box at (x, y), in src's pixels and possibly fractional, of src onto the target's rectangle. src needs 16 readable
 * bytes after its last pixel. GN_ERR_NO_MEMORY is the only failure. */
enum gn_status gn_resizer_run(struct gn_resizer *r, const struct gn_pixels *src, double x, double y, double width,
			      double height, const struct gn_resize_target *target, struct gn_err *err);
/* How far from its centre the filter reaches, in source pixels, when length source pixels become count. */
double gn_resize_reach(double length, uint32_t count);

#endif
