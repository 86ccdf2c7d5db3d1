/* A trained network, from a checkpoint or a file of weights, for evaluation and prediction.
 *
 * What the network is and how images become its input come from the checkpoint, or from the metadata of a file that gannet export wrote;
 * options override the latter, with a warning, and say what other files do not.
 */
#ifndef GN_TRAIN_LOOP_NETWORK_H
#define GN_TRAIN_LOOP_NETWORK_H

#include "data/shard/dataset.h"
#include "src/base/log.h"
#include "src/train/checkpoint/checkpoint.h"
#include "src/train/model/model.h"
#include "transport/coll/comm.h"

struct gn_network_options {
	const char *checkpoint;	      /* a folder, or a folder of them */
	const char *weights, *model;  /* instead of a checkpoint: a safetensors file, and the network, NULL: the file's */
	const char *mean, *deviation; /* of weights: NULL is the file's, or as in input.h */
	int64_t side;		      /* 0 is the checkpoint's or the file's, or the network's own */
	int64_t resize_shorter;	      /* -1: the checkpoint's or the file's, or the default of data/sample/augment.h */
	const char *interpolation;     /* "auto" or NULL: the checkpoint's or the file's, or bilinear */
	const char *checkpoint_key;    /* gn_data_key_read(), for encrypted checkpoints; NULL: none */
	int average;		      /* the moving average of the weights instead of the weights */
};

struct gn_network {
	struct gn_model *model;
	float *params, *buffers; /* host; flat, as gn_plan_create takes them */
};

/* Contradictions between options, GN_ERR_USAGE: one of checkpoint and weights, and what belongs to weights alone. */
enum gn_status gn_network_options_check(const struct gn_network_options *options, struct gn_err *err);
/* Collective; rank 0 reads. folder (PATH_MAX) gets the checkpoint that was taken, on rank 0; with weights it stays as it is. err is
 * required. */
enum gn_status gn_network_find(const struct gn_network_options *options, struct gn_comm *comm, struct gn_log *log, char *folder,
			       struct gn_checkpoint_info *out, struct gn_err *err);
/* Local. The network that was found, with room for its parameters. On failure *out is unchanged. */
enum gn_status gn_network_create(const struct gn_checkpoint_info *info, struct gn_network *out, struct gn_err *err);
void gn_network_release(struct gn_network *n);
/* Describes the first class name that differs between the dataset and the network, whose names are a JSON array: "; class 1 is 'a' here
 * and 'b' there". out is "" where none does. */
void gn_network_classes_differ(const struct gn_dataset *data, const char *names, char *out, size_t size);
/* Collective: fills in the parameters, which rank 0 reads. */
enum gn_status gn_network_load(const struct gn_network_options *options, const char *folder, struct gn_checkpoint_info *info,
			       const struct gn_network *n, struct gn_comm *comm, struct gn_log *log, struct gn_err *err);
/* On rank 0: the class names as a JSON array, which the caller frees; NULL where a file does not have them. */
enum gn_status gn_network_class_names(const struct gn_network_options *options, const char *folder, char **names, struct gn_err *err);

#endif
