/* Divides the images of a pack into two datasets, "train" and one of another name: `gannet pack --split val=0.1`.
 *
 * Within each class of n images the round(n * FRACTION) of least key are held out, at least one and at most n - 1 if n > 1; the only image
 * of a class stays in "train". The key of an image is the first 64 bits of SHA-256 of "SEED/NAME", the seed in decimal and the image's name
 * in its source. So the datasets are disjoint and stratified, depend on the seed and on the names alone, and another image in a class
 * moves at most two of its images to the other side. Images of the same bytes under two names may be separated: they are counted in a
 * warning.
 */
#ifndef GN_DATA_PACK_SPLIT_H
#define GN_DATA_PACK_SPLIT_H

#include "data/pack/pack_parts_internal.h"

struct gn_pack_split {
	char name[64];
	double fraction;
};

/* GN_ERR_USAGE unless text is NAME=FRACTION, the name one of a folder other than "train" and the fraction between 0 and 1. */
enum gn_status gn_pack_split_parse(const char *text, struct gn_pack_split *out, struct gn_err *err);
/* Sets held_out of all items, which are sorted by class. GN_ERR_DATA if no class has two images. */
enum gn_status gn_pack_split_mark(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err);
/* The parts to write: one, in output's temporary folder, or with a split two, whose folders inside it are made. Moves the items that are
 * held out behind the others, in the same order. Returns GN_OK and *count parts. */
enum gn_status gn_pack_split_parts(struct gn_pack_set *set, const struct gn_pack_options *options, const struct gn_pack_output *output,
				   struct gn_pack_part parts[2], size_t *count, struct gn_err *err);

#endif
