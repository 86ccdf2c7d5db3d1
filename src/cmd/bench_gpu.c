/* gannet bench on GPU memory: allreduce by the backend that --comm names. */
#include "src/cmd/bench.h"

#include "src/device/device.h"
#include "src/train/parallel/gpu_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gn_bench_gpu {
	struct gn_device *device;
	struct gn_stream *stream;
	struct gn_comm *comm; /* that the GPU is attached to */
	struct gn_buffer buffer;
};

enum gn_status gn_bench_gpu_open(int local_rank, struct gn_bench_gpu **out, struct gn_err *err)
{
	struct gn_bench_gpu *g = calloc(1, sizeof *g);
	char name[32];
	enum gn_status status;
	int count = 0;

	if (!g)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a GPU");
	status = gn_device_count("cuda", &count, err);
	snprintf(name, sizeof name, "cuda:%d", count ? local_rank % count : 0);
	if (!status)
		status = gn_device_open(name, &g->device, err);
	if (!status)
		status = gn_stream_create(g->device, &g->stream, err);
	if (status)
		gn_bench_gpu_close(g);
	else
		*out = g;
	return status;
}

void gn_bench_gpu_close(struct gn_bench_gpu *g)
{
	if (!g)
		return;
	if (g->comm)
		gn_comm_detach(g->comm);
	gn_stream_destroy(g->stream);
	gn_buffer_free(&g->buffer);
	gn_device_close(g->device);
	free(g);
}

const char *gn_bench_gpu_pci(const struct gn_bench_gpu *g)
{
	return gn_device_address(g->device);
}

/* --- rows --- */

static enum gn_status copy(struct gn_bench_gpu *g, void *to, const void *from, size_t bytes, struct gn_err *err)
{
	enum gn_status status = gn_stream_copy(g->stream, to, from, bytes, err);

	return status ? status : gn_stream_wait(g->stream, err);
}

/* Sums of zeros are zeros; then one more sum of numbers, which is checked. */
static enum gn_status time_and_check(struct gn_bench *b, struct gn_bench_row *row, struct gn_coll *coll, struct gn_err *err)
{
	struct gn_bench_gpu *g = b->gpu;
	enum gn_status status;

	memset(b->out, 0, row->bytes);
	status = copy(g, g->buffer.address, b->out, row->bytes, err);
	if (!status)
		status = gn_bench_time(b, gn_bench_run_coll, coll, &row->in_place, err);
	if (status)
		return status;
	gn_pattern_fill(&b->pattern, b->out, 0, row->count, gn_comm_rank(b->comm));
	status = copy(g, g->buffer.address, b->out, row->bytes, err);
	if (!status)
		status = gn_bench_run_coll(coll, err);
	if (!status)
		status = copy(g, b->out, g->buffer.address, row->bytes, err);
	if (!status)
		status = gn_bench_add_wrong(b, gn_pattern_wrong(&b->pattern, b->out, 0, row->count, -1), &row->in_place, err);
	return status;
}

static enum gn_status measure_row(struct gn_bench *b, struct gn_bench_row *row, int *direct, struct gn_err *err)
{
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .out = b->gpu->buffer.address, .count = row->count,
				    .type = b->pattern.type, .reduction = b->pattern.reduction, .memory = GN_MEMORY_DEVICE};
	struct gn_coll *coll;
	enum gn_status status = gn_coll_prepare(b->comm, &args, &coll, err);

	if (status)
		return status;
	status = time_and_check(b, row, coll, err);
	row->in_place.algo = gn_comm_device_backend(b->comm);
	row->in_place.chunks = 1;
	/* it stages through memory that ranks of one node share */
	*direct = !strcmp(row->in_place.algo, "ucx") && gn_world_local_size(b->world) > 1;
	gn_coll_free(coll);
	return status;
}

static void print_heading(const struct gn_bench *b)
{
	const struct gn_device *d = b->gpu->device;
	int ranks = gn_comm_size(b->comm), nodes = gn_world_nodes(b->world);
	struct gn_strbuf text = {0};

	gn_comm_device_describe(b->comm, &text);
	printf("# allreduce of GPU memory: %d rank%s on %d node%s, %s, rank 0 on cuda:%d, %s, PCI %s\n", ranks,
	       ranks > 1 ? "s" : "", nodes, nodes > 1 ? "s" : "", gn_strbuf_text(&text), gn_device_ordinal(d), gn_device_model(d), gn_device_address(d));
	gn_strbuf_release(&text);
	gn_bench_print_heading();
}

enum gn_status gn_bench_gpu_allreduce(struct gn_bench *b, struct gn_err *err)
{
	struct gn_bench_gpu *g = b->gpu;
	int size = gn_comm_size(b->comm), by_nccl;
	size_t each = gn_pattern_bytes(b->pattern.type), before = 0;
	enum gn_status status = gn_buffer_alloc(g->device, b->buffer_bytes, &g->buffer, err);

	if (!status)
		status = gn_gpu_attach(b->comm, g->device, b->o->comm, b->log, err);
	if (status)
		return status;
	g->comm = b->comm;
	by_nccl = !strcmp(gn_comm_device_backend(b->comm), "nccl");
	if (by_nccl && strcmp(b->o->transport, "auto"))
		return gn_err_set(err, GN_ERR_USAGE, "--transport %s is of UCX, and NCCL chooses its own: use --comm ucx",
				  b->o->transport);
	if (!b->o->json && gn_comm_rank(b->comm) == 0)
		print_heading(b);
	for (int64_t bytes = b->o->min_bytes; bytes <= b->o->max_bytes && !status; bytes *= b->o->factor) {
		struct gn_bench_row row = {.op = "allreduce", .redop = b->o->redop, .root = -1, .device = "cuda",
					   .bus_factor = 2.0 * (size - 1) / size, .limit_of = ""};

		row.count = (size_t)bytes < each ? 1 : (size_t)bytes / each;
		row.bytes = row.count * each;
		if (by_nccl)
			row.transport = "nccl";
		if (row.bytes != before)
			status = gn_bench_row(b, &row, measure_row, err);
		before = row.bytes;
	}
	return status;
}
