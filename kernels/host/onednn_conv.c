/* Convolution. The forward primitive chooses the layouts of input, output and weights; the weight gradient uses the layout of the
 * weights. The input gradient multiplies by the transpose and needs packed weights, which are written to scratch memory. The same
 * holds for all weights that a primitive needs in another layout or type.
 *
 * By Winograd's filtering (kernels/host/winograd.h) all passes are computed on blocks of channels, and no primitive is needed.
 *
 * With bfloat16 all tensors are bfloat16, and the primitives accumulate in float and round once. Weights, bias and their gradients
 * stay float. */
#include "kernels/host/onednn_internal.h"

#include <string.h>

struct conv {
	struct gn_dnnl_op *op;
	int weight_dims; /* 5 with groups, which come first */
	dnnl_dims_t weight_shape, bias_shape;
	struct gn_dnnl_window window;
	dnnl_data_type_t type;	      /* type of the multiplied tensors */
	gn_dnnl_md in, out;	      /* of that type */
	gn_dnnl_md weight_any;	      /* of that type, in the layout chosen by the primitive */
	gn_dnnl_md weight, bias;      /* float, in the caller's layout */
	int plain;	   /* input and output are not blocked */
	int lanes;	   /* channels in a block, by Winograd's filtering; 0: directly */
	int has_reference; /* a primitive is oneDNN's reference loop, hundreds of times slower */
};

int gn_host_has_bf16(void)
{
	const int bf16 = dnnl_cpu_isa_avx512_core_bf16;

	/* an instruction set includes the bits of all sets that it extends */
	return ((int)dnnl_get_effective_cpu_isa() & bf16) == bf16;
}

/* oneDNN emulates bfloat16 in its AVX-512 primitives, but not on older processors. */
static enum gn_status check_bf16(const struct gn_op_desc *d, struct gn_err *err)
{
	const int core = dnnl_cpu_isa_avx512_core;

	if (!d->bf16 || gn_host_has_bf16())
		return GN_OK;
	if (((int)dnnl_get_effective_cpu_isa() & core) != core)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "this processor has no instructions for bfloat16, and emulating them "
				  "needs "
				  "AVX-512 (f, bw, dq, vl), which it lacks, too: use --precision fp32");
	if (!d->emulate)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "this processor has no instructions for bfloat16 (avx512_bf16, AMX): "
				  "--precision bf16-emulated computes the same in fp32 arithmetic, slower; or use --precision "
				  	"fp32");
	return GN_OK;
}

static int is_low(const struct conv *c)
{
	return c->type != dnnl_f32;
}

static void set_type(struct conv *c)
{
	struct gn_op_info *info = &c->op->base.info;

	c->type = c->op->base.desc.bf16 ? dnnl_bf16 : dnnl_f32;
	info->in[0].element_bytes = info->out.element_bytes = is_low(c) ? sizeof(uint16_t) : sizeof(float);
}

static void set_weight_shape(struct conv *c)
{
	const struct gn_op_desc *d = &c->op->base.desc;
	int groups = d->groups > 1 ? d->groups : 1, at = 0;

	if (groups > 1)
		c->weight_shape[at++] = groups;
	c->weight_shape[at++] = d->channels_out / groups;
	c->weight_shape[at++] = d->in[0].c / groups;
	c->weight_shape[at++] = d->kernel;
	c->weight_shape[at++] = d->kernel;
	c->weight_dims = at;
}

static enum gn_status describe(struct conv *c, struct gn_err *err)
{
	const struct gn_op_desc *d = &c->op->base.desc;
	const struct gn_layout *in = &d->in[0], *out = &c->op->base.info.out;
	dnnl_dims_t in_shape = {in->n, in->c, in->h, in->w}, out_shape = {out->n, out->c, out->h, out->w};
	enum gn_status s;

	c->bias_shape[0] = d->channels_out;
	set_weight_shape(c);
	c->window.stride[0] = c->window.stride[1] = d->stride;
	c->window.pad_begin[0] = c->window.pad_begin[1] = d->pad;
	/* oneDNN needs the padding that is actually read */
	c->window.pad_end[0] = (out->h - 1) * d->stride + d->kernel - in->h - d->pad;
	c->window.pad_end[1] = (out->w - 1) * d->stride + d->kernel - in->w - d->pad;
	set_type(c);
	s = gn_dnnl_md_any(c->op, 4, in_shape, c->type, &c->in, err);
	if (!s)
		s = gn_dnnl_md_any(c->op, 4, out_shape, c->type, &c->out, err);
	if (!s)
		s = gn_dnnl_md_any(c->op, c->weight_dims, c->weight_shape, c->type, &c->weight_any, err);
	return s ? s : gn_dnnl_md_plain(c->op, 1, c->bias_shape, &c->bias, err);
}

/* Post-operations sum and relu; the caller destroys *attr. */
static enum gn_status attributes(const struct conv *c, dnnl_primitive_attr_t *attr, struct gn_err *err)
{
	const struct gn_op_desc *d = &c->op->base.desc;
	dnnl_post_ops_t ops = NULL;
	enum gn_status s = gn_dnnl_check(dnnl_primitive_attr_clone(attr, c->op->attr), "attributes", err);

	if (s || (!d->add && !d->relu))
		return s;
	s = gn_dnnl_check(dnnl_post_ops_create(&ops), "attributes", err);
	if (!s && d->add)
		s = gn_dnnl_check(gn_dnnl_post_sum(ops), "a sum", err);
	if (!s && d->relu)
		s = gn_dnnl_check(gn_dnnl_post_relu(ops), "a relu", err);
	if (!s)
		s = gn_dnnl_check(dnnl_primitive_attr_set_post_ops(*attr, ops), "attributes", err);
	dnnl_post_ops_destroy(ops);
	if (s)
		dnnl_primitive_attr_destroy(*attr);
	return s;
}

static enum gn_status forward_descriptor(struct conv *c, dnnl_primitive_desc_t *out, struct gn_err *err)
{
	const struct gn_op_desc *d = &c->op->base.desc;
	dnnl_primitive_attr_t attr;
	struct gn_dnnl_context context = {c->op->engine, NULL, NULL};
	enum gn_status s = attributes(c, &attr, err);

	if (s)
		return s;
	context.attr = attr;
	s = gn_dnnl_check(gn_dnnl_conv_forward_pd(out, &context, d->training ? dnnl_forward_training : dnnl_forward_inference,
						  c->in, c->weight_any, d->bias ? c->bias : NULL, c->out, &c->window),
			  "convolution", err);
	dnnl_primitive_attr_destroy(attr);
	return s;
}

/* Uses plain layouts where gn_layout cannot describe the primitive's choice. */
static enum gn_status choose_layouts(struct conv *c, dnnl_primitive_desc_t *pd, struct gn_err *err)
{
	struct gn_op_info *info = &c->op->base.info;
	int in = -1, out = -1;
	const int chosen = c->plain || c->lanes;
	enum gn_status s = chosen ? GN_OK : forward_descriptor(c, pd, err);

	if (s)
		return s;
	if (c->lanes)
		in = out = c->lanes;
	if (!chosen) {
		c->in = dnnl_primitive_desc_query_md(*pd, dnnl_query_src_md, 0);
		c->out = dnnl_primitive_desc_query_md(*pd, dnnl_query_dst_md, 0);
		in = gn_dnnl_block_of_md(&info->in[0], c->in);
		out = gn_dnnl_block_of_md(&info->out, c->out);
	}
	info->in[0].block = in < 0 || out < 0 ? 1 : in;
	info->out.block = in < 0 || out < 0 ? 1 : out;
	if (!chosen && in >= 0 && out >= 0)
		return GN_OK;
	dnnl_primitive_desc_destroy(*pd);
	*pd = NULL;
	s = gn_dnnl_md_of_layout(c->op, &info->in[0], &c->in, err);
	if (!s)
		s = gn_dnnl_md_of_layout(c->op, &info->out, &c->out, err);
	return s ? s : forward_descriptor(c, pd, err);
}

/* The layout of the weight gradient, which is float. */
static struct gn_weight_layout blocks_of(const struct gn_weight_shape *s)
{
	static const struct gn_weight_layout likely[] = {{GN_WEIGHT_OI_BLOCKS, 16}, {GN_WEIGHT_O_BLOCKS, 16}};

	for (size_t i = 0; i < sizeof likely / sizeof *likely; i++)
		if (gn_weight_fits(s, likely[i]))
			return likely[i];
	return (struct gn_weight_layout){GN_WEIGHT_PLAIN, 0};
}

static enum gn_status choose_weight(struct conv *c, const_dnnl_primitive_desc_t pd, struct gn_err *err)
{
	struct gn_op_info *info = &c->op->base.info;
	struct gn_weight_shape shape = gn_conv_weight_shape(&c->op->base.desc);

	if (c->op->base.desc.groups > 1) {
		info->weight = (struct gn_weight_layout){GN_WEIGHT_PLAIN, 0};
		return gn_dnnl_md_plain(c->op, c->weight_dims, c->weight_shape, &c->weight, err);
	}
	if (c->op->base.desc.weight.order == GN_WEIGHT_ANY && c->lanes)
		info->weight = (struct gn_weight_layout){GN_WEIGHT_OI_BLOCKS, c->lanes};
	else if (c->op->base.desc.weight.order == GN_WEIGHT_ANY && is_low(c))
		info->weight = blocks_of(&shape);
	else if (c->op->base.desc.weight.order == GN_WEIGHT_ANY)
		info->weight = gn_dnnl_weight_of_md(&shape, c->weight_shape, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0));
	return gn_dnnl_md_of_weight(c->op, c->weight_shape, info->weight, &c->weight, err);
}

/* Whether packing blocks of channels converts the caller's weights to the wanted layout; then *pack describes it. */
static int find_weight_pack(const struct conv *c, gn_dnnl_md wanted, struct gn_weight_pack *pack)
{
	static const struct {
		enum gn_weight_order order;
		int block;
		enum gn_weight_pack_kind kind;
		int in_major;
		dnnl_format_tag_t tag;
	} known[] = {
		{GN_WEIGHT_OI_BLOCKS, 16, GN_WEIGHT_PACK_COLUMNS, 0, dnnl_OIhw16o16i},
		{GN_WEIGHT_OI_BLOCKS, 16, GN_WEIGHT_PACK_COLUMNS, 1, dnnl_IOhw16o16i},
		{GN_WEIGHT_OI_BLOCKS, 8, GN_WEIGHT_PACK_COLUMNS, 0, dnnl_OIhw8o8i},
		{GN_WEIGHT_OI_BLOCKS, 16, GN_WEIGHT_PACK_PAIR_ROWS, 0, dnnl_OIhw8i16o2i},
		{GN_WEIGHT_OI_BLOCKS, 16, GN_WEIGHT_PACK_PAIR_COLUMNS, 0, dnnl_OIhw8o16i2o},
		{GN_WEIGHT_OI_BLOCKS, 16, GN_WEIGHT_PACK_PAIR_COLUMNS, 1, dnnl_IOhw8o16i2o},
		{GN_WEIGHT_O_BLOCKS, 16, GN_WEIGHT_PACK_PAIR_ROWS, 0, dnnl_OhwI16o2i},
	};
	const struct gn_weight_layout l = c->op->base.info.weight;

	for (size_t k = 0; c->op->base.desc.groups <= 1 && k < sizeof known / sizeof *known; k++) {
		dnnl_data_type_t type = known[k].kind == GN_WEIGHT_PACK_COLUMNS ? dnnl_f32 : dnnl_bf16;

		if (known[k].order != l.order || known[k].block != l.block)
			continue;
		*pack = (struct gn_weight_pack){known[k].kind, gn_conv_weight_shape(&c->op->base.desc), l, known[k].in_major};
		if (gn_dnnl_md_is(wanted, 4, c->weight_shape, type, known[k].tag))
			return 1;
	}
	return 0;
}

/* The caller's weights as the primitive needs them: unchanged, or packed by a preceding step; with desc.frozen packed once. */
static dnnl_memory_t weights_for(struct conv *c, struct gn_dnnl_list *list, gn_dnnl_md wanted,
				 struct gn_err *err)
{
	dnnl_memory_t mine = gn_dnnl_memory(c->op, GN_ROLE_WEIGHT, 0, c->weight, err), copy;
	struct gn_weight_pack pack;

	if (!mine || dnnl_memory_desc_equal(wanted, c->weight))
		return mine;
	if (c->op->base.desc.frozen) {
		list = &c->op->freeze;
		c->op->base.info.workspace_bytes = dnnl_memory_desc_get_size(wanted);
		copy = gn_dnnl_memory(c->op, GN_ROLE_WORKSPACE, 0, wanted, err);
	} else {
		copy = gn_dnnl_scratch(c->op, wanted, err);
	}
	if (copy && find_weight_pack(c, wanted, &pack))
		return gn_dnnl_append_weight_pack(c->op, list, &pack, mine, copy, err) ? NULL : copy;
	return copy && !gn_dnnl_append_reorder(c->op, list, mine, copy, err) ? copy : NULL;
}

static int is_reference(const_dnnl_primitive_desc_t pd)
{
	const char *name = NULL;

	return !dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) && name && !strncmp(name, "ref", 3);
}

static void look_for_reference(struct conv *c, const_dnnl_primitive_desc_t pd)
{
	if (is_reference(pd))
		c->has_reference = 1;
}

/* As Winograd's filtering needs them. */
static enum gn_status blocked_weights(struct conv *c, gn_dnnl_md *out, struct gn_err *err)
{
	return gn_dnnl_md_of_weight(c->op, c->weight_shape, (struct gn_weight_layout){GN_WEIGHT_OI_BLOCKS, c->lanes}, out, err);
}

static enum gn_status append_winograd(struct conv *c, struct gn_dnnl_list *list, enum gn_winograd_pass pass, const dnnl_memory_t memories[4],
				      struct gn_err *err)
{
	const struct gn_op_desc *d = &c->op->base.desc;
	struct gn_winograd w = {.loops = gn_winograd_loops(c->lanes), .pass = pass,
				.add = pass == GN_WINOGRAD_FORWARD && d->add, .relu = pass == GN_WINOGRAD_FORWARD && d->relu};

	gn_winograd_init(&w, &d->in[0], d->channels_out);
	return gn_dnnl_append_winograd(c->op, list, &w, memories, err);
}

static enum gn_status winograd_forward(struct conv *c, struct gn_err *err)
{
	gn_dnnl_md weight;
	enum gn_status s = blocked_weights(c, &weight, err);

	return s ? s : append_winograd(c, &c->op->forward, GN_WINOGRAD_FORWARD, (dnnl_memory_t[]){
		gn_dnnl_memory(c->op, GN_ROLE_IN, 0, c->in, err), weights_for(c, &c->op->forward, weight, err),
		gn_dnnl_memory(c->op, GN_ROLE_OUT, 0, c->out, err),
		c->op->base.desc.bias ? gn_dnnl_memory(c->op, GN_ROLE_BIAS, 0, c->bias, err) : NULL}, err);
}

static enum gn_status winograd_backward_data(struct conv *c, struct gn_err *err)
{
	gn_dnnl_md weight;
	enum gn_status s = blocked_weights(c, &weight, err);

	return s ? s : append_winograd(c, &c->op->backward, GN_WINOGRAD_OF_INPUT, (dnnl_memory_t[]){
		gn_dnnl_memory(c->op, GN_ROLE_DOUT, 0, c->out, err), weights_for(c, &c->op->backward, weight, err),
		gn_dnnl_memory(c->op, GN_ROLE_DIN, 0, c->in, err), NULL}, err);
}

static enum gn_status winograd_backward_weight(struct conv *c, struct gn_err *err)
{
	const dnnl_memory_t mine = gn_dnnl_memory(c->op, GN_ROLE_DWEIGHT, 0, c->weight, err);
	dnnl_memory_t theirs = mine;
	gn_dnnl_md weight;
	enum gn_status s = blocked_weights(c, &weight, err);

	if (!s && !dnnl_memory_desc_equal(weight, c->weight))
		theirs = gn_dnnl_scratch(c->op, weight, err);
	if (!s)
		s = append_winograd(c, &c->op->backward, GN_WINOGRAD_OF_WEIGHTS, (dnnl_memory_t[]){
			gn_dnnl_memory(c->op, GN_ROLE_IN, 0, c->in, err), gn_dnnl_memory(c->op, GN_ROLE_DOUT, 0, c->out, err), theirs,
			c->op->base.desc.bias ? gn_dnnl_memory(c->op, GN_ROLE_DBIAS, 0, c->bias, err) : NULL}, err);
	return s || theirs == mine ? s : gn_dnnl_append_reorder(c->op, &c->op->backward, theirs, mine, err);
}

static enum gn_status build_forward(struct conv *c, const_dnnl_primitive_desc_t pd, struct gn_err *err)
{
	struct gn_dnnl_op *op = c->op;

	if (c->lanes)
		return winograd_forward(c, err);
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_SRC, gn_dnnl_memory(op, GN_ROLE_IN, 0, c->in, err)},
		{DNNL_ARG_WEIGHTS, weights_for(c, &op->forward, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0), err)},
		{DNNL_ARG_DST, gn_dnnl_memory(op, GN_ROLE_OUT, 0, c->out, err)},
		{DNNL_ARG_BIAS, op->base.desc.bias ? gn_dnnl_memory(op, GN_ROLE_BIAS, 0, c->bias, err) : NULL},
	};

	look_for_reference(c, pd);
	return gn_dnnl_append(op, &op->forward, pd, args, op->base.desc.bias ? 4 : 3, err);
}

static enum gn_status build_backward_data(struct conv *c, const_dnnl_primitive_desc_t forward, struct gn_err *err)
{
	struct gn_dnnl_op *op = c->op;
	const struct gn_dnnl_context context = {op->engine, op->attr, forward};
	dnnl_primitive_desc_t pd;
	enum gn_status s;

	gn_dnnl_group(op);
	if (c->lanes)
		return winograd_backward_data(c, err);
	s = gn_dnnl_check(gn_dnnl_conv_backward_data_pd(&pd, &context, c->in, c->weight_any, c->out, &c->window),
			  "input gradient of a convolution", err);
	if (s)
		return s;
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_DIFF_DST, gn_dnnl_memory(op, GN_ROLE_DOUT, 0, c->out, err)},
		{DNNL_ARG_WEIGHTS, weights_for(c, &op->backward, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0), err)},
		{DNNL_ARG_DIFF_SRC, gn_dnnl_memory(op, GN_ROLE_DIN, 0, c->in, err)},
	};
	look_for_reference(c, pd);
	s = gn_dnnl_append(op, &op->backward, pd, args, 3, err);
	dnnl_primitive_desc_destroy(pd);
	return s;
}

/* Chooses the primitive of the weight gradient, and the layouts of the input and the output gradient that it reads: those of the
 * forward primitive, or plain float where oneDNN has only its reference loop for them (on AVX2, for channels that are no multiple
 * of 8). */
static enum gn_status weight_gradient(struct conv *c, const_dnnl_primitive_desc_t forward, gn_dnnl_md *in, gn_dnnl_md *out,
				      dnnl_primitive_desc_t *pd, struct gn_err *err)
{
	struct gn_dnnl_op *op = c->op;
	const struct gn_dnnl_context context = {op->engine, op->attr, forward};
	const gn_dnnl_md bias = op->base.desc.bias ? c->bias : NULL;
	struct gn_layout plain_in = op->base.info.in[0], plain_out = op->base.info.out;
	gn_dnnl_md any, other_in, other_out;
	dnnl_primitive_desc_t other;
	int better;
	enum gn_status s = gn_dnnl_md_any(op, c->weight_dims, c->weight_shape, dnnl_f32, &any, err);

	*in = c->in;
	*out = c->out;
	if (!s)
		s = gn_dnnl_check(gn_dnnl_conv_backward_weight_pd(pd, &context, c->in, any, bias, c->out, &c->window),
				  "weight gradient of a convolution", err);
	if (s || !is_reference(*pd) || is_low(c))
		return s;
	plain_in.block = plain_out.block = 1;
	s = gn_dnnl_md_of_layout(op, &plain_in, &other_in, err);
	if (!s)
		s = gn_dnnl_md_of_layout(op, &plain_out, &other_out, err);
	if (s || gn_dnnl_conv_backward_weight_pd(&other, &context, other_in, any, bias, other_out, &c->window) != dnnl_success)
		return s;
	better = !is_reference(other);
	dnnl_primitive_desc_destroy(better ? *pd : other);
	if (!better)
		return GN_OK;
	*pd = other;
	*in = other_in;
	*out = other_out;
	return GN_OK;
}

/* The memory of a role in the wanted layout: unchanged, or a copy made by a preceding step. */
static dnnl_memory_t as_wanted(struct conv *c, enum gn_dnnl_role role, gn_dnnl_md have, gn_dnnl_md wanted, struct gn_err *err)
{
	dnnl_memory_t mine = gn_dnnl_memory(c->op, role, 0, have, err), copy;

	if (!mine || dnnl_memory_desc_equal(have, wanted))
		return mine;
	copy = gn_dnnl_scratch(c->op, wanted, err);
	return copy && !gn_dnnl_append_reorder(c->op, &c->op->backward, mine, copy, err) ? copy : NULL;
}

static enum gn_status build_backward_weight(struct conv *c, const_dnnl_primitive_desc_t forward, struct gn_err *err)
{
	struct gn_dnnl_op *op = c->op;
	int bias = op->base.desc.bias, copy;
	gn_dnnl_md in, out, wanted;
	dnnl_primitive_desc_t pd;
	dnnl_memory_t mine, theirs;
	enum gn_status s;

	gn_dnnl_group(op);
	if (c->lanes)
		return winograd_backward_weight(c, err);
	s = weight_gradient(c, forward, &in, &out, &pd, err);
	if (s)
		return s;
	wanted = dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 0);
	copy = !dnnl_memory_desc_equal(wanted, c->weight);
	mine = gn_dnnl_memory(op, GN_ROLE_DWEIGHT, 0, c->weight, err);
	theirs = copy ? gn_dnnl_scratch(op, wanted, err) : mine;
	dnnl_exec_arg_t args[] = {
		{DNNL_ARG_SRC, as_wanted(c, GN_ROLE_IN, c->in, in, err)},
		{DNNL_ARG_DIFF_DST, as_wanted(c, GN_ROLE_DOUT, c->out, out, err)},
		{DNNL_ARG_DIFF_WEIGHTS, theirs},
		{DNNL_ARG_DIFF_BIAS, bias ? gn_dnnl_memory(op, GN_ROLE_DBIAS, 0, c->bias, err) : NULL},
	};
	look_for_reference(c, pd);
	s = gn_dnnl_append(op, &op->backward, pd, args, bias ? 4 : 3, err);
	if (!s && copy)
		s = gn_dnnl_append_reorder(op, &op->backward, theirs, mine, err);
	dnnl_primitive_desc_destroy(pd);
	return s;
}

static enum gn_status build_backward(struct conv *c, const_dnnl_primitive_desc_t forward, struct gn_err *err)
{
	enum gn_status s = GN_OK;

	if (c->op->base.desc.needs_din)
		s = build_backward_data(c, forward, err);
	return s ? s : build_backward_weight(c, forward, err);
}

/* The addend lies in the destination. */
static void place_in_second(struct gn_op *op)
{
	op->info.out_is_second = op->desc.add;
	if (!op->desc.add)
		return;
	op->info.in[1].block = op->info.out.block;
	op->info.in[1].element_bytes = op->info.out.element_bytes;
}

int gn_host_winograd_lanes(void)
{
	const int isa = (int)dnnl_get_effective_cpu_isa(), wide = dnnl_cpu_isa_avx512_core, narrow = dnnl_cpu_isa_avx2;

	return (isa & wide) == wide && gn_winograd_loops(16) ? 16 : (isa & narrow) == narrow && gn_winograd_loops(8) ? 8 : 0;
}

static int takes_winograd(const struct gn_op_desc *d, int lanes)
{
	if (!lanes || d->bf16 || d->kernel != 3 || d->stride != 1 || d->pad != 1 || d->groups > 1 || d->in[0].c % lanes ||
	    d->channels_out % lanes || d->convolution == GN_CONVOLUTION_DIRECT)
		return 0;
	return d->convolution == GN_CONVOLUTION_WINOGRAD || gn_winograd_pays(&d->in[0], d->channels_out);
}

enum layout { AS_LIKED, PLAIN, BLOCKS };

static enum gn_status create(const struct gn_op *base, enum layout layout, struct gn_op **out, int *has_reference, struct gn_err *err)
{
	struct conv c = {.plain = layout == PLAIN, .lanes = layout == BLOCKS ? gn_host_winograd_lanes() : 0};
	dnnl_primitive_desc_t pd = NULL;
	enum gn_status s = gn_dnnl_op_alloc(base, &c.op, err);

	if (s)
		return s;
	c.op->base.info.winograd = c.lanes > 0;
	s = describe(&c, err);
	if (!s)
		s = choose_layouts(&c, &pd, err);
	place_in_second(&c.op->base);
	if (!s)
		s = choose_weight(&c, pd, err);
	if (!s)
		s = build_forward(&c, pd, err);
	if (!s && base->desc.training)
		s = build_backward(&c, pd, err);
	c.op->base.info.backward_reads_in = 1;
	dnnl_primitive_desc_destroy(pd);
	*has_reference = c.has_reference;
	if (s)
		gn_op_destroy(&c.op->base);
	else
		*out = &c.op->base;
	return s;
}

/* Shapes for which oneDNN has only its reference loop in bfloat16 (a single channel) compute in float. If blocked layouts still
 * lead to the reference loop in float, plain layouts are used. */
enum gn_status gn_dnnl_conv_create(const struct gn_op *base, struct gn_op **out, struct gn_err *err)
{
	struct gn_op wide = *base;
	struct gn_op *op;
	int has_reference;
	enum gn_status s = check_bf16(&base->desc, err);

	if (s)
		return s;
	s = create(base, takes_winograd(&base->desc, gn_host_winograd_lanes()) ? BLOCKS : AS_LIKED, &op, &has_reference, err);
	if (!s && has_reference && base->desc.bf16) {
		gn_op_destroy(op);
		wide.desc.bf16 = 0;
		s = create(&wide, AS_LIKED, &op, &has_reference, err);
	}
	if (!s && has_reference) {
		gn_op_destroy(op);
		s = create(&wide, PLAIN, &op, &has_reference, err);
	}
	if (!s)
		*out = op;
	return s;
}
