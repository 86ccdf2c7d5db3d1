#include "src/train/parallel/tensor_group.h"

#include "kernels/compute.h"
#include "src/base/clock.h"

#include <stdlib.h>

struct gn_tensor_group {
	struct gn_update_group updates; /* first: it leads back here */
	struct gn_plan_group plans;
	struct gn_comm *comm;
	struct gn_group_sums *sums;
	struct gn_part part;
	struct gn_parts parts;
	uint64_t waited_ns, bytes;
};

/* In one order of slices, so that all groups of a run get the same bits, on whatever nodes their ranks are. */
static enum gn_status sum_slices(const struct gn_tensor_group *t, void *values, size_t count, enum gn_dtype type, struct gn_err *err)
{
	return gn_comm_run(t->comm, &(struct gn_coll_args){.what = GN_COLLECTIVE_ALLREDUCE, .out = values, .count = count, .type = type,
							   .algorithm = "recursive-doubling"}, err);
}

static enum gn_status sum_norms(struct gn_update_group *group, double *values, size_t count, struct gn_err *err)
{
	return sum_slices((struct gn_tensor_group *)group, values, count, GN_F64, err);
}

static enum gn_status exchange(struct gn_plan_group *group, struct gn_stream *s, const struct gn_op_exchange *x, void *values, struct gn_err *err)
{
	struct gn_tensor_group *t = (struct gn_tensor_group *)(void *)((char *)group - offsetof(struct gn_tensor_group, plans));
	struct gn_plan_group *g = gn_group_sums_group(t->sums);
	const uint64_t began = gn_clock_ns();
	enum gn_status status = g->exchange(g, s, x, values, err);

	t->waited_ns += gn_clock_ns() - began;
	t->bytes += x->count * (size_t)x->element_bytes;
	return status ? gn_err_prefix(err, "tensor group, slice %d of %d", gn_comm_rank(t->comm), gn_comm_size(t->comm)), status : GN_OK;
}

enum gn_status gn_tensor_group_create(struct gn_comm *comm, const struct gn_model *slice, struct gn_tensor_group **out, struct gn_err *err)
{
	struct gn_tensor_group *t = calloc(1, sizeof *t);
	enum gn_status status = GN_OK;

	if (!t)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a tensor group");
	if (!status)
		status = gn_group_sums_create(comm, &t->sums, err);
	if (status) {
		gn_tensor_group_destroy(t);
		return status;
	}
	t->updates.sum = sum_norms;
	t->plans = (struct gn_plan_group){gn_comm_size(comm), exchange};
	t->comm = comm;
	t->part.count = gn_model_param_elements(slice);
	t->parts = (struct gn_parts){&t->part, 1, t->part.count};
	*out = t;
	return GN_OK;
}

void gn_tensor_group_destroy(struct gn_tensor_group *t)
{
	if (!t)
		return;
	gn_group_sums_destroy(t->sums);
	free(t);
}

struct gn_plan_group *gn_tensor_group_plans(struct gn_tensor_group *t)
{
	return &t->plans;
}

struct gn_update_group *gn_tensor_group_updates(struct gn_tensor_group *t)
{
	return &t->updates;
}

const struct gn_parts *gn_tensor_group_parts(const struct gn_tensor_group *t)
{
	return &t->parts;
}

enum gn_status gn_tensor_group_sum(struct gn_tensor_group *t, float *values, size_t count, struct gn_err *err)
{
	return sum_slices(t, values, count, GN_F32, err);
}

int gn_tensor_group_size(const struct gn_tensor_group *t)
{
	return gn_comm_size(t->comm);
}

double gn_tensor_group_waited_s(const struct gn_tensor_group *t)
{
	return (double)t->waited_ns * 1e-9;
}

uint64_t gn_tensor_group_bytes(const struct gn_tensor_group *t)
{
	return t->bytes;
}
