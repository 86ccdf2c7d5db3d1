#include "src/cmd/cmd.h"

#include "data/stage/stage.h"
#include "src/base/text.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct stage_options {
	const char *from, *to;
	int64_t threads;
	int check, json;
};

#define AT(field) offsetof(struct stage_options, field)

static const struct gn_option options[] = {
	{.name = "from", .kind = GN_OPTION_TEXT, .offset = AT(from), .value_name = "DIR", .required = 1,
	 .help = "packed dataset, on the shared file system"},
	{.name = "to", .kind = GN_OPTION_TEXT, .offset = AT(to), .value_name = "DIR", .required = 1,
	 .help = "node-local folder for the copy; created if missing"},
	{.name = "threads", .letter = 'j', .kind = GN_OPTION_INT, .offset = AT(threads), .value_name = "N",
	 .initial = "4", .min = 1, .max = 256, .help = "shards copied concurrently"},
	{.name = "check", .kind = GN_OPTION_FLAG, .offset = AT(check),
	 .help = "verify the digests of existing shards even if the stage marker shows them unchanged"},
	{.name = "json", .kind = GN_OPTION_FLAG, .offset = AT(json), .help = "print the result as one JSON object"},
};

static const struct gn_command command = {
	.name = "stage",
	.summary = "copy a packed dataset to a node-local folder",
	.positional = "",
	.description = "Start it on every node, in one task or in all of them: a lock in the folder lets one process copy while "
		       "the others wait and then find a complete copy. The SHA-256 of each shard is verified during the copy. "
		       "Valid shards that exist already are kept, so an interrupted copy continues where it stopped. Only the "
		       "owner of the folder may have write permission. A copy that belongs to another user is used without writing "
		       "to it if every shard has the digest that --from has; this is verified each time, and the owner can still "
		       "change the copy later.",
	.examples = "  srun --ntasks-per-node=1 gannet stage --from /shared/imagenet/train \\\n"
		    "      --to /nvme/imagenet/train\n",
	.options = options,
	.option_count = sizeof options / sizeof *options,
};

static void tell(const struct stage_options *o, const char *host, const struct gn_stage_result *r)
{
	char to[PATH_MAX], owner[48] = "";
	double rate = r->copied && r->copy_s > 0 ? (double)r->copied_bytes * 1e-6 / r->copy_s : 0;

	if (r->foreign)
		snprintf(owner, sizeof owner, ", digests verified: owned by user %u", (unsigned)r->owner);
	if (o->json)
		printf("{\"host\": \"%s\", \"samples\": %llu, \"copied\": %u, \"copied_bytes\": %llu, \"kept\": %u, "
		       "\"kept_bytes\": %llu, \"copy_s\": %.3f, \"wait_s\": %.3f, \"mb_per_s\": %.1f, \"foreign\": %s}\n", host,
		       (unsigned long long)r->samples, r->copied, (unsigned long long)r->copied_bytes, r->kept,
		       (unsigned long long)r->kept_bytes, r->copy_s, r->wait_s, rate, r->foreign ? "true" : "false");
	else
		fprintf(stderr, "%s: %s: %u shard%s copied (%.1f MB in %.2f s, %.1f MB/s), %u %s there (%.1f MB%s)\n", host,
			gn_text_visible(o->to, to, sizeof to), r->copied, gn_text_plural(r->copied),
			(double)r->copied_bytes * 1e-6, r->copy_s, rate, r->kept, r->kept == 1 ? "was" : "were",
			(double)r->kept_bytes * 1e-6, owner);
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct stage_options *o = target;
	struct gn_progress_bar progress;
	struct gn_stage_options s = {.from = o->from, .to = o->to, .threads = (int)o->threads, .check = o->check,
				     .progress = &progress};
	struct gn_stage_result result;
	char name[256] = "", host[256];
	enum gn_status status;
	struct gn_err err, on_host;

	(void)positional;
	if (gethostname(name, sizeof name - 1))
		name[0] = '\0';
	gn_text_visible(name[0] ? name : "?", host, sizeof host);
	/* group members with write permission could change the data that others train on */
	umask(umask(077) | 022);
	s.log = gn_cmd_log();
	status = gn_stage(&s, &result, &err);
	gn_log_destroy(s.log);
	if (status) {
		gn_err_set(&on_host, err.status, "%s: %s", host, err.text);
		return gn_cmd_fail("stage", &on_host);
	}
	tell(o, host, &result);
	return GN_EXIT_DONE;
}

const struct gn_cmd gn_cmd_stage = {.command = &command, .run = run, .options_size = sizeof(struct stage_options)};
