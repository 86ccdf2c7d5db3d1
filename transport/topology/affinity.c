#include "transport/topology/affinity.h"

#include "transport/topology/devices.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- network devices --- */

/* Whether nic is better than `than` (-1: none). RDMA devices come first: an adapter's RDMA device is preferred to its network
 * device. users, than_users: earlier ranks that use it. */
static int is_better(const struct gn_topology *m, int nic, enum gn_nearness nearness, int users, int than,
		     enum gn_nearness than_nearness, int than_users)
{
	if (than < 0 || m->nics[nic].rdma != m->nics[than].rdma)
		return than < 0 || m->nics[nic].rdma;
	return nearness != than_nearness ? nearness < than_nearness : users < than_users;
}

static int count_users(const struct gn_affinity *earlier, int count, int nic)
{
	int n = 0;

	for (int i = 0; i < count; i++)
		n += earlier[i].nic == nic;
	return n;
}

static void select_nic(const struct gn_topology *m, const unsigned char *usable, const struct gn_affinity_rank *r,
		       struct gn_affinity *all, int index)
{
	struct gn_affinity *a = &all[index];

	a->nic = -1;
	a->nearness = GN_NEAR_UNKNOWN;
	for (int n = 0; n < m->nic_count; n++) {
		enum gn_nearness nearness = r->gpu >= 0 ? gn_topology_nearness(m, r->gpu, n) : gn_topology_nearness_to_cpus(m, &r->cpus, n);

		if ((usable && !usable[n]) || !is_better(m, n, nearness, count_users(all, index, n), a->nic, a->nearness,
							 a->nic < 0 ? 0 : count_users(all, index, a->nic)))
			continue;
		a->nic = n;
		a->nearness = nearness;
	}
}

/* --- processors --- */

/* The rank's processors near its GPU, else near its network device; all of its processors if none is near. */
static void near_cpus(const struct gn_topology *m, const struct gn_affinity_rank *r, const struct gn_affinity *a,
		      cpu_set_t *out)
{
	const cpu_set_t *near = r->gpu >= 0 ? &m->gpus[r->gpu].near : a->nic >= 0 ? &m->nics[a->nic].near : &r->cpus;

	CPU_AND(out, &r->cpus, near);
	if (!CPU_COUNT(out))
		*out = r->cpus;
}

static int count_cores(const struct gn_topology *m, const cpu_set_t *cpus)
{
	int cores = 0, last = -1;

	for (int i = 0; i < m->cpu_count; i++) {
		if (!CPU_ISSET((size_t)m->cpus[i].os_index, cpus))
			continue;
		cores += m->cpus[i].core != last;
		last = m->cpus[i].core;
	}
	return cores;
}

/* The set's cores with indices first .. end-1. */
static void take_cores(const struct gn_topology *m, const cpu_set_t *cpus, int first, int end, cpu_set_t *out)
{
	int core = -1, last = -1;

	CPU_ZERO(out);
	for (int i = 0; i < m->cpu_count; i++) {
		if (!CPU_ISSET((size_t)m->cpus[i].os_index, cpus))
			continue;
		core += m->cpus[i].core != last;
		last = m->cpus[i].core;
		if (core >= first && core < end)
			CPU_SET((size_t)m->cpus[i].os_index, out);
	}
}

/* Divides the cores among ranks with the same set of processors; with fewer cores than ranks, ranks share a core. */
static void share_cores(const struct gn_topology *m, const struct gn_affinity_rank *ranks, int count,
			struct gn_affinity *out)
{
	for (int i = 0; i < count; i++) {
		int sharing = 0, before = 0, cores, first;
		cpu_set_t mine, theirs;

		near_cpus(m, &ranks[i], &out[i], &mine);
		for (int j = 0; j < count; j++) {
			near_cpus(m, &ranks[j], &out[j], &theirs);
			sharing += CPU_EQUAL(&mine, &theirs) != 0;
			before += j < i && CPU_EQUAL(&mine, &theirs);
		}
		cores = count_cores(m, &mine);
		first = cores < sharing ? before % (cores ? cores : 1) : before * cores / sharing;
		take_cores(m, &mine, first, cores < sharing ? first + 1 : (before + 1) * cores / sharing, &out[i].cores);
	}
}

/* --- faults --- */

/* Whether all network devices in use are on another NUMA node than the GPU, or than the processors. */
static int all_far(const struct gn_topology *m, const struct gn_affinity_rank *r, int from_gpu)
{
	for (int i = 0; i < r->nic_count; i++)
		if ((from_gpu ? gn_topology_nearness(m, r->gpu, r->nics[i]) : gn_topology_nearness_to_cpus(m, &r->cpus, r->nics[i])) != GN_NEAR_FAR)
			return 0;
	return r->nic_count > 0;
}

static unsigned find_faults(const struct gn_topology *m, const struct gn_affinity_rank *r)
{
	unsigned faults = all_far(m, r, 0) ? GN_AFFINITY_CORES_FAR_NIC : 0;
	cpu_set_t both;

	if (r->gpu < 0)
		return faults;
	CPU_AND(&both, &r->cpus, &m->gpus[r->gpu].near);
	if (!CPU_COUNT(&both))
		faults |= GN_AFFINITY_CORES_FAR_GPU;
	return faults | (all_far(m, r, 1) ? GN_AFFINITY_GPU_FAR_NIC : 0);
}

void gn_affinity_choose(const struct gn_topology *m, const unsigned char *usable, const struct gn_affinity_rank *ranks,
			int count, struct gn_affinity *out)
{
	for (int i = 0; i < count; i++) {
		select_nic(m, usable, &ranks[i], out, i);
		out[i].numa = gn_topology_numa_of(m, &ranks[i].cpus);
		out[i].faults = find_faults(m, &ranks[i]);
	}
	share_cores(m, ranks, count, out);
}

/* --- text --- */

void gn_affinity_list_cpus(const cpu_set_t *cpus, struct gn_strbuf *out)
{
	int listed = 0;

	for (size_t i = 0, end; i < CPU_SETSIZE; i = end + 1) {
		end = i;
		if (!CPU_ISSET(i, cpus))
			continue;
		while (end + 1 < CPU_SETSIZE && CPU_ISSET(end + 1, cpus))
			end++;
		gn_strbuf_printf(out, end > i ? "%s%zu-%zu" : "%s%zu", listed++ ? "," : "", i, end);
	}
}

static void append_numa(int numa, const char *several, struct gn_strbuf *out)
{
	if (numa >= 0)
		gn_strbuf_printf(out, " (NUMA node %d)", numa);
	else
		gn_strbuf_puts(out, several);
}

static void append_nics(const struct gn_topology *m, const struct gn_affinity_rank *r, struct gn_strbuf *out)
{
	for (int i = 0; i < r->nic_count; i++) {
		gn_strbuf_printf(out, "%s%s", i ? ", " : "", m->nics[r->nics[i]].name);
		append_numa(m->nics[r->nics[i]].numa, "", out);
	}
}

void gn_affinity_describe(const struct gn_topology *m, const struct gn_affinity_rank *rank, const struct gn_affinity *a,
			  struct gn_strbuf *out)
{
	gn_strbuf_puts(out, "processors ");
	gn_affinity_list_cpus(&rank->cpus, out);
	append_numa(a->numa, m->numa_count > 1 ? " (several NUMA nodes)" : "", out);
	if (rank->gpu >= 0) {
		gn_strbuf_printf(out, ", GPU %s", m->gpus[rank->gpu].pci);
		append_numa(m->gpus[rank->gpu].numa, "", out);
	}
	if (rank->nic_count) {
		gn_strbuf_puts(out, ", uses ");
		append_nics(m, rank, out);
	}
	if (a->nic >= 0)
		gn_strbuf_printf(out, ", nearest network device %s (%s)", m->nics[a->nic].name, gn_nearness_name(a->nearness));
}

static void append_advice(const cpu_set_t *near, struct gn_strbuf *out)
{
	gn_strbuf_puts(out, ": start it on processors ");
	gn_affinity_list_cpus(near, out);
	gn_strbuf_puts(out, " (srun --cpu-bind, --gpu-bind=closest)");
}

void gn_affinity_explain(const struct gn_topology *m, const struct gn_affinity_rank *rank, const struct gn_affinity *a,
			 enum gn_affinity_fault fault, struct gn_strbuf *out)
{
	const struct gn_topology_device *gpu = rank->gpu >= 0 ? &m->gpus[rank->gpu] : NULL;

	if (fault == GN_AFFINITY_GPU_FAR_NIC) {
		gn_strbuf_printf(out, "its GPU %s is on NUMA node %d, and the network devices that it uses are not: ",
				 gpu->pci, gpu->numa);
		append_nics(m, rank, out);
		if (a->nic >= 0 && a->nearness < GN_NEAR_FAR)
			gn_strbuf_printf(out, "; %s is nearer (%s): select it by UCX_NET_DEVICES, or assign this rank a GPU near the "
					 "devices in use", m->nics[a->nic].name, gn_nearness_name(a->nearness));
		else
			gn_strbuf_puts(out, "; no other usable network device is nearer");
		return;
	}
	gn_strbuf_puts(out, "its processors ");
	gn_affinity_list_cpus(&rank->cpus, out);
	append_numa(a->numa, "", out);
	if (fault == GN_AFFINITY_CORES_FAR_GPU) {
		gn_strbuf_printf(out, " are on another NUMA node than its GPU %s (NUMA node %d)", gpu->pci, gpu->numa);
		append_advice(&gpu->near, out);
	} else {
		gn_strbuf_puts(out, " are on another NUMA node than the network devices that it uses, ");
		append_nics(m, rank, out);
		append_advice(&m->nics[rank->nics[0]].near, out);
	}
}

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
