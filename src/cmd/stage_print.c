#include "src/cmd/stage_print.h"

#include "src/base/json.h"
#include "src/base/text.h"
#include "src/cmd/cmd.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

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
	gn_json_string(&j, "host", host);
	gn_json_uint(&j, "samples", r->samples);
	gn_json_uint(&j, "copied", r->copied);
	gn_json_uint(&j, "copied_bytes", r->copied_bytes);
	gn_json_uint(&j, "kept", r->kept);
	gn_json_uint(&j, "kept_bytes", r->kept_bytes);
	gn_json_fixed(&j, "copy_s", r->copy_s, 3);
	gn_json_fixed(&j, "wait_s", r->wait_s, 3);
	gn_json_fixed(&j, "mb_per_s", megabytes_per_s(r->copied_bytes, r->copy_s), 1);
	gn_json_bool(&j, "foreign", r->foreign);
	end(&j, from, to);
}

void gn_cmd_stage_print_dataset(const struct gn_stage_result *r, const char *host, const char *from, const char *to, int check, int json)
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

void gn_cmd_stage_print_tree(const struct gn_relay_result *r, const char *from, const char *to, int check, int json)
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
	gn_json_uint(&j, "nodes", r->nodes);
	gn_json_uint(&j, "failed_nodes", r->failed);
	gn_json_uint(&j, "entries", r->entries);
	gn_json_uint(&j, "data_bytes", r->data_bytes);
	gn_json_uint(&j, "source_bytes", r->source_bytes);
	gn_json_uint(&j, "written_bytes", r->written_bytes);
	gn_json_uint(&j, "kept_bytes", r->kept_bytes);
	gn_json_uint(&j, "wrong_chunks", r->wrong_chunks);
	gn_json_fixed(&j, "seconds", r->seconds, 3);
	gn_json_fixed(&j, "mb_per_s", rate, 1);
	end(&j, from, to);
}

void gn_cmd_stage_print_file(const struct gn_fetch_result *r, const char *from, const char *to, int json)
{
	uint64_t copied = r->was_there ? 0 : r->bytes - r->kept_bytes;
	double rate = megabytes_per_s(copied, r->seconds);
	char visible[PATH_MAX];
	struct gn_json j;

	if (json) {
		gn_json_begin(&j);
		gn_json_uint(&j, "bytes", r->bytes);
		gn_json_uint(&j, "copied_bytes", copied);
		gn_json_uint(&j, "kept_bytes", r->kept_bytes);
		gn_json_bool(&j, "was_there", r->was_there);
		gn_json_fixed(&j, "seconds", r->seconds, 3);
		gn_json_fixed(&j, "mb_per_s", rate, 1);
		end(&j, from, to);
	} else if (r->was_there) {
		fprintf(stderr, "%s: %.1f MB, was there\n", gn_text_visible(to, visible, sizeof visible), (double)r->bytes * 1e-6);
	} else {
		fprintf(stderr, "%s: %.1f MB in %.2f s (%.1f MB/s), %.1f MB were there\n", gn_text_visible(to, visible, sizeof visible),
			(double)copied * 1e-6, r->seconds, rate, (double)r->kept_bytes * 1e-6);
	}
}
