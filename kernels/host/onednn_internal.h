/* An operator as lists of oneDNN primitives over memories that are named by their role and get their address when the
 * operator is bound. Only kernels/host/onednn*.c include this. */
#ifndef GN_KERNELS_HOST_ONEDNN_INTERNAL_H
#define GN_KERNELS_HOST_ONEDNN_INTERNAL_H

#include "kernels/host/onednn.h"
#include "kernels/host/onednn_compat.h"
#include "kernels/host/weight_pack.h"

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

/* A primitive, or weights being turned. */
struct gn_dnnl_step {
	dnnl_primitive_t primitive; /* NULL: pack, from args[0] to args[1] */
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
	dnnl_primitive_attr_t attr; /* scratch memory is ours */
	struct gn_dnnl_memory memories[24];
	int memory_count;
	gn_dnnl_md mds[12]; /* made by gn_dnnl_md_of_layout and the like, which lend them out */
	int md_count;
	struct gn_dnnl_list freeze, forward, backward;
	size_t scratch_used; /* by the group of steps that is being built */
};

/* An operator without steps; class NULL is the usual one that runs its lists. */
enum gn_status gn_dnnl_op_alloc(const struct gn_op *base, const struct gn_op_class *class, struct gn_dnnl_op **out,
				struct gn_err *err);
enum gn_status gn_dnnl_run(struct gn_dnnl_op *op, const struct gn_dnnl_list *list, struct gn_err *err);
/* The usual class's functions, for a class that adds something around them. */
enum gn_status gn_dnnl_bind(struct gn_op *op, struct gn_err *err);
enum gn_status gn_dnnl_forward(struct gn_op *op, uint64_t step, struct gn_err *err);
enum gn_status gn_dnnl_backward(struct gn_op *op, struct gn_err *err);
void gn_dnnl_destroy(struct gn_op *op);

/* GN_OK, or the error with oneDNN's word for it. */
enum gn_status gn_dnnl_check(dnnl_status_t s, const char *what, struct gn_err *err);
/* Memory descriptors that the operator owns, until it is destroyed. */
enum gn_status gn_dnnl_md_of_layout(struct gn_dnnl_op *op, const struct gn_layout *l, gn_dnnl_md *out, struct gn_err *err);
/* The block of a 4-D memory whose logical shape is l's; -1 when it is none of ours. */
int gn_dnnl_block_of_md(const struct gn_layout *l, gn_dnnl_md md);
/* A 4-D weight that lies so. */
enum gn_status gn_dnnl_md_of_weight(struct gn_dnnl_op *op, const dnnl_dims_t shape, struct gn_weight_layout l,
				    gn_dnnl_md *out, struct gn_err *err);
/* The layout of a 4-D weight that fits it; plain when it is none of ours. */
struct gn_weight_layout gn_dnnl_weight_of_md(const struct gn_weight_shape *s, const dnnl_dims_t shape, gn_dnnl_md md);
/* Free choice of layout for the primitive. */
enum gn_status gn_dnnl_md_any(struct gn_dnnl_op *op, int dims, const dnnl_dims_t shape, dnnl_data_type_t type,
			      gn_dnnl_md *out, struct gn_err *err);
enum gn_status gn_dnnl_md_plain(struct gn_dnnl_op *op, int dims, const dnnl_dims_t shape, gn_dnnl_md *out,
				struct gn_err *err);
/* Whether md describes memory of that shape and type in that order. */
int gn_dnnl_md_is(gn_dnnl_md md, int dims, const dnnl_dims_t shape, dnnl_data_type_t type, dnnl_format_tag_t tag);
/* Memory number index of a primitive, as dnnl_primitive_desc_query_md gives it: borrowed from the descriptor. */
gn_dnnl_md gn_dnnl_query(const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index);

/* Building. A memory is returned as a handle that the operator owns; NULL on failure with err set. */
dnnl_memory_t gn_dnnl_memory(struct gn_dnnl_op *op, enum gn_dnnl_role role, size_t offset_bytes,
			     gn_dnnl_md md, struct gn_err *err);
/* Memory in scratch, free again after the group. */
dnnl_memory_t gn_dnnl_scratch(struct gn_dnnl_op *op, gn_dnnl_md md, struct gn_err *err);
/* A new group of steps whose scratch memory overlays that of the groups before. */
void gn_dnnl_group(struct gn_dnnl_op *op);
/* Appends a primitive; adds its scratchpad to the args. */
enum gn_status gn_dnnl_append(struct gn_dnnl_op *op, struct gn_dnnl_list *list, const_dnnl_primitive_desc_t pd,
			      const dnnl_exec_arg_t *args, int arg_count, struct gn_err *err);
enum gn_status gn_dnnl_append_weight_pack(struct gn_dnnl_op *op, struct gn_dnnl_list *list, const struct gn_weight_pack *pack,
				   dnnl_memory_t from, dnnl_memory_t to, struct gn_err *err);
enum gn_status gn_dnnl_append_reorder(struct gn_dnnl_op *op, struct gn_dnnl_list *list, dnnl_memory_t from,
				      dnnl_memory_t to, struct gn_err *err);

#endif
