#include "transport/coll/comm_internal.h"

#include "src/base/alloc.h"
#include "transport/topology/oversubscription.h"
#include "transport/topology/devices.h"
#include "transport/coll/lanes_check.h"
#include "transport/select/tuning_table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum gn_status make_barrier(struct gn_comm *c, struct gn_err *err)
{
	struct gn_coll_args args = {.what = GN_COLLECTIVE_BARRIER};

	return gn_coll_prepare(c, &args, &c->barrier, err);
}

static enum gn_status map_nodes(struct gn_comm *c, struct gn_err *err)
{
	int size = gn_comm_size(c), *node_of = calloc((size_t)size, sizeof *node_of);
	enum gn_status status;

	if (!node_of)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", size);
	for (int r = 0; r < size; r++)
		node_of[r] = gn_world_node_of(c->world, r);
	status = gn_shm_map_create(node_of, size, &c->map, err);
	free(node_of);
	return status;
}

/* Only where neighbours exist, and where nothing else was asked for by name. */
static enum gn_status share_node(struct gn_comm *c, struct gn_err *err)
{
	int wanted = !strcmp(c->transport, "auto") || !strcmp(c->transport, "shm");
	enum gn_status status;

	if (!wanted || gn_comm_size(c) == gn_world_nodes(c->world))
		return GN_OK;
	status = gn_shm_create(c->world, c->oversubscribed, &c->node, err);
	if (status != GN_ERR_UNSUPPORTED)
		return status;
	gn_log_debug(c->log, "ranks of one node cannot share memory, messages will do: %s", err ? err->text : "");
	return GN_OK;
}

/* UCX's shared memory takes one IPC namespace. */
static enum gn_status share_ipc(const struct gn_comm *c, int *all_do, struct gn_err *err)
{
	struct gn_gathered all = {0};
	struct stat info = {0};
	uint64_t mine;
	enum gn_status status;

	mine = stat("/proc/self/ns/ipc", &info) ? 0 : info.st_ino;
	status = gn_world_exchange(c->world, &mine, sizeof mine, &all, err);
	*all_do = !status && mine;
	for (size_t r = 0; *all_do && r < all.size; r++)
		*all_do = all.lens[r] == sizeof mine && !memcmp(all.items[r], &mine, sizeof mine);
	gn_gathered_release(&all);
	return status;
}

/* Ranks of one node that share memory need no network, and then open no port to it; those that cannot share it may not be made
 * to try by UCX, which fails, or stalls, where processes may not look into each other (user namespaces). */
static enum gn_status carrier_of(const struct gn_comm *c, const char **out, struct gn_err *err)
{
	int size = gn_comm_size(c), nodes = gn_world_nodes(c->world), shared = size == 1;
	enum gn_status status = GN_OK;

	*out = c->transport;
	if (strcmp(c->transport, "auto"))
		return GN_OK;
	if (size > nodes && !c->node)
		*out = "net";
	if (c->node && nodes == 1)
		status = share_ipc(c, &shared, err);
	if (shared)
		*out = "shm";
	return status;
}

static void report(const struct gn_comm *c)
{
	const char *forced = getenv("UCX_TLS");
	struct gn_devices devices = {0};
	struct gn_strbuf lanes, text;
	int size = gn_comm_size(c);

	gn_strbuf_init(&lanes);
	gn_strbuf_init(&text);
	for (int r = 0; r < size; r++) {
		if (r != gn_comm_rank(c)) {
			gn_strbuf_puts(&lanes, " ");
			gn_ucx_lanes(c->fabric, r, &lanes);
		}
	}
	if (!gn_devices_read("/sys", &devices, NULL)) {
		gn_devices_describe(&devices, gn_strbuf_text(&lanes), &text);
		gn_log_info(c->log, "%d rank%s on %d node%s by %s, transport %s%s: using %s%s", size, size > 1 ? "s" : "",
			    gn_world_nodes(c->world), gn_world_nodes(c->world) > 1 ? "s" : "",
			    gn_world_bootstrap(c->world), forced ? "by UCX_TLS=" : "", forced ? forced : c->transport,
			    gn_strbuf_text(&text), c->oversubscribed ? "; who waits sleeps" : "");
		gn_devices_release(&devices);
	}
	gn_strbuf_release(&lanes);
	gn_strbuf_release(&text);
}

/* With several, a stall may be that of one. */
static void name_rails(const struct gn_comm *c)
{
	struct gn_strbuf left_out;

	gn_strbuf_init(&left_out);
	if (gn_comm_rank(c) == 0)
		gn_ucx_describe_excluded(c->fabric, &left_out);
	if (left_out.len)
		gn_log_warn(c->log, "%s", gn_strbuf_text(&left_out));
	gn_strbuf_release(&left_out);
	for (int i = 0; gn_ucx_rails(c->fabric) > 1 && i < gn_ucx_rails(c->fabric); i++)
		gn_recorder_name_rail(c->recorder, i, gn_ucx_rail_device(c->fabric, i));
}

/* Barrier and ring neighbours connect at once, so that the first step does not pay for it and the report is true. */
static enum gn_status connect_and_report(struct gn_comm *c, struct gn_err *err)
{
	int size = gn_comm_size(c), rank = gn_comm_rank(c);
	enum gn_status status = make_barrier(c, err);

	if (!status && size > 1)
		status = gn_ucx_connect(c->fabric, (rank + 1) % size, err);
	if (!status)
		status = gn_comm_barrier(c, err);
	if (!status && rank == 0 && size > 1)
		report(c);
	return status;
}

/* Whether a thread is to make progress. */
static enum gn_status read_progress(const char *name, int *by_thread, struct gn_err *err)
{
	*by_thread = name && !strcmp(name, "thread");
	if (!name || *by_thread || !strcmp(name, "caller"))
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "no way of progress '%s': caller or thread", name);
}

enum gn_status gn_comm_create(struct gn_world *world, const struct gn_comm_options *options, struct gn_log *log,
			      struct gn_comm **out, struct gn_err *err)
{
	const char *transport = options && options->transport ? options->transport : "auto", *carrier = NULL;
	struct gn_comm *c;
	int by_thread;
	enum gn_status status = read_progress(options ? options->progress : NULL, &by_thread, err);

	if (status)
		return status;
	c = calloc(1, sizeof *c);
	if (c)
		c->transport = strdup(transport);
	if (!c || !c->transport) {
		free(c);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a communicator");
	}
	c->world = world;
	c->recorder = gn_world_recorder(world);
	c->log = log;
	status = map_nodes(c, err);
	if (!status)
		status = gn_oversubscription_find(world, transport, &c->oversubscribed, err);
	if (!status)
		status = share_node(c, err);
	if (!status)
		status = carrier_of(c, &carrier, err);
	if (!status)
		status = gn_ucx_create(world, carrier, options ? options->rails : 0, &c->fabric, err);
	if (!status) {
		gn_world_set_progress(world, gn_coll_progress, c);
		name_rails(c);
	}
	if (options && options->cost)
		c->cost = *options->cost;
	else if (!status && gn_comm_size(c) > 1)
		status = gn_tuning_table_agree(world, c->fabric, options ? options->tuning : NULL, log, &c->cost, err);
	else if (!status)
		status = gn_tuning_table_check(options ? options->tuning : NULL, err);
	/* Operations follow one another: what a shaped link lets through after an idle time is gone with the first. */
	c->cost.node.burst_bytes = c->cost.link.burst_bytes = 0;
	if (!status)
		status = connect_and_report(c, err);
	if (!status)
		status = gn_lanes_check(world, c->fabric, transport, options && options->strict, log, err);
	if (!status && by_thread && gn_comm_size(c) > 1)
		status = gn_comm_progress_create(c, &c->progress, err);
	/* the thread does that, too */
	if (!status && c->progress)
		gn_world_set_progress(world, NULL, NULL);
	if (status) {
		c->failed = 1;
		gn_comm_destroy(c);
		return status;
	}
	*out = c;
	return GN_OK;
}

void gn_comm_destroy(struct gn_comm *c)
{
	if (!c)
		return;
	gn_comm_progress_destroy(c->progress);
	c->progress = NULL;
	/* Of a rank that gave up the others have begun something that it takes no part in: their messages would be left over. */
	if (c->fabric && (c->failed || gn_world_check(c->world, NULL) || gn_world_aborted(c->world)))
		gn_ucx_abandon(c->fabric);
	gn_world_set_progress(c->world, NULL, NULL);
	gn_coll_free(c->barrier);
	gn_shm_destroy(c->node);
	gn_shm_map_destroy(c->map);
	gn_ucx_destroy(c->fabric);
	free(c->transport);
	free(c);
}

int gn_comm_rank(const struct gn_comm *c)
{
	return gn_world_rank(c->world);
}

int gn_comm_size(const struct gn_comm *c)
{
	return gn_world_size(c->world);
}

struct gn_world *gn_comm_world(const struct gn_comm *c)
{
	return c->world;
}

const struct gn_shm_map *gn_comm_map(const struct gn_comm *c)
{
	return c->map;
}

const struct gn_cost *gn_comm_cost(const struct gn_comm *c)
{
	return &c->cost;
}

int gn_comm_all_share(const struct gn_comm *c)
{
	return c->node && gn_world_nodes(c->world) == 1;
}

void gn_comm_sent_bytes(const struct gn_comm *c, uint64_t *same_node, uint64_t *other_node)
{
	struct gn_ucx_traffic traffic;

	gn_comm_enter(c);
	gn_ucx_traffic(c->fabric, &traffic);
	gn_comm_leave(c);
	*same_node = traffic.same_node_bytes;
	*other_node = traffic.other_node_bytes;
}

int gn_comm_rails(const struct gn_comm *c, struct gn_comm_rail *out)
{
	int count = gn_ucx_rails(c->fabric);
	struct gn_ucx_traffic traffic;

	gn_comm_enter(c);
	gn_ucx_traffic(c->fabric, &traffic);
	gn_comm_leave(c);
	for (int i = 0; i < count; i++)
		out[i] = (struct gn_comm_rail){gn_ucx_rail_device(c->fabric, i), traffic.rail_bytes[i]};
	return count;
}

enum gn_status gn_comm_takes_gpu_memory(struct gn_comm *c, int *yes, struct gn_err *err)
{
	int32_t all = gn_ucx_takes_gpu_memory(c->fabric);
	enum gn_status status = gn_comm_allreduce(c, &all, 1, GN_I32, gn_reduce_min(GN_I32), err);

	*yes = !status && all;
	return status;
}

void gn_comm_lanes(const struct gn_comm *c, int rank, struct gn_strbuf *out)
{
	gn_comm_enter(c);
	gn_ucx_lanes(c->fabric, rank, out);
	gn_comm_leave(c);
}

enum gn_status gn_comm_alloc(struct gn_comm *c, size_t len_bytes, void **out, struct gn_err *err)
{
	void *memory;

	if (c->node)
		return gn_shm_alloc(c->node, len_bytes, out, err);
	memory = gn_alloc_aligned(len_bytes);
	if (!memory)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no %zu bytes for a buffer", len_bytes);
	*out = memory;
	return GN_OK;
}

void gn_comm_free(struct gn_comm *c, void *memory)
{
	if (c->node && memory)
		gn_shm_free(c->node, memory);
	else
		free(memory);
}

static enum gn_status run(struct gn_coll *coll, struct gn_err *err)
{
	enum gn_status status;

	gn_comm_enter(coll->comm);
	status = gn_coll_start_inside(coll, err);
	if (!status)
		status = gn_coll_wait_inside(coll, err);
	gn_comm_leave(coll->comm);
	return status;
}

enum gn_status gn_comm_run(struct gn_comm *c, const struct gn_coll_args *args, struct gn_err *err)
{
	struct gn_coll *coll;
	enum gn_status status = gn_coll_prepare(c, args, &coll, err);

	if (status)
		return status;
	status = run(coll, err);
	gn_coll_free(coll);
	return status;
}

enum gn_status gn_comm_barrier(struct gn_comm *c, struct gn_err *err)
{
	return run(c->barrier, err);
}

enum gn_status gn_comm_broadcast(struct gn_comm *c, void *buffer, size_t len_bytes, int root, struct gn_err *err)
{
	struct gn_coll_args args = {.what = GN_COLLECTIVE_BROADCAST, .out = buffer, .count = len_bytes, .type = GN_BYTES,
				    .root = root};

	return gn_comm_run(c, &args, err);
}

enum gn_status gn_comm_allreduce(struct gn_comm *c, void *buffer, size_t count, enum gn_dtype type, gn_reduce_fn reduce,
				 struct gn_err *err)
{
	struct gn_coll_args args = {.out = buffer, .count = count, .type = type, .reduce = reduce};

	return gn_comm_run(c, &args, err);
}

enum gn_status gn_coll_allreduce(struct gn_comm *c, void *buffer, size_t count, enum gn_dtype type, gn_reduce_fn reduce,
				 const char *algorithm, struct gn_coll **out, struct gn_err *err)
{
	struct gn_coll_args args = {.out = buffer, .count = count, .type = type, .reduce = reduce, .algorithm = algorithm};

	return gn_coll_prepare(c, &args, out, err);
}
