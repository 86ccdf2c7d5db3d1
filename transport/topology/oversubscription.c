#include "transport/topology/oversubscription.h"

#include "transport/topology/devices.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum wait { AUTO, SPIN, SLEEP };

/* One rank's part of the exchange. */
struct record {
	cpu_set_t set;
	enum wait wait;
	int by_kernel; /* the kernel carries messages to other nodes */
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

/* Whether messages to other nodes take sockets or soft RDMA rather than an RDMA adapter. */
static int kernel_carries(const char *transport)
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

/* Compares the ranks of this node with the union of the processors that they are bound to, and, if the kernel carries messages,
 * with all processors of the node, of which the kernel needs one. */
static int is_oversubscribed(struct gn_world *w, const struct gn_gathered *records)
{
	int here = gn_world_node_of(w, gn_world_rank(w)), local = 0, wanted[3] = {0}, by_kernel = 0;
	cpu_set_t all;

	CPU_ZERO(&all);
	for (int r = 0; r < gn_world_size(w); r++) {
		struct record record;

		if (records->lens[r] != sizeof record || gn_world_node_of(w, r) != here)
			continue;
		memcpy(&record, records->items[r], sizeof record);
		CPU_OR(&all, &all, &record.set);
		by_kernel |= record.by_kernel;
		wanted[record.wait == SPIN || record.wait == SLEEP ? record.wait : AUTO] = 1;
		local++;
	}
	if (wanted[SLEEP] || wanted[SPIN])
		return wanted[SLEEP];
	return local > CPU_COUNT(&all) || (by_kernel && gn_world_nodes(w) > 1 && local >= sysconf(_SC_NPROCESSORS_ONLN));
}

enum gn_status gn_oversubscription_find(struct gn_world *w, const char *transport, int *oversubscribed, struct gn_err *err)
{
	struct gn_gathered all = {0};
	struct record mine = {.by_kernel = kernel_carries(transport)};
	enum gn_status status = read_wait(&mine.wait, err);

	if (sched_getaffinity(0, sizeof mine.set, &mine.set))
		memset(&mine.set, 0xff, sizeof mine.set);
	if (!status)
		status = gn_world_exchange(w, &mine, sizeof mine, &all, err);
	if (!status)
		*oversubscribed = is_oversubscribed(w, &all);
	gn_gathered_release(&all);
	return status;
}
