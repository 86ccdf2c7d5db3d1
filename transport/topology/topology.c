#include "transport/topology/topology.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define VENDOR_NVIDIA 0x10de
#define CLASS_DISPLAY 0x03

const char *gn_nearness_name(enum gn_nearness n)
{
	static const char *const names[] = {"same PCI switch", "same PCI root", "same NUMA node", "other NUMA node",
					    "locality unknown"};

	return names[n];
}

/* --- loading --- */

/* hwloc components that look for displays, initialise GPU drivers, or (pci: libpciaccess) leak memory to read what /sys has,
 * too. */
static const char *const excluded[] = {"opencl", "cuda", "nvml", "rsmi", "levelzero", "gl", "pci"};

/* xml NULL: this host. */
static enum gn_status load(const char *xml, size_t len_bytes, hwloc_topology_t *out, struct gn_err *err)
{
	hwloc_topology_t t = NULL;

	if (len_bytes >= INT_MAX)
		return gn_err_set(err, GN_ERR_DATA, "hwloc's XML is too long: %zu bytes", len_bytes);
	if (hwloc_topology_init(&t))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the hardware topology");
	for (size_t i = 0; i < sizeof excluded / sizeof *excluded; i++)
		hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, excluded[i]);
	hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
	/* the length includes the terminating zero */
	if ((xml && hwloc_topology_set_xmlbuffer(t, xml, (int)len_bytes + 1)) || hwloc_topology_load(t)) {
		hwloc_topology_destroy(t);
		return xml ? gn_err_set(err, GN_ERR_DATA, "not a topology in hwloc's XML format (lstopo FILE.xml writes it)")
			   : gn_err_set(err, GN_ERR_FAILED, "hwloc cannot read this host's topology: is /sys mounted?");
	}
	*out = t;
	return GN_OK;
}

/* --- processors --- */

/* The NUMA node of the processors; -1: several, or none. The NUMA node of a GPU's memory has no processors and is skipped. */
static int numa_of(hwloc_topology_t t, hwloc_const_bitmap_t cpus)
{
	hwloc_obj_t node = NULL;
	int found = -1;

	while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node))) {
		if (!hwloc_bitmap_intersects(node->cpuset, cpus))
			continue;
		if (found >= 0)
			return -1;
		found = (int)node->os_index;
	}
	return found;
}

static void read_cpus(hwloc_topology_t t, struct gn_topology *m)
{
	hwloc_obj_t pu = NULL, core, node = NULL;

	while ((pu = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PU, pu))) {
		if (pu->os_index >= CPU_SETSIZE)
			continue;
		core = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_CORE, pu);
		m->cpus[m->cpu_count++] = (struct gn_topology_cpu){
			(int)pu->os_index, (int)(core ? core : pu)->logical_index, numa_of(t, pu->cpuset)};
	}
	while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node)))
		m->numa_count += !hwloc_bitmap_iszero(node->cpuset);
}

/* --- devices --- */

static hwloc_obj_t pci_of(hwloc_obj_t o)
{
	while (o && o->type != HWLOC_OBJ_PCI_DEVICE)
		o = o->parent;
	return o;
}

static void set_locality(hwloc_topology_t t, hwloc_obj_t o, struct gn_topology_device *d)
{
	hwloc_obj_t pci = pci_of(o), around = hwloc_get_non_io_ancestor_obj(t, o);

	if (pci)
		snprintf(d->pci, sizeof d->pci, "%04x:%02x:%02x.%01x", pci->attr->pcidev.domain & 0xffff,
			 pci->attr->pcidev.bus, pci->attr->pcidev.dev, pci->attr->pcidev.func & 0xf);
	d->numa = numa_of(t, around->cpuset);
	hwloc_cpuset_to_glibc_sched_affinity(t, around->cpuset, &d->near, sizeof d->near);
}

static int is_gpu(hwloc_obj_t pci)
{
	return pci->attr->pcidev.vendor_id == VENDOR_NVIDIA && pci->attr->pcidev.class_id >> 8 == CLASS_DISPLAY;
}

static int is_nic(hwloc_obj_t o)
{
	return o->name && strlen(o->name) < sizeof((struct gn_topology_device *)0)->name &&
	       (o->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK || o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS);
}

static hwloc_obj_t shared_ancestor(hwloc_obj_t a, hwloc_obj_t b)
{
	for (; a; a = a->parent)
		for (hwloc_obj_t o = b; o; o = o->parent)
			if (o == a)
				return a;
	return NULL;
}

static enum gn_nearness nearness_of(hwloc_obj_t gpu, hwloc_obj_t nic, const struct gn_topology_device *g,
				    const struct gn_topology_device *n)
{
	hwloc_obj_t shared = shared_ancestor(gpu, nic);

	if (shared && shared->type == HWLOC_OBJ_BRIDGE)
		return shared->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? GN_NEAR_SWITCH : GN_NEAR_ROOT;
	if (g->numa < 0 || n->numa < 0)
		return GN_NEAR_UNKNOWN;
	return g->numa == n->numa ? GN_NEAR_NODE : GN_NEAR_FAR;
}

static void read_nearness(struct gn_topology *m, hwloc_obj_t const *gpus, hwloc_obj_t const *nics)
{
	for (int g = 0; g < m->gpu_count; g++)
		for (int n = 0; n < m->nic_count; n++)
			m->nearness[g * m->nic_count + n] =
				(unsigned char)nearness_of(gpus[g], nics[n], &m->gpus[g], &m->nics[n]);
}

static void read_devices(hwloc_topology_t t, struct gn_topology *m, hwloc_obj_t *gpus, hwloc_obj_t *nics)
{
	hwloc_obj_t o = NULL;

	/* hwloc orders PCI devices within a bridge but not across the bridges of all packages; GPUs are sorted by PCI address
	 * here */
	while ((o = hwloc_get_next_pcidev(t, o))) {
		struct gn_topology_device d = {.rdma = 0};
		int at = m->gpu_count;

		if (!is_gpu(o))
			continue;
		set_locality(t, o, &d);
		memcpy(d.name, d.pci, sizeof d.pci);
		for (; at > 0 && strcmp(m->gpus[at - 1].pci, d.pci) > 0; at--) {
			m->gpus[at] = m->gpus[at - 1];
			gpus[at] = gpus[at - 1];
		}
		m->gpus[at] = d;
		gpus[at] = o;
		m->gpu_count++;
	}
	while ((o = hwloc_get_next_osdev(t, o))) {
		struct gn_topology_device *d = &m->nics[m->nic_count];

		if (!is_nic(o))
			continue;
		memcpy(d->name, o->name, strlen(o->name));
		d->rdma = o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
		set_locality(t, o, d);
		nics[m->nic_count++] = o;
	}
	read_nearness(m, gpus, nics);
}

/* --- the whole topology --- */

static size_t at_least_one(int count)
{
	return count > 0 ? (size_t)count : 1;
}

static enum gn_status read_all(hwloc_topology_t t, struct gn_topology *m, struct gn_err *err)
{
	size_t pus = at_least_one(hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU));
	size_t pcis = at_least_one(hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PCI_DEVICE));
	size_t oses = at_least_one(hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_OS_DEVICE));
	hwloc_obj_t *gpus = calloc(pcis, sizeof *gpus), *nics = calloc(oses, sizeof *nics);
	enum gn_status status = GN_OK;

	m->cpus = calloc(pus, sizeof *m->cpus);
	m->gpus = calloc(pcis, sizeof *m->gpus);
	m->nics = calloc(oses, sizeof *m->nics);
	m->nearness = calloc(pcis, oses);
	if (gpus && nics && m->cpus && m->gpus && m->nics && m->nearness) {
		read_cpus(t, m);
		read_devices(t, m, gpus, nics);
	} else {
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a topology of %zu processors", pus);
	}
	free(gpus);
	free(nics);
	return status;
}

static enum gn_status read_topology(const char *xml, size_t len_bytes, struct gn_topology *out, struct gn_err *err)
{
	struct gn_topology m = {0};
	hwloc_topology_t t = NULL;
	enum gn_status status = load(xml, len_bytes, &t, err);

	if (status)
		return status;
	status = read_all(t, &m, err);
	hwloc_topology_destroy(t);
	if (status)
		gn_topology_release(&m);
	else
		*out = m;
	return status;
}

enum gn_status gn_topology_read(struct gn_topology *out, struct gn_err *err)
{
	return read_topology(NULL, 0, out, err);
}

enum gn_status gn_topology_parse(const char *xml, size_t len_bytes, struct gn_topology *out, struct gn_err *err)
{
	enum gn_status status;
	char *copy;

	/* the caller's text need not be zero-terminated and may contain a zero */
	if (memchr(xml, 0, len_bytes))
		return gn_err_set(err, GN_ERR_DATA, "not XML: it contains a zero byte");
	copy = malloc(len_bytes + 1);
	if (!copy)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu bytes of XML", len_bytes);
	memcpy(copy, xml, len_bytes);
	copy[len_bytes] = 0;
	status = read_topology(copy, len_bytes, out, err);
	free(copy);
	return status;
}

void gn_topology_release(struct gn_topology *m)
{
	free(m->cpus);
	free(m->gpus);
	free(m->nics);
	free(m->nearness);
	*m = (struct gn_topology){0};
}

enum gn_nearness gn_topology_nearness(const struct gn_topology *m, int gpu, int nic)
{
	return (enum gn_nearness)m->nearness[gpu * m->nic_count + nic];
}

enum gn_nearness gn_topology_nearness_to_cpus(const struct gn_topology *m, const cpu_set_t *cpus, int nic)
{
	cpu_set_t both;

	if (nic < 0 || m->nics[nic].numa < 0)
		return GN_NEAR_UNKNOWN;
	CPU_AND(&both, cpus, &m->nics[nic].near);
	return CPU_COUNT(&both) ? GN_NEAR_NODE : GN_NEAR_FAR;
}

int gn_topology_find_gpu(const struct gn_topology *m, const char *pci)
{
	for (int g = 0; g < m->gpu_count; g++)
		if (!strcasecmp(m->gpus[g].pci, pci))
			return g;
	return -1;
}

int gn_topology_find_nic(const struct gn_topology *m, const char *name)
{
	size_t len = strcspn(name, ":");

	for (int n = 0; n < m->nic_count; n++)
		if (strlen(m->nics[n].name) == len && !strncmp(m->nics[n].name, name, len))
			return n;
	return -1;
}

int gn_topology_numa_of(const struct gn_topology *m, const cpu_set_t *cpus)
{
	int found = -1;

	for (int i = 0; i < m->cpu_count; i++) {
		if (!CPU_ISSET((size_t)m->cpus[i].os_index, cpus))
			continue;
		if (found >= 0 && found != m->cpus[i].numa)
			return -1;
		found = m->cpus[i].numa;
	}
	return found;
}
