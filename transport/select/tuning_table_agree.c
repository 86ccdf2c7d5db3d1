#include "transport/select/tuning_table.h"

#include "src/base/text.h"
#include "transport/select/select.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

/* Rank 0's part of the exchange. magic depends on the layout, so that ranks of another build reject it. */
struct table_record {
	uint64_t magic;
	int64_t status;
	struct gn_cost cost;
	char text[GN_ERR_TEXT_MAX];
};
#define MAGIC (UINT64_C(0x676e74756e6530) << 8 ^ sizeof(struct table_record))

static const char *get_env(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

enum gn_status gn_tuning_table_path(const char *given, char *out, size_t out_size, int *named, struct gn_err *err)
{
	const char *path = given && *given ? given : get_env("GANNET_TUNING");
	const char *config = get_env("XDG_CONFIG_HOME"), *home = get_env("HOME");
	int len;

	if (path)
		len = snprintf(out, out_size, "%s", strcmp(path, "none") ? path : "");
	else if (config && *config == '/')
		len = snprintf(out, out_size, "%s/gannet/tuning.jsonl", config);
	else
		len = snprintf(out, out_size, "%s%s", home ? home : "", home ? "/.config/gannet/tuning.jsonl" : "");
	if (len < 0 || (size_t)len >= out_size)
		return gn_err_set(err, GN_ERR_USAGE, "the path of the tuning table is too long");
	*named = path != NULL;
	return GN_OK;
}

/* --- signature --- */

static void append_rates(const struct gn_devices *devices, const char *lanes, struct gn_strbuf *out)
{
	char name[GN_DEVICE_NAME_MAX + 2];

	gn_strbuf_puts(out, *lanes ? lanes : "-");
	for (int i = 0; i < devices->count; i++) {
		const char *at;

		snprintf(name, sizeof name, "/%s", devices->items[i].name);
		at = strstr(lanes, name);
		if (at && strchr(" :", at[strlen(name)]) && devices->items[i].gbit_per_s > 0)
			gn_strbuf_printf(out, " (%s %g Gb/s)", devices->items[i].name, devices->items[i].gbit_per_s);
	}
}

static void append_shape(const struct gn_world *world, struct gn_strbuf *out)
{
	int nodes = gn_world_nodes(world), size = gn_world_size(world), least = size, most = 0;

	for (int n = 0; n < nodes; n++) {
		int ranks = 0;

		for (int r = 0; r < size; r++)
			ranks += gn_world_node_of(world, r) == n;
		least = ranks < least ? ranks : least;
		most = ranks > most ? ranks : most;
	}
	gn_strbuf_printf(out, "%d nodes of %d", nodes, least);
	if (most != least)
		gn_strbuf_printf(out, " to %d", most);
}

/* The first other rank on this node (same) or on another node; -1: none. */
static int first_peer(const struct gn_world *world, int same)
{
	int me = gn_world_rank(world);

	for (int r = 0; r < gn_world_size(world); r++)
		if (r != me && (gn_world_node_of(world, r) == gn_world_node_of(world, me)) == same)
			return r;
	return -1;
}

static enum gn_status lanes_to(struct gn_world *world, struct gn_ucx *ucx, int same, struct gn_strbuf *out,
			       struct gn_err *err)
{
	int peer = first_peer(world, same);
	enum gn_status status = peer < 0 ? GN_OK : gn_ucx_connect(ucx, peer, err);

	if (!status && peer >= 0)
		gn_ucx_lanes(ucx, peer, out);
	return status;
}

/* The transports in use and this host's devices. */
struct paths {
	struct gn_strbuf node, link; /* lanes to a rank of this node, and of another; "": there is none */
	struct gn_devices devices;
};

static enum gn_status find_paths(struct gn_world *world, struct gn_ucx *ucx, struct paths *out, struct gn_err *err)
{
	enum gn_status status;

	*out = (struct paths){0};
	status = lanes_to(world, ucx, 1, &out->node, err);
	if (!status)
		status = lanes_to(world, ucx, 0, &out->link, err);
	if (!status)
		status = gn_devices_read("/sys", &out->devices, err);
	return status;
}

static void release_paths(struct paths *p)
{
	gn_strbuf_release(&p->node);
	gn_strbuf_release(&p->link);
	gn_devices_release(&p->devices);
}

enum gn_status gn_tuning_table_signature(struct gn_world *world, struct gn_ucx *ucx, struct gn_strbuf *out,
				   struct gn_err *err)
{
	struct paths p;
	enum gn_status status = find_paths(world, ucx, &p, err);

	if (!status) {
		append_shape(world, out);
		gn_strbuf_puts(out, "; within: ");
		append_rates(&p.devices, gn_strbuf_text(&p.node), out);
		gn_strbuf_puts(out, "; between: ");
		append_rates(&p.devices, gn_strbuf_text(&p.link), out);
		gn_strbuf_printf(out, "; UCX %s", ucp_get_version_string());
	}
	release_paths(&p);
	return status;
}

/* --- the costs that all ranks use --- */

static enum gn_status estimate_costs(struct gn_world *world, struct gn_ucx *ucx, struct gn_cost *out, struct gn_err *err)
{
	struct paths p;
	enum gn_status status = find_paths(world, ucx, &p, err);

	if (!status)
		gn_cost_guess(&p.devices, gn_strbuf_text(&p.node), gn_strbuf_text(&p.link), out);
	/* messages long enough for the rate to matter are striped over all rails */
	if (!status)
		out->link.bytes_per_s *= gn_ucx_rails(ucx);
	release_paths(&p);
	return status;
}

/* Reads the table's entry. Older tables name sysv where UCX now uses posix, which is as fast. */
static enum gn_status read_table(const char *path, const char *signature, int *found, struct gn_cost *out, struct gn_err *err)
{
	const char *posix = strstr(signature, "within: posix/");
	struct gn_strbuf older = {0};
	enum gn_status status = gn_tuning_table_read(path, signature, found, out, err);

	if (status || *found || !posix)
		return status;
	posix += strlen("within: ");
	gn_strbuf_append(&older, signature, (size_t)(posix - signature));
	gn_strbuf_printf(&older, "sysv%s", posix + strlen("posix"));
	if (!gn_strbuf_failed(&older))
		status = gn_tuning_table_read(path, gn_strbuf_text(&older), found, out, err);
	gn_strbuf_release(&older);
	return status;
}

enum gn_status gn_node_map_of_world(const struct gn_world *world, struct gn_node_map **out, struct gn_err *err)
{
	int size = gn_world_size(world), *node_of = calloc((size_t)size, sizeof *node_of);
	enum gn_status status;

	if (!node_of)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", size);
	for (int r = 0; r < size; r++)
		node_of[r] = gn_world_node_of(world, r);
	status = gn_node_map_create(node_of, size, out, err);
	free(node_of);
	return status;
}

/* Adapts measured costs to this number of nodes, and logs their source. */
static enum gn_status use_measured(struct gn_world *world, const char *path, struct gn_log *log, struct gn_cost *c, struct gn_err *err)
{
	int nodes = gn_world_nodes(world), had_picks = c->pick_count;
	struct gn_node_map *map;
	enum gn_status status;

	if (!c->tuned_nodes || c->tuned_nodes == nodes) {
		gn_log_info(log, "algorithm selection: measured costs from %s", path);
		return GN_OK;
	}
	status = gn_node_map_of_world(world, &map, err);
	if (status)
		return status;
	status = gn_select_keep_picks(c, map, err);
	gn_node_map_destroy(map);
	if (!status)
		gn_log_info(log, "algorithm selection: measured costs from %s, tuned on %d node%s, used on %d%s", path, c->tuned_nodes,
			    gn_text_plural((uint64_t)c->tuned_nodes), nodes, had_picks && !c->pick_count ?
			    ": the cost model selects from rates and latencies; run gannet tune here to time the algorithms" : "");
	return status;
}

/* On rank 0: replaces the estimate in *out by the table's entry, if there is one. */
static enum gn_status look_up_table(struct gn_world *world, struct gn_ucx *ucx, const char *given, struct gn_log *log,
			      struct gn_cost *out, struct gn_err *err)
{
	struct gn_strbuf signature = {0};
	char path[PATH_MAX];
	struct gn_err why = {.text = ""};
	int named = 0, found = 0;
	enum gn_status status = gn_tuning_table_path(given, path, sizeof path, &named, err);

	if (status || !*path)
		return status;
	status = gn_tuning_table_signature(world, ucx, &signature, err);
	if (!status) {
		status = read_table(path, gn_strbuf_text(&signature), &found, out, &why);
		if (!status && found)
			status = use_measured(world, path, log, out, err);
		else if (!status)
			gn_log_info(log, "algorithm selection: estimated costs: %s has no entry for this fabric (%s); run gannet tune "
				    "to measure it", path, gn_strbuf_text(&signature));
		else if (status == GN_ERR_NOT_FOUND && !named)
			status = GN_OK;
		else if (!named && status != GN_ERR_DATA && status != GN_ERR_NO_MEMORY) {
			gn_log_warn(log, "algorithm selection: estimated costs: %s; GANNET_TUNING names another tuning table, or none",
				    why.text);
			status = GN_OK;
		} else
			gn_err_set(err, status, "%s", why.text);
	}
	gn_strbuf_release(&signature);
	return status;
}

enum gn_status gn_tuning_table_check(const char *given, struct gn_err *err)
{
	struct gn_cost ignored;
	char path[PATH_MAX];
	int named = 0, found;
	enum gn_status status = gn_tuning_table_path(given, path, sizeof path, &named, err);

	return status || !named || !*path ? status : gn_tuning_table_read(path, "", &found, &ignored, err);
}

static enum gn_status parse_record(const struct table_record *t, size_t len, struct gn_cost *out, struct gn_err *err)
{
	if (len != sizeof *t || t->magic != MAGIC)
		return gn_err_set(err, GN_ERR_MISMATCH, "rank 0 sent its tuning in another format: do all ranks run the same build of "
				  "gannet?");
	if (t->status)
		return gn_err_set(err, (enum gn_status)t->status, "%.*s", (int)sizeof t->text - 1, t->text);
	*out = t->cost;
	return GN_OK;
}

enum gn_status gn_tuning_table_agree(struct gn_world *world, struct gn_ucx *ucx, const char *given, struct gn_log *log,
			       struct gn_cost *out, struct gn_err *err)
{
	int root = gn_world_rank(world) == 0;
	struct table_record mine = {.magic = MAGIC};
	struct gn_gathered all = {0};
	struct gn_err why = {.text = ""};
	enum gn_status status;

	if (root) {
		mine.status = estimate_costs(world, ucx, &mine.cost, &why);
		if (!mine.status)
			mine.status = look_up_table(world, ucx, given, log, &mine.cost, &why);
		memcpy(mine.text, why.text, sizeof mine.text);
	}
	status = gn_world_exchange(world, &mine, root ? sizeof mine : 0, &all, err);
	if (!status)
		status = parse_record(all.items[0], all.lens[0], out, err);
	gn_gathered_release(&all);
	return status;
}
