#include "kernels/backend.h"

void gn_compute_destroy(struct gn_compute *c)
{
	if (c)
		c->class->destroy(c);
}

struct gn_stream *gn_compute_stream(const struct gn_compute *c)
{
	return c->stream;
}

struct gn_op_device *gn_compute_ops(const struct gn_compute *c)
{
	return c->ops;
}

enum gn_status gn_compute_set_number(struct gn_compute *c, uint64_t number, struct gn_err *err)
{
	return c->class->set_number ? c->class->set_number(c, number, err) : GN_OK;
}

enum gn_status gn_compute_load(struct gn_compute *c, const struct gn_layout *l, const void *from, void *to, struct gn_err *err)
{
	return c->class->load(c, l, from, to, err);
}

enum gn_status gn_compute_load_crops(struct gn_compute *c, const struct gn_layout *l, const float *mean, const float *deviation,
				       const struct gn_crop *from, void *to, struct gn_err *err)
{
	return c->class->load_crops ? c->class->load_crops(c, l, mean, deviation, from, to, err)
				    : gn_err_set(err, GN_ERR_UNSUPPORTED, "images as crops are for GPUs");
}

enum gn_status gn_compute_store(struct gn_compute *c, const struct gn_layout *l, const void *from, float *host, struct gn_err *err)
{
	return c->class->store(c, l, from, host, err);
}

enum gn_status gn_compute_put(struct gn_compute *c, void *to, const void *values, size_t bytes, struct gn_err *err)
{
	return c->class->put(c, to, values, bytes, err);
}

enum gn_status gn_compute_add_tensor(struct gn_compute *c, const struct gn_layout *l, const void *from, void *to, struct gn_err *err)
{
	return c->class->add_tensor(c, l, from, to, err);
}

enum gn_status gn_compute_add(struct gn_compute *c, const float *from, float *to, size_t count, struct gn_err *err)
{
	return c->class->add(c, from, to, count, err);
}

enum gn_status gn_compute_scale(struct gn_compute *c, float *x, double factor, size_t count, struct gn_err *err)
{
	return c->class->scale(c, x, factor, count, err);
}

enum gn_status gn_compute_loss(struct gn_compute *c, const struct gn_loss_args *a, struct gn_err *err)
{
	return c->class->loss(c, a, err);
}

enum gn_status gn_update_create(struct gn_compute *c, const struct gn_update_options *options, struct gn_update **out,
				struct gn_err *err)
{
	enum gn_status s;

	if (options->group && c->backend == GN_BACKEND_CUDA)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "parts of parameters are updated on the host only");
	s = c->class->update->create(c, options, out, err);
	if (!s)
		(*out)->class = c->class->update;
	return s;
}

void gn_update_destroy(struct gn_update *u)
{
	if (u)
		u->class->destroy(u);
}

enum gn_status gn_update_set(struct gn_update *u, const struct gn_optim_update *numbers, double decay, struct gn_err *err)
{
	return u->class->set(u, numbers, decay, err);
}

enum gn_status gn_update_queue(struct gn_update *u, struct gn_err *err)
{
	return u->class->queue(u, err);
}

enum gn_status gn_update_fetch(struct gn_update *u, struct gn_err *err)
{
	return u->class->fetch ? u->class->fetch(u, err) : GN_OK;
}

void gn_update_result(const struct gn_update *u, struct gn_update_result *out)
{
	u->class->result(u, out);
}
