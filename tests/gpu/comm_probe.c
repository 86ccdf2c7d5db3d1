/* A rank that sums GPU memory with others: by what is named, several sums in flight, each checked.
 * usage: comm_probe nccl|ucx|auto [RANK [STALL_MS]]    RANK ends without a word before its second round (-1: nobody); waiting for
 * others so long is a stall
 * Without a GPU all ranks end with the same error. Exit codes as gannet's; 99: a wrong sum. */
#include "src/base/log.h"
#include "tests/transport/exit_code.h"
#include "transport/coll/agree.h"
#include "transport/nccl/nccl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRONG 99
#define ROUNDS 3
#define OPS 4
static const size_t counts[OPS] = {1, 1000, 300001, 5000000};

struct run {
	struct gn_comm *comm;
	struct gn_device *gpu;
	struct gn_stream *stream;
	struct gn_event *uploaded;
	struct gn_buffer buffers[OPS];
	struct gn_coll *ops[OPS];
	float *host[OPS]; /* not pinned; each is read until its upload is over */
};

static enum gn_status make_buffers(struct run *r, struct gn_err *err)
{
	enum gn_status status = gn_stream_create(r->gpu, &r->stream, err);

	for (int i = 0; i < OPS; i++) {
		r->host[i] = malloc(counts[i] * sizeof *r->host[i]);
		if (!status && !r->host[i])
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	}
	if (!status)
		status = gn_event_create(r->gpu, &r->uploaded, err);
	for (int i = 0; i < OPS && !status; i++) {
		struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .count = counts[i], .type = GN_F32, .memory = GN_MEMORY_DEVICE};

		status = gn_buffer_alloc(r->gpu, counts[i] * sizeof(float), &r->buffers[i], err);
		args.out = r->buffers[i].address;
		if (!status)
			status = gn_coll_prepare(r->comm, &args, &r->ops[i], err);
	}
	return status;
}

static float given(int rank, size_t i, int op)
{
	return (float)((i * 7 + (size_t)rank * 13 + (size_t)op * 5) % 101) - 50;
}

/* The sum may begin when the upload is over, which nobody waits for. */
static enum gn_status upload_and_start(struct run *r, int op, struct gn_err *err)
{
	size_t bytes = counts[op] * sizeof *r->host[op];
	enum gn_status status;

	for (size_t i = 0; i < counts[op]; i++)
		r->host[op][i] = given(gn_comm_rank(r->comm), i, op);
	status = gn_stream_copy(r->stream, r->buffers[op].address, r->host[op], bytes, err);
	if (!status)
		status = gn_event_record(r->uploaded, r->stream, err);
	return status ? status : gn_coll_start(r->ops[op], r->uploaded, err);
}

static enum gn_status finish_and_check(struct run *r, int op, struct gn_err *err)
{
	enum gn_status status = gn_coll_wait(r->ops[op], err);
	int size = gn_comm_size(r->comm);

	if (!status)
		status = gn_stream_copy(r->stream, r->host[op], r->buffers[op].address, counts[op] * sizeof *r->host[op], err);
	if (!status)
		status = gn_stream_wait(r->stream, err);
	for (size_t i = 0; !status && i < counts[op]; i++) {
		float sum = 0;

		for (int q = 0; q < size; q++)
			sum += given(q, i, op);
		if (r->host[op][i] == sum)
			continue;
		fprintf(stderr, "WRONG: element %zu of %zu is %g, not %g\n", i, counts[op], (double)r->host[op][i], (double)sum);
		_exit(WRONG);
	}
	return status;
}

/* Without a GPU the first one is asked for. */
static enum gn_status open_gpu(struct run *r, struct gn_err *err)
{
	int count = 0, local = gn_world_local_rank(gn_comm_world(r->comm));
	char name[32];

	if (gn_device_count("cuda", &count, NULL) || !count)
		count = 1;
	snprintf(name, sizeof name, "cuda:%d", local % count);
	return gn_agree_status(r->comm, gn_device_open(name, &r->gpu, err), err);
}

static enum gn_status run(struct run *r, const char *how, int lost, struct gn_log *log, struct gn_err *err)
{
	struct gn_comm_device options = {.how = how, .library = gn_nccl_create};
	enum gn_status status = open_gpu(r, err);

	options.device = r->gpu;
	if (!status)
		status = gn_comm_attach(r->comm, &options, log, err);
	if (!status)
		status = make_buffers(r, err);
	for (int round = 0; round < ROUNDS && !status; round++) {
		if (round == 1 && lost == gn_comm_rank(r->comm))
			_exit(0);
		for (int i = 0; i < OPS && !status; i++)
			status = upload_and_start(r, i, err);
		for (int i = 0; i < OPS && !status; i++)
			status = finish_and_check(r, i, err);
	}
	if (!status)
		printf("rank %d: %d sums of GPU memory by %s are right\n", gn_comm_rank(r->comm), ROUNDS * OPS,
		       gn_comm_device_backend(r->comm));
	return status;
}

static void release(struct run *r)
{
	for (int i = 0; i < OPS; i++) {
		gn_coll_free(r->ops[i]);
		gn_buffer_free(&r->buffers[i]);
	}
	if (r->comm)
		gn_comm_detach(r->comm);
	gn_event_destroy(r->uploaded);
	gn_stream_destroy(r->stream);
	gn_device_close(r->gpu);
	for (int i = 0; i < OPS; i++)
		free(r->host[i]);
	gn_comm_destroy(r->comm);
}

int main(int argc, char **argv)
{
	struct gn_comm_options options = {.transport = "auto"};
	struct gn_world_options world_options = {.limits = {.stall_s = argc > 3 ? atoi(argv[3]) / 1e3 : 0}};
	struct gn_comm *all = NULL; /* r.comm is it, or with PROBE_GROUP=N a group of N ranks that follow each other */
	struct gn_world *world = NULL;
	struct gn_log *log = NULL;
	struct run r = {0};
	struct gn_err err;
	enum gn_status status;

	if (argc < 2)
		return 2;
	gn_log_create(2, GN_LOG_INFO, &log, NULL);
	status = gn_world_create(&world_options, log, &world, &err);
	if (!status)
		status = gn_comm_create(world, &options, log, &r.comm, &err);
	all = r.comm;
	if (!status && getenv("PROBE_GROUP"))
		status = gn_comm_split(all, gn_comm_rank(all) / atoi(getenv("PROBE_GROUP")), 0, "probe", &r.comm, &err);
	if (!status)
		gn_world_set_phase(world, "probing", 600000);
	if (!status)
		status = run(&r, argv[1], argc > 2 ? atoi(argv[2]) : -1, log, &err);
	release(&r);
	if (all != r.comm)
		gn_comm_destroy(all);
	gn_world_destroy(world);
	gn_log_destroy(log);
	return status ? exit_code(&err) : 0;
}
