#include "src/cmd/cmd.h"

#include "data/shard/verify.h"
#include "src/base/clock.h"
#include "src/base/thread_pool.h"
#include "src/base/text.h"
#include "src/cmd/key_option.h"

#include <limits.h>
#include <stdio.h>

struct verify_options {
	int64_t threads;
	int decode, json;
	const char *key_file;
};

#define AT(field) offsetof(struct verify_options, field)

static const struct gn_option options[] = {
	GN_OPT_FLAG("decode", AT(decode), "also decode every image"),
	GN_CMD_KEY_OPTION(AT(key_file)),
	GN_OPT_INT("threads", AT(threads), "N", "0", 0, 1024, "worker threads; 0: one per processor", .letter = 'j'),
	GN_OPT_FLAG("json", AT(json), "print the result as one JSON object"),
};

static const struct gn_command command = {
	.name = "verify",
	.summary = "check every shard and every sample of a packed dataset",
	.positional = "DIR",
	.description = "Reads all data: the size and SHA-256 of each shard, its tables, and the CRC-32C of each sample. Damaged "
		       "shards and samples are named; the exit code is then 3. Of an encrypted dataset this needs no key; with "
		       "--key-file the manifest and each sample are authenticated, too.",
	.examples = "  gannet verify digits/train\n  gannet verify --decode /nvme/imagenet/train\n",
	GN_OPTIONS(options),
	.positional_min = 1,
	.positional_max = 1,
};

static void tell(const struct verify_options *o, const char *path, const struct gn_verify_result *r, double seconds)
{
	const char *checked = r->authenticated ? ": digests, checksums, and by the key manifest and images" :
			      r->encrypted ? ": digests and checksums, no key: against damage, not against somebody who changed both" : "";
	char name[PATH_MAX];

	if (o->json)
		printf("{\"samples\": %llu, \"bytes\": %llu, \"shards\": %u, \"bad_samples\": %llu, \"bad_shards\": %llu, "
		       "\"encrypted\": %s, \"authenticated\": %s, \"seconds\": %.3f}\n", (unsigned long long)r->samples, (unsigned long long)r->bytes, r->shards,
		       (unsigned long long)r->bad_samples, (unsigned long long)r->bad_shards, r->encrypted ? "true" : "false",
		       r->authenticated ? "true" : "false", seconds);
	else
		fprintf(stderr, "%s: %llu sample%s in %u shard%s checked, %.1f MB in %.2f s%s\n",
			gn_text_visible(path, name, sizeof name), (unsigned long long)r->samples,
			gn_text_plural(r->samples), r->shards, gn_text_plural(r->shards), (double)r->bytes * 1e-6, seconds, checked);
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct verify_options *o = target;
	struct gn_progress_bar progress;
	struct gn_verify_options v = {.directory = positional->items[0], .decode = o->decode, .progress = &progress,
				      .key_file = o->key_file,
				      .threads = o->threads ? (int)o->threads : gn_cpu_count()};
	struct gn_verify_result result = {0};
	double start = gn_clock_s();
	enum gn_status status;
	struct gn_err err;

	v.log = gn_cmd_log();
	status = gn_verify(&v, &result, &err);
	gn_log_destroy(v.log);
	if (result.shards)
		tell(o, v.directory, &result, gn_clock_s() - start);
	return status ? gn_cmd_fail("verify", &err) : GN_EXIT_DONE;
}

const struct gn_cmd gn_cmd_verify = {.command = &command, .run = run, .options_size = sizeof(struct verify_options)};
