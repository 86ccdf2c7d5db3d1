#include "src/cmd/cmd.h"

#include "data/pack/pack.h"
#include "src/base/thread_pool.h"
#include "src/base/text.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>

struct pack_options {
	const char *out;
	int64_t shard_bytes, seed, threads, quality, synthetic;
	const char *classes, *labels;
	struct gn_shape_2d size;
	const char *png;
	struct gn_text_list split; /* of one; a list, so that a second one is seen */
	int skip_bad, exif_rotate, json;
	const char *key_file;
};

#define AT(field) offsetof(struct pack_options, field)

static const struct gn_option options[] = {
	GN_OPT_TEXT("out", AT(out), "DIR", "output folder; appears only when it is complete", .letter = 'o', .required = 1),
	GN_OPT_SIZE("shard-bytes", AT(shard_bytes), "N", "512M", 1, 1e15, "bytes of image data per shard; suffixes K, M, G"),
	GN_OPT_INT("seed", AT(seed), "N", "0", 0, 9e15, "seed of the shuffle and of synthetic images"),
	GN_OPT_LIST("split", AT(split), "NAME=FRACTION", "write two datasets, DIR/train and DIR/NAME, the latter with FRACTION of the "
		    "images of each class, such as val=0.1"),
	GN_OPT_TEXT("classes", AT(classes), "FILE|N", "class names, one per line, in the order of their labels, or a packed dataset's "
		    "folder, whose class names are used; with --synthetic, the number of classes"),
	GN_OPT_TEXT("labels", AT(labels), "FILE", "the class of each image, for sources without class folders: one line NAME,CLASS per "
		    "image"),
	GN_OPT_FLAG("skip-bad", AT(skip_bad), "skip bad images, naming each, instead of failing"),
	GN_OPT_CHOICE("png", AT(png), "WHAT", "convert", "convert|refuse", "treatment of PNG images"),
	GN_OPT_FLAG("exif-rotate", AT(exif_rotate), "turn JPEG images as their EXIF orientation says, and encode them again (default: "
		    "ignored, as torchvision does)"),
	GN_OPT_INT("quality", AT(quality), "N", "95", 1, 100, "JPEG quality of converted (PNG, CMYK, --exif-rotate) and synthetic images"),
	GN_OPT_INT("synthetic", AT(synthetic), "COUNT", NULL, 1, 2147483647, "generate COUNT images instead of reading a SOURCE"),
	{.name = "size", .kind = GN_OPTION_SHAPE, .offset = AT(size), .value_name = "HxW",
	 .help = "height and width of synthetic images"},
	GN_OPT_TEXT("encrypt", AT(key_file), "KEYFILE", "encrypt each image (AES-256-GCM) with the key in KEYFILE: 32 random bytes, "
		    "readable by their owner only; others need it as --key-file"),
	GN_OPT_INT("threads", AT(threads), "N", "0", 0, 1024, "worker threads; 0: one per processor", .letter = 'j'),
	GN_OPT_FLAG("json", AT(json), "print the result as one JSON object"),
};

static const struct gn_command command = {
	.name = "pack",
	.summary = "pack images into shuffled, checksummed HDF5 shards",
	.positional = "[SOURCE]...",
	.description = "Each SOURCE is a folder with one subfolder per class, a tar of such (plain, gzip, bzip2, xz or zstd), or a "
		       "tar of one tar per class (ILSVRC2012). The class of an image is the folder (or inner tar) of the first "
		       "level, as in torchvision's ImageFolder; deeper folders belong to it. A single folder around all class "
		       "folders is skipped. A source of train and val (or test) folders is refused, also inside such a folder: "
		       "pack each separately. In folders symbolic links are followed; in a tar they are bad images.\n\n"
		       "With --labels the class of an image is given by FILE and folders have no meaning. A line consists of the "
		       "image's path inside SOURCE, a comma, and the class name, as CSV (RFC 4180); a first line \"name,class\" is a "
		       "heading. Lines without an image and repeated names are errors; images without a line are bad images.\n\n"
		       "Every image is decoded completely. Bad images (corrupt, truncated, not 8 bits, empty, neither JPEG nor "
		       "PNG) are named, and fail the command unless --skip-bad skips them. Images with libjpeg warnings and "
		       "complete pixels (extraneous bytes and the like) are packed, named and counted. PNG is converted to JPEG, "
		       "transparency is dropped; CMYK and YCCK JPEG is converted to RGB JPEG; colour profiles are not applied. "
		       "Hidden files, __MACOSX, Thumbs.db and text files (.txt, .csv, .json, .md, .xml ...) are ignored and "
		       "counted.\n\n"
		       "The same images and seed give the same bytes, except with --encrypt. During the command the data is in DIR.tmp-pack, which for "
		       "tar sources takes up to twice the space of the images. A command that is stopped (SIGINT, SIGTERM: exit "
		       "code 5) or killed leaves that folder: the same command then reads its sources again, but decodes and "
		       "writes only what is missing, with the same result. So does a command that failed because of bad images: "
		       "repair them, or add --skip-bad, and repeat it. With other arguments it starts from the beginning. A "
		       "command that fails for another reason removes the folder.\n\n"
		       "With --split the images that are held out depend on --seed and on the images' names in SOURCE alone: of each "
		       "class those whose SHA-256 of \"SEED/NAME\" is least. A class of two or more images has at least one in each "
		       "dataset. Both have the same classes and appear together. Images of the same bytes in both are counted in a "
		       "warning.\n\n"
		       "A validation set must be packed with the classes of its training set: when both contain all classes the "
		       "sorted names agree, otherwise give the packed training set as --classes.",
	.examples = "  gannet pack --out digits/train data/digits/digits-train.tar.xz\n"
		    "  gannet pack --out flowers --split val=0.1 photos\n"
		    "  gannet pack --out imagenet/train ILSVRC2012_img_train.tar\n"
		    "  gannet pack --out imagenet/val --classes imagenet/train \\\n"
		    "      --labels val.csv ILSVRC2012_img_val.tar\n"
		    "  gannet pack --out fake --synthetic 10000 --classes 100 --size 256x256\n",
	GN_OPTIONS(options),
	.positional_max = 1024,
};

static enum gn_status set_classes(const struct pack_options *o, struct gn_pack_options *p, struct gn_err *err)
{
	int64_t count;

	if (!o->synthetic) {
		p->classes_file = o->classes;
		p->labels_file = o->labels;
		return o->size.height ? gn_err_set(err, GN_ERR_USAGE, "--size belongs to --synthetic") : GN_OK;
	}
	if (!o->classes || gn_parse_int(o->classes, &count, err) || count < 1 || count > 100000)
		return gn_err_set(err, GN_ERR_USAGE, "--synthetic needs --classes N, a number from 1 to 100000");
	if (o->size.height < 1 || o->size.width < 1 || o->size.height > 65500 || o->size.width > 65500)
		return gn_err_set(err, GN_ERR_USAGE, "--synthetic needs --size HxW, each from 1 to 65500");
	p->labels_file = o->labels;
	p->synthetic_count = (uint64_t)o->synthetic;
	p->synthetic_classes = (uint32_t)count;
	p->synthetic_height = (uint32_t)o->size.height;
	p->synthetic_width = (uint32_t)o->size.width;
	return GN_OK;
}

static void tell(const struct pack_options *o, const struct gn_pack_result *r)
{
	char out[PATH_MAX];

	if (o->json) {
		printf("{\"samples\": %llu, \"skipped\": %llu, \"classes\": %u, \"shards\": %u, \"data_bytes\": %llu, "
		       "\"converted\": %llu, \"jpeg_warnings\": %llu, \"passed_over\": %llu, \"rotated\": %llu",
		       (unsigned long long)r->samples, (unsigned long long)r->skipped, r->classes, r->shards,
		       (unsigned long long)r->data_bytes, (unsigned long long)r->converted, (unsigned long long)r->warned,
		       (unsigned long long)r->passed, (unsigned long long)r->rotated);
		if (r->split_name[0])
			printf(", \"split\": {\"train\": %llu, \"%s\": %llu}", (unsigned long long)(r->samples - r->split_samples),
			       r->split_name, (unsigned long long)r->split_samples);
		puts("}");
		return;
	}
	fprintf(stderr, "%s: %llu image%s of %u class%s in %u shard%s, %.1f MB; %llu skipped",
		gn_text_visible(o->out, out, sizeof out), (unsigned long long)r->samples, gn_text_plural(r->samples),
		r->classes, r->classes == 1 ? "" : "es", r->shards, gn_text_plural(r->shards), (double)r->data_bytes * 1e-6,
		(unsigned long long)r->skipped);
	if (r->split_name[0])
		fprintf(stderr, "; %llu in train, %llu in %s", (unsigned long long)(r->samples - r->split_samples),
			(unsigned long long)r->split_samples, r->split_name);
	if (r->converted)
		fprintf(stderr, "; %llu converted (PNG, CMYK%s)", (unsigned long long)r->converted,
			o->exif_rotate ? ", turned" : "");
	if (r->warned)
		fprintf(stderr, "; %llu with JPEG warnings", (unsigned long long)r->warned);
	if (r->passed)
		fprintf(stderr, "; %llu other file%s ignored", (unsigned long long)r->passed,
			r->passed == 1 ? " or folder" : "s and folders");
	if (r->rotated)
		fprintf(stderr, "; %llu with an EXIF orientation, which is %s", (unsigned long long)r->rotated,
			o->exif_rotate ? "applied" : "not applied");
	fputc('\n', stderr);
}

/* Set by the signal handler, read between images. */
static volatile sig_atomic_t stop_requested;

static void request_stop(int signal_number)
{
	(void)signal_number;
	stop_requested = 1;
}

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = request_stop, .sa_flags = SA_RESTART | (int)SA_RESETHAND};

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct pack_options *o = target;
	struct gn_progress_bar progress;
	struct gn_pack_options p = {
		.out = o->out, .shard_bytes = (uint64_t)o->shard_bytes, .seed = (uint64_t)o->seed,
		.sources = positional->count ? positional->items : NULL, .source_count = positional->count,
		.threads = o->threads ? (int)o->threads : gn_cpu_count(), .skip_bad = o->skip_bad,
		.refuse_png = o->png[0] == 'r', .split = o->split.count ? o->split.items[0] : NULL,
		.quality = (int)o->quality, .exif_rotate = o->exif_rotate,
		.key_file = o->key_file, .progress = &progress,
		.stop = &stop_requested,
	};
	struct gn_pack_result result;
	enum gn_status status;
	struct gn_err err;

	if (o->split.count > 1)
		gn_err_set(&err, GN_ERR_USAGE, "give --split once, not both %s and %s", o->split.items[0], o->split.items[1]);
	if (o->split.count > 1 || set_classes(o, &p, &err))
		return gn_cmd_fail("pack", &err);
	p.log = gn_cmd_log();
	catch_signals();
	status = gn_pack(&p, &result, &err);
	gn_log_destroy(p.log);
	if (status)
		return gn_cmd_fail("pack", &err);
	tell(o, &result);
	return GN_EXIT_DONE;
}

const struct gn_cmd gn_cmd_pack = {.command = &command, .run = run, .options_size = sizeof(struct pack_options)};
