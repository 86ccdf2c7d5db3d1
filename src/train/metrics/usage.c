#include "src/train/metrics/usage.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/process.h"
#include "transport/bootstrap/world.h"
#include "transport/coll/agree.h"

#include <dirent.h>
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

static double read_number(const char *path)
{
	char text[64];

	return gn_file_read_start(path, text, sizeof text) < 0 ? 0 : strtod(text, NULL);
}

/* "cpu user nice system idle iowait irq softirq steal ...": idle and iowait are not busy. */
static void read_processors(struct gn_node_counters *out)
{
	char text[512];
	double t[8] = {0};

	if (gn_file_read_start("/proc/stat", text, sizeof text) < 0)
		return;
	if (sscanf(text, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) == 8) {
		for (int i = 0; i < 8; i++)
			out->total += t[i];
		out->busy = out->total - t[3] - t[4];
	}
}

static void read_memory(struct gn_node_counters *out)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];
	double kib;

	while (file && fgets(line, sizeof line, file)) {
		if (sscanf(line, "MemTotal: %lf kB", &kib) == 1)
			out->memory_bytes = kib * 1024;
		if (sscanf(line, "MemAvailable: %lf kB", &kib) == 1)
			out->available_bytes = kib * 1024;
	}
	if (file)
		fclose(file);
}

/* Adds unit times the two counters of every entry of a folder that has the file in which. */
static void add_devices(const char *folder, const char *which, const char *in, const char *out, double unit, struct gn_node_counters *c)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	char path[512];

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "lo"))
			continue;
		snprintf(path, sizeof path, "%s/%s/%s", folder, entry->d_name, which);
		if (access(path, F_OK))
			continue;
		snprintf(path, sizeof path, "%s/%s/%s", folder, entry->d_name, in);
		c->received_bytes += unit * read_number(path);
		snprintf(path, sizeof path, "%s/%s/%s", folder, entry->d_name, out);
		c->sent_bytes += unit * read_number(path);
	}
	if (dir)
		closedir(dir);
}

void gn_node_counters_read(struct gn_node_counters *out)
{
	memset(out, 0, sizeof *out);
	out->time_s = gn_clock_s();
	read_processors(out);
	read_memory(out);
	/* a bridge, a bond or a tunnel has no device of its own: its bytes would count twice */
	add_devices("/sys/class/net", "device", "statistics/rx_bytes", "statistics/tx_bytes", 1, out);
	/* port 1 of each adapter counts words of four bytes */
	add_devices("/sys/class/infiniband", "ports/1/counters", "ports/1/counters/port_rcv_data", "ports/1/counters/port_xmit_data", 4, out);
}

/* A counter that went back was reset. */
static double rate(double before, double now, double seconds)
{
	return seconds > 0 && now > before ? (now - before) / seconds : 0;
}

static void node_load_between(const struct gn_node_counters *before, const struct gn_node_counters *now, struct gn_node_load *out)
{
	double seconds = now->time_s - before->time_s;

	*out = (struct gn_node_load){
		.cpu = rate(before->busy, now->busy, now->total - before->total),
		.memory_bytes = now->memory_bytes,
		.memory_used_bytes = now->memory_bytes > now->available_bytes ? now->memory_bytes - now->available_bytes : 0,
		.receive_bytes_per_s = rate(before->received_bytes, now->received_bytes, seconds),
		.send_bytes_per_s = rate(before->sent_bytes, now->sent_bytes, seconds),
	};
}

void gn_node_load_write(const char *host, const struct gn_node_load *load, double rss_bytes, struct gn_json *j)
{
	gn_json_put(j, "{ host %s cpu %.4f memory_bytes %.0f memory_used_bytes %.0f rss_bytes %.0f receive_bytes_per_s %.0f "
		    "send_bytes_per_s %.0f }", host, load->cpu, load->memory_bytes, load->memory_used_bytes, rss_bytes,
		    load->receive_bytes_per_s, load->send_bytes_per_s);
}

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
	node_load_between(&m->before, &now, &out->load);
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
	gn_json_put(j, "usage { ranks %d cpu_s %.3f waited_s %.3f age_s %.3f processors %d max_rss_bytes %.0f max_rss_rank %d }", u->ranks,
		    u->cpu_s, u->waited_s, u->age_s, u->processors, u->max_rss_bytes, u->max_rss_rank);
}
