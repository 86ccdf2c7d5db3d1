#include "src/cmd/cmd.h"

#include "data/shard/folders.h"
#include "data/shard/manifest.h"
#include "data/stage/fetch.h"
#include "data/stage/relay.h"
#include "data/stage/stage.h"
#include "data/stage/stage_place.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/cmd/stage_list.h"
#include "src/cmd/world_options.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- results: for people to stderr, with json as one JSON object to stdout --- */
#define CHECKED ", digests verified"

static double megabytes_per_s(uint64_t bytes, double seconds)
{
	return seconds > 0 ? (double)bytes * 1e-6 / seconds : 0;
}

static void end(struct gn_json *j, const char *from, const char *to)
{
	gn_json_string_n(j, "from", from, gn_http_is_address(from) ? strcspn(from, "?") : strlen(from));
	gn_json_string(j, "to", to);
	gn_cmd_print_json(j);
}

static void print_dataset_json(const struct gn_stage_result *r, const char *host, const char *from, const char *to)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "host %s samples %lu copied %u copied_bytes %lu kept %u kept_bytes %lu copy_s %.3f wait_s %.3f mb_per_s %.1f "
		    "foreign? %d", host, r->samples, r->copied, r->copied_bytes, r->kept, r->kept_bytes, r->copy_s, r->wait_s,
		    megabytes_per_s(r->copied_bytes, r->copy_s), r->foreign);
	end(&j, from, to);
}

/* from: an address is printed without its query. check: --check, of what was there. */
static void print_dataset(const struct gn_stage_result *r, const char *host, const char *from, const char *to, int check, int json)
{
	char visible[PATH_MAX], owner[48] = "";

	if (json) {
		print_dataset_json(r, host, from, to);
		return;
	}
	if (check)
		snprintf(owner, sizeof owner, CHECKED);
	if (r->foreign)
		snprintf(owner, sizeof owner, ", digests verified: owned by user %u", (unsigned)r->owner);
	fprintf(stderr, "%s: %s: %u shard%s copied (%.1f MB in %.2f s, %.1f MB/s), %u %s there (%.1f MB%s)\n", host,
		gn_text_visible(to, visible, sizeof visible), r->copied, gn_text_plural(r->copied), (double)r->copied_bytes * 1e-6, r->copy_s,
		megabytes_per_s(r->copied_bytes, r->copy_s), r->kept, r->kept == 1 ? "was" : "were",
		(double)r->kept_bytes * 1e-6, owner);
}

static void print_tree(const struct gn_relay_result *r, const char *from, const char *to, int check, int json)
{
	double rate = megabytes_per_s(r->written_bytes, r->seconds);
	char visible[PATH_MAX];
	struct gn_json j;

	if (!json) {
		fprintf(stderr, "%s: %llu %s on %u of %u node%s: %.1f MB read from the source, %.1f MB written in %.2f s "
			"(%.1f MB/s), %.1f MB were there%s\n", gn_text_visible(to, visible, sizeof visible), (unsigned long long)r->entries,
			r->entries == 1 ? "entry" : "entries", r->nodes - r->failed, r->nodes, gn_text_plural(r->nodes),
			(double)r->source_bytes * 1e-6, (double)r->written_bytes * 1e-6, r->seconds, rate, (double)r->kept_bytes * 1e-6,
			check ? CHECKED : "");
		return;
	}
	gn_json_begin(&j);
	gn_json_put(&j, "nodes %u failed_nodes %u entries %lu data_bytes %lu source_bytes %lu written_bytes %lu kept_bytes %lu "
		    "wrong_chunks %u seconds %.3f mb_per_s %.1f", r->nodes, r->failed, r->entries, r->data_bytes, r->source_bytes,
		    r->written_bytes, r->kept_bytes, r->wrong_chunks, r->seconds, rate);
	end(&j, from, to);
}

static void print_file(const struct gn_fetch_result *r, const char *from, const char *to, int json)
{
	uint64_t copied = r->was_there ? 0 : r->bytes - r->kept_bytes;
	double rate = megabytes_per_s(copied, r->seconds);
	char visible[PATH_MAX];
	struct gn_json j;

	if (json) {
		gn_json_begin(&j);
		gn_json_put(&j, "bytes %lu copied_bytes %lu kept_bytes %lu was_there? %d seconds %.3f mb_per_s %.1f", r->bytes, copied,
			    r->kept_bytes, r->was_there, r->seconds, rate);
		end(&j, from, to);
	} else if (r->was_there) {
		fprintf(stderr, "%s: %.1f MB, was there\n", gn_text_visible(to, visible, sizeof visible), (double)r->bytes * 1e-6);
	} else {
		fprintf(stderr, "%s: %.1f MB in %.2f s (%.1f MB/s), %.1f MB were there\n", gn_text_visible(to, visible, sizeof visible),
			(double)copied * 1e-6, r->seconds, rate, (double)r->kept_bytes * 1e-6);
	}
}

struct stage_options {
	const char *from, *to, *transport, *token_file, *query_file, *sha256;
	int64_t threads, quota;
	int check, json, tree, list, remove;
	struct gn_world_options world;
};

#define AT(field) offsetof(struct stage_options, field)

static const struct gn_option options[] = {
	GN_OPT_TEXT("from", AT(from), "PATH", "packed dataset, or any folder or file, on the shared file system; or https://HOST/FILE"),
	GN_OPT_TEXT("to", AT(to), "PATH", "where the copy is to be on the node; folders above it are created; of a packed dataset "
		    "FOLDER:FOLDER on several disks, which train, eval, preview and bench decode take as they stand; with --list, "
		    "--remove, or --quota without --from: the folder of the copies", .required = 1),
	GN_OPT_INT("threads", AT(threads), "N", "4", 1, 256, "shards or chunks copied concurrently", .letter = 'j'),
	GN_OPT_FLAG("check", AT(check), "verify the digests of existing data even if the stage marker shows them unchanged"),
	GN_OPT_FLAG("tree", AT(tree), "stage a packed dataset as any other folder"),
	GN_OPT_CHOICE("transport", AT(transport), "NAME", "auto", "auto|tcp|rc|ud", "what carries chunks between nodes"),
	GN_OPT_TEXT("token-file", AT(token_file), "FILE", "https://: a bearer token, which only the file's owner can read"),
	GN_OPT_TEXT("query-file", AT(query_file), "FILE", "https://: what to append to the address after '?', such as Azure's SAS or the "
		    "signature of S3; only the owner can read it"),
	GN_OPT_TEXT("sha256", AT(sha256), "HEX", "https://: the SHA-256 that the file must have"),
	GN_OPT_FLAG("list", AT(list), "list what is staged in the folder --to of this node"),
	GN_OPT_FLAG("remove", AT(remove), "remove the copies NAME... from the folder --to of this node, or all, except what is in use"),
	GN_OPT_SIZE("quota", AT(quota), "BYTES", NULL, 1, 1e18, "remove the least recently used copies from the folder that holds --to, or "
		    "is --to, until all take at most this"),
	GN_OPT_FLAG("json", AT(json), "print the result as one JSON object"),
	GN_CMD_WORLD_OPTIONS(struct stage_options, world),
};

static const struct gn_command command = {
	.name = "stage",
	.summary = "copy a dataset, a folder or a file to the nodes' own disks",
	.positional = "[NAME...]",
	.positional_max = SIZE_MAX,
	.description = "A packed dataset: start it on every node, in one task or in all of them: a lock in the folder lets one process copy while "
		       "the others wait and then find a complete copy. The SHA-256 of each shard is verified during the copy. "
		       "Valid shards that exist already are kept, so an interrupted copy continues where it stopped. Only the "
		       "owner of the folder may have write permission. A copy that belongs to another user is used without writing "
		       "to it if every shard has the digest that --from has; this is verified each time, and the owner can still "
		       "change the copy later.\n\n"
		       "Anything else (a container image, a Python environment, a checkpoint), or a dataset with --tree: tasks that a "
		       "launcher connects, one on each node, read the source once in all and send each other what they have read. "
		       "Permissions, times, symbolic and hard links and holes are kept; owners, ACLs and extended attributes are not. The "
		       "copy appears under its name when it is whole, and becomes what --from is when it is staged again; --to with .gannet-stage "
		       "appended says that it is, .gannet-part holds one in the making, which the next run continues. A node that is lost leaves the others under srun --no-kill or "
		       "gannet launch --keep-going.\n\n"
		       "https://HOST/FILE: --to becomes that file, by ranges in --threads connections at once. What breaks off is tried again, "
		       "and a later run continues the copy unless the file has changed on the server. Tasks that a launcher connects read each range "
		       "once in all, and send each other what they have read; from a server without ranges one of them reads the file. Processes that "
		       "no launcher connects copy each for its own node; those on one node take turns.\n\n"
		       "--list, --remove and --quota without --from are for the copies that you have staged directly below the folder --to, on the node where "
		       "they are started: srun --ntasks-per-node=1 for all nodes. A copy is never removed while a program of Gannet's reads it, or "
		       "flock --shared COPY PROGRAM runs; while it is staged; when it has files that were not staged, or were changed; or when it is "
		       "another user's. --quota with --from makes room on each node before it copies; it fails when that cannot be. A copy was last used "
		       "when a program of Gannet's opened it or gannet stage found it complete.",
	.examples = "  srun --ntasks-per-node=1 gannet stage --from /shared/imagenet/train \\\n"
		    "      --to /nvme/imagenet/train\n"
		    "  srun --mpi=pmix --ntasks-per-node=1 --no-kill gannet stage \\\n"
		    "      --from /shared/env --to /nvme/env\n"
		    "  gannet stage --from https://example.org/env.sqsh --to /nvme/env.sqsh\n"
		    "  srun --ntasks-per-node=1 gannet stage --list --to /nvme\n"
		    "  srun --ntasks-per-node=1 gannet stage --to /nvme --remove env imagenet\n",
	GN_OPTIONS(options),
};

static int stage_dataset(const struct stage_options *o)
{
	struct gn_progress_bar progress;
	struct gn_stage_options s = {.from = o->from, .to = o->to, .threads = (int)o->threads, .check = o->check,
				     .quota_bytes = (uint64_t)o->quota, .progress = &progress};
	struct gn_stage_result result;
	char host[256], folder[PATH_MAX];
	enum gn_status status;
	struct gn_err err;

	/* group members with write permission could change the data that others train on */
	umask(umask(077) | 022);
	s.log = gn_cmd_log();
	for (int i = 0, count = gn_folders_count(o->to); i < count && !gn_folders_get(o->to, i, folder, NULL); i++)
		gn_stage_warn_places(i ? NULL : o->from, folder, s.log);
	status = gn_stage(&s, &result, &err);
	gn_log_destroy(s.log);
	if (status)
		return gn_cmd_fail_here("stage", &err);
	print_dataset(&result, gn_cmd_host(host, sizeof host), o->from, o->to, o->check, o->json);
	return GN_EXIT_DONE;
}

static enum gn_status relay(const struct stage_options *o, const struct gn_http_options *http, struct gn_world *world, struct gn_log *log,
			    struct gn_relay_result *result, struct gn_err *err)
{
	const struct gn_comm_options how = {.transport = o->transport, .tuning = "none"};
	struct gn_progress_bar progress;
	const struct gn_relay_options r = {.from = o->from, .to = o->to, .http = http, .sha256 = o->sha256, .threads = (int)o->threads,
					   .check = o->check, .quota_bytes = (uint64_t)o->quota, .log = log, .progress = &progress};
	struct gn_comm *comm = NULL;
	enum gn_status status = gn_world_size(world) > 1 ? gn_comm_create(world, &how, log, &comm, err) : GN_OK;

	if (!status)
		status = gn_relay(&r, comm, result, err);
	gn_comm_destroy(comm);
	return status;
}

/* This process for its own node. */
static enum gn_status fetch(const struct stage_options *o, const struct gn_http_options *http, struct gn_log *log, struct gn_err *err)
{
	struct gn_progress_bar progress;
	const struct gn_fetch_options f = {.from = *http, .to = o->to, .sha256 = o->sha256, .threads = (int)o->threads,
					   .quota_bytes = (uint64_t)o->quota, .progress = &progress};
	struct gn_fetch_result result;
	enum gn_status status;

	gn_stage_warn_places(NULL, o->to, log);
	status = gn_fetch(&f, &result, err);
	if (!status)
		print_file(&result, o->from, o->to, o->json);
	return status;
}

static enum gn_status stage_in_world(const struct stage_options *o, const struct gn_http_options *http, struct gn_world *world,
				     struct gn_log *log, struct gn_err *err)
{
	struct gn_relay_result result = {0};
	enum gn_status status;

	if (http && gn_world_size(world) == 1)
		return fetch(o, http, log, err);
	umask(umask(077) | 022);
	if (gn_world_local_rank(world) == 0)
		gn_stage_warn_places(http ? NULL : o->from, o->to, log);
	status = relay(o, http, world, log, &result, err);
	if (!status && gn_world_rank(world) == 0)
		print_tree(&result, o->from, o->to, o->check, o->json);
	return status;
}

static int stage_tree(const struct stage_options *o)
{
	struct gn_world_options how = o->world;
	struct gn_log *log = gn_cmd_log();
	const struct gn_http_options from = {.url = o->from, .token_file = o->token_file, .query_file = o->query_file, .log = log};
	const struct gn_http_options *http = gn_http_is_address(o->from) ? &from : NULL;
	struct gn_world *world;
	struct gn_err err;
	enum gn_status status;
	int code;

	how.keep_going = 1;
	status = gn_world_create(&how, log, &world, &err);
	if (!status) {
		status = stage_in_world(o, http, world, log, &err);
		gn_world_destroy(world);
	} else if (status == GN_ERR_USAGE && http) {
		/* as tasks of a step that does not connect them */
		gn_log_warn(log, "each process reads the server for itself: %s", err.text);
		status = fetch(o, http, log, &err);
	} else if (!http && access(o->from, F_OK)) {
		/* of both errors the one to be told */
		status = gn_err_errno(&err, errno, "cannot read %s", o->from);
	}
	code = status ? gn_cmd_fail_on(log, "stage", &err) : GN_EXIT_DONE;
	gn_log_destroy(log);
	return code;
}

static int check_fetch_options(const struct stage_options *o, struct gn_err *err)
{
	if (!gn_http_is_address(o->from) && (o->token_file || o->query_file || o->sha256))
		return gn_err_set(err, GN_ERR_USAGE, "--token-file, --query-file and --sha256 are for --from https://...");
	if (gn_http_is_address(o->from) && (o->tree || o->check))
		return gn_err_set(err, GN_ERR_USAGE, "--tree and --check are not for --from https://...");
	if (o->sha256 && (strlen(o->sha256) != 64 || strspn(o->sha256, "0123456789abcdefABCDEF") != 64))
		return gn_err_set(err, GN_ERR_USAGE, "--sha256 must have 64 hexadecimal digits");
	return GN_OK;
}

static int check_list_options(const struct stage_options *o, const struct gn_text_list *names, struct gn_err *err)
{
	if (!*o->to)
		return gn_err_set(err, GN_ERR_USAGE, "--to is empty: is a variable unset?");
	if (o->from && (o->list || o->remove))
		return gn_err_set(err, GN_ERR_USAGE, "--list and --remove are not for --from: they look at copies that are there");
	if (!o->from && !o->list && !o->remove && !o->quota)
		return gn_err_set(err, GN_ERR_USAGE, "gannet stage needs --from, --list, --remove or --quota");
	if (!o->from && o->list + o->remove + (o->quota != 0) > 1)
		return gn_err_set(err, GN_ERR_USAGE, "--list, --remove, and --quota without --from are one action each: give one of them");
	if (!o->from && (o->tree || o->check || o->token_file || o->query_file || o->sha256))
		return gn_err_set(err, GN_ERR_USAGE, "--tree, --check, --token-file, --query-file and --sha256 need --from");
	if (names->count && !o->remove)
		return gn_err_set(err, GN_ERR_USAGE, "the name %s is for --remove", names->items[0]);
	return GN_OK;
}

/* The process ends by the signal; what is complete is found again by the next one. */
static void tell_stop(int number)
{
	static const char text[] = "\ngannet stage: stopped by a signal; what has been copied is kept out of sight, and the same command goes on from there\n";
	ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);

	(void)ignored;
	raise(number);
}

/* One rank tells; what is ignored stays so. */
static void catch_stops(void)
{
	const struct sigaction action = {.sa_handler = tell_stop, .sa_flags = (int)SA_RESETHAND};
	static const int numbers[] = {SIGINT, SIGTERM};
	const char *rank = getenv("PMIX_RANK");
	struct sigaction now;

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if ((!rank || !strcmp(rank, "0")) && !sigaction(numbers[i], NULL, &now) && now.sa_handler == SIG_DFL)
			sigaction(numbers[i], &action, NULL);
}

/* A tree is copied by the ranks of one job, a dataset by each process for itself. */
static int refuse(const struct stage_options *o, struct gn_err *err)
{
	int is_job = o->from && (o->tree || gn_http_is_address(o->from) || !gn_manifest_is_there(o->from));

	return is_job ? gn_cmd_decline(NULL, "stage", err) : gn_cmd_fail("stage", err);
}

static int run(const void *target, const struct gn_text_list *positional)
{
	const struct stage_options *o = target;
	struct gn_err err;

	if (check_list_options(o, positional, &err))
		return refuse(o, &err);
	if (!o->from)
		return gn_cmd_stage_list(&(struct gn_stage_list_options){.folder = o->to, .names = positional, .quota_bytes = (uint64_t)o->quota,
									 .list = o->list, .remove = o->remove, .json = o->json});
	if (check_fetch_options(o, &err))
		return refuse(o, &err);
	catch_stops();
	if (!gn_http_is_address(o->from) && !o->tree && gn_manifest_is_there(o->from))
		return gn_folders_check("--to", o->to, &err) ? refuse(o, &err) : stage_dataset(o);
	if (gn_folders_count(o->to) > 1) {
		/* of both errors the one to be told */
		if (!gn_http_is_address(o->from) && access(o->from, F_OK))
			gn_err_errno(&err, errno, "cannot read %s", o->from);
		else
			gn_err_set(&err, GN_ERR_USAGE, "--to %s: several folders are for packed datasets", o->to);
		return refuse(o, &err);
	}
	return stage_tree(o);
}

const struct gn_cmd gn_cmd_stage = {.command = &command, .run = run, .options_size = sizeof(struct stage_options), .joins = 1};
