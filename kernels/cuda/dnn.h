/* Convolutions by cuDNN 9 through its graph API (backend descriptors): one plan per shape and pass, created once, owned by the
 * gn_dnn, and shared by all callers.
 *
 * Tensors are NHWC and weights OHWI, in one type; sums are accumulated in float. For every plan cuDNN lists engines, best first.
 * Engines that break a rule (tensor cores for f32 without tf32, run-to-run variation with `deterministic`) or exceed the workspace
 * limit are skipped. The first remaining engine is used; with options.tune up to 24, at most 8 configurations of one engine, become
 * candidates, of which gn_dnn_tune() keeps the fastest. Some engines are compiled when planned, which takes a processor a second:
 * at most one per plan. The chosen plan is also kept in a folder, or in the
 * process's memory, from which it is restored in milliseconds. Shapes and fusions
 * without an engine are GN_ERR_UNSUPPORTED: the caller uses another operator. cuDNN is loaded at first use, so that a build with
 * CUDA also runs where cuDNN is not installed, and reports it. Every error names the call, the shape and the device.
 *
 * Thread safety: as the stream's.
 */
#ifndef GN_KERNELS_CUDA_DNN_H
#define GN_KERNELS_CUDA_DNN_H

#ifdef __cplusplus
extern "C" {
#endif

#include "src/device/cuda.h"
#include "kernels/cuda/type.h"
#include "kernels/op.h"

struct gn_dnn;
struct gn_dnn_plan;

struct gn_dnn_options {
	int tf32;	   /* multiply f32 with 10 bits of mantissa on tensor cores */
	int deterministic; /* bitwise reproducible results on one kind of device */
	size_t workspace_limit_bytes;
	int tune; /* create candidates for gn_dnn_tune() */
	/* Folder in which plans persist between processes; created if missing; NULL: none. A folder or file that does not belong to
	 * the user or that others may write is ignored. Several processes may use it concurrently. Without a usable folder, plans are
	 * kept in memory, for the same device and options in this process. */
	const char *folder;
};

/* Creates it on a stream, which must outlive it. GN_ERR_NOT_FOUND without cuDNN. */
enum gn_status gn_dnn_create(struct gn_cuda_stream *s, const struct gn_dnn_options *options, struct gn_dnn **out,
			     struct gn_err *err);
/* For a device that need not be present, described in cuDNN's JSON: plans can be created but not run. */
enum gn_status gn_dnn_create_planner(const char *device_json, const struct gn_dnn_options *options, struct gn_dnn **out,
				     struct gn_err *err);
void gn_dnn_destroy(struct gn_dnn *d);

struct gn_dnn_conv {
	enum gn_cuda_type type;
	int n, c, h, w;		 /* input */
	int out_c, out_h, out_w; /* output */
	int kernel, stride, pad;
	int groups; /* 0: one. weight: [out_c][kernel][kernel][c / groups] */
};

enum gn_dnn_pass {
	GN_DNN_FORWARD,		/* y = conv(x, weight) */
	GN_DNN_BACKWARD_DATA,	/* x (its gradient) from weight and y, the gradient of the output */
	GN_DNN_BACKWARD_WEIGHT, /* weight (its gradient) from x and y */
	GN_DNN_FORWARD_BIAS,	/* y = conv(x, weight) + bias */
	GN_DNN_FORWARD_BIAS_RELU,
	GN_DNN_FORWARD_BIAS_ADD_RELU, /* y = relu(conv(x, weight) + bias + added) */
	GN_DNN_FORWARD_STATISTICS,    /* y = conv(x, weight); per channel of y the sum and the sum of squares */
	/* With relu(x * scale + shift), the output of a batch norm and relu that is not written, in place of x. */
	GN_DNN_NORM_FORWARD,
	GN_DNN_NORM_FORWARD_STATISTICS,
	GN_DNN_NORM_BACKWARD_WEIGHT,
	/* x, the gradient behind that relu: backward data, masked where the normalised z is not positive; per channel its sum, and
	 * the sum of its products with the normalised z. */
	GN_DNN_BACKWARD_DATA_NORM,
	GN_DNN_PASSES
};

/* "forward", "backward data", ... */
const char *gn_dnn_pass_name(enum gn_dnn_pass pass);

/* Device memory aligned to 16 bytes; workspaces to GN_CUDA_ALIGN_BYTES. Tensors that a pass does not use may be NULL. */
struct gn_dnn_data {
	void *x, *weight, *y;
	const void *bias, *added;    /* bias: float[out_c] */
	float *sum, *squares;	     /* [out_c] */
	const void *scale, *shift;   /* [c] in the tensors' type */
	/* Of the preceding batch norm: its input, in x's shape; its parameters and statistics, float [c]. */
	const void *z;
	const float *mean, *inverse, *norm_weight, *norm_bias;
	float *dnorm_weight, *dnorm_bias; /* [c] */
	float *factors; /* [3][gn_dnn_factors_step()]: factors with which cuDNN computes the gradient of z */
};

/* Elements from one of the three arrays of factors to the next: c, rounded up so that each is aligned. */
static inline size_t gn_dnn_factors_step(const struct gn_dnn_conv *conv)
{
	return ((size_t)conv->c + 3) / 4 * 4;
}

/* The plan for that shape and pass, always the same one, borrowed from the dnn. Blocks at first use while cuDNN plans and compiles.
 * A shape without an engine is remembered, too. */
enum gn_status gn_dnn_plan_get(struct gn_dnn *d, const struct gn_dnn_conv *conv, enum gn_dnn_pass pass, struct gn_dnn_plan **out,
			       struct gn_err *err);
/* While on, gn_dnn_plan_get() records plans that do not exist yet and returns GN_OK with NULL. */
void gn_dnn_collect(struct gn_dnn *d, int on);
/* Creates the recorded plans in parallel on all processors; *out: their number. A plan that fails is reported by
 * gn_dnn_plan_get(). */
enum gn_status gn_dnn_plan_noted(struct gn_dnn *d, int *out, struct gn_err *err);

struct gn_dnn_counts {
	int plans;	   /* that were requested */
	int restored;	   /* of these, restored from the folder */
	int compiled;	   /* engines compiled by cuDNN */
	int compiled_most; /* largest number for one plan */
};
struct gn_dnn_counts gn_dnn_counts(const struct gn_dnn *d);

/* Sufficient for every candidate. */
size_t gn_dnn_plan_workspace_bytes(const struct gn_dnn_plan *p);
/* Number of candidate engines; 1 after gn_dnn_tune(). */
int gn_dnn_plan_candidates(const struct gn_dnn_plan *p);
/* cuDNN's index of the engine in use. */
int64_t gn_dnn_plan_engine(const struct gn_dnn_plan *p);
/* With the time that this process, or the one that stored the plan, measured. */
void gn_dnn_plan_describe(const struct gn_dnn_plan *p, struct gn_op_engine *out);
/* Runs the candidates on that memory, blocks, and keeps the fastest for all users of the plan; a plan whose time is known is left as it
 * is. Overwrites outputs. */
enum gn_status gn_dnn_tune(struct gn_dnn_plan *p, const struct gn_dnn_data *data, void *workspace, struct gn_err *err);
/* Enqueues the pass on the stream. */
enum gn_status gn_dnn_run(struct gn_dnn_plan *p, const struct gn_dnn_data *data, void *workspace, struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
