#include "src/train/plan/sync_bn.h"

#include "src/base/option.h"

#include <stdlib.h>
#include <string.h>

/* An allreduce of one number of values, prepared in the first forward or backward pass that needs it. */
struct sums {
	struct sums *next;
	size_t count;
	double *memory; /* [count] */
	struct gn_coll *coll;
};

struct gn_sync_bn {
	struct gn_comm *comm;
	struct gn_comm *own; /* a group that is destroyed with this; NULL: comm is all ranks */
	struct gn_op_group group;
	struct sums *first;
};

static enum gn_status prepare_sums(struct gn_sync_bn *s, size_t count, struct sums **out, struct gn_err *err)
{
	struct sums *x = calloc(1, sizeof *x);
	void *memory = NULL;
	enum gn_status status;

	if (!x)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for synchronised batch norm");
	status = gn_comm_alloc(s->comm, count * sizeof(double), &memory, err);
	if (!status)
		status = gn_coll_allreduce(s->comm, memory, count, GN_F64, NULL, "auto", &x->coll, err);
	if (status) {
		gn_comm_free(s->comm, memory);
		free(x);
		return status;
	}
	x->count = count;
	x->memory = memory;
	x->next = s->first;
	s->first = x;
	*out = x;
	return GN_OK;
}

static enum gn_status sum(void *context, double *values, size_t count, struct gn_err *err)
{
	struct gn_sync_bn *s = context;
	struct sums *x = s->first;
	enum gn_status status = GN_OK;

	while (x && x->count != count)
		x = x->next;
	if (!x)
		status = prepare_sums(s, count, &x, err);
	if (status)
		return status;
	memcpy(x->memory, values, count * sizeof(double));
	status = gn_coll_start(x->coll, NULL, err);
	if (!status)
		status = gn_coll_wait(x->coll, err);
	if (!status)
		memcpy(values, x->memory, count * sizeof(double));
	return status;
}

/* *color: which group this rank is in, of *groups. */
static enum gn_status choose_group(const char *text, struct gn_comm *comm, int *color, int *groups, struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(comm);
	int64_t ranks = gn_comm_size(comm), members = ranks;

	if (!strcmp(text, "node")) {
		*groups = gn_world_nodes(w);
		*color = gn_world_node_of(w, gn_comm_rank(comm));
		return GN_OK;
	}
	if (strcmp(text, "all") && (gn_parse_int(text, &members, NULL) || members < 1 || members > ranks || ranks % members))
		return gn_err_set(err, GN_ERR_USAGE, "--sync-bn '%s': write all, node, or how many of the %lld rank%s make a group, "
				  "a divisor of them", text, (long long)ranks, ranks == 1 ? "" : "s");
	*groups = (int)(ranks / members);
	*color = (int)(gn_comm_rank(comm) / members);
	return GN_OK;
}

enum gn_status gn_sync_bn_create(const char *text, struct gn_comm *comm, struct gn_sync_bn **out, struct gn_err *err)
{
	int color = 0, groups = 1;
	struct gn_sync_bn *s = NULL;
	enum gn_status status = choose_group(text, comm, &color, &groups, err);

	if (status)
		return status;
	*out = NULL;
	if (groups == gn_comm_size(comm))
		return GN_OK;
	s = calloc(1, sizeof *s);
	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for synchronised batch norm");
	s->comm = comm;
	s->group.sum = sum;
	s->group.context = s;
	if (groups > 1)
		status = gn_comm_split(comm, color, 0, "batch-norm", &s->own, err);
	if (status) {
		free(s);
		return status;
	}
	if (s->own)
		s->comm = s->own;
	s->group.members = gn_comm_size(s->comm);
	*out = s;
	return GN_OK;
}

void gn_sync_bn_destroy(struct gn_sync_bn *s)
{
	if (!s)
		return;
	while (s->first) {
		struct sums *x = s->first;

		s->first = x->next;
		gn_coll_free(x->coll);
		gn_comm_free(s->comm, x->memory);
		free(x);
	}
	gn_comm_destroy(s->own);
	free(s);
}

const struct gn_op_group *gn_sync_bn_group(const struct gn_sync_bn *s)
{
	return s ? &s->group : NULL;
}
