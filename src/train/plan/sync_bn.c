#include "src/train/plan/sync_bn.h"

#include "src/base/option.h"

#include <stdlib.h>
#include <string.h>

/* An allreduce for one number of values, made when it is first asked for: in a forward pass, with no other under way. */
struct sums {
	struct sums *next;
	size_t count;
	double *memory; /* [groups][count] */
	struct gn_coll *coll;
};

struct gn_sync_bn {
	struct gn_comm *comm;
	struct gn_op_group group;
	size_t groups, mine;
	struct sums *first;
};

static enum gn_status make_sums(struct gn_sync_bn *s, size_t count, struct sums **out, struct gn_err *err)
{
	struct sums *x = calloc(1, sizeof *x);
	void *memory = NULL;
	enum gn_status status;

	if (!x)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for synchronised batch norm");
	status = gn_comm_alloc(s->comm, s->groups * count * sizeof(double), &memory, err);
	if (!status)
		status = gn_coll_allreduce(s->comm, memory, s->groups * count, GN_F64, NULL, "auto", &x->coll, err);
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
		status = make_sums(s, count, &x, err);
	if (status)
		return status;
	memset(x->memory, 0, s->groups * count * sizeof(double));
	memcpy(x->memory + s->mine * count, values, count * sizeof(double));
	status = gn_coll_start(x->coll, err);
	if (!status)
		status = gn_coll_wait(x->coll, err);
	if (!status)
		memcpy(values, x->memory + s->mine * count, count * sizeof(double));
	return status;
}

static enum gn_status choose_groups(const char *text, struct gn_sync_bn *s, struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(s->comm);
	int64_t ranks = gn_comm_size(s->comm), members;

	s->groups = 1;
	s->group.members = (int)ranks;
	if (!strcmp(text, "all"))
		return GN_OK;
	if (!strcmp(text, "node")) {
		s->groups = (size_t)gn_world_nodes(w);
		s->mine = (size_t)gn_world_node_of(w, gn_comm_rank(s->comm));
		s->group.members = gn_world_local_size(w);
		return GN_OK;
	}
	if (gn_parse_int(text, &members, NULL) || members < 1 || members > ranks || ranks % members)
		return gn_err_set(err, GN_ERR_USAGE, "--sync-bn '%s': write all, node, or how many of the %lld rank%s make a group, "
				  "a divisor of them", text, (long long)ranks, ranks == 1 ? "" : "s");
	s->groups = (size_t)(ranks / members);
	s->mine = (size_t)(gn_comm_rank(s->comm) / members);
	s->group.members = (int)members;
	return GN_OK;
}

enum gn_status gn_sync_bn_create(const char *text, struct gn_comm *comm, struct gn_sync_bn **out, struct gn_err *err)
{
	struct gn_sync_bn *s = calloc(1, sizeof *s);
	enum gn_status status;

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for synchronised batch norm");
	s->comm = comm;
	s->group.sum = sum;
	s->group.context = s;
	status = choose_groups(text, s, err);
	/* All ranks take part as long as some group has two. */
	if (status || s->groups == (size_t)gn_comm_size(comm)) {
		free(s);
		s = NULL;
	}
	if (!status)
		*out = s;
	return status;
}

void gn_sync_bn_destroy(struct gn_sync_bn *s)
{
	while (s && s->first) {
		struct sums *x = s->first;

		s->first = x->next;
		gn_coll_free(x->coll);
		gn_comm_free(s->comm, x->memory);
		free(x);
	}
	free(s);
}

const struct gn_op_group *gn_sync_bn_group(const struct gn_sync_bn *s)
{
	return s ? &s->group : NULL;
}
