#include "src/cmd/bench.h"

#include "src/base/alloc.h"
#include "src/cmd/key_option.h"
#include "src/cmd/world_options.h"
#include "src/device/device.h"
#include "src/train/model/model.h"
#include "src/train/plan/device.h"
#include "transport/coll/coll_device.h"
#include "transport/schedule/algo.h"
#include "transport/coll/affinity_report.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	enum gn_collective what;
} modes[] = {
	{"allreduce", GN_COLLECTIVE_ALLREDUCE},	  {"reduce-scatter", GN_COLLECTIVE_REDUCE_SCATTER},
	{"allgather", GN_COLLECTIVE_ALLGATHER},	  {"broadcast", GN_COLLECTIVE_BROADCAST},
	{"reduce", GN_COLLECTIVE_REDUCE},	  {"all-to-all", GN_COLLECTIVE_ALL_TO_ALL},
	{"p2p", GN_COLLECTIVE_COUNT},
};

/* Checked before any collective call. */
static int algorithm_is_known(const char *name, enum gn_collective what)
{
	const struct gn_algorithm *all;
	size_t count;

	if (!strcmp(name, "auto") || (what != GN_COLLECTIVE_COUNT && (!strcmp(name, "shared") || gn_algorithm_find(what, name))))
		return 1;
	fprintf(stderr, "gannet bench: %s has no algorithm named by --algo; choose one of: auto%s",
		what == GN_COLLECTIVE_COUNT ? "p2p" : gn_collective_name(what), what == GN_COLLECTIVE_COUNT ? "" : ", shared");
	all = gn_algorithms(&count);
	for (size_t i = 0; i < count; i++)
		if (all[i].what == what)
			fprintf(stderr, ", %s", all[i].name);
	fputc('\n', stderr);
	return 0;
}

/* --- ranks and buffers --- */

static struct gn_pattern pattern_of(const struct gn_bench_options *o, int size)
{
	static const struct {
		const char *name;
		enum gn_dtype type;
	} types[] = {{"float", GN_F32}, {"double", GN_F64}, {"half", GN_F16}, {"bfloat16", GN_BF16}, {"int32", GN_I32},
		     {"int64", GN_I64}};
	struct gn_pattern p = {GN_F32, GN_SUM, size};

	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].name, o->type))
			p.type = types[i].type;
	if (!strcmp(o->redop, "max"))
		p.reduction = GN_MAX;
	else if (!strcmp(o->redop, "min"))
		p.reduction = GN_MIN;
	else if (!strcmp(o->redop, "avg"))
		p.reduction = GN_AVERAGE;
	return p;
}

static enum gn_status make_buffer(struct gn_bench *b, void **out, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	void *memory = NULL;

	if (!b->o->foreign)
		status = gn_comm_alloc(b->comm, b->buffer_bytes, &memory, err);
	else
		memory = gn_alloc_aligned(b->buffer_bytes);
	if (!status && !memory)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for messages of %lld bytes", (long long)b->o->max_bytes);
	if (!status)
		*out = memory;
	return status;
}

static void free_buffer(struct gn_bench *b, void *memory)
{
	if (b->o->foreign)
		free(memory);
	else if (b->comm)
		gn_comm_free(b->comm, memory);
}

static enum gn_status open_device(struct gn_bench *b, const char **pci, struct gn_err *err)
{
	enum gn_status status;

	if (strcmp(b->o->device, "cuda"))
		return GN_OK;
	status = gn_bench_gpu_open(gn_world_local_rank(b->world), &b->gpu, err);
	if (status) {
		gn_err_prefix(err, "--device cuda");
		/* GN_ERR_NOT_FOUND would become the exit code for bad input data */
		return status == GN_ERR_NOT_FOUND ? (err->status = GN_ERR_UNSUPPORTED) : status;
	}
	*pci = gn_bench_gpu_pci(b->gpu);
	return GN_OK;
}

/* Groups of --group consecutive ranks, or one of all. */
static enum gn_status make_groups(struct gn_bench *b, struct gn_err *err)
{
	int size = gn_comm_size(b->comm), each = (int)b->o->group;

	b->group = b->comm;
	b->groups = 1;
	if (!each)
		return GN_OK;
	if (each > size || size % each)
		return gn_err_set(err, GN_ERR_USAGE, "--group %d: not a divisor of %d ranks", each, size);
	b->groups = size / each;
	return gn_comm_split(b->comm, gn_comm_rank(b->comm) / each, 0, "bench", &b->group, err);
}

static enum gn_status open_bench(const struct gn_bench_options *o, struct gn_bench *b, struct gn_err *err)
{
	struct gn_comm_options options = {.transport = o->transport, .tuning = o->tuning, .rails = (int)o->rails,
					  .strict = o->transport_strict, .progress = o->progress};
	const char *pci = NULL;
	enum gn_status status;
	int size;

	*b = (struct gn_bench){.o = o, .log = gn_cmd_log()};
	status = gn_world_create(&o->world, b->log, &b->world, err);
	if (!status)
		status = gn_comm_create(b->world, &options, b->log, &b->comm, err);
	if (!status)
		status = open_device(b, &pci, err);
	if (!status)
		status = gn_affinity_report(b->comm, pci, b->log, err);
	if (status)
		return status;
	/* checking and printing large results take time without collective calls */
	gn_world_set_phase(b->world, "measuring", 60000);
	size = gn_comm_size(b->comm);
	if (size == 1 && strcmp(o->transport, "auto"))
		return gn_err_set(err, GN_ERR_USAGE, "--transport %s: a single rank sends no messages", o->transport);
	status = make_groups(b, err);
	if (status)
		return status;
	size = gn_comm_size(b->group);
	if (o->root >= size || o->peer >= size)
		return gn_err_set(err, GN_ERR_USAGE, "rank %lld does not exist: %d rank%s, counted from 0",
				  (long long)(o->root >= size ? o->root : o->peer), size, size > 1 ? "s" : "");
	b->pattern = pattern_of(o, size);
	/* reduce-scatter and allgather need at least one element per rank */
	b->buffer_bytes = (size_t)o->max_bytes + 8 * (size_t)size + 256;
	b->times = calloc((size_t)o->iters, sizeof *b->times);
	if (!b->times)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %lld timings", (long long)o->iters);
	status = make_buffer(b, &b->in, err);
	if (!status)
		status = make_buffer(b, &b->out, err);
	if (!status && gn_world_nodes(b->world) > 1)
		status = gn_bench_link_roofline(b, &b->link_gb_per_s, err);
	return status;
}

static void close_bench(struct gn_bench *b)
{
	gn_bench_gpu_close(b->gpu);
	free_buffer(b, b->in);
	free_buffer(b, b->out);
	free(b->times);
	if (b->group != b->comm)
		gn_comm_destroy(b->group);
	gn_comm_destroy(b->comm);
	gn_world_destroy(b->world);
	gn_log_destroy(b->log);
}

/* --- modes --- */

/* Refuses what this build or the kind of memory does not support. */
static enum gn_status check_device(const struct gn_bench_options *o, const char *mode, struct gn_err *err)
{
	enum gn_status status = gn_coll_backend_check(o->comm, o->device, gn_device_is_built("cuda"), err);

	if (!status && !strcmp(o->device, "cuda") && strcmp(mode, "allreduce") && strcmp(mode, "train"))
		status = gn_err_set(err, GN_ERR_USAGE, "--device cuda: %s is measured only on the host; allreduce and train also "
				    "on GPUs",
				    mode);
	if (!status && o->group && (!strcmp(o->device, "cuda") || !strcmp(mode, "p2p") || !strcmp(mode, "decode") ||
				    !strcmp(mode, "io") || !strcmp(mode, "train")))
		status = gn_err_set(err, GN_ERR_USAGE, "--group is for collectives in host memory");
	return status;
}

static enum gn_status measure_all(struct gn_bench *b, enum gn_collective what, struct gn_err *err)
{
	if (b->gpu)
		return gn_bench_gpu_allreduce(b, err);
	return what == GN_COLLECTIVE_COUNT ? gn_bench_p2p(b, err) : gn_bench_collective(b, what, err);
}

static int measure(const struct gn_bench_options *o, enum gn_collective what)
{
	struct gn_bench b;
	struct gn_err err;
	enum gn_status status;
	int rank = 0, code;

	if (!algorithm_is_known(o->algo, what))
		return GN_EXIT_USAGE;
	status = open_bench(o, &b, &err);
	if (!status)
		rank = gn_comm_rank(b.comm);
	if (!status)
		status = measure_all(&b, what, &err);
	code = status ? gn_cmd_fail("bench", &err) : b.wrong ? GN_EXIT_FAILED : GN_EXIT_DONE;
	if (!status && b.wrong && rank == 0)
		fprintf(stderr, "gannet bench: %lld elements were wrong\n", (long long)b.wrong);
	close_bench(&b);
	return code;
}

static int is_mode(const char *name)
{
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		if (!strcmp(modes[i].name, name))
			return 1;
	return !strcmp(name, "decode") || !strcmp(name, "io") || !strcmp(name, "train");
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct gn_bench_options *o = options;
	char mode[64];
	struct gn_err err;

	if (o->min_bytes > o->max_bytes) {
		fprintf(stderr, "gannet bench: --min-bytes is above --max-bytes\n");
		return GN_EXIT_USAGE;
	}
	if (is_mode(positional->items[0]) && check_device(o, positional->items[0], &err))
		return gn_cmd_fail("bench", &err);
	if (!strcmp(positional->items[0], "decode"))
		return gn_bench_decode(o);
	if (!strcmp(positional->items[0], "io"))
		return gn_bench_io(o);
	if (!strcmp(positional->items[0], "train"))
		return gn_bench_train(o);
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		if (!strcmp(modes[i].name, positional->items[0]))
			return measure(o, modes[i].what);
	fprintf(stderr, "gannet bench: no mode '%s'; choose one of:", gn_text_visible(positional->items[0], mode, sizeof mode));
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		fprintf(stderr, " %s", modes[i].name);
	fputs(" decode io train\n", stderr);
	return GN_EXIT_USAGE;
}

#define FIELD(name) offsetof(struct gn_bench_options, name)

static const struct gn_option options_table[] = {
	{.name = "min-bytes", .letter = 'b', .kind = GN_OPTION_SIZE, .offset = FIELD(min_bytes), .value_name = "N",
	 .initial = "8", .help = "smallest message", .min = 4, .max = 1LL << 36},
	{.name = "max-bytes", .letter = 'e', .kind = GN_OPTION_SIZE, .offset = FIELD(max_bytes), .value_name = "N",
	 .initial = "16M", .help = "largest message", .min = 4, .max = 1LL << 36},
	{.name = "factor", .letter = 'f', .kind = GN_OPTION_INT, .offset = FIELD(factor), .value_name = "N",
	 .initial = "2", .help = "factor between successive message sizes", .min = 2, .max = 1024},
	{.name = "iters", .letter = 'n', .kind = GN_OPTION_INT, .offset = FIELD(iters), .value_name = "N",
	 .initial = "20", .help = "timed operations per size", .min = 1, .max = 1000000},
	{.name = "warmup", .letter = 'w', .kind = GN_OPTION_INT, .offset = FIELD(warmup), .value_name = "N",
	 .initial = "5", .help = "untimed operations per size before the timed ones", .min = 0, .max = 1000000},
	{.name = "row-ms", .kind = GN_OPTION_INT, .offset = FIELD(row_ms), .value_name = "N", .initial = "0",
	 .help = "approximate time per row: limits the number of slow operations, not below 5; 0: no limit", .min = 0,
	 .max = 1000000},
	{.name = "type", .letter = 'd', .kind = GN_OPTION_CHOICE, .offset = FIELD(type), .value_name = "NAME",
	 .initial = "float", .help = "element type", .choices = "float|double|half|bfloat16|int32|int64"},
	{.name = "redop", .letter = 'o', .kind = GN_OPTION_CHOICE, .offset = FIELD(redop), .value_name = "NAME",
	 .initial = "sum", .help = "reduction", .choices = "sum|max|min|avg"},
	{.name = "root", .letter = 'r', .kind = GN_OPTION_INT, .offset = FIELD(root), .value_name = "RANK", .initial = "0",
	 .help = "root rank of broadcast and reduce", .min = 0, .max = 1000000},
	{.name = "peer", .kind = GN_OPTION_INT, .offset = FIELD(peer), .value_name = "RANK", .initial = "-1",
	 .help = "p2p: the peer of rank 0; -1: the last rank", .min = -1, .max = 1000000},
	{.name = "group", .kind = GN_OPTION_INT, .offset = FIELD(group), .value_name = "N", .initial = "0",
	 .help = "collectives within each N consecutive ranks, all groups at once; 0: one of all ranks", .min = 0, .max = 1000000},
	{.name = "place", .kind = GN_OPTION_CHOICE, .offset = FIELD(place), .value_name = "WHICH", .initial = "both",
	 .help = "measure in place, out of place, or both", .choices = "both|in|out"},
	{.name = "algo", .kind = GN_OPTION_TEXT, .offset = FIELD(algo), .value_name = "NAME", .initial = "auto",
	 .help = "algorithm (an unknown name lists all of them); auto: the choice of gannet train"},
	{.name = "foreign", .kind = GN_OPTION_FLAG, .offset = FIELD(foreign),
	 .help = "private memory instead of shared memory of the node"},
	{.name = "tuning", .kind = GN_OPTION_TEXT, .offset = FIELD(tuning), .value_name = "FILE",
	 .help = "tuning table of gannet tune; none: use estimates (default: where gannet tune writes it)"},
	{.name = "progress", .kind = GN_OPTION_CHOICE, .offset = FIELD(progress), .value_name = "WHO",
	 .initial = "caller", .choices = "caller|thread",
	 .help = "thread: a separate thread makes communication progress; caller: only calls of the measuring thread do"},
	{.name = "transport", .kind = GN_OPTION_CHOICE, .offset = FIELD(transport), .value_name = "NAME",
	 .initial = "auto", .help = "required transport; fails when the counters of the network devices contradict it",
	 .choices = "auto|tcp|shm|rc|ud"},
	{.name = "transport-strict", .kind = GN_OPTION_FLAG, .offset = FIELD(transport_strict),
	 .help = "fail instead of warn when nodes use different transports, or a node does not use its fastest device"},
	{.name = "device", .kind = GN_OPTION_CHOICE, .offset = FIELD(device), .value_name = "NAME", .initial = "host",
	 .choices = "host|cuda", .help = "allreduce: memory of the host or of each rank's GPU; train: the device that computes "
		 "steps"},
	{.name = "comm", .kind = GN_OPTION_CHOICE, .offset = FIELD(comm), .value_name = "NAME", .initial = "auto",
	 .choices = "auto|nccl|ucx",
	 .help = "backend for GPU memory: nccl; ucx, staged through host memory; auto: the faster of both by measurement. Host "
		 "memory uses ucx"},
	{.name = "rails", .kind = GN_OPTION_INT, .offset = FIELD(rails), .value_name = "N", .initial = "0", .min = 0,
	 .max = GN_RAILS_MAX, .help = "most network devices (rails) per node; 0: all that are equally fast"},
	{.name = "data", .kind = GN_OPTION_TEXT, .offset = FIELD(data), .value_name = "DIR",
	 .help = "decode, io: dataset written by gannet pack; io also: a folder for a test file"},
	GN_CMD_KEY_OPTION(FIELD(key_file)),
	{.name = "side", .kind = GN_OPTION_INT, .offset = FIELD(side), .value_name = "N", .initial = "224", .min = 1, .max = 4096,
	 .help = "decode, train: side of the images in pixels"},
	{.name = "images", .kind = GN_OPTION_INT, .offset = FIELD(images), .value_name = "N", .initial = "1000", .min = 1,
	 .max = 1e9, .help = "decode: most images; --iters passes over them"},
	{.name = "loader-threads", .kind = GN_OPTION_INT, .offset = FIELD(loader_threads), .value_name = "N", .initial = "2",
	 .min = 1, .max = 1024, .help = "decode: worker threads of the loader; io: reading threads"},
	{.name = "seconds", .kind = GN_OPTION_INT, .offset = FIELD(seconds), .value_name = "N", .initial = "10", .min = 1, .max = 86400,
	 .help = "io: most time; it also ends when all has been read once"},
	{.name = "file-bytes", .kind = GN_OPTION_SIZE, .offset = FIELD(file_bytes), .value_name = "N", .initial = "1G", .min = 4096,
	 .max = 1LL << 44, .help = "io: size of the test file, where --data is no dataset"},
	{.name = "block-bytes", .kind = GN_OPTION_SIZE, .offset = FIELD(block_bytes), .value_name = "N", .initial = "112K", .min = 512,
	 .max = 1 << 30, .help = "io: bytes of a read in the test file (default: about a picture of ImageNet)"},
	{.name = "warm", .kind = GN_OPTION_FLAG, .offset = FIELD(warm), .help = "io: leave what is in the page cache there"},
	{.name = "bytes", .kind = GN_OPTION_FLAG, .offset = FIELD(bytes),
	 .help = "decode: output crops as bytes, which a GPU resizes and normalises, instead of floats"},
	{.name = "model", .kind = GN_OPTION_CHOICE, .offset = FIELD(model), .value_name = "NAME", .initial = "resnet50",
	 .choices = gn_model_names, .help = "train: network"},
	{.name = "batch", .kind = GN_OPTION_INT, .offset = FIELD(batch), .value_name = "N", .initial = "16", .min = 1, .max = 65536,
	 .help = "train: images per rank and step"},
	{.name = "classes", .kind = GN_OPTION_INT, .offset = FIELD(classes), .value_name = "N", .initial = "1000", .min = 2,
	 .max = 1e6, .help = "train: number of classes"},
	{.name = "precision", .kind = GN_OPTION_CHOICE, .offset = FIELD(precision), .value_name = "NAME", .initial = "fp32",
	 .choices = GN_PRECISION_CHOICES, .help = "train: as --precision of gannet train"},
	{.name = "convolution", .kind = GN_OPTION_CHOICE, .offset = FIELD(convolution), .value_name = "HOW", .initial = "auto",
	 .choices = GN_CONVOLUTION_CHOICES, .help = "train: as --convolution of gannet train"},
	{.name = "inference", .kind = GN_OPTION_FLAG, .offset = FIELD(inference),
	 .help = "train: measure the forward pass of evaluation instead"},
	{.name = "profile", .kind = GN_OPTION_FLAG, .offset = FIELD(profile),
	 .help = "train: also times each operator, forward and backward, on the device's clock in more steps, without graphs; "
		 "with --json the tables go to stderr; of rank 0"},
	{.name = "init", .kind = GN_OPTION_TEXT, .offset = FIELD(init), .value_name = "HOW", .initial = "seed:1",
	 .help = "train: initial parameters: PATH of a safetensors file, formula, or seed:N"},
	{.name = "threads", .kind = GN_OPTION_INT, .offset = FIELD(threads), .value_name = "N", .initial = "0", .min = 0,
		.max = 4096,
	 .help = "train: compute threads per rank; 0: the processors of its affinity mask divided among the ranks that share them"},
	{.name = "json", .kind = GN_OPTION_FLAG, .offset = FIELD(json), .help = "print one JSON object per line"},
	GN_CMD_WORLD_OPTIONS(struct gn_bench_options, world),
};

static const struct gn_command command = {
	.name = "bench",
	.summary = "measure communication, reading, decoding, or training steps",
	.positional = "COLLECTIVE|p2p|decode|io|train",
	.description =
		"COLLECTIVE is allreduce, reduce-scatter, allgather, broadcast, reduce or all-to-all. It is measured between the "
		"ranks that started it (srun --mpi=pmix, mpirun, gannet launch), in the columns of nccl-tests: size is the longer of a rank's input and output; algorithm bandwidth is size divided by time; bus "
		"bandwidth is algorithm bandwidth times 2(n-1)/n for allreduce, (n-1)/n for reduce-scatter, allgather and "
		"all-to-all, 1 for the others. GB are 10^9 bytes. Times are those of the slowest rank: the mean over the "
		"iterations, and their 50th and 99th percentile.\n\n"
		"p2p measures between rank 0 and --peer, out of place: first one way (half of the round trip), then both ways at "
		"once, with the bandwidth of one direction.\n\n"
		"limit is the achieved share of a limit that is measured in the same run. On one node the limit is the bandwidth "
		"of all ranks copying messages of that size at once (a STREAM copy), for the bytes that the operation has to read "
		"and write at least. Between nodes it is the bandwidth of every node sending to the next while it receives, for "
		"the bytes that a node has to send at least. Values above 100 % are possible where caches help.\n\n"
		"Every row is checked, for all elements: out of place the result of the last timed operation, in place that of one "
		"more operation. A wrong element makes the exit code 1.\n\n"
		"With --transport, the counters of the network devices are read before and after each row. The command fails with "
		"exit code 1 when they contradict the named transport or an even split over the rails. rails is the number of "
		"network devices that carried the row.\n\n"
		"decode needs no other ranks. It measures how many images/s one processor turns from files into training samples "
		"(random crop and flip, resized, normalised), beside plain decoding of the same files by libjpeg-turbo, both in "
		"processor time of the thread and in alternation; and the throughput of the loader with --loader-threads.\n\n"
		"io needs no other ranks either. It reads the samples of a dataset in random order, as training does, with --loader-threads "
		"threads, each sample once at most and checked by its CRC-32C, after removing the dataset from the page cache. Where --data "
		"is another folder, the same is done with blocks of a temporary file, which is gone afterwards.\n\n"
		"train measures --iters training steps after --warmup untimed ones, on one generated batch in memory: forward, "
		"backward with the allreduce of gradients between ranks, and an update by SGD with momentum (learning rate 0.01, "
		"weight decay 1e-4, no dropout). Times are those of the slowest rank; images per second come from the median step. "
		"The losses of the first steps are printed, to be compared with another program's from the same --init.",
	.examples = "  gannet launch -n 4 gannet bench allreduce --transport shm\n"
		    "  srun -N2 --mpi=pmix gannet bench allreduce --json     # JSON lines\n"
		    "  srun -N2 --mpi=pmix gannet bench p2p --transport rc   # of a link\n"
		    "  gannet launch -n 4 gannet bench allreduce --group 2   # two at once\n"
		    "  gannet bench decode --data /local/train --iters 5     # images/s\n"
		    "  gannet bench io --data /nvme/train --loader-threads 8 # MB/s, samples/s\n"
		    "  gannet bench train --model resnet50 --batch 16 --iters 10\n",
	GN_OPTIONS(options_table),
	.positional_min = 1,
	.positional_max = 1,
};

const struct gn_cmd gn_cmd_bench = {.command = &command, .run = run, .options_size = sizeof(struct gn_bench_options), .joins = 1};
