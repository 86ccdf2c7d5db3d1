#include "transport/coll/affinity_report.h"

#include "src/base/text.h"
#include "transport/coll/comm_internal.h"
#include "transport/topology/affinity.h"
#include "transport/topology/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most lines logged about other nodes than rank 0's. */
#define LINES_MAX 8

/* A rank's part of the first exchange, sent with nic_count names. */
struct record {
	cpu_set_t cpus;
	char gpu[16];
	int32_t nic_count;
	char nics[GN_AFFINITY_NICS_MAX][GN_DEVICE_NAME_MAX];
};

/* A line about one rank; the first rank of its node sends it to rank 0. */
struct line {
	int32_t rank;
	int32_t warns;
	char text[760];
};

/* --- each rank: its own record --- */

static void add_nic(struct record *record, const char *name, size_t len)
{
	len = strcspn(name, ":") < len ? strcspn(name, ":") : len;
	if (!len || len >= GN_DEVICE_NAME_MAX || record->nic_count == GN_AFFINITY_NICS_MAX)
		return;
	for (int i = 0; i < record->nic_count; i++)
		if (strlen(record->nics[i]) == len && !strncmp(record->nics[i], name, len))
			return;
	memcpy(record->nics[record->nic_count++], name, len);
}

/* The network devices in use: the rails, or those that UCX selected for a rank of another node. */
static void find_used(struct gn_comm *c, struct record *record)
{
	int size = gn_comm_size(c), rank = gn_comm_rank(c), here = gn_world_node_of(c->world, rank), other = 0;
	struct gn_strbuf lanes = {0};

	while (other < size && gn_world_node_of(c->world, other) == here)
		other++;
	for (int i = 0; other < size && i < gn_ucx_rails(c->ucx); i++)
		add_nic(record, gn_ucx_rail_device(c->ucx, i), GN_DEVICE_NAME_MAX);
	if (record->nic_count || other == size)
		return;
	gn_comm_enter(c);
	/* a failure to connect is reported where a connection is needed */
	if (!gn_ucx_connect(c->ucx, other, NULL))
		gn_ucx_lanes(c->ucx, other, &lanes);
	gn_comm_leave(c);
	for (const char *at = strchr(gn_strbuf_text(&lanes), '/'); at; at = strchr(at + 1, '/'))
		add_nic(record, at + 1, strcspn(at + 1, " "));
	gn_strbuf_release(&lanes);
}

static size_t record_bytes(int nic_count)
{
	return offsetof(struct record, nics) + (size_t)nic_count * GN_DEVICE_NAME_MAX;
}

static enum gn_status exchange_records(struct gn_comm *c, const char *gpu, struct gn_gathered *out, struct gn_err *err)
{
	struct record mine = {.nic_count = 0};

	find_used(c, &mine);
	if (sched_getaffinity(0, sizeof mine.cpus, &mine.cpus))
		memset(&mine.cpus, 0xff, sizeof mine.cpus);
	if (gpu)
		memcpy(mine.gpu, gpu, strnlen(gpu, sizeof mine.gpu - 1));
	return gn_world_exchange(c->world, &mine, record_bytes(mine.nic_count), out, err);
}

/* --- the first rank of each node: lines about its ranks --- */

static void read_record(const struct gn_topology *m, const struct gn_gathered *gathered, int rank, struct gn_affinity_rank *out)
{
	struct record record = {.nic_count = 0};

	if (gathered->lens[rank] >= record_bytes(0) && gathered->lens[rank] <= sizeof record)
		memcpy(&record, gathered->items[rank], gathered->lens[rank]);
	record.gpu[sizeof record.gpu - 1] = 0;
	*out = (struct gn_affinity_rank){.cpus = record.cpus, .gpu = *record.gpu ? gn_topology_find_gpu(m, record.gpu) : -1};
	for (int i = 0; i < record.nic_count && i < GN_AFFINITY_NICS_MAX; i++) {
		record.nics[i][GN_DEVICE_NAME_MAX - 1] = 0;
		out->nics[out->nic_count] = gn_topology_find_nic(m, record.nics[i]);
		out->nic_count += out->nics[out->nic_count] >= 0;
	}
}

/* Marks devices that are up and of the kind in use: RDMA devices are not usable for tcp. */
static enum gn_status find_usable(const struct gn_topology *m, const struct gn_affinity_rank *first, unsigned char *usable,
				  struct gn_err *err)
{
	struct gn_devices devices = {0};
	enum gn_status status = gn_devices_read("/sys", &devices, err);
	int by_net = first->nic_count > 0;

	for (int i = 0; i < first->nic_count; i++)
		by_net &= !m->nics[first->nics[i]].rdma;
	for (int i = 0; i < devices.count; i++) {
		int n = devices.items[i].up ? gn_topology_find_nic(m, devices.items[i].name) : -1;

		if (n >= 0 && (!by_net || !m->nics[n].rdma))
			usable[n] = 1;
	}
	gn_devices_release(&devices);
	return status;
}

static void append_line(const struct gn_strbuf *text, int rank, int warns, struct gn_strbuf *out)
{
	struct line line = {.rank = rank, .warns = warns};

	memcpy(line.text, gn_strbuf_text(text), text->len < sizeof line.text ? text->len : sizeof line.text - 1);
	gn_strbuf_append(out, (const char *)&line, sizeof line);
}

static void append_rank(const struct gn_topology *m, const struct gn_affinity_rank *r, const struct gn_affinity *a, int rank,
		     struct gn_strbuf *out)
{
	struct gn_strbuf text = {0};

	gn_affinity_describe(m, r, a, &text);
	append_line(&text, rank, 0, out);
	for (unsigned fault = GN_AFFINITY_GPU_FAR_NIC; fault <= GN_AFFINITY_CORES_FAR_GPU; fault <<= 1) {
		if (!(a->faults & fault))
			continue;
		gn_strbuf_clear(&text);
		gn_affinity_explain(m, r, a, (enum gn_affinity_fault)fault, &text);
		append_line(&text, rank, 1, out);
	}
	gn_strbuf_release(&text);
}

static enum gn_status describe_node(struct gn_comm *c, const struct gn_topology *m, const struct gn_gathered *records, struct gn_strbuf *out,
			    struct gn_err *err)
{
	int size = gn_comm_size(c), here = gn_world_node_of(c->world, gn_comm_rank(c)), local = gn_world_local_size(c->world);
	struct gn_affinity_rank *ranks = calloc((size_t)local, sizeof *ranks);
	struct gn_affinity *choices = calloc((size_t)local, sizeof *choices);
	unsigned char *usable = calloc((size_t)m->nic_count + 1, 1);
	int count = 0, *rank_of = calloc((size_t)local, sizeof *rank_of);
	enum gn_status status = GN_OK;

	if (!ranks || !choices || !usable || !rank_of)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", local);
	for (int r = 0; !status && r < size && count < local; r++)
		if (gn_world_node_of(c->world, r) == here) {
			read_record(m, records, r, &ranks[count]);
			rank_of[count++] = r;
		}
	if (!status)
		status = find_usable(m, &ranks[0], usable, err);
	if (!status)
		gn_affinity_choose(m, usable, ranks, count, choices);
	for (int i = 0; !status && i < count; i++)
		append_rank(m, &ranks[i], &choices[i], rank_of[i], out);
	free(ranks);
	free(choices);
	free(usable);
	free(rank_of);
	return status;
}

/* --- rank 0: logs its own node, nodes that differ from it, and faults --- */

struct report {
	struct gn_log *log;
	const struct gn_world *world;
	const struct line *own; /* of rank 0's node */
	size_t own_count;
	int same_nodes, different, warned, omitted;
};

static int same_text(const struct line *a, const struct line *b)
{
	return a->warns == b->warns && !strcmp(a->text, b->text);
}

static void log_line(struct report *s, const struct line *l, int last)
{
	const char *host = gn_world_host_of(s->world, l->rank);
	char ranks[32];

	if (s->warned + s->different > LINES_MAX) {
		s->omitted++;
		return;
	}
	if (last > l->rank)
		snprintf(ranks, sizeof ranks, "ranks %d-%d", l->rank, last);
	else
		snprintf(ranks, sizeof ranks, "rank %d", l->rank);
	if (l->warns)
		gn_log_warn(s->log, "%s on %s: %s", ranks, host, l->text);
	else
		gn_log_info(s->log, "%s on %s: %s", ranks, host, l->text);
}

/* Consecutive ranks with the same text share a line. */
static void log_lines(struct report *s, const struct line *lines, size_t count, int warns)
{
	for (size_t i = 0, end; i < count; i = end) {
		end = i + 1;
		if (lines[i].warns != warns)
			continue;
		while (end < count && same_text(&lines[end], &lines[i]) && lines[end].rank == lines[end - 1].rank + 1)
			end++;
		s->warned += warns;
		log_line(s, &lines[i], lines[end - 1].rank);
	}
}

static void log_node(struct report *s, const struct line *lines, size_t count)
{
	int same = count == s->own_count;

	for (size_t i = 0; same && i < count; i++)
		same = same_text(&lines[i], &s->own[i]);
	if (lines == s->own || !same) {
		s->different += lines != s->own;
		log_lines(s, lines, count, 0);
		log_lines(s, lines, count, 1);
	} else {
		s->same_nodes++;
	}
}

static void log_all(struct gn_comm *c, struct gn_gathered *all, struct gn_log *log)
{
	struct report s = {.log = log, .world = c->world, .own = all->items[0], .own_count = all->lens[0] / sizeof *s.own};

	for (size_t r = 0; r < all->size; r++) {
		struct line *lines = all->items[r];
		size_t count = all->lens[r] / sizeof *lines;

		for (size_t i = 0; i < count; i++) {
			lines[i].text[sizeof lines[i].text - 1] = 0;
			if (lines[i].rank < 0 || lines[i].rank >= gn_comm_size(c))
				count = 0;
		}
		if (count)
			log_node(&s, lines, count);
	}
	if (s.same_nodes)
		gn_log_info(log, "and the same on %d other node%s", s.same_nodes, s.same_nodes > 1 ? "s" : "");
	if (s.omitted)
		gn_log_info(log, "%d more line%s about the placement of other ranks omitted", s.omitted,
			    gn_text_plural((uint64_t)s.omitted));
}

enum gn_status gn_affinity_report(struct gn_comm *c, const char *gpu, struct gn_log *log, struct gn_err *err)
{
	struct gn_topology topology = {0};
	struct gn_gathered records = {0}, lines = {0};
	struct gn_strbuf mine = {0};
	struct gn_err why;
	enum gn_status status = exchange_records(c, gpu, &records, err);

	/* failures from here on are warnings */
	if (!status && gn_world_local_rank(c->world) == 0 &&
	    (gn_topology_read(&topology, &why) || describe_node(c, &topology, &records, &mine, &why))) {
		gn_log_warn(log, "the affinity of GPUs, network devices and processors of %s is unknown: %s",
			    gn_world_host_of(c->world, gn_comm_rank(c)), why.text);
		gn_strbuf_clear(&mine);
	}
	if (!status)
		status = gn_world_exchange(c->world, gn_strbuf_text(&mine), mine.len, &lines, err);
	if (!status && gn_comm_rank(c) == 0)
		log_all(c, &lines, log);
	gn_topology_release(&topology);
	gn_strbuf_release(&mine);
	gn_gathered_release(&records);
	gn_gathered_release(&lines);
	return status;
}
