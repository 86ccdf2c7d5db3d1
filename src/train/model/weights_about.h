/* What the metadata of a file that gannet export wrote says of its network: the name, and how images become its input.
 *
 * The file may come from anywhere: a name that is none of the known networks, and a "preprocessing" that is no JSON object, count
 * as not said; a JSON object with a value that makes no sense is GN_ERR_DATA, which names it.
 */
#ifndef GN_TRAIN_MODEL_WEIGHTS_ABOUT_H
#define GN_TRAIN_MODEL_WEIGHTS_ABOUT_H

#include "src/base/status.h"

#include <stdint.h>

struct gn_weights_about {
	char model[32];		     /* "": not said */
	int64_t side;		     /* 0: not said */
	int64_t resize_shorter;	     /* 0: images near the side keep their size; -1: not said */
	int channels;		     /* of mean and deviation, 1 or 3; 0: not said */
	double mean[3], deviation[3]; /* of one channel: three times the same */
};

/* err is required. */
enum gn_status gn_weights_about(const char *path, struct gn_weights_about *out, struct gn_err *err);

#endif
