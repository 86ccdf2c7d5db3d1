/* Ranks that are of use in groups alone: who goes on, who waits; and who of the last world is lost. */
#include "transport/bootstrap/regroup_internal.h"

#include <stdlib.h>
#include <string.h>

void gn_regroup_set_places(struct gn_regroup *g, const int *places, int ranks)
{
	memcpy(g->places, places, (size_t)(ranks < GN_MEMBERS_MAX ? ranks : GN_MEMBERS_MAX) * sizeof *places);
	g->places_epoch = g->epoch;
}

int gn_regroup_is_surplus(const struct gn_regroup *g)
{
	return g->is_surplus;
}

int gn_regroup_usable(const struct gn_regroup *g, int ranks)
{
	return g->each > 1 && ranks >= g->each ? ranks - ranks % g->each : ranks;
}

/* Of groups whose members stay: all of them; then one of each number, without whom others are of no use; then the rest. */
void gn_regroup_choose(const struct gn_regroup *g, const struct gn_roster *ends, const char *stays, struct gn_roster *proposal)
{
	const int each = g->each > 1 && g->places_epoch == ends->epoch ? g->each : 1;
	char is_taken[GN_MEMBERS_MAX] = {0}, has_number[GN_MEMBERS_MAX] = {0};
	int staying[GN_MEMBERS_MAX] = {0}; /* of each group */

	for (uint32_t m = 0; m < ends->count && each > 1; m++)
		staying[g->places[m] / each] += stays[m];
	for (int pass = each > 1 ? 0 : 2; pass < 3; pass++)
		for (uint32_t m = 0; m < ends->count; m++) {
			int place = each > 1 ? g->places[m] : 0;

			if (!stays[m] || is_taken[m] || (pass == 0 && staying[place / each] < each) || (pass == 1 && has_number[place % each]))
				continue;
			is_taken[m] = has_number[place % each] = 1;
			proposal->ids[proposal->count++] = ends->ids[m];
		}
}

void gn_regroup_losses(struct gn_regroup *g, struct gn_strbuf *out)
{
	struct gn_regroup_request *q = calloc(1, sizeof *q);
	struct gn_regroup_answer *a = malloc(sizeof *a);
	const struct gn_regroup_contact *c;
	enum gn_regroup_reply reply = GN_REGROUP_DEAD;
	uint64_t last = 0; /* that was asked */
	int count = 0;

	for (uint32_t m = 0; m < g->before.count && q && a; m++) {
		uint64_t id = g->before.ids[m];

		if (gn_roster_rank(&g->world, id) >= 0)
			continue;
		q->what = GN_REGROUP_WHERE;
		q->epoch = g->epoch;
		/* the ranks of a host that cannot be reached are not asked one by one: the others wait */
		if (reply != GN_REGROUP_UNREACHABLE || !gn_regroup_is_same_host(g, id, last))
			reply = gn_regroup_ask(g, last = id, q, a);
		/* one that answers has left the others, or waits */
		if (reply == GN_REGROUP_ANSWERED)
			continue;
		pthread_mutex_lock(&g->lock);
		c = gn_regroup_find(g, id);
		gn_strbuf_printf(out, "%srank %u on %s", count++ ? ", " : "", m, c ? c->host : "an unknown host");
		pthread_mutex_unlock(&g->lock);
	}
	if (count)
		gn_strbuf_printf(out, " %s lost", count > 1 ? "are" : "is");
	free(q);
	free(a);
}
