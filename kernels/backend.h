/* What every backend's operators share. Only kernels/ includes this. */
#ifndef GN_KERNELS_BACKEND_H
#define GN_KERNELS_BACKEND_H

#include "kernels/op.h"

struct gn_op_class {
	enum gn_status (*bind)(struct gn_op *op, struct gn_err *err); /* NULL: nothing beyond the copied buffers */
	enum gn_status (*freeze)(struct gn_op *op, struct gn_err *err); /* NULL: nothing */
	enum gn_status (*forward)(struct gn_op *op, uint64_t step, struct gn_err *err);
	enum gn_status (*recompute)(struct gn_op *op, struct gn_err *err); /* NULL: info.recomputes is 0 */
	enum gn_status (*backward)(struct gn_op *op, struct gn_err *err);
	void (*destroy)(struct gn_op *op); /* NULL: free() is enough */
};

/* First member of every operator's own struct. */
struct gn_op {
	const struct gn_op_class *class;
	struct gn_op_desc desc;
	struct gn_op_info
		info; /* gn_op_create has set plain inputs and the output's shape; a backend changes layouts */
	struct gn_op_buffers buffers;
};

struct gn_op_device {
	/* As gn_ref_op_create. */
	enum gn_status (*create)(struct gn_op_device *d, const struct gn_op *base, struct gn_op **out, struct gn_err *err);
	/* As gn_op_device_begin and gn_op_device_end. */
	void (*begin)(struct gn_op_device *d);
	enum gn_status (*end)(struct gn_op_device *d, struct gn_err *err);
};

/* Zeroed memory for an operator of size bytes that begins with struct gn_op; copies desc and base->info. */
struct gn_op *gn_op_alloc(size_t size, const struct gn_op_class *class, const struct gn_op *base, struct gn_err *err);

struct gn_weight_shape gn_conv_weight_shape(const struct gn_op_desc *d);

/* Per backend: makes the operator whose desc and shapes stand in base. */
enum gn_status gn_ref_op_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);
enum gn_status gn_host_op_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err);

int gn_host_has_bf16(void);

/* kernels/ref/loss.c and kernels/host/loss.c; labels and pair labels are in range and counted of the labels are >= 0. */
double gn_ref_softmax_cross_entropy(int batch, int classes, const double *logits, const struct gn_targets *targets,
				    int counted, double smoothing, double *dlogits);
double gn_host_softmax_cross_entropy(int batch, int classes, const float *logits, const struct gn_targets *targets,
				     int counted, double smoothing, float *dlogits);

#endif
