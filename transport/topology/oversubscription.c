#include "transport/topology/oversubscription.h"

#include "transport/topology/devices.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum wait { AUTO, SPIN, SLEEP };

/* What a rank tells the others. */
struct card {
	cpu_set_t set;
	enum wait wait;
	int by_kernel; /* messages to other nodes are the kernel's work */
};

static enum gn_status read_wait(enum wait *out, struct gn_err *err)
{
	static const char *const names[] = {"auto", "spin", "sleep"};
	const char *value = getenv(GN_WAIT_VARIABLE);

	*out = AUTO;
	if (!value || !*value)
		return GN_OK;
	for (int i = 0; i < 3; i++) {
		if (strcmp(value, names[i]))
			continue;
		*out = (enum wait)i;
		return GN_OK;
	}
	return gn_err_set(err, GN_ERR_USAGE, GN_WAIT_VARIABLE "=%.40s: auto, spin or sleep", value);
}

/* Sockets and soft RDMA, not an adapter that works by itself. */
static int goes_by_kernel(const char *transport)
{
	struct gn_devices devices;
	int adapters = 0;

	if (gn_devices_read("/sys", &devices, NULL))
		return 1;
	for (int i = 0; i < devices.count; i++)
		adapters += devices.items[i].kind == GN_DEVICE_RDMA && devices.items[i].up;
	gn_devices_release(&devices);
	return !adapters || !strcmp(transport, "tcp");
}

/* By the processors that all ranks of this node may use together: each may be bound to some of its own. A kernel that is to carry
 * messages needs one, too. */
static int is_crowded(struct gn_world *w, const struct gn_gathered *cards)
{
	int here = gn_world_node_of(w, gn_world_rank(w)), local = 0, wanted[3] = {0}, by_kernel = 0;
	cpu_set_t all;

	CPU_ZERO(&all);
	for (int r = 0; r < gn_world_size(w); r++) {
		struct card card;

		if (cards->lens[r] != sizeof card || gn_world_node_of(w, r) != here)
			continue;
		memcpy(&card, cards->items[r], sizeof card);
		CPU_OR(&all, &all, &card.set);
		by_kernel |= card.by_kernel;
		wanted[card.wait == SPIN || card.wait == SLEEP ? card.wait : AUTO] = 1;
		local++;
	}
	if (wanted[SLEEP] || wanted[SPIN])
		return wanted[SLEEP];
	return local > CPU_COUNT(&all) || (by_kernel && gn_world_nodes(w) > 1 && local >= sysconf(_SC_NPROCESSORS_ONLN));
}

enum gn_status gn_oversubscription_find(struct gn_world *w, const char *transport, int *crowded, struct gn_err *err)
{
	struct gn_gathered all = {0};
	struct card mine = {.by_kernel = goes_by_kernel(transport)};
	enum gn_status status = read_wait(&mine.wait, err);

	if (sched_getaffinity(0, sizeof mine.set, &mine.set))
		memset(&mine.set, 0xff, sizeof mine.set);
	if (!status)
		status = gn_world_exchange(w, &mine, sizeof mine, &all, err);
	if (!status)
		*crowded = is_crowded(w, &all);
	gn_gathered_release(&all);
	return status;
}
