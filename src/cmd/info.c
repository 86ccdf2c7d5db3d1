#include "src/cmd/info.h"

#include "data/shard/dataset.h"
#include "data/shard/folders.h"
#include "data/shard/manifest.h"
#include "data/shard/shard.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/cmd/cmd.h"
#include "src/cmd/key_option.h"
#include "src/train/model/model.h"
#include "src/train/parallel/pipe_schedule.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct info_options {
	int json, topology;
	const char *key_file, *checkpoint_key;
	int64_t ranks;
	struct gn_info_plan_options plan;
	unsigned char given[32]; /* options of the command line */
};

#define PLAN(member) offsetof(struct info_options, plan) + offsetof(struct gn_info_plan_options, member)

#define MACHINE(text, field, value, sentence)                                                                          \
	{.name = text, .kind = GN_OPTION_REAL, .offset = PLAN(sim.machine.field), .value_name = value, .initial = "-1",    \
	 .help = sentence, .min = 0, .max = 1e12}

static const struct gn_option options[] = {
	GN_OPT_FLAG("json", offsetof(struct info_options, json), "print one JSON object"),
	GN_CMD_KEY_OPTION(offsetof(struct info_options, key_file)),
	GN_CMD_CHECKPOINT_KEY_OPTION(offsetof(struct info_options, checkpoint_key)),
	GN_OPT_CHOICE("plan", PLAN(model), "MODEL", NULL, gn_model_names, "instead of PATH: the operators of a training step of this "
		    "network, with their cost"),
	GN_OPT_INT("batch", PLAN(batch), "N", "32", 1, 1 << 20, "with --plan: images per step"),
	GN_OPT_INT("image-size", PLAN(side), "N", "0", 0, 4096, "with --plan: side of the images in pixels; 0: the network's default"),
	GN_OPT_INT("classes", PLAN(classes), "N", "1000", 1, 1 << 20, "with --plan: number of classes"),
	GN_OPT_FLAG("inference", PLAN(inference), "with --plan: the forward pass of evaluation instead of a training step"),
	GN_OPT_CHOICE("precision", PLAN(precision), "NAME", "fp32", "fp32|bf16|bf16-emulated", "with --plan: type of activations and their "
		    "gradients, as in gannet train"),
	GN_OPT_REAL("gb-per-s", PLAN(gb_per_s), "X", "0", 0, 1e6, "with --plan: memory bandwidth for the roofline; 0: measured"),
	GN_OPT_REAL("gflop-per-s", PLAN(gflop_per_s), "X", "0", 0, 1e9, "with --plan: arithmetic rate for the roofline; 0: measured"),
	GN_OPT_TEXT("parallel", PLAN(parallel), "MESH", "with --plan: predict a step of data=D,pipeline=P,tensor=T ranks; some of them can "
		    "be left out; auto: of all meshes, in which each has --batch and --micro-batches for each of its ranks"),
	GN_OPT_INT("micro-batches", PLAN(micro_batches), "N", "4", 1, 4096, "with --parallel: parts of --batch, which each data rank has"),
	GN_OPT_CHOICE("pipe-schedule", PLAN(schedule), "NAME", "1f1b", GN_PIPE_CHOICES, "with --parallel: order of forwards and backwards"),
	GN_OPT_FLAG("recompute", PLAN(recompute), "with --parallel: as in gannet train"),
	GN_OPT_TEXT("cut", PLAN(cut), "NAME,...", "with --parallel: layers or blocks that begin the stages but the first; else chosen by "
		    "time"),
	MACHINE("nodes", nodes, "N", "with --parallel: nodes (4)"),
	MACHINE("ranks-per-node", ranks_per_node, "N", "with --parallel: ranks per node (1)"),
	MACHINE("link-gbit", link_gbit, "X", "with --parallel: Gbit/s per node (100)"),
	MACHINE("link-us", link_us, "X", "with --parallel: latency between nodes in us (1.5)"),
	MACHINE("node-gb", node_gb, "X", "with --parallel: GB/s between the ranks of a node (10)"),
	GN_OPT_TEXT("tuning", PLAN(sim.tuning), "FILE", "with --parallel: tuning table of gannet tune with measured latencies, overheads "
		    "and rates"),
	GN_OPT_TEXT("fabric", PLAN(sim.fabric), "TEXT", "with --parallel: the line of --tuning whose signature contains TEXT"),
	GN_OPT_FLAG("topology", offsetof(struct info_options, topology), "the distances of GPUs, network devices and processors: of this "
		    "machine, or of the one described by PATH (XML of lstopo)"),
	GN_OPT_INT("ranks", offsetof(struct info_options, ranks), "N", "0", 0, 4096, "with --topology: number of ranks to place; 0: one "
		    "per GPU, or one"),
};

_Static_assert(sizeof options / sizeof *options <= sizeof ((struct info_options *)0)->given, "an option has no place in given");

static const struct gn_command command = {
	.name = "info",
	.summary = "describe a dataset, a shard, a checkpoint, a step or the topology",
	.positional = "[PATH]",
	.description = "PATH is a folder written by gannet pack, one of its shards, a checkpoint, or a folder of checkpoints, of "
		       "which the newest valid one is described. Checkpoints are verified. Of shards the tables are checked and "
		       "the image data is not: see gannet verify.\n\n"
		       "With --plan: a table of the operators of a step, with output shape, arithmetic and bytes moved forward and "
		       "backward, and a lower bound of the time: for each operator the longer of moving and computing (the "
		       "roofline). Bytes are those of every pass over a tensor, as if caches kept nothing from one operator to the "
		       "next. The memory of a step (the arena) is planned, not allocated.\n\n"
		       "With --parallel: what a step of that mesh should take, by running the pieces of the network here with "
		       "OMP_NUM_THREADS threads (or, with --gb-per-s and --gflop-per-s, by the roofline) and simulating the schedule "
		       "on the machine of the options: times and memory of each stage, bubble, bytes, and the best --cut.\n\n"
		       "With --topology: the distance of each GPU from each network device, and the GPU, network device and "
		       "processors that each rank of a node should use. train and bench log at start what ranks do use, and warn "
		       "of distant pairs.",
	.examples = "  gannet info digits/train\n  gannet info --json digits/train/shard-00000.h5\n"
		    "  gannet info --plan resnet50 --batch 16\n"
		    "  gannet info --plan vgg16 --parallel auto --nodes 4 --link-gbit 1\n"
		    "  gannet info --topology\n  lstopo node.xml && gannet info --topology node.xml --ranks 8\n",
	GN_OPTIONS(options),
	.given = offsetof(struct info_options, given),
	.positional_min = 0,
	.positional_max = 1,
};

/* Minimum and maximum over the samples. */
struct extent {
	uint32_t min_length, max_length;
	uint16_t min_width, max_width, min_height, max_height;
	uint64_t bytes;
};

static void extent_add(struct extent *e, uint32_t length, uint16_t width, uint16_t height)
{
	if (!e->bytes)
		*e = (struct extent){length, length, width, width, height, height, 0};
	e->bytes += length;
	e->min_length = length < e->min_length ? length : e->min_length;
	e->max_length = length > e->max_length ? length : e->max_length;
	e->min_width = width < e->min_width ? width : e->min_width;
	e->max_width = width > e->max_width ? width : e->max_width;
	e->min_height = height < e->min_height ? height : e->min_height;
	e->max_height = height > e->max_height ? height : e->max_height;
}

static void put_extent(struct gn_json *j, const struct extent *e)
{
	gn_json_put(j, "image_bytes %lu length_min %u length_max %u width_min %u width_max %u height_min %u height_max %u", e->bytes,
		    e->min_length, e->max_length, e->min_width, e->max_width, e->min_height, e->max_height);
}

static void print_extent(const struct extent *e, uint64_t samples)
{
	printf("images     %llu, %.1f MB, %u to %u bytes\n", (unsigned long long)samples, (double)e->bytes * 1e-6,
	       e->min_length, e->max_length);
	printf("pixels     %u to %u wide, %u to %u high\n", e->min_width, e->max_width, e->min_height, e->max_height);
}

static int dataset_json(const struct gn_manifest *m, const struct extent *e)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "kind dataset samples %lu classes %u shards %u skipped %lu seed %lu digest %s exif_rotate? %d encrypted? %d",
		    m->samples, m->class_count, m->shard_count, m->skipped, m->seed, m->digest, m->exif_rotate, m->key_check[0] != 0);
	put_extent(&j, e);
	gn_json_object(&j, "samples_per_class");
	for (uint32_t i = 0; i < m->class_count; i++)
		gn_json_uint(&j, m->classes[i].name, m->classes[i].samples);
	gn_json_end(&j);
	return gn_cmd_print_json(&j);
}

static void print_dataset(const char *path, const struct gn_manifest *m, const struct extent *e)
{
	char name[PATH_MAX];

	printf("dataset    %s\ndigest     %s\nshards     %u, shuffled with seed %llu\n",
	       gn_text_visible(path, name, sizeof name), m->digest, m->shard_count, (unsigned long long)m->seed);
	print_extent(e, m->samples);
	if (m->skipped)
		printf("skipped    %llu bad image%s when packing\n", (unsigned long long)m->skipped, gn_text_plural(m->skipped));
	if (m->exif_rotate)
		puts("turned     as EXIF orientations say, when packing; gannet predict does the same to files");
	if (m->key_check[0])
		printf("encrypted  AES-256-GCM, key %.16s; names, classes and sizes are not\n", m->key_check);
	printf("classes    %u\n", m->class_count);
	for (uint32_t i = 0; i < m->class_count; i++)
		printf("%9u  %s  %llu\n", i, gn_text_visible(m->classes[i].name, name, sizeof name),
		       (unsigned long long)m->classes[i].samples);
}

static int dataset_info(const char *path, int json, const char *key_file, struct gn_err *err)
{
	struct gn_dataset *d = NULL;
	struct gn_manifest m = {0};
	struct extent extent = {0};
	struct gn_sample sample;
	char first[PATH_MAX];
	int code = GN_EXIT_DONE;

	if (gn_folders_get(path, 0, first, err) || gn_manifest_load(first, &m, err) || gn_dataset_open(path, &d, err) ||
	    (key_file && gn_dataset_unlock(d, key_file, err))) {
		gn_dataset_close(d);
		gn_manifest_release(&m);
		return gn_cmd_fail("info", err);
	}
	for (uint64_t i = 0; i < gn_dataset_count(d); i++) {
		gn_dataset_sample(d, i, &sample);
		extent_add(&extent, sample.length_bytes, sample.width, sample.height);
	}
	if (json)
		code = dataset_json(&m, &extent);
	else
		print_dataset(path, &m, &extent);
	gn_dataset_close(d);
	gn_manifest_release(&m);
	return code;
}

static int shard_json(const struct gn_shard_layout *l, const struct extent *e)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "kind shard samples %lu classes %u bytes %lu data_offset %lu data_bytes %lu", l->count, l->classes, l->size_bytes,
		    l->data_offset, l->data_bytes);
	put_extent(&j, e);
	return gn_cmd_print_json(&j);
}

static int shard_info(const char *path, int json, struct gn_err *err)
{
	const struct gn_shard_layout *layout;
	const struct gn_shard_row *rows;
	struct extent extent = {0};
	struct gn_shard *s;
	char name[PATH_MAX];
	int code = GN_EXIT_DONE;

	if (gn_shard_open(path, &s, err))
		return gn_cmd_fail("info", err);
	layout = gn_shard_layout(s);
	rows = gn_shard_rows(s);
	for (uint64_t i = 0; i < layout->count; i++)
		extent_add(&extent, rows[i].length_bytes, rows[i].width, rows[i].height);
	if (json) {
		code = shard_json(layout, &extent);
	} else {
		printf("shard      %s\nclasses    %u\n", gn_text_visible(path, name, sizeof name), layout->classes);
		print_extent(&extent, layout->count);
		printf("data       %llu bytes at byte %llu of %llu\n", (unsigned long long)layout->data_bytes,
		       (unsigned long long)layout->data_offset, (unsigned long long)layout->size_bytes);
	}
	gn_shard_close(s);
	return code;
}

struct signature {
	size_t at, len;
	const char *bytes, *kind;
};

/* Common file types beside shards. A safetensors file starts with a length, then its JSON header. */
static const struct signature signatures[] = {
	{0, 3, "\xff\xd8\xff", "a JPEG image"},
	{0, 8, "\x89PNG\r\n\x1a\n", "a PNG image"},
	{257, 5, "ustar", "a tar archive"},
	{0, 2, "\x1f\x8b", "compressed by gzip"},
	{0, 3, "BZh", "compressed by bzip2"},
	{0, 6, "\xfd" "7zXZ\0", "compressed by xz"},
	{0, 4, "\x28\xb5\x2f\xfd", "compressed by zstd"},
	{0, 4, "PK\3\4", "a zip archive"},
	{0, 4, "\x7f" "ELF", "a program or library"},
	{8, 2, "{\"", "a safetensors file"},
	{0, 1, "{", "JSON"},
};

static int is_text(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)bytes[i] < 0x20 && !memchr("\t\n\r\f", bytes[i], 4))
			return 0;
	return 1;
}

/* The type of a file without the HDF5 signature: "a JPEG image" and the like, "an empty file", "text", "of unknown type", or "not
 * readable". NULL for an HDF5 file. */
static const char *file_type(const char *path)
{
	char bytes[513];
	ssize_t begun = gn_file_read_start(path, bytes, sizeof bytes);
	size_t len = begun < 0 ? 0 : (size_t)begun;

	if (begun <= 0)
		return begun ? "not readable" : "an empty file";
	/* a truncated signature counts */
	if (!memcmp(bytes, "\x89HDF\r\n\x1a\n", len < 8 ? len : 8))
		return NULL;
	for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
		const struct signature *s = &signatures[i];

		if (s->at + s->len <= len && !memcmp(bytes + s->at, s->bytes, s->len))
			return s->kind;
	}
	return is_text(bytes, len) ? "text" : "of unknown type";
}

/* Reports what path is instead. info: the result of stat(). */
static int refuse(const char *path, const struct stat *info, struct gn_err *err)
{
	const char *kind = "no file";

	if (S_ISDIR(info->st_mode) && gn_manifest_check_parent(path, err))
		return gn_cmd_fail("info", err);
	if (S_ISDIR(info->st_mode))
		kind = "a folder without gannet-dataset.json or a checkpoint";
	else if (S_ISREG(info->st_mode))
		kind = file_type(path);
	gn_err_set(err, GN_ERR_DATA,
		   "%s is %s: info describes a folder written by gannet pack, a shard in it (HDF5), a checkpoint, or a "
		   "folder of checkpoints", path, kind);
	return gn_cmd_fail("info", err);
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct info_options *o = target;
	struct gn_info_plan_options plan = o->plan;
	const char *path;
	struct stat info;
	struct gn_err err;

	plan.json = o->json;
	if (o->topology && !plan.model)
		return gn_info_topology(positional->count ? positional->items[0] : NULL, o->ranks, o->json);
	if (!positional->count == !plan.model || o->topology) {
		gn_err_set(&err, GN_ERR_USAGE, "give either a PATH, a network with --plan, or --topology");
		return gn_cmd_fail("info", &err);
	}
	if (plan.model)
		return plan.parallel ? gn_info_parallel(&plan) : gn_info_plan(&plan);
	path = positional->items[0];
	if (gn_folders_count(path) > 1)
		return dataset_info(path, o->json, o->key_file, &err);
	if (stat(path, &info)) {
		gn_err_errno(&err, errno, "cannot stat %s", path);
		return gn_cmd_fail("info", &err);
	}
	if (S_ISDIR(info.st_mode) && gn_info_is_checkpoint(path))
		return gn_info_checkpoint(path, o->checkpoint_key, o->json);
	if (S_ISDIR(info.st_mode) && gn_manifest_is_there(path))
		return dataset_info(path, o->json, o->key_file, &err);
	if (!S_ISREG(info.st_mode) || file_type(path))
		return refuse(path, &info, &err);
	return shard_info(path, o->json, &err);
}

const struct gn_cmd gn_cmd_info = {.command = &command, .run = run, .options_size = sizeof(struct info_options)};
