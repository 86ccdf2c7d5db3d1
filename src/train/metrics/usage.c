#include "src/train/metrics/usage.h"

#include "src/base/file.h"
#include "src/base/process.h"
#include "transport/bootstrap/world.h"
#include "transport/coll/agree.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* What each rank reports. load: of the first rank of a node, else 0. */
struct own {
	double cpu_s, waited_s, max_rss_bytes, rss_bytes;
	struct gn_node_load load;
};

struct gn_usage_meter {
	struct gn_comm *comm;
	struct gn_node_counters before;
	struct gn_usage usage;
	struct own *all; /* by rank */
};

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

/* Resident pages: field 2 of /proc/self/statm. */
static double resident_bytes(void)
{
	char text[128];
	double pages;

	if (gn_file_read_start("/proc/self/statm", text, sizeof text) < 0 || sscanf(text, "%*s %lf", &pages) != 1)
		return 0;
	return pages * (double)sysconf(_SC_PAGESIZE);
}

/* Of the main thread, which computes: field 2 of /proc/self/schedstat, in nanoseconds. */
static double waited_s(void)
{
	char text[128];
	double ns;

	return gn_file_read_start("/proc/self/schedstat", text, sizeof text) > 0 && sscanf(text, "%*s %lf", &ns) == 1 ? ns / 1e9 : 0;
}

/* One node after the other: the union of what its ranks may run on. */
static int count_processors(const struct gn_world *w, const cpu_set_t *all, int ranks)
{
	int count = 0;

	for (int node = 0; node < gn_world_nodes(w); node++) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		for (int r = 0; r < ranks; r++)
			if (gn_world_node_of(w, r) == node)
				CPU_OR(&cpus, &cpus, &all[r]);
		count += CPU_COUNT(&cpus);
	}
	return count;
}

/* Nodes 0 .. the last one that a rank of the group is on: other ranks of the world may be parameter servers. */
static int count_nodes(const struct gn_comm *comm)
{
	int last = 0;

	for (int r = 0; r < gn_comm_size(comm); r++) {
		int node = gn_world_node_of(gn_comm_world(comm), gn_comm_world_rank(comm, r));

		last = node > last ? node : last;
	}
	return last + 1;
}

enum gn_status gn_usage_create(struct gn_comm *comm, struct gn_usage_meter **out, struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(comm);
	size_t ranks = (size_t)gn_comm_size(comm);
	struct gn_usage_meter *m = calloc(1, sizeof *m);
	cpu_set_t mine, *all = calloc(ranks, sizeof *all);
	enum gn_status status = GN_OK;

	CPU_ZERO(&mine);
	sched_getaffinity(0, sizeof mine, &mine);
	if (m) {
		m->comm = comm;
		m->usage.ranks = (int)ranks;
		m->usage.nodes = count_nodes(comm);
		m->usage.node = calloc((size_t)m->usage.nodes, sizeof *m->usage.node);
		m->all = calloc(ranks, sizeof *m->all);
	}
	if (!m || !all || !m->usage.node || !m->all)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the usage of %zu ranks", ranks);
	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_agree_gather(comm, &mine, sizeof mine, all, err);
	if (!status) {
		m->usage.processors = count_processors(w, all, (int)ranks);
		for (int r = gn_world_size(w) - 1; r >= 0; r--)
			if (gn_world_node_of(w, r) < m->usage.nodes)
				m->usage.node[gn_world_node_of(w, r)].host = gn_world_host_of(w, r);
		gn_node_counters_read(&m->before);
		*out = m;
	} else {
		gn_usage_destroy(m);
	}
	free(all);
	return status;
}

void gn_usage_destroy(struct gn_usage_meter *m)
{
	if (!m)
		return;
	free(m->usage.node);
	free(m->all);
	free(m);
}

static void measure(struct gn_usage_meter *m, struct own *out)
{
	struct gn_node_counters now;
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	out->cpu_s = seconds(used.ru_utime) + seconds(used.ru_stime);
	out->waited_s = waited_s();
	out->max_rss_bytes = (double)used.ru_maxrss * 1024;
	out->rss_bytes = resident_bytes();
	if (gn_world_local_rank(gn_comm_world(m->comm)))
		return;
	gn_node_counters_read(&now);
	gn_node_load_between(&m->before, &now, &out->load);
	m->before = now;
}

enum gn_status gn_usage_gather(struct gn_usage_meter *m, struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(m->comm);
	struct gn_usage *u = &m->usage;
	struct own mine = {0};
	enum gn_status status;

	measure(m, &mine);
	status = gn_agree_gather(m->comm, &mine, sizeof mine, m->all, err);
	if (status)
		return status;
	u->age_s = fmax(gn_process_age_s(), 0);
	u->cpu_s = u->waited_s = u->max_rss_bytes = 0;
	for (int n = 0; n < u->nodes; n++)
		u->node[n].rss_bytes = 0;
	for (int r = 0; r < gn_comm_size(m->comm); r++) {
		const struct own *o = &m->all[r];
		struct gn_usage_node *n = &u->node[gn_world_node_of(w, gn_comm_world_rank(m->comm, r))];

		u->cpu_s += o->cpu_s;
		u->waited_s += o->waited_s;
		n->rss_bytes += o->rss_bytes;
		if (o->load.memory_bytes > 0)
			n->load = o->load;
		if (o->max_rss_bytes > u->max_rss_bytes) {
			u->max_rss_bytes = o->max_rss_bytes;
			u->max_rss_rank = r;
		}
	}
	return GN_OK;
}

const struct gn_usage *gn_usage_last(const struct gn_usage_meter *m)
{
	return &m->usage;
}

void gn_usage_write(const struct gn_usage *u, struct gn_json *j)
{
	gn_json_object(j, "usage");
	gn_json_int(j, "ranks", u->ranks);
	gn_json_fixed(j, "cpu_s", u->cpu_s, 3);
	gn_json_fixed(j, "waited_s", u->waited_s, 3);
	gn_json_fixed(j, "age_s", u->age_s, 3);
	gn_json_int(j, "processors", u->processors);
	gn_json_fixed(j, "max_rss_bytes", u->max_rss_bytes, 0);
	gn_json_int(j, "max_rss_rank", u->max_rss_rank);
	gn_json_end(j);
}
