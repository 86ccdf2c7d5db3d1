#include "kernels/host/onednn_internal.h"
#include "src/base/alloc.h"

#include <oneapi/dnnl/dnnl_debug.h>

static struct gn_dnnl_op *self(struct gn_op *op)
{
	return (struct gn_dnnl_op *)op;
}

enum gn_status gn_dnnl_check(dnnl_status_t s, const char *what, struct gn_err *err)
{
	if (s == dnnl_success)
		return GN_OK;
	if (s == dnnl_out_of_memory)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "oneDNN: no memory for %s", what);
	return gn_err_set(err, GN_ERR_FAILED, "oneDNN: %s: %s", what, dnnl_status2str(s));
}

static dnnl_format_tag_t tag_of_block(int block)
{
	switch (block) {
	case 0:
		return dnnl_nhwc;
	case 4:
		return dnnl_nChw4c;
	case 8:
		return dnnl_nChw8c;
	case 16:
		return dnnl_nChw16c;
	default:
		return dnnl_nchw;
	}
}

int gn_dnnl_md_is(gn_dnnl_md md, int dims, const dnnl_dims_t shape, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
	gn_dnnl_md mine;
	int equal;

	if (gn_dnnl_md_create(&mine, dims, shape, type, tag) != dnnl_success)
		return 0;
	equal = dnnl_memory_desc_equal(mine, md);
	gn_dnnl_md_destroy(mine);
	return equal;
}

/* A memory descriptor that the operator owns. */
static enum gn_status own_md(struct gn_dnnl_op *op, int dims, const dnnl_dims_t shape, dnnl_data_type_t type,
			     dnnl_format_tag_t tag, gn_dnnl_md *out, struct gn_err *err)
{
	enum gn_status s;

	if (op->md_count == (int)(sizeof op->mds / sizeof *op->mds))
		return gn_err_set(err, GN_ERR_FAILED, "an operator has more memory descriptors than supported");
	s = gn_dnnl_check(gn_dnnl_md_create(&op->mds[op->md_count], dims, shape, type, tag), "memory descriptor", err);
	if (!s)
		*out = op->mds[op->md_count++];
	return s;
}

static dnnl_data_type_t type_of_layout(const struct gn_layout *l)
{
	return l->element_bytes == 2 ? dnnl_bf16 : dnnl_f32;
}

enum gn_status gn_dnnl_md_of_layout(struct gn_dnnl_op *op, const struct gn_layout *l, gn_dnnl_md *out, struct gn_err *err)
{
	dnnl_dims_t shape = {l->n, l->c, l->h, l->w};

	return own_md(op, 4, shape, type_of_layout(l), tag_of_block(l->block), out, err);
}

int gn_dnnl_block_of_md(const struct gn_layout *l, gn_dnnl_md md)
{
	static const int blocks[] = {1, 16, 8, 4, 0};
	dnnl_dims_t shape = {l->n, l->c, l->h, l->w};

	for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
		if (gn_dnnl_md_is(md, 4, shape, type_of_layout(l), tag_of_block(blocks[i])))
			return blocks[i];
	return -1;
}

static dnnl_format_tag_t tag_of_weight(struct gn_weight_layout l)
{
	switch (l.order) {
	case GN_WEIGHT_OI_BLOCKS:
		return l.block == 16 ? dnnl_OIhw16i16o : dnnl_OIhw8i8o;
	case GN_WEIGHT_O_BLOCKS:
		return l.block == 16 ? dnnl_Ohwi16o : dnnl_Ohwi8o;
	case GN_WEIGHT_OHWI:
		return dnnl_ohwi;
	case GN_WEIGHT_PLAIN:
	case GN_WEIGHT_ANY:
		break;
	}
	return dnnl_oihw;
}

enum gn_status gn_dnnl_md_of_weight(struct gn_dnnl_op *op, const dnnl_dims_t shape, struct gn_weight_layout l,
				    gn_dnnl_md *out, struct gn_err *err)
{
	if (l.block && l.block != 8 && l.block != 16)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "oneDNN has no weights in blocks of %d", l.block);
	return own_md(op, 4, shape, dnnl_f32, tag_of_weight(l), out, err);
}

struct gn_weight_layout gn_dnnl_weight_of_md(const struct gn_weight_shape *s, const dnnl_dims_t shape, gn_dnnl_md md)
{
	static const struct gn_weight_layout ours[] = {
		{GN_WEIGHT_OI_BLOCKS, 16}, {GN_WEIGHT_O_BLOCKS, 16}, {GN_WEIGHT_OI_BLOCKS, 8}, {GN_WEIGHT_O_BLOCKS, 8}};

	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		if (gn_weight_fits(s, ours[i]) && gn_dnnl_md_is(md, 4, shape, dnnl_f32, tag_of_weight(ours[i])))
			return ours[i];
	return (struct gn_weight_layout){GN_WEIGHT_PLAIN, 0};
}

enum gn_status gn_dnnl_md_any(struct gn_dnnl_op *op, int dims, const dnnl_dims_t shape, dnnl_data_type_t type,
			      gn_dnnl_md *out, struct gn_err *err)
{
	return own_md(op, dims, shape, type, dnnl_format_tag_any, out, err);
}

enum gn_status gn_dnnl_md_plain(struct gn_dnnl_op *op, int dims, const dnnl_dims_t shape, gn_dnnl_md *out,
				struct gn_err *err)
{
	static const dnnl_format_tag_t tags[] = {dnnl_format_tag_undef, dnnl_a, dnnl_ab, dnnl_abc, dnnl_abcd, dnnl_abcde};

	return own_md(op, dims, shape, dnnl_f32, tags[dims], out, err);
}

dnnl_memory_t gn_dnnl_memory(struct gn_dnnl_op *op, enum gn_dnnl_role role, size_t offset_bytes,
			     gn_dnnl_md md, struct gn_err *err)
{
	struct gn_dnnl_memory *m = &op->memories[op->memory_count];

	if (op->memory_count == (int)(sizeof op->memories / sizeof *op->memories)) {
		gn_err_set(err, GN_ERR_FAILED, "an operator has more memories than supported");
		return NULL;
	}
	if (gn_dnnl_check(dnnl_memory_create(&m->handle, md, op->engine, DNNL_MEMORY_NONE), "a memory", err))
		return NULL;
	m->role = role;
	m->offset_bytes = offset_bytes;
	op->memory_count++;
	return m->handle;
}

dnnl_memory_t gn_dnnl_scratch(struct gn_dnnl_op *op, gn_dnnl_md md, struct gn_err *err)
{
	size_t begin = op->scratch_used, size = dnnl_memory_desc_get_size(md);

	op->scratch_used += (size + GN_ALIGN_BYTES - 1) / GN_ALIGN_BYTES * GN_ALIGN_BYTES;
	if (op->scratch_used > op->base.info.scratch_bytes)
		op->base.info.scratch_bytes = op->scratch_used;
	return gn_dnnl_memory(op, GN_ROLE_SCRATCH, begin, md, err);
}

void gn_dnnl_group(struct gn_dnnl_op *op)
{
	op->scratch_used = 0;
}

/* NULL with err set when the list is full. */
static struct gn_dnnl_step *next_step(struct gn_dnnl_list *list, struct gn_err *err)
{
	if (list->count < (int)(sizeof list->steps / sizeof *list->steps))
		return &list->steps[list->count];
	gn_err_set(err, GN_ERR_FAILED, "an operator has more steps than supported");
	return NULL;
}

enum gn_status gn_dnnl_append_weight_pack(struct gn_dnnl_op *op, struct gn_dnnl_list *list, const struct gn_weight_pack *pack,
				   dnnl_memory_t from, dnnl_memory_t to, struct gn_err *err)
{
	struct gn_dnnl_step *step = next_step(list, err);

	(void)op;
	if (!step || !from || !to)
		return err ? err->status : GN_ERR_FAILED;
	*step = (struct gn_dnnl_step){
		.pack = *pack, .arg_count = 2, .args = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
	list->count++;
	return GN_OK;
}

enum gn_status gn_dnnl_append_winograd(struct gn_dnnl_op *op, struct gn_dnnl_list *list, const struct gn_winograd *w,
				       const dnnl_memory_t memories[4], struct gn_err *err)
{
	struct gn_dnnl_step *step = next_step(list, err);
	dnnl_dims_t elements = {(dnnl_dim_t)(w->scratch_bytes / sizeof(float))};
	gn_dnnl_md md;
	enum gn_status s;

	if (!step || !memories[0] || !memories[1] || !memories[2])
		return err ? err->status : GN_ERR_FAILED;
	s = gn_dnnl_md_plain(op, 1, elements, &md, err);
	if (s)
		return s;
	*step = (struct gn_dnnl_step){.winograd = *w, .arg_count = 5};
	for (int i = 0; i < 4; i++)
		step->args[i].memory = memories[i];
	step->args[4].memory = gn_dnnl_scratch(op, md, err);
	if (!step->args[4].memory)
		return err ? err->status : GN_ERR_FAILED;
	list->count++;
	return GN_OK;
}

enum gn_status gn_dnnl_append(struct gn_dnnl_op *op, struct gn_dnnl_list *list, const_dnnl_primitive_desc_t pd,
			      const dnnl_exec_arg_t *args, int arg_count, struct gn_err *err)
{
	gn_dnnl_md pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
	struct gn_dnnl_step *step = next_step(list, err);
	enum gn_status s;

	if (!step)
		return err ? err->status : GN_ERR_FAILED;
	if (arg_count >= (int)(sizeof step->args / sizeof *step->args))
		return gn_err_set(err, GN_ERR_FAILED, "a primitive has more arguments than supported");
	for (int i = 0; i < arg_count; i++) {
		if (!args[i].memory)
			return err ? err->status : GN_ERR_FAILED; /* set by gn_dnnl_memory() */
		step->args[i] = args[i];
	}
	step->arg_count = arg_count;
	if (pad && dnnl_memory_desc_get_size(pad)) {
		dnnl_memory_t m = gn_dnnl_scratch(op, pad, err);

		if (!m)
			return err ? err->status : GN_ERR_FAILED;
		step->args[step->arg_count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, m};
	}
	s = gn_dnnl_check(dnnl_primitive_create(&step->primitive, pd), "a primitive", err);
	if (!s)
		list->count++;
	return s;
}

enum gn_status gn_dnnl_append_reorder(struct gn_dnnl_op *op, struct gn_dnnl_list *list, dnnl_memory_t from,
				      dnnl_memory_t to, struct gn_err *err)
{
	dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
	gn_dnnl_md a, b;
	dnnl_primitive_desc_t pd;
	enum gn_status s;

	if (!from || !to)
		return err ? err->status : GN_ERR_FAILED;
	s = gn_dnnl_check(dnnl_memory_get_memory_desc(from, &a), "a memory", err);
	if (!s)
		s = gn_dnnl_check(dnnl_memory_get_memory_desc(to, &b), "a memory", err);
	if (!s)
		s = gn_dnnl_check(dnnl_reorder_primitive_desc_create(&pd, a, op->engine, b, op->engine, op->attr),
				  "reorder", err);
	if (s)
		return s;
	s = gn_dnnl_append(op, list, pd, args, 2, err);
	dnnl_primitive_desc_destroy(pd);
	return s;
}

/* oneDNN has no const memory objects: operators that only read a buffer drop its const here. */
static char *address_of_role(const struct gn_op_buffers *b, enum gn_dnnl_role role)
{
	switch (role) {
	case GN_ROLE_IN:
		return (char *)(uintptr_t)b->in[0];
	case GN_ROLE_OUT:
		return b->out;
	case GN_ROLE_DOUT:
		return (char *)(uintptr_t)b->dout;
	case GN_ROLE_DIN:
		return b->din[0];
	case GN_ROLE_WEIGHT:
		return (char *)(uintptr_t)b->weight;
	case GN_ROLE_BIAS:
		return (char *)(uintptr_t)b->bias;
	case GN_ROLE_DWEIGHT:
		return (char *)b->dweight;
	case GN_ROLE_DBIAS:
		return (char *)b->dbias;
	case GN_ROLE_WORKSPACE:
		return b->workspace;
	case GN_ROLE_SCRATCH:
		return b->scratch;
	}
	return NULL;
}

static enum gn_status bind(struct gn_op *base, struct gn_err *err)
{
	struct gn_dnnl_op *op = self(base);
	enum gn_status s = GN_OK;

	for (int i = 0; !s && i < op->memory_count; i++) {
		const struct gn_dnnl_memory *m = &op->memories[i];
		char *address = address_of_role(&base->buffers, m->role);

		s = gn_dnnl_check(dnnl_memory_set_data_handle(m->handle, address ? address + m->offset_bytes : NULL),
				  "set memory address", err);
	}
	return s;
}

/* What is no primitive. */
static enum gn_status run_own(const struct gn_dnnl_step *step, struct gn_err *err)
{
	const struct gn_winograd *w = &step->winograd;
	void *at[5] = {NULL};
	enum gn_status s = GN_OK;

	for (int i = 0; i < step->arg_count && !s; i++)
		if (step->args[i].memory)
			s = gn_dnnl_check(dnnl_memory_get_data_handle(step->args[i].memory, &at[i]), "a memory", err);
	if (s)
		return s;
	if (!w->loops)
		gn_weight_pack_run(&step->pack, at[0], at[1]);
	else if (w->pass == GN_WINOGRAD_OF_WEIGHTS)
		gn_winograd_run_weights(w, at[0], at[1], at[2], at[3], at[4]);
	else
		gn_winograd_run(w, at[0], at[1], at[3], at[2], at[4]);
	return GN_OK;
}

static enum gn_status run_list(struct gn_dnnl_op *op, const struct gn_dnnl_list *list, struct gn_err *err)
{
	enum gn_status s = GN_OK;

	for (int i = 0; !s && i < list->count; i++) {
		const struct gn_dnnl_step *step = &list->steps[i];

		s = step->primitive ? gn_dnnl_check(dnnl_primitive_execute(step->primitive, op->stream,
									   step->arg_count, step->args),
						    "execute primitive", err)
				    : run_own(step, err);
	}
	return s ? s : gn_dnnl_check(dnnl_stream_wait(op->stream), "wait for primitive", err);
}

static enum gn_status forward(struct gn_op *base, uint64_t step, struct gn_err *err)
{
	(void)step;
	return run_list(self(base), &self(base)->forward, err);
}

static enum gn_status backward(struct gn_op *base, struct gn_err *err)
{
	return run_list(self(base), &self(base)->backward, err);
}

static void release_list(struct gn_dnnl_list *list)
{
	for (int i = 0; i < list->count; i++)
		if (list->steps[i].primitive)
			dnnl_primitive_destroy(list->steps[i].primitive);
}

static void destroy(struct gn_op *base)
{
	struct gn_dnnl_op *op = self(base);

	release_list(&op->freeze);
	release_list(&op->forward);
	release_list(&op->backward);
	for (int i = 0; i < op->memory_count; i++)
		dnnl_memory_destroy(op->memories[i].handle);
	for (int i = 0; i < op->md_count; i++)
		gn_dnnl_md_destroy(op->mds[i]);
	if (op->attr)
		dnnl_primitive_attr_destroy(op->attr);
	if (op->stream)
		dnnl_stream_destroy(op->stream);
	if (op->engine)
		dnnl_engine_destroy(op->engine);
}

static enum gn_status freeze(struct gn_op *base, struct gn_err *err)
{
	return run_list(self(base), &self(base)->freeze, err);
}

enum gn_status gn_dnnl_op_alloc(const struct gn_op *base, struct gn_dnnl_op **out, struct gn_err *err)
{
	static const struct gn_op_class class = {.bind = bind, .freeze = freeze, .forward = forward, .backward = backward, .destroy = destroy};
	struct gn_dnnl_op *op = (struct gn_dnnl_op *)gn_op_alloc(sizeof *op, &class, base, err);
	enum gn_status s;

	if (!op)
		return GN_ERR_NO_MEMORY;
	s = gn_dnnl_check(dnnl_engine_create(&op->engine, dnnl_cpu, 0), "an engine", err);
	if (!s)
		s = gn_dnnl_check(dnnl_stream_create(&op->stream, op->engine, dnnl_stream_default_flags), "a stream",
				  err);
	if (!s)
		s = gn_dnnl_check(dnnl_primitive_attr_create(&op->attr), "attributes", err);
	if (!s)
		s = gn_dnnl_check(dnnl_primitive_attr_set_scratchpad_mode(op->attr, dnnl_scratchpad_mode_user),
				  "attributes", err);
	if (s) {
		gn_op_destroy(&op->base);
		return s;
	}
	*out = op;
	return GN_OK;
}
