/* Training curves as one SVG picture: loss, accuracy, and where the step's time went. */
#ifndef GN_TRAIN_CURVE_SVG_H
#define GN_TRAIN_CURVE_SVG_H

#include "src/base/strbuf.h"
#include "src/train/curve.h"

/* Appends a whole SVG document; the runs share axes, each has its colour. The time panel shows the first run. */
void gn_curve_svg(const struct gn_curve *curves, size_t count, struct gn_strbuf *out);

#endif
