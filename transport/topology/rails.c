#include "transport/topology/rails.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int is_ethernet(const char *network)
{
	return !strncmp(network, "Ethernet", strlen("Ethernet"));
}

/* by_kind: all Ethernets are one network. */
static int same_network(const char *a, const char *b, int by_kind)
{
	return !strcmp(a, b) || (by_kind && is_ethernet(a) && is_ethernet(b));
}

static int count_devices(const struct gn_rail_offer *o, const char *network, int by_kind)
{
	int count = 0;

	for (int i = 0; i < o->count; i++)
		count += same_network(o->networks[i], network, by_kind);
	return count;
}

/* Whether each rank has at least `count` devices on the network. */
static int all_have(const struct gn_rail_offer *offers, int ranks, const char *network, int count, int by_kind)
{
	for (int r = 0; r < ranks; r++)
		if (count_devices(&offers[r], network, by_kind) < count)
			return 0;
	return 1;
}

static void select_common(const struct gn_rail_offer *offers, int ranks, const struct gn_rails *candidates, int by_kind,
			  struct gn_rails *out)
{
	const struct gn_rail_device *previous = NULL;
	int same = 0;

	out->count = 0;
	for (int i = 0; i < candidates->count; i++) {
		const struct gn_rail_device *d = &candidates->items[i];

		same = previous && same_network(d->network, previous->network, by_kind) ? same + 1 : 1;
		previous = d;
		if (all_have(offers, ranks, d->network, same, by_kind))
			out->items[out->count++] = *d;
	}
}

static int all_have_one(const struct gn_rail_offer *offers, int ranks)
{
	for (int r = 0; r < ranks; r++)
		if (offers[r].count != 1)
			return 0;
	return 1;
}

void gn_rails_choose(const struct gn_rail_offer *offers, int ranks, const struct gn_rails *candidates,
		     struct gn_rails *out)
{
	struct gn_rails common = {0};
	int limit = GN_RAILS_MAX;

	select_common(offers, ranks, candidates, 0, &common);
	/* each node's adapters may be on networks of their own, with routers between them: pair them by order */
	if (!common.count)
		select_common(offers, ranks, candidates, 1, &common);
	for (int r = 0; r < ranks; r++)
		if (offers[r].wanted > 0 && offers[r].wanted < limit)
			limit = offers[r].wanted;
	/* A single RDMA device on each rank is left to UCX. A single network device is not: UCX would select the fastest, which may
	 * be a bridge for containers. */
	if (common.count == 1 && !strchr(common.items[0].network, '/') && all_have_one(offers, ranks))
		common.count = 0;
	if (common.count > limit)
		common.count = limit;
	*out = common;
}

static size_t offer_bytes(int count)
{
	return offsetof(struct gn_rail_offer, networks) + (size_t)count * GN_RAIL_NETWORK_MAX;
}

static enum gn_status read_offer(const void *from, size_t len, int rank, struct gn_rail_offer *out, struct gn_err *err)
{
	struct gn_rail_offer o = {0};

	if (len >= offer_bytes(0) && len <= sizeof o)
		memcpy(&o, from, len);
	if (len < offer_bytes(0) || o.count < 0 || o.count > GN_RAILS_MAX || len != offer_bytes(o.count))
		return gn_err_set(err, GN_ERR_MISMATCH, "rank %d sent its network devices in another format: do all ranks run the "
				  "same build of gannet?", rank);
	for (int i = 0; i < o.count; i++)
		o.networks[i][GN_RAIL_NETWORK_MAX - 1] = 0;
	*out = o;
	return GN_OK;
}

static enum gn_status exchange(struct gn_world *world, const struct gn_rail_offer *mine, struct gn_rail_offer *all,
			       struct gn_err *err)
{
	struct gn_gathered gathered = {0};
	enum gn_status status = gn_world_exchange(world, mine, offer_bytes(mine->count), &gathered, err);

	for (size_t r = 0; !status && r < gathered.size; r++)
		status = read_offer(gathered.items[r], gathered.lens[r], (int)r, &all[r], err);
	gn_gathered_release(&gathered);
	return status;
}

static enum gn_status read_wanted(int wanted, int32_t *out, struct gn_err *err)
{
	const char *text = getenv("GANNET_RAILS");
	char *end;
	long number;

	*out = wanted;
	if (wanted || !text || !*text)
		return GN_OK;
	number = strtol(text, &end, 10);
	if (*end || number < 0 || number > GN_RAILS_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "GANNET_RAILS='%.32s' is not a number from 0 (all rails) to %d", text,
				  GN_RAILS_MAX);
	*out = (int32_t)number;
	return GN_OK;
}

const char *gn_rails_allowed(void)
{
	const char *allowed = getenv("UCX_NET_DEVICES");

	return allowed && *allowed && strcmp(allowed, "all") ? allowed : NULL;
}

enum gn_status gn_rails_agree(struct gn_world *world, unsigned kinds, int wanted, struct gn_rails *out,
			      struct gn_err *err)
{
	struct gn_rail_offer mine = {0}, *all = NULL;
	struct gn_rails candidates = {0};
	enum gn_status status;

	*out = candidates;
	status = read_wanted(wanted, &mine.wanted, err);
	if (!status)
		status = gn_rails_find("/sys", kinds, gn_rails_allowed(), &candidates, err);
	if (status)
		return status;
	mine.count = candidates.count;
	for (int i = 0; i < candidates.count; i++)
		memcpy(mine.networks[i], candidates.items[i].network, GN_RAIL_NETWORK_MAX);
	all = calloc((size_t)gn_world_size(world), sizeof *all);
	if (!all)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", gn_world_size(world));
	status = exchange(world, &mine, all, err);
	if (!status)
		gn_rails_choose(all, gn_world_size(world), &candidates, out);
	/* within a node one rail suffices */
	if (!status && gn_world_nodes(world) == 1 && out->count > 1)
		out->count = 1;
	free(all);
	return status;
}

/* --- the nearest rail of a rank --- */

int gn_rails_nearest(const struct gn_topology *m, const char *const *devices, int count, const cpu_set_t *cpus, int local_rank,
		     int local_size)
{
	int gpu = m->gpu_count == local_size ? local_rank : -1, ties[GN_RAILS_MAX], tied = 0, best = 0;

	for (int i = 0; i < count && i < GN_RAILS_MAX; i++) {
		int nic = gn_topology_find_nic(m, devices[i]);
		int distance = (int)gn_topology_nearness_to_cpus(m, cpus, nic) * (GN_NEAR_UNKNOWN + 1) +
			       (int)(gpu < 0 || nic < 0 ? GN_NEAR_UNKNOWN : gn_topology_nearness(m, gpu, nic));

		if (tied && distance > best)
			continue;
		if (!tied || distance < best)
			tied = 0;
		best = distance;
		ties[tied++] = i;
	}
	return tied ? ties[local_rank % tied] : 0;
}
