#include "transport/coll/comm_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hosts named in one list, and hosts whose details are named. */
#define HOSTS_MAX 8
#define CLASSES (GN_LANES_RC | GN_LANES_UD | GN_LANES_TCP)

int gn_lanes_class(const char *lanes)
{
	if (!*lanes || gn_ucx_lanes_match(lanes, "shm"))
		return 0;
	if (gn_ucx_lanes_match(lanes, "tcp"))
		return GN_LANES_TCP;
	return gn_ucx_lanes_match(lanes, "ud") ? GN_LANES_UD : GN_LANES_RC;
}

static int is_rdma(const struct gn_net_device *d)
{
	return d->kind == GN_DEVICE_RDMA || d->kind == GN_DEVICE_SOFT_RDMA;
}

static double fastest_used(const struct gn_devices *devices, const char *lanes)
{
	double most = 0;

	for (int i = 0; i < devices->count; i++)
		if (gn_devices_in_lanes(lanes, devices->items[i].name) && devices->items[i].gbit_per_s > most)
			most = devices->items[i].gbit_per_s;
	return most;
}

/* RDMA counts as faster than tcp at any rate; else the link rates decide, if both are known. */
static int is_faster(const struct gn_net_device *d, int by_rdma, double used_gbit, int free_choice)
{
	if (!d->up || d->kind == GN_DEVICE_LOOPBACK)
		return 0;
	if (is_rdma(d) != by_rdma)
		return is_rdma(d) && free_choice;
	return d->hardware && used_gbit > 0 && d->gbit_per_s > used_gbit;
}

static void append(struct gn_lanes_record *record, const char *name, double gbit, const char *what)
{
	size_t len = strlen(record->detail);
	char rate[32] = "";

	if (gbit > 0)
		snprintf(rate, sizeof rate, " at %g Gb/s", gbit);
	snprintf(record->detail + len, sizeof record->detail - len, "%s%s%s %s", len ? ", " : "", name, rate, what);
}

void gn_lanes_judge(const struct gn_devices *devices, const char *lanes, int free_choice, int any_device,
		    struct gn_lanes_record *record)
{
	int by_rdma = (record->classes & (GN_LANES_RC | GN_LANES_UD)) != 0;
	double used = fastest_used(devices, lanes);

	for (int i = 0; i < devices->count && record->classes & CLASSES; i++) {
		const struct gn_net_device *d = &devices->items[i];

		if (gn_devices_in_lanes(lanes, d->name))
			continue;
		if (any_device && is_faster(d, by_rdma, used, free_choice)) {
			append(record, d->name, d->gbit_per_s, "is up and unused");
			record->classes |= GN_LANES_SUSPECT;
		} else if (is_rdma(d) && !d->up) {
			append(record, d->name, 0, "is down");
		}
	}
}

/* --- text --- */

static void append_classes(int classes, struct gn_strbuf *out)
{
	static const char *const names[] = {"rc", "ud", "tcp"};
	const char *between = "";

	for (int i = 0; i < 3; i++)
		if (classes & 1 << i) {
			gn_strbuf_printf(out, "%s%s", between, names[i]);
			between = " and ";
		}
}

struct node {
	int classes;
	const char *host, *detail;
};

static void list_nodes(const struct node *nodes, int count, int classes, struct gn_strbuf *out)
{
	int listed = 0;

	for (int n = 0; n < count; n++) {
		if (!nodes[n].host || (nodes[n].classes & CLASSES) != classes)
			continue;
		if (!listed) {
			gn_strbuf_puts(out, out->len ? "; " : "");
			append_classes(classes, out);
		}
		if (listed++ < HOSTS_MAX)
			gn_strbuf_printf(out, "%s%s", listed == 1 ? " on " : ", ", nodes[n].host);
	}
	if (listed > HOSTS_MAX)
		gn_strbuf_printf(out, " and %d more", listed - HOSTS_MAX);
}

enum gn_status gn_lanes_describe(const struct gn_lanes_record *records, const int *nodes, const char *const *hosts, int ranks,
				 struct gn_strbuf *out, struct gn_err *err)
{
	struct node *all = calloc((size_t)ranks, sizeof *all);
	int named = 0;

	if (!all)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
	for (int r = 0; r < ranks; r++) {
		struct node *n = &all[nodes[r]];

		n->host = hosts[r];
		n->classes |= records[r].classes;
		if (!n->detail && *records[r].detail)
			n->detail = records[r].detail;
	}
	for (int classes = 1; classes <= CLASSES; classes++)
		list_nodes(all, ranks, classes, out);
	/* suspect nodes first */
	for (int pass = 0; pass < 2; pass++)
		for (int n = 0; n < ranks && named < HOSTS_MAX; n++)
			if (all[n].detail && (all[n].classes & GN_LANES_SUSPECT ? 0 : 1) == pass) {
				gn_strbuf_printf(out, "; %s: %s", all[n].host, all[n].detail);
				named++;
			}
	free(all);
	return gn_strbuf_failed(out) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", ranks) : GN_OK;
}

/* --- all ranks --- */

/* Sets the record's classes, and appends the lanes to all ranks of other nodes. */
static void find_lanes(const struct gn_world *w, const struct gn_ucx *f, const char *transport, struct gn_strbuf *lanes,
		       struct gn_lanes_record *record)
{
	int here = gn_world_node_of(w, gn_world_rank(w)), fits = 1;
	const char *forced = getenv("UCX_TLS");

	for (int r = 0; r < gn_world_size(w); r++) {
		size_t before = lanes->len;

		if (gn_world_node_of(w, r) == here)
			continue;
		gn_ucx_lanes(f, r, lanes);
		if (lanes->len == before)
			continue;
		record->classes |= gn_lanes_class(gn_strbuf_text(lanes) + before);
		fits &= gn_ucx_lanes_match(gn_strbuf_text(lanes) + before, transport);
		gn_strbuf_puts(lanes, " ");
	}
	if (fits)
		return;
	record->classes |= GN_LANES_SUSPECT;
	snprintf(record->detail, sizeof record->detail, "UCX_TLS=%.40s overrides --transport %.8s", forced ? forced : "", transport);
}

static void inspect_lanes(const struct gn_world *w, const struct gn_ucx *f, const char *transport, struct gn_lanes_record *record)
{
	const char *allowed = getenv("UCX_NET_DEVICES");
	struct gn_devices devices = {0};
	struct gn_strbuf lanes = {0};

	find_lanes(w, f, transport, &lanes, record);
	if (!gn_devices_read("/sys", &devices, NULL))
		gn_lanes_judge(&devices, gn_strbuf_text(&lanes), !strcmp(transport, "auto"),
			       !getenv("UCX_TLS") && (!allowed || !strcmp(allowed, "all")), record);
	gn_devices_release(&devices);
	gn_strbuf_release(&lanes);
}

/* Allgather of len_bytes of each rank into out. */
static enum gn_status exchange_all(struct gn_world *w, const void *mine, size_t len_bytes, void *out, struct gn_err *err)
{
	struct gn_gathered gathered = {0};
	enum gn_status status = gn_world_exchange(w, mine, len_bytes, &gathered, err);

	for (size_t r = 0; !status && r < gathered.size; r++) {
		if (gathered.lens[r] == len_bytes)
			memcpy((char *)out + r * len_bytes, gathered.items[r], len_bytes);
		else
			status = gn_err_set(err, GN_ERR_MISMATCH, "rank %zu sent its transports in another format: do all ranks run the "
					    "same build of gannet?", r);
	}
	gn_gathered_release(&gathered);
	return status;
}

struct exchange {
	struct gn_lanes_record *records;
	int32_t *classes;
	int *nodes;
	const char **hosts;
};

static enum gn_status allocate(const struct gn_world *w, struct exchange *p, struct gn_err *err)
{
	int size = gn_world_size(w);

	p->records = calloc((size_t)size, sizeof *p->records);
	p->classes = calloc((size_t)size, sizeof *p->classes);
	p->nodes = calloc((size_t)size, sizeof *p->nodes);
	p->hosts = calloc((size_t)size, sizeof *p->hosts);
	if (!p->records || !p->classes || !p->nodes || !p->hosts)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", size);
	for (int r = 0; r < size; r++) {
		p->nodes[r] = gn_world_node_of(w, r);
		p->hosts[r] = gn_world_host_of(w, r);
	}
	return GN_OK;
}

static void release(struct exchange *p)
{
	free(p->records);
	free(p->classes);
	free(p->nodes);
	free(p->hosts);
}

/* Whether all ranks use one class of transports and none is suspect. Ranks without a connection to another node have no class. */
static int is_uniform(const int32_t *classes, int ranks)
{
	int all = 0;

	for (int r = 0; r < ranks; r++)
		all |= classes[r];
	return !(all & (all - 1)) && all != GN_LANES_SUSPECT;
}

static enum gn_status report_lanes(const struct gn_world *w, const struct exchange *p, int strict, struct gn_log *log, struct gn_err *err)
{
	struct gn_strbuf text = {0};
	enum gn_status status = gn_lanes_describe(p->records, p->nodes, p->hosts, gn_world_size(w), &text, err);

	if (!status && strict)
		status = gn_err_set(err, GN_ERR_FAILED, "--transport-strict: nodes use different transports, or leave faster devices unused: %s",
				    gn_strbuf_text(&text));
	else if (!status && gn_world_rank(w) == 0)
		gn_log_warn(log, "nodes use different transports, or leave faster devices unused: %s; if that is intended, set --transport "
			    "or UCX_NET_DEVICES; --transport-strict makes it an error", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	return status;
}

enum gn_status gn_lanes_check(struct gn_world *w, const struct gn_ucx *f, const char *transport, int strict, struct gn_log *log,
			      struct gn_err *err)
{
	struct gn_lanes_record mine = {.classes = 0};
	struct exchange p = {0};
	enum gn_status status;

	if (gn_world_nodes(w) == 1)
		return GN_OK;
	inspect_lanes(w, f, transport, &mine);
	status = allocate(w, &p, err);
	if (!status)
		status = exchange_all(w, &mine.classes, sizeof mine.classes, p.classes, err);
	if (!status && !is_uniform(p.classes, gn_world_size(w))) {
		status = exchange_all(w, &mine, sizeof mine, p.records, err);
		if (!status)
			status = report_lanes(w, &p, strict, log, err);
	}
	release(&p);
	return status;
}
