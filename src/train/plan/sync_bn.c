#include "src/train/plan/sync_bn.h"

#include "src/base/option.h"
#include "transport/schedule/algo.h"

#include <stdlib.h>
#include <string.h>

struct gn_sync_bn {
	struct gn_comm *own; /* NULL: the group is all ranks */
	struct gn_group_sums *sums;
};

/* *color: which group this rank is in, of *groups. */
static enum gn_status choose_group(const char *text, struct gn_comm *comm, int *color, int *groups, struct gn_err *err)
{
	const struct gn_node_map *map = gn_comm_map(comm);
	int64_t ranks = gn_comm_size(comm), members = ranks;

	if (!strcmp(text, "node")) {
		*groups = map->nodes;
		*color = gn_world_node_of(gn_comm_world(comm), gn_comm_world_rank(comm, gn_comm_rank(comm)));
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
	if (groups > 1)
		status = gn_comm_split(comm, color, 0, "batch-norm", &s->own, err);
	/* its ranks take part in sums over all, too */
	if (!status && s->own)
		gn_comm_end_with_world(s->own);
	if (!status)
		status = gn_group_sums_create(s->own ? s->own : comm, &s->sums, err);
	if (status)
		gn_sync_bn_destroy(s);
	else
		*out = s;
	return status;
}

void gn_sync_bn_destroy(struct gn_sync_bn *s)
{
	if (!s)
		return;
	gn_group_sums_destroy(s->sums);
	gn_comm_destroy(s->own);
	free(s);
}

struct gn_plan_group *gn_sync_bn_group(const struct gn_sync_bn *s)
{
	return s ? gn_group_sums_group(s->sums) : NULL;
}
