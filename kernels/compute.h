/* What a training step computes beside its operators, once for every device: images into a tensor, the loss, sums of gradients, and the
 * update of all parameters.
 *
 * A gn_compute queues its work on one stream (src/device/device.h); on the host it has happened when a call returns. Addresses are of the
 * stream's device unless a comment says host. Sums are made in an order that depends on sizes alone, so that results do not change from
 * run to run on one kind of device.
 *
 * Thread safety: as the stream's; OpenMP threads work inside on the host.
 */
#ifndef GN_KERNELS_COMPUTE_H
#define GN_KERNELS_COMPUTE_H

#include "kernels/loss.h"
#include "kernels/op.h"
#include "kernels/optim.h"
#include "src/base/crop.h"
#include "src/device/device.h"

struct gn_compute;

/* backend: GN_BACKEND_REF or GN_BACKEND_HOST. s is borrowed, as in the next. */
enum gn_status gn_compute_create_host(struct gn_stream *s, enum gn_backend backend, struct gn_compute **out, struct gn_err *err);

struct gn_compute_cuda_options {
	int bf16, fp16, tf32; /* at most one: the numbers between operators */
	int tune;	      /* operators find their fastest engines when they are bound, as kernels/cuda/ops.h says */
	int any_order;	      /* engines of cuDNN whose results may differ from run to run are allowed, too */
	const char *folder;   /* for cuDNN's plans; NULL: none */
};
/* In builds with CUDA. */
enum gn_status gn_compute_create_cuda(struct gn_stream *s, const struct gn_compute_cuda_options *options, struct gn_compute **out,
				      struct gn_err *err);
/* After its operators and updates. NULL is fine. */
void gn_compute_destroy(struct gn_compute *c);
struct gn_stream *gn_compute_stream(const struct gn_compute *c);
/* For gn_op_desc.device; NULL on the host. */
struct gn_op_device *gn_compute_ops(const struct gn_compute *c);

/* Each queues. */

/* The number of the batch, from which masks of dropout follow, of the passes that come; gn_op_forward's step means the same on the
 * host. */
enum gn_status gn_compute_set_number(struct gn_compute *c, uint64_t number, struct gn_err *err);
/* Images, float [n][channels][height][width], into a plain tensor. */
enum gn_status gn_compute_load(struct gn_compute *c, const struct gn_layout *l, const void *from, void *to, struct gn_err *err);
/* Images as crops [n], each cropped, resized and normalised: value = (pixel / 255 - mean) / deviation. GPU: the others are
 * GN_ERR_UNSUPPORTED. */
enum gn_status gn_compute_load_crops(struct gn_compute *c, const struct gn_layout *l, const float *mean, const float *deviation,
				       const struct gn_crop *from, void *to, struct gn_err *err);
/* A plain tensor of floats or doubles to floats in host memory. */
enum gn_status gn_compute_store(struct gn_compute *c, const struct gn_layout *l, const void *from, float *host, struct gn_err *err);
/* Small values of the host, which are read before the call returns. bytes: a multiple of 4, at most 128. */
enum gn_status gn_compute_put(struct gn_compute *c, void *to, const void *values, size_t bytes, struct gn_err *err);
/* to += from, both in layout l. */
enum gn_status gn_compute_add_tensor(struct gn_compute *c, const struct gn_layout *l, const void *from, void *to, struct gn_err *err);
/* to += from. */
enum gn_status gn_compute_add(struct gn_compute *c, const float *from, float *to, size_t count, struct gn_err *err);
/* x *= factor. */
enum gn_status gn_compute_scale(struct gn_compute *c, float *x, double factor, size_t count, struct gn_err *err);

struct gn_loss_args {
	int batch, classes;
	const void *logits;	   /* [batch][classes] of the backend's type */
	struct gn_targets targets; /* [batch] each */
	double smoothing;
	double grad_scale;	   /* factor of dlogits: the loss scale of fp16, else 1 */
	void *dlogits;		   /* not logits */
	float *rows;		   /* GPU: scratch [2 * batch] */
	struct gn_loss *out;
	float *mean;		   /* += share * the loss; NULL: not wanted */
	/* += share * the fraction of counted images whose target has the highest logit, alone or with others; the target of a mixed image is
	 * the label that weighs more. NULL: not wanted */
	float *correct;
	float *mean_weight;	   /* += share * gn_targets_mean_weight; host; NULL: not wanted */
	double share;
};

/* The loss and its gradient, as gn_softmax_cross_entropy_mixed has them. A label that is no class is GN_ERR_DATA on the host; on a GPU it
 * is counted in *out. */
enum gn_status gn_compute_loss(struct gn_compute *c, const struct gn_loss_args *a, struct gn_err *err);

/* --- Updates --- */

/* One update of all parameters of a model, without the host in between: the norm of the gradient, clipping, the rule (kernels/optim.h),
 * moving averages. Where the gradient, or *finite, is not finite, nothing is changed. */
struct gn_update;

struct gn_average {
	float *average;
	const float *values;
	size_t count;
};

/* Ranks that update parts of the same parameters; the first member of what implements it. */
struct gn_update_group {
	/* Collective: values [count], in host memory, become the sums over the ranks, the same bits on all. Blocks. */
	enum gn_status (*sum)(struct gn_update_group *g, double *values, size_t count, struct gn_err *err);
};

/* A tensor of options that is a piece of one. */
struct gn_update_piece {
	size_t tensor;	/* of the model: its norms are of all its pieces */
	int is_copy;	/* another rank has the same piece, and counts it */
	float *average; /* moves with its parameters; NULL: none */
};

struct gn_update_options {
	const struct gn_optim *rule;
	const struct gn_optim_tensor *tensors; /* host, copied; what they point to does not move */
	size_t count;
	const float *grads;  /* of all tensors, [elements], zeros between them */
	size_t elements;
	double clip;	     /* a gradient with a larger norm gets this one; 0: no bound */
	const float *finite; /* one number that has to be finite, too; NULL: none */
	struct gn_average averages[2]; /* count 0: none */
	/* Host: the gradient's norm is that of all ranks of the group, which is borrowed. gn_update_queue is then collective, and blocks. NULL:
	 * of this rank. */
	struct gn_update_group *group;
	/* With a group: tensors are this rank's pieces [count] of tensor_count ones, their norms are of all ranks' pieces, and grads is not
	 * read; copied. NULL: tensors are whole. */
	const struct gn_update_piece *pieces;
	size_t tensor_count;
	struct gn_update_group *pieces_group; /* of the ranks that have pieces of the same tensors, where group has others, too; NULL: group */
};

struct gn_update_result {
	double norm; /* of the gradient times grad_scale, before clipping */
	int skipped; /* nothing was changed */
};

enum gn_status gn_update_create(struct gn_compute *c, const struct gn_update_options *options, struct gn_update **out,
				struct gn_err *err);
/* NULL is fine. */
void gn_update_destroy(struct gn_update *u);
/* Queues the numbers of the next update: average = decay * average + (1 - decay) * values. */
enum gn_status gn_update_set(struct gn_update *u, const struct gn_optim_update *numbers, double decay, struct gn_err *err);
/* Queues the update, by the numbers that were set; the same work each time, for gn_replay_run. */
enum gn_status gn_update_queue(struct gn_update *u, struct gn_err *err);
/* Queues the copy of the result to the host. */
enum gn_status gn_update_fetch(struct gn_update *u, struct gn_err *err);
/* Of the update that was fetched last, when the stream has been waited for. */
void gn_update_result(const struct gn_update *u, struct gn_update_result *out);

#endif
