/* An operator as lists of oneDNN primitives. Their memories are named by role and get their addresses when the operator is bound.
 * Private to kernels/host/onednn*.c. */
#ifndef GN_KERNELS_HOST_ONEDNN_INTERNAL_H
#define GN_KERNELS_HOST_ONEDNN_INTERNAL_H

#include "kernels/host/onednn.h"
#include "kernels/host/onednn_compat.h"
#include "kernels/host/weight_pack.h"
#include "kernels/host/winograd.h"

enum gn_dnnl_role {
	GN_ROLE_IN,
	GN_ROLE_OUT,
	GN_ROLE_DOUT,
	GN_ROLE_DIN,
	GN_ROLE_WEIGHT,
	GN_ROLE_BIAS,
	GN_ROLE_DWEIGHT,
	GN_ROLE_DBIAS,
	GN_ROLE_WORKSPACE,
	GN_ROLE_SCRATCH
};

struct gn_dnnl_memory {
	dnnl_memory_t handle;
	enum gn_dnnl_role role;
	size_t offset_bytes;
};

/* A primitive, a convolution by Winograd's filtering, or a packing of weights. */
struct gn_dnnl_step {
	dnnl_primitive_t primitive; /* NULL: one of the others */
	struct gn_winograd winograd; /* of args: source, weights or gradient, result, bias, scratch memory; loops NULL: pack args[0] to args[1] */
	struct gn_weight_pack pack;
	int arg_count;
	dnnl_exec_arg_t args[12];
};

struct gn_dnnl_list {
	struct gn_dnnl_step steps[8];
	int count;
};

struct gn_dnnl_op {
	struct gn_op base;
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_primitive_attr_t attr; /* scratch memory belongs to the operator */
	struct gn_dnnl_memory memories[32];
	int memory_count;
	gn_dnnl_md mds[24]; /* created by gn_dnnl_md_of_layout and the like; borrowed by callers */
	int md_count;
	struct gn_dnnl_list freeze, forward, backward;
	size_t scratch_used; /* scratch bytes of the group of steps that is being built */
};

/* Allocates an operator without steps, whose calls run the lists. */
enum gn_status gn_dnnl_op_alloc(const struct gn_op *base, struct gn_dnnl_op **out, struct gn_err *err);

/* GN_OK, or an error with oneDNN's status. */
enum gn_status gn_dnnl_check(dnnl_status_t s, const char *what, struct gn_err *err);
/* Memory descriptors owned by the operator until it is destroyed. */
enum gn_status gn_dnnl_md_of_layout(struct gn_dnnl_op *op, const struct gn_layout *l, gn_dnnl_md *out, struct gn_err *err);
/* The channel block of a 4-D memory with the logical shape of l; -1 for other layouts. */
int gn_dnnl_block_of_md(const struct gn_layout *l, gn_dnnl_md md);
/* A 4-D weight in layout l. */
enum gn_status gn_dnnl_md_of_weight(struct gn_dnnl_op *op, const dnnl_dims_t shape, struct gn_weight_layout l,
				    gn_dnnl_md *out, struct gn_err *err);
/* The layout of a 4-D weight; plain when gn_weight_layout cannot describe it. */
struct gn_weight_layout gn_dnnl_weight_of_md(const struct gn_weight_shape *s, const dnnl_dims_t shape, gn_dnnl_md md);
/* Lets the primitive choose the layout. */
enum gn_status gn_dnnl_md_any(struct gn_dnnl_op *op, int dims, const dnnl_dims_t shape, dnnl_data_type_t type,
			      gn_dnnl_md *out, struct gn_err *err);
enum gn_status gn_dnnl_md_plain(struct gn_dnnl_op *op, int dims, const dnnl_dims_t shape, gn_dnnl_md *out,
				struct gn_err *err);
/* Whether md describes memory of that shape, type and format. */
int gn_dnnl_md_is(gn_dnnl_md md, int dims, const dnnl_dims_t shape, dnnl_data_type_t type, dnnl_format_tag_t tag);

/* Building. Returns a handle that the operator owns; NULL with err set on failure. */
dnnl_memory_t gn_dnnl_memory(struct gn_dnnl_op *op, enum gn_dnnl_role role, size_t offset_bytes,
			     gn_dnnl_md md, struct gn_err *err);
/* Scratch memory; reused after the group. */
dnnl_memory_t gn_dnnl_scratch(struct gn_dnnl_op *op, gn_dnnl_md md, struct gn_err *err);
/* Starts a group of steps whose scratch memory overlays that of earlier groups. */
void gn_dnnl_group(struct gn_dnnl_op *op);
/* Appends a primitive and adds its scratchpad to the arguments. */
enum gn_status gn_dnnl_append(struct gn_dnnl_op *op, struct gn_dnnl_list *list, const_dnnl_primitive_desc_t pd,
			      const dnnl_exec_arg_t *args, int arg_count, struct gn_err *err);
enum gn_status gn_dnnl_append_weight_pack(struct gn_dnnl_op *op, struct gn_dnnl_list *list, const struct gn_weight_pack *pack,
				   dnnl_memory_t from, dnnl_memory_t to, struct gn_err *err);
/* memories: source, weights or for their gradient dout, result, bias or its gradient (NULL: none). */
enum gn_status gn_dnnl_append_winograd(struct gn_dnnl_op *op, struct gn_dnnl_list *list, const struct gn_winograd *w,
				       const dnnl_memory_t memories[4], struct gn_err *err);
enum gn_status gn_dnnl_append_reorder(struct gn_dnnl_op *op, struct gn_dnnl_list *list, dnnl_memory_t from,
				      dnnl_memory_t to, struct gn_err *err);

#endif
