#include "transport/topology/rails.h"

#include <string.h>

static enum gn_nearness to_cpus(const struct gn_topology *m, const cpu_set_t *cpus, int nic)
{
	cpu_set_t both;

	if (nic < 0 || m->nics[nic].numa < 0)
		return GN_NEAR_UNKNOWN;
	CPU_AND(&both, cpus, &m->nics[nic].near);
	return CPU_COUNT(&both) ? GN_NEAR_NODE : GN_NEAR_FAR;
}

int gn_rails_nearest(const struct gn_topology *m, const char *const *devices, int count, const cpu_set_t *cpus, int local_rank,
		     int local_size)
{
	int gpu = m->gpu_count == local_size ? local_rank : -1, ties[GN_RAILS_MAX], tied = 0, best = 0;

	for (int i = 0; i < count && i < GN_RAILS_MAX; i++) {
		int nic = gn_topology_find_nic(m, devices[i]);
		int distance = (int)to_cpus(m, cpus, nic) * (GN_NEAR_UNKNOWN + 1) +
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
