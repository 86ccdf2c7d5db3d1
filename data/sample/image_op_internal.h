/* The operations of image_op.h that change colours. Private to data/sample/. */
#ifndef GN_DATA_SAMPLE_IMAGE_OP_INTERNAL_H
#define GN_DATA_SAMPLE_IMAGE_OP_INTERNAL_H

#include "data/sample/image_op.h"

/* op: brightness to hue. */
void gn_image_op_recolour(enum gn_image_op op, double magnitude, struct gn_bitmap *b);

#endif
