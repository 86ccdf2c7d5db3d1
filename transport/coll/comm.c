#include "transport/coll/comm_internal.h"

#include "src/base/alloc.h"
#include "transport/select/tuning_table.h"
#include "transport/topology/affinity.h"
#include "transport/topology/devices.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* If any node has several ranks, and the transport is "auto" or "shm". */
static enum gn_status create_shm(struct gn_comm *c, struct gn_err *err)
{
	int wanted = !strcmp(c->transport, "auto") || !strcmp(c->transport, "shm");
	enum gn_status status;

	if (!wanted || gn_comm_size(c) == gn_world_nodes(c->world))
		return GN_OK;
	status = gn_shm_create(c->world, c->oversubscribed, &c->shm, err);
	if (status != GN_ERR_UNSUPPORTED)
		return status;
	if (!gn_comm_rank(c))
		gn_log_warn(c->log, "ranks of one node cannot share memory and use messages: %s; containers must be one a node, not one a "
			    "rank (ch-run --join)", err ? err->text : "");
	return GN_OK;
}

/* Collective: whether all ranks are in one IPC namespace, as UCX's shared memory requires. */
static enum gn_status check_ipc_namespace(const struct gn_comm *c, int *all_do, struct gn_err *err)
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

/* The transport for UCX. With "auto": "shm" if all ranks share memory, so that no network port is opened; "net" if ranks of one
 * node cannot share memory, because UCX would fail or stall trying where processes may not trace each other (user namespaces). */
static enum gn_status select_transport(const struct gn_comm *c, const char **out, struct gn_err *err)
{
	int size = gn_comm_size(c), nodes = gn_world_nodes(c->world), shared = size == 1;
	enum gn_status status = GN_OK;

	*out = c->transport;
	if (strcmp(c->transport, "auto"))
		return GN_OK;
	if (size > nodes && !c->shm)
		*out = "net";
	if (c->shm && nodes == 1)
		status = check_ipc_namespace(c, &shared, err);
	if (shared)
		*out = "shm";
	return status;
}

static void log_transports(const struct gn_comm *c)
{
	const char *forced = getenv("UCX_TLS");
	struct gn_devices devices = {0};
	struct gn_strbuf lanes = {0}, text = {0};
	int size = gn_comm_size(c);

	for (int r = 0; r < size; r++) {
		if (r != gn_comm_rank(c)) {
			gn_strbuf_puts(&lanes, " ");
			gn_ucx_lanes(c->ucx, r, &lanes);
		}
	}
	if (!gn_devices_read("/sys", &devices, NULL)) {
		gn_devices_describe(&devices, gn_strbuf_text(&lanes), &text);
		gn_log_info(c->log, "%d rank%s on %d node%s by %s, transport %s%s: using %s%s", size, size > 1 ? "s" : "",
			    gn_world_nodes(c->world), gn_world_nodes(c->world) > 1 ? "s" : "",
			    gn_world_bootstrap(c->world), forced ? "by UCX_TLS=" : "", forced ? forced : c->transport,
			    gn_strbuf_text(&text), c->oversubscribed ? "; blocking wait (CPUs oversubscribed)" : "");
		gn_devices_release(&devices);
	}
	gn_strbuf_release(&lanes);
	gn_strbuf_release(&text);
}

/* Warns about excluded rails, and names the rails to the flight recorder: with several, one of them may stall. */
static void name_rails(const struct gn_comm *c)
{
	struct gn_strbuf left_out = {0};

	if (gn_comm_rank(c) == 0)
		gn_ucx_describe_excluded(c->ucx, &left_out);
	if (left_out.len)
		gn_log_warn(c->log, "%s", gn_strbuf_text(&left_out));
	gn_strbuf_release(&left_out);
	for (int i = 0; gn_ucx_rails(c->ucx) > 1 && i < gn_ucx_rails(c->ucx); i++)
		gn_recorder_name_rail(c->recorder, i, gn_ucx_rail_device(c->ucx, i));
}

/* Connects the peers of the barrier and of rings, so that the first operation does not and the log line shows the lanes in use. */
static enum gn_status connect_and_report(struct gn_comm *c, struct gn_err *err)
{
	int size = gn_comm_size(c), rank = gn_comm_rank(c);
	const struct gn_coll_args barrier = {.what = GN_COLLECTIVE_BARRIER};
	enum gn_status status = gn_coll_prepare(c, &barrier, &c->barrier, err);

	if (!status && size > 1)
		status = gn_ucx_connect(c->ucx, (rank + 1) % size, err);
	if (!status)
		status = gn_comm_barrier(c, err);
	if (!status && rank == 0 && size > 1)
		log_transports(c);
	return status;
}

static enum gn_status read_progress(const char *name, int *by_thread, struct gn_err *err)
{
	*by_thread = name && !strcmp(name, "thread");
	if (!name || *by_thread || !strcmp(name, "caller"))
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "unknown progress mode '%s': caller or thread", name);
}

/* What carries messages and sums, of which the communicator knows the transport's name. */
static enum gn_status open_transports(struct gn_comm *c, int rails, struct gn_err *err)
{
	const char *ucx_transport = NULL;
	enum gn_status status = gn_node_map_of_world(c->world, &c->map, err);

	if (!status)
		status = gn_oversubscription_find(c->world, c->transport, &c->oversubscribed, err);
	if (!status)
		status = create_shm(c, err);
	if (!status)
		status = select_transport(c, &ucx_transport, err);
	if (!status)
		status = gn_ucx_create(c->world, ucx_transport, rails, &c->ucx, err);
	if (status)
		return status;
	gn_world_set_progress(c->world, gn_coll_progress, c);
	name_rails(c);
	return GN_OK;
}

/* The costs by which algorithms are chosen: as given, or of a tuning table. */
static enum gn_status find_cost(struct gn_comm *c, const struct gn_comm_options *options, struct gn_err *err)
{
	const char *table = options ? options->tuning : NULL;
	enum gn_status status = GN_OK;

	if (options && options->cost)
		c->cost = *options->cost;
	else if (gn_comm_size(c) > 1)
		status = gn_tuning_table_agree(c->world, c->ucx, table, c->log, &c->cost, err);
	else
		status = gn_tuning_table_check(table, err);
	/* operations follow each other without idle times, so that a shaped link has no burst after the first */
	c->cost.node.burst_bytes = c->cost.link.burst_bytes = 0;
	return status;
}

/* The others would wait for this rank, whose failure it may be alone. */
static enum gn_status give_up(struct gn_comm *c, enum gn_status status, const struct gn_err *err)
{
	if (err && !gn_world_check(c->world, NULL) && !gn_world_aborted(c->world))
		gn_world_abort(c->world, status, err->text);
	c->failed = 1;
	gn_comm_destroy(c);
	return status;
}

enum gn_status gn_comm_create(struct gn_world *world, const struct gn_comm_options *options, struct gn_log *log,
			      struct gn_comm **out, struct gn_err *err)
{
	const char *transport = options && options->transport ? options->transport : "auto";
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
	c->root = c;
	c->rank = gn_world_rank(world);
	c->size = gn_world_size(world);
	c->world = world;
	c->recorder = gn_world_recorder(world);
	c->log = log;
	status = open_transports(c, options ? options->rails : 0, err);
	if (!status)
		status = find_cost(c, options, err);
	if (!status)
		status = connect_and_report(c, err);
	if (!status)
		status = gn_lanes_check(world, c->ucx, transport, options && options->strict, log, err);
	if (!status && by_thread && gn_comm_size(c) > 1)
		status = gn_comm_progress_create(c, &c->progress, err);
	/* the progress thread replaces that */
	if (!status && c->progress)
		gn_world_set_progress(world, NULL, NULL);
	if (status)
		return give_up(c, status, err);
	*out = c;
	return GN_OK;
}

void gn_comm_destroy(struct gn_comm *c)
{
	if (!c)
		return;
	if (c->group) {
		gn_comm_group_destroy(c);
		return;
	}
	gn_comm_progress_destroy(c->progress);
	c->progress = NULL;
	gn_comm_detach(c);
	/* After an abort the peers' operations in flight have messages to this rank that it will not receive. */
	if (c->ucx && !gn_comm_goes_on(c) && (c->failed || c->broken || gn_world_check(c->world, NULL) || gn_world_aborted(c->world)))
		gn_ucx_abandon(c->ucx);
	gn_world_set_progress(c->world, NULL, NULL);
	gn_coll_free(c->barrier);
	gn_shm_destroy(c->shm);
	gn_node_map_destroy(c->map);
	gn_ucx_destroy(c->ucx);
	free(c->groups);
	free(c->transport);
	free(c);
}

int gn_comm_rank(const struct gn_comm *c)
{
	return c->rank;
}

int gn_comm_size(const struct gn_comm *c)
{
	return c->size;
}

struct gn_world *gn_comm_world(const struct gn_comm *c)
{
	return c->world;
}

const struct gn_node_map *gn_comm_map(const struct gn_comm *c)
{
	return c->map;
}

const struct gn_cost *gn_comm_cost(const struct gn_comm *c)
{
	return &c->root->cost;
}

int gn_comm_all_share(const struct gn_comm *c)
{
	return c->shm && c->map->nodes == 1;
}

void gn_comm_sent_bytes(const struct gn_comm *c, uint64_t *same_node, uint64_t *other_node)
{
	struct gn_ucx_traffic traffic;

	gn_comm_enter(c);
	gn_ucx_traffic(c->ucx, &traffic);
	gn_comm_leave(c);
	*same_node = traffic.same_node_bytes;
	*other_node = traffic.other_node_bytes;
}

int gn_comm_rails(const struct gn_comm *c, struct gn_comm_rail *out)
{
	int count = gn_ucx_rails(c->ucx);
	struct gn_ucx_traffic traffic;

	gn_comm_enter(c);
	gn_ucx_traffic(c->ucx, &traffic);
	gn_comm_leave(c);
	for (int i = 0; i < count; i++)
		out[i] = (struct gn_comm_rail){gn_ucx_rail_device(c->ucx, i), traffic.rail_bytes[i]};
	return count;
}

enum gn_status gn_comm_takes_gpu_memory(struct gn_comm *c, int *yes, struct gn_err *err)
{
	int32_t all = gn_ucx_takes_gpu_memory(c->ucx);
	enum gn_status status = gn_comm_allreduce(c, &all, 1, GN_I32, gn_reduce_min(GN_I32), err);

	*yes = !status && all;
	return status;
}

void gn_comm_lanes(const struct gn_comm *c, int rank, struct gn_strbuf *out)
{
	gn_comm_enter(c);
	gn_ucx_lanes(c->ucx, gn_comm_world_rank_of(c, rank), out);
	gn_comm_leave(c);
}

enum gn_status gn_comm_alloc(struct gn_comm *c, size_t len_bytes, void **out, struct gn_err *err)
{
	void *memory;

	if (c->shm)
		return gn_shm_alloc(c->shm, len_bytes, out, err);
	memory = gn_alloc_aligned(len_bytes);
	if (!memory)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no %zu bytes for a buffer", len_bytes);
	*out = memory;
	return GN_OK;
}

void gn_comm_free(struct gn_comm *c, void *memory)
{
	if (!memory)
		return;
	if (c->shm)
		gn_shm_free(c->shm, memory);
	else
		free(memory);
}

static enum gn_status run_coll(struct gn_coll *coll, struct gn_err *err)
{
	enum gn_status status;

	gn_comm_enter(coll->comm);
	status = gn_coll_start_inside(coll, NULL, err);
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
	status = run_coll(coll, err);
	gn_coll_free(coll);
	return status;
}

enum gn_status gn_comm_barrier(struct gn_comm *c, struct gn_err *err)
{
	return run_coll(c->barrier, err);
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
