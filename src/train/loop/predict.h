/* What a trained network says of images that have no labels: files, folders, archives and packed datasets, over all ranks.
 *
 * All ranks walk the sources (data/pack/pictures.h), which have to be the same for all of them, and each reads and decodes its share:
 * image i belongs to rank i modulo ranks. After every ranks x batch images their logits are gathered and rank 0 passes them on in the
 * order of the sources. So memory does not grow with the number of images, and what is passed on does not depend on the number of ranks.
 * Images are resized, cropped and normalised as in an evaluation; PNG and CMYK images as gannet pack would store them.
 */
#ifndef GN_TRAIN_LOOP_PREDICT_H
#define GN_TRAIN_LOOP_PREDICT_H

#include "src/base/option.h"
#include "src/train/loop/network.h"

struct gn_predict_options {
	struct gn_network_options network;
	const char *device, *precision, *transport;
	int64_t batch, threads, loader_threads;
	struct gn_world_options world;
	int transport_strict;
	int64_t top; /* and the following are the command's */
	const char *npy;
	int json, csv;
	const char *key_file; /* of encrypted datasets, gn_dataset_unlock(); may be NULL */
};

struct gn_prediction {
	const char *name;    /* of the image: SOURCE, or SOURCE/NAME */
	const char *problem; /* why there is no prediction, else NULL */
	const float *logits; /* [classes]; unset with a problem */
};

/* What rank 0 calls: begin once, before the first image, with the class names if the network or a source that is a dataset of as many
 * classes has them (a JSON array, else NULL), then image for each. An error ends the prediction. */
struct gn_predict_sink {
	void *context;
	enum gn_status (*begin)(void *context, int classes, const char *names, struct gn_err *err);
	enum gn_status (*image)(void *context, const struct gn_prediction *p, struct gn_err *err);
};

/* Collective. *images and *bad (on rank 0): how many were seen, and how many of them had a problem. Errors, which all ranks agree on: those
 * of gn_network_find(), of the walk and of the sink, and GN_ERR_MISMATCH for ranks that see other images. err is required. */
enum gn_status gn_predict(const struct gn_predict_options *options, const struct gn_text_list *sources, const struct gn_predict_sink *sink,
			  struct gn_comm *comm, struct gn_log *log, uint64_t *images, uint64_t *bad, struct gn_err *err);

#endif
