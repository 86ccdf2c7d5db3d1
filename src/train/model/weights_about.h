/* The network described in the metadata of a file written by gannet export: its name, and the preprocessing of images.
 *
 * The file may come from anywhere: an unknown network name, and a "preprocessing" that is not a JSON object, count as absent; a
 * JSON object with an invalid value is GN_ERR_DATA, naming it.
 */
#ifndef GN_TRAIN_MODEL_WEIGHTS_ABOUT_H
#define GN_TRAIN_MODEL_WEIGHTS_ABOUT_H

#include "src/base/status.h"

#include <stdint.h>

struct gn_weights_about {
	char model[32];		     /* "": absent */
	int64_t side;		     /* 0: absent */
	int exif_rotate;	     /* images are turned as their EXIF orientation says; -1: absent */
	int64_t resize_shorter;	     /* 0: images of nearly that side are not resized; -1: absent */
	int is_bicubic;		     /* else bilinear; -1: absent */
	int channels;		     /* of mean and deviation, 1 or 3; 0: absent */
	double mean[3], deviation[3]; /* a single channel is stored three times */
	/* gn_input_classes_digest() of the class names; "" without them, or if they had bytes that JSON cannot hold (U+FFFD) */
	char classes_digest[65];
};

/* err is required. */
enum gn_status gn_weights_about(const char *path, struct gn_weights_about *out, struct gn_err *err);

#endif
