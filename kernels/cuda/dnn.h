/* Convolutions by cuDNN 9, through its graph interface (backend descriptors): one plan for a shape and a pass, made once, kept
 * by the gn_dnn, and run by all who ask for it.
 *
 * Tensors lie channels innermost (NHWC) and weights likewise (OHWI), in one type; sums are kept in float. For every plan
 * cuDNN names engines, best first; those that break a rule (tensor cores for f32 without tf32, results that change from run
 * to run where deterministic is asked) or need more workspace than is allowed are passed over. Of the others the first one
 * is taken; with options.tune up to 24, at most 8 of one engine, become candidates, of which gn_dnn_tune keeps the fastest. Some
 * engines are compiled when they are planned, a second of a processor's each: one for a plan at most is. What was chosen is kept
 * in a folder, too, from which it is restored in milliseconds. Shapes and fusions that no engine takes are
 * GN_ERR_UNSUPPORTED: the caller goes the long way. cuDNN is opened when it is first needed, so that a build with CUDA
 * runs, and says what is missing, where it is not installed. Every error names the call, the shape and the device.
 *
 * Thread safety: as the stream's.
 */
#ifndef GN_KERNELS_CUDA_DNN_H
#define GN_KERNELS_CUDA_DNN_H

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/cuda/device.h"
#include "kernels/cuda/type.h"

struct gn_dnn;
struct gn_dnn_plan;

struct gn_dnn_options {
	int tf32;	   /* f32 may be multiplied with 10 bits of mantissa, by tensor cores */
	int deterministic; /* the same input gives the same bits in every run on one kind of device */
	size_t workspace_limit_bytes;
	int tune; /* plans get candidates for gn_dnn_tune */
	/* Where plans are kept from one process to the next, made when it is not there; NULL: nowhere. One that is not the user's own, or
	 * that others may write, is not used, nor is such a file in it. Many processes may use it at the same time. */
	const char *folder;
};

/* On the stream, which outlives it. Without cuDNN: GN_ERR_NOT_FOUND. */
enum gn_status gn_dnn_create(struct gn_cuda_stream *s, const struct gn_dnn_options *options, struct gn_dnn **out,
			     struct gn_err *err);
/* For a device that need not be here, described as cuDNN does in JSON: plans can be made, and not be run. */
enum gn_status gn_dnn_create_planner(const char *device_json, const struct gn_dnn_options *options, struct gn_dnn **out,
				     struct gn_err *err);
void gn_dnn_destroy(struct gn_dnn *d);

struct gn_dnn_conv {
	enum gn_cuda_type type;
	int n, c, h, w;		 /* input */
	int out_c, out_h, out_w; /* output */
	int kernel, stride, pad;
};

enum gn_dnn_pass {
	GN_DNN_FORWARD,		/* y = conv(x, weight) */
	GN_DNN_BACKWARD_DATA,	/* x, the gradient of the input, from weight and y, the gradient of the output */
	GN_DNN_BACKWARD_WEIGHT, /* weight, its gradient, from x and y */
	GN_DNN_FORWARD_BIAS,	/* y = conv(x, weight) + bias */
	GN_DNN_FORWARD_BIAS_RELU,
	GN_DNN_FORWARD_BIAS_ADD_RELU, /* y = relu(conv(x, weight) + bias + added) */
	GN_DNN_FORWARD_STATISTICS,    /* y = conv(x, weight), and of every channel of y the sum and the sum of squares */
	/* of what a batch norm and a relu made of x, which is not written: relu(x * scale + shift) in the place of x */
	GN_DNN_NORM_FORWARD,
	GN_DNN_NORM_FORWARD_STATISTICS,
	GN_DNN_NORM_BACKWARD_WEIGHT,
	/* x, the gradient behind that relu: backward data where z, normalised, passed it; and of every channel its sum, and the sum
	 * of its products with the normalised z */
	GN_DNN_BACKWARD_DATA_NORM,
	GN_DNN_PASSES
};

/* "forward", "backward data", ... */
const char *gn_dnn_pass_name(enum gn_dnn_pass pass);

/* Memory on the device, aligned to 16 bytes, and workspaces to GN_CUDA_ALIGN_BYTES; what a pass does not name may be NULL. */
struct gn_dnn_data {
	void *x, *weight, *y;
	const void *bias, *added;    /* bias: float[out_c] */
	float *sum, *squares;	     /* [out_c] */
	const void *scale, *shift;   /* [c] of the tensors' type */
	/* of the batch norm before: its input, of x's shape; its weights; float[c] */
	const void *z;
	const float *mean, *inverse, *norm_weight, *norm_bias;
	float *dnorm_weight, *dnorm_bias; /* [c] */
	float *factors;			  /* [3][c]: what cuDNN would make the gradient of z with */
};

/* The plan for that shape and pass: the same one for the same question, borrowed from the dnn. Blocks while cuDNN plans and
 * compiles, when it is asked for first; what no engine takes is remembered, too. */
enum gn_status gn_dnn_plan_get(struct gn_dnn *d, const struct gn_dnn_conv *conv, enum gn_dnn_pass pass, struct gn_dnn_plan **out,
			       struct gn_err *err);
/* While on, gn_dnn_plan_get notes what has not been planned yet, and gives NULL with GN_OK. */
void gn_dnn_collect(struct gn_dnn *d, int on);
/* Plans what was noted, on as many threads as there are processors; *out is how many that were. That one fails is an error of
 * gn_dnn_plan_get. */
enum gn_status gn_dnn_plan_noted(struct gn_dnn *d, int *out, struct gn_err *err);

struct gn_dnn_counts {
	int plans;	   /* that were asked for */
	int restored;	   /* of these from the folder */
	int compiled;	   /* engines that cuDNN compiled */
	int compiled_most; /* of these for one plan */
};
struct gn_dnn_counts gn_dnn_counts(const struct gn_dnn *d);

/* Enough for every candidate. */
size_t gn_dnn_plan_workspace_bytes(const struct gn_dnn_plan *p);
/* How many engines may still be taken; 1 after gn_dnn_tune. */
int gn_dnn_plan_candidates(const struct gn_dnn_plan *p);
/* cuDNN's number of the engine in use. */
int64_t gn_dnn_plan_engine(const struct gn_dnn_plan *p);
/* Runs the candidates on that memory, waits, and keeps the fastest, for all who have the plan. Outputs are overwritten. */
enum gn_status gn_dnn_tune(struct gn_dnn_plan *p, const struct gn_dnn_data *data, void *workspace, struct gn_err *err);
/* Queues. */
enum gn_status gn_dnn_run(struct gn_dnn_plan *p, const struct gn_dnn_data *data, void *workspace, struct gn_err *err);

#ifdef __cplusplus
}
#endif
#endif
