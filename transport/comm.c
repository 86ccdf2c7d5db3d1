#include "transport/comm.h"

#include "src/base/arena.h"
#include "transport/algo.h"
#include "transport/coll.h"
#include "transport/devices.h"

#include <stdlib.h>
#include <string.h>

/* Below this, rounds cost more than bytes. */
#define RING_FROM_BYTES (64u << 10)
/* What moves at once around the ring and down the tree: small enough to overlap with the reduction of the piece before. */
#define PIECE_BYTES (256u << 10)
#define PIECES_MAX 64u

/* All ranks of a world in one place can do without messages. */
static int all_share(const struct gn_comm *c)
{
	return c->node && gn_world_nodes(c->world) == 1;
}

static enum gn_status make_barrier(struct gn_comm *c, struct gn_err *err)
{
	struct gn_coll_buffers buffers = {NULL, &c->barrier_word, 1, sizeof c->barrier_word, gn_reduce_sum(GN_I32)};
	struct gn_schedule *s;
	enum gn_status status;

	if (all_share(c))
		return gn_coll_create_shared(c, &buffers, "barrier", &c->barrier, err);
	/* nobody gets the sum before everyone has given: that is a barrier */
	status = gn_algo_recursive_doubling(gn_comm_rank(c), gn_comm_size(c), 1, 0, &s, err);
	return status ? status : gn_coll_create(c, s, &buffers, "barrier", &c->barrier, err);
}

/* Only where neighbours exist, and where nothing else was asked for by name. */
static enum gn_status share_node(struct gn_comm *c, struct gn_err *err)
{
	int wanted = !strcmp(c->transport, "auto") || !strcmp(c->transport, "shm");
	enum gn_status status;

	if (!wanted || gn_comm_size(c) == gn_world_nodes(c->world))
		return GN_OK;
	status = gn_node_create(c->world, &c->node, err);
	if (status != GN_ERR_UNSUPPORTED)
		return status;
	gn_log_debug(c->log, "ranks of one node cannot share memory, messages will do: %s", err ? err->text : "");
	return GN_OK;
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
			gn_fabric_lanes(c->fabric, r, &lanes);
		}
	}
	if (!gn_devices_read("/sys", &devices, NULL)) {
		gn_devices_describe(&devices, gn_strbuf_text(&lanes), &text);
		gn_log_info(c->log, "%d rank%s on %d node%s by %s, transport %s%s: using %s", size, size > 1 ? "s" : "",
			    gn_world_nodes(c->world), gn_world_nodes(c->world) > 1 ? "s" : "",
			    gn_world_bootstrap(c->world), forced ? "by UCX_TLS=" : "", forced ? forced : c->transport,
			    gn_strbuf_text(&text));
		gn_devices_release(&devices);
	}
	gn_strbuf_release(&lanes);
	gn_strbuf_release(&text);
}

/* Barrier and ring neighbours connect at once, so that the first step does not pay for it and the report is true. */
static enum gn_status connect_and_report(struct gn_comm *c, struct gn_err *err)
{
	int size = gn_comm_size(c), rank = gn_comm_rank(c);
	enum gn_status status = make_barrier(c, err);

	if (!status && size > 1)
		status = gn_fabric_connect(c->fabric, (rank + 1) % size, err);
	if (!status)
		status = gn_comm_barrier(c, err);
	if (!status && rank == 0 && size > 1)
		report(c);
	return status;
}

enum gn_status gn_comm_create(struct gn_world *world, const struct gn_comm_options *options, struct gn_log *log,
			      struct gn_comm **out, struct gn_err *err)
{
	const char *transport = options && options->transport ? options->transport : "auto";
	struct gn_comm *c = calloc(1, sizeof *c);
	enum gn_status status;

	if (c)
		c->transport = strdup(transport);
	if (!c || !c->transport) {
		free(c);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a communicator");
	}
	c->world = world;
	c->log = log;
	status = gn_fabric_create(world, transport, &c->fabric, err);
	if (!status)
		status = share_node(c, err);
	if (!status)
		status = connect_and_report(c, err);
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
	if (c->fabric && (c->failed || gn_world_check(c->world, NULL)))
		gn_fabric_abandon(c->fabric);
	gn_coll_free(c->barrier);
	gn_node_destroy(c->node);
	gn_fabric_destroy(c->fabric);
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

void gn_comm_sent_bytes(const struct gn_comm *c, uint64_t *same_node, uint64_t *other_node)
{
	struct gn_fabric_traffic traffic;

	gn_fabric_traffic(c->fabric, &traffic);
	*same_node = traffic.same_node_bytes;
	*other_node = traffic.other_node_bytes;
}

void gn_comm_lanes(const struct gn_comm *c, int rank, struct gn_strbuf *out)
{
	gn_fabric_lanes(c->fabric, rank, out);
}

const char *gn_algo_name(enum gn_algo algo)
{
	static const char *const names[] = {"auto", "ring", "recursive-doubling", "shared", "halving-doubling",
					   "double-tree"};

	return names[algo];
}

enum gn_algo gn_comm_choose(const struct gn_comm *c, const void *buffer, size_t len_bytes)
{
	if (all_share(c) && (len_bytes <= gn_node_mail_bytes(c->node) || gn_node_owns(c->node, buffer, len_bytes)))
		return GN_ALGO_SHARED;
	return len_bytes >= RING_FROM_BYTES ? GN_ALGO_RING : GN_ALGO_RECURSIVE_DOUBLING;
}

static uint32_t pieces_of(size_t len_bytes)
{
	size_t pieces = len_bytes / PIECE_BYTES;

	return pieces < 1 ? 1 : pieces > PIECES_MAX ? PIECES_MAX : (uint32_t)pieces;
}

static enum gn_status write_allreduce(const struct gn_comm *c, size_t len_bytes, enum gn_algo algo, int with_copy,
				      struct gn_schedule **out, struct gn_err *err)
{
	const struct gn_algorithm *a = gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, gn_algo_name(algo));
	struct gn_algo_args args = {.rank = gn_comm_rank(c), .size = gn_comm_size(c), .with_copy = with_copy};
	enum gn_status status;

	if (!a)
		return gn_err_set(err, GN_ERR_USAGE, "algorithm %s has no schedule", gn_algo_name(algo));
	status = gn_algorithm_pieces(a, &args, len_bytes, PIECE_BYTES, &args.pieces, err);
	return status ? status : gn_algorithm_schedule(a, &args, out, err);
}

enum gn_status gn_coll_allreduce_from(struct gn_comm *c, const void *in, void *out_buffer, size_t count,
				      enum gn_dtype type, gn_reduce_fn reduce, enum gn_algo algo, struct gn_coll **out,
				      struct gn_err *err)
{
	size_t bytes = gn_dtype_bytes(type);
	struct gn_coll_buffers buffers = {in, out_buffer, count, bytes, reduce ? reduce : gn_reduce_sum(type)};
	struct gn_schedule *s;
	enum gn_status status;

	if (!buffers.reduce)
		return gn_err_set(err, GN_ERR_USAGE, "bytes have no sum: an allreduce of them needs a reduction");
	if (count > SIZE_MAX / 2 / bytes)
		return gn_err_set(err, GN_ERR_USAGE, "%zu elements do not fit into memory", count);
	if (algo == GN_ALGO_AUTO)
		algo = gn_comm_choose(c, out_buffer, count * bytes);
	if (algo == GN_ALGO_SHARED && !all_share(c))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "algorithm shared needs all ranks on one node that can share memory");
	if (algo == GN_ALGO_SHARED)
		return gn_coll_create_shared(c, &buffers, "allreduce", out, err);
	status = write_allreduce(c, count * bytes, algo, in != NULL, &s, err);
	return status ? status : gn_coll_create(c, s, &buffers, "allreduce", out, err);
}

enum gn_status gn_coll_allreduce(struct gn_comm *c, void *buffer, size_t count, enum gn_dtype type, gn_reduce_fn reduce,
				 enum gn_algo algo, struct gn_coll **out, struct gn_err *err)
{
	return gn_coll_allreduce_from(c, NULL, buffer, count, type, reduce, algo, out, err);
}

enum gn_status gn_comm_alloc(struct gn_comm *c, size_t len_bytes, void **out, struct gn_err *err)
{
	void *memory;

	if (c->node)
		return gn_node_alloc(c->node, len_bytes, out, err);
	memory = gn_alloc_aligned(len_bytes);
	if (!memory)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no %zu bytes for a buffer", len_bytes);
	*out = memory;
	return GN_OK;
}

void gn_comm_free(struct gn_comm *c, void *memory)
{
	if (c->node && memory)
		gn_node_free(c->node, memory);
	else
		free(memory);
}

static enum gn_status run(struct gn_coll *coll, struct gn_err *err)
{
	enum gn_status status = gn_coll_start(coll, err);

	return status ? status : gn_coll_wait(coll, err);
}

enum gn_status gn_comm_barrier(struct gn_comm *c, struct gn_err *err)
{
	return run(c->barrier, err);
}

enum gn_status gn_comm_broadcast(struct gn_comm *c, void *buffer, size_t len_bytes, int root, struct gn_err *err)
{
	struct gn_coll_buffers buffers = {NULL, buffer, len_bytes, 1, NULL};
	struct gn_schedule *s;
	struct gn_coll *coll;
	enum gn_status status;

	if (root < 0 || root >= gn_comm_size(c))
		return gn_err_set(err, GN_ERR_USAGE, "no rank %d to broadcast from", root);
	status = gn_algo_broadcast(gn_comm_rank(c), gn_comm_size(c), root, pieces_of(len_bytes), &s, err);
	if (!status)
		status = gn_coll_create(c, s, &buffers, "broadcast", &coll, err);
	if (status)
		return status;
	status = run(coll, err);
	gn_coll_free(coll);
	return status;
}

enum gn_status gn_comm_allreduce(struct gn_comm *c, void *buffer, size_t count, enum gn_dtype type, gn_reduce_fn reduce,
				 struct gn_err *err)
{
	struct gn_coll *coll;
	enum gn_status status = gn_coll_allreduce(c, buffer, count, type, reduce, GN_ALGO_AUTO, &coll, err);

	if (status)
		return status;
	status = run(coll, err);
	gn_coll_free(coll);
	return status;
}
