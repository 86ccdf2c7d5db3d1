/* The interface between kernels/op.c and the backends. Private to kernels/. */
#ifndef GN_KERNELS_BACKEND_H
#define GN_KERNELS_BACKEND_H

#include "kernels/compute.h"

struct gn_op_class {
	enum gn_status (*bind)(struct gn_op *op, struct gn_err *err); /* NULL: only copies the buffers */
	enum gn_status (*freeze)(struct gn_op *op, struct gn_err *err); /* NULL: no effect */
	enum gn_status (*forward)(struct gn_op *op, uint64_t step, struct gn_err *err);
	enum gn_status (*forward_rest)(struct gn_op *op, struct gn_err *err); /* NULL, as backward_rest: info.sum_count is 0 */
	enum gn_status (*recompute)(struct gn_op *op, struct gn_err *err); /* NULL: info.recomputes is 0 */
	enum gn_status (*backward)(struct gn_op *op, struct gn_err *err);
	enum gn_status (*backward_rest)(struct gn_op *op, struct gn_err *err);
	void (*destroy)(struct gn_op *op); /* NULL: free() suffices */
	int (*engines)(const struct gn_op *op, struct gn_op_engine *out); /* NULL: none */
};

/* First member of every operator's struct. */
struct gn_op {
	const struct gn_op_class *class;
	struct gn_op_desc desc;
	struct gn_op_info
		info; /* set by gn_op_create() to plain inputs and the shape of the output; a backend may change the layouts */
	struct gn_op_buffers buffers;
	double *sums; /* set by bind */
};

struct gn_op_device {
	/* see gn_ref_op_create() */
	enum gn_status (*create)(struct gn_op_device *d, const struct gn_op *base, struct gn_op **out, struct gn_err *err);
	/* see gn_op_device_begin() and gn_op_device_end() */
	void (*begin)(struct gn_op_device *d);
	enum gn_status (*end)(struct gn_op_device *d, struct gn_err *err);
};

/* The calls of kernels/compute.h with the same names. */
struct gn_compute_class {
	void (*destroy)(struct gn_compute *c);
	enum gn_status (*set_number)(struct gn_compute *c, uint64_t number, struct gn_err *err); /* NULL: no effect */
	enum gn_status (*load)(struct gn_compute *c, const struct gn_layout *l, const void *from, void *to, struct gn_err *err);
	/* NULL: GN_ERR_UNSUPPORTED */
	enum gn_status (*load_crops)(struct gn_compute *c, const struct gn_layout *l, const float *mean, const float *deviation,
				       const struct gn_crop *from, void *to, struct gn_err *err);
	enum gn_status (*store)(struct gn_compute *c, const struct gn_layout *l, const void *from, float *host, struct gn_err *err);
	enum gn_status (*put)(struct gn_compute *c, void *to, const void *values, size_t bytes, struct gn_err *err);
	enum gn_status (*add_tensor)(struct gn_compute *c, const struct gn_layout *l, const void *from, void *to, struct gn_err *err);
	enum gn_status (*add)(struct gn_compute *c, const float *from, float *to, size_t count, struct gn_err *err);
	enum gn_status (*scale)(struct gn_compute *c, float *x, double factor, size_t count, struct gn_err *err);
	enum gn_status (*loss)(struct gn_compute *c, const struct gn_loss_args *a, struct gn_err *err);
	const struct gn_update_class *update;
};

/* The calls gn_update_... of kernels/compute.h. create leaves class to the caller. */
struct gn_update_class {
	enum gn_status (*create)(struct gn_compute *c, const struct gn_update_options *options, struct gn_update **out, struct gn_err *err);
	void (*destroy)(struct gn_update *u);
	enum gn_status (*set)(struct gn_update *u, const struct gn_optim_update *numbers, double decay, struct gn_err *err);
	enum gn_status (*queue)(struct gn_update *u, struct gn_err *err);
	enum gn_status (*fetch)(struct gn_update *u, struct gn_err *err); /* NULL: no effect */
	void (*result)(const struct gn_update *u, struct gn_update_result *out);
};
extern const struct gn_update_class gn_host_update, gn_cuda_update;

/* The first member of each backend's own. */
struct gn_compute {
	const struct gn_compute_class *class;
	struct gn_stream *stream;
	enum gn_backend backend;
	struct gn_op_device *ops; /* NULL on the host */
};
struct gn_update {
	const struct gn_update_class *class;
};

/* Allocates a zeroed operator of size bytes that starts with struct gn_op, and copies desc and base->info. NULL with err set when
 * out of memory. */
struct gn_op *gn_op_alloc(size_t size, const struct gn_op_class *class, const struct gn_op *base, struct gn_err *err);

/* Per image of a batch, 0 with probability rate, else 1 / (1 - rate): image i takes number i % 4 of Philox block (i / 4; stream, step,
 * seed). 1 outside training. */
void gn_drop_path_factors(const struct gn_op_desc *d, uint64_t step, float *factors);

struct gn_weight_shape gn_conv_weight_shape(const struct gn_op_desc *d);

/* Per backend: creates the operator with the desc and shapes of base. */
enum gn_status gn_ref_op_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_host_op_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
/* Of both; on GPUs GN_ERR_UNSUPPORTED. */
enum gn_status gn_conjugate_create(enum gn_backend backend, const struct gn_op *base, struct gn_op **out, struct gn_err *err);

int gn_host_has_bf16(void);
/* Channels in a block of the instructions that oneDNN may use here, for kernels/host/winograd.h; 0: this processor has none. */
int gn_host_winograd_lanes(void);

/* Labels and pair labels are in range; counted: number of labels >= 0. */
double gn_ref_softmax_cross_entropy(int batch, int classes, const double *logits, const struct gn_targets *targets,
				    int counted, double smoothing, double *dlogits);
double gn_host_softmax_cross_entropy(int batch, int classes, const float *logits, const struct gn_targets *targets,
				     int counted, double smoothing, float *dlogits);

#endif
