#include "src/train/plan/group_sums.h"

#include "src/device/device.h"

#include <stdlib.h>

struct sum {
	struct sum *next;
	size_t count;
	double *memory; /* [count] */
	struct gn_coll *coll;
};

struct gn_group_sums {
	struct gn_plan_group group;
	struct gn_comm *comm;
	struct sum *first;
};

static enum gn_status prepare(struct gn_group_sums *g, size_t count, struct sum **out, struct gn_err *err)
{
	struct sum *x = calloc(1, sizeof *x);
	void *memory = NULL;
	enum gn_status status;

	if (!x)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for sums over ranks");
	status = gn_comm_alloc(g->comm, count * sizeof(double), &memory, err);
	if (!status)
		status = gn_coll_allreduce(g->comm, memory, count, GN_F64, NULL, "auto", &x->coll, err);
	if (status) {
		gn_comm_free(g->comm, memory);
		free(x);
		return status;
	}
	x->count = count;
	x->memory = memory;
	x->next = g->first;
	g->first = x;
	*out = x;
	return GN_OK;
}

static enum gn_status run_sum(struct gn_plan_group *group, struct gn_stream *s, double *values, size_t count, struct gn_err *err)
{
	struct gn_group_sums *g = (struct gn_group_sums *)group;
	struct sum *x = g->first;
	enum gn_status status = GN_OK;

	while (x && x->count != count)
		x = x->next;
	if (!x)
		status = prepare(g, count, &x, err);
	if (!status)
		status = gn_stream_copy(s, x->memory, values, count * sizeof(double), err);
	if (!status)
		status = gn_stream_wait(s, err);
	if (!status)
		status = gn_coll_start(x->coll, NULL, err);
	if (!status)
		status = gn_coll_wait(x->coll, err);
	return status ? status : gn_stream_copy(s, values, x->memory, count * sizeof(double), err);
}

enum gn_status gn_group_sums_create(struct gn_comm *comm, struct gn_group_sums **out, struct gn_err *err)
{
	struct gn_group_sums *g = calloc(1, sizeof *g);

	if (!g)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for sums over ranks");
	g->group = (struct gn_plan_group){gn_comm_size(comm), run_sum};
	g->comm = comm;
	*out = g;
	return GN_OK;
}

void gn_group_sums_destroy(struct gn_group_sums *g)
{
	if (!g)
		return;
	while (g->first) {
		struct sum *x = g->first;

		g->first = x->next;
		gn_coll_free(x->coll);
		gn_comm_free(g->comm, x->memory);
		free(x);
	}
	free(g);
}

struct gn_plan_group *gn_group_sums_group(struct gn_group_sums *g)
{
	return &g->group;
}
