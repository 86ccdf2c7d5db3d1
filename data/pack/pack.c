#include "data/pack/pack.h"

#include "data/pack/pack_journal.h"
#include "data/pack/pack_parts_internal.h"
#include "data/pack/source.h"
#include "data/pack/split.h"
#include "data/sample/image.h"
#include "src/base/data_key.h"
#include "src/base/file.h"

#include <string.h>
#include <unistd.h>

static enum gn_status check_options(const struct gn_pack_options *o, struct gn_err *err)
{
	struct gn_pack_split split;
	enum gn_status status = GN_OK;

	if (!o->synthetic_count && !o->source_count)
		return gn_err_set(err, GN_ERR_USAGE, "nothing to pack: name a SOURCE, or give --synthetic COUNT");
	if (o->synthetic_count && o->source_count)
		return gn_err_set(err, GN_ERR_USAGE, "--synthetic takes no SOURCE");
	if (o->synthetic_count && o->labels_file)
		return gn_err_set(err, GN_ERR_USAGE, "--synthetic takes no --labels");
	if (o->synthetic_count &&
	    (!o->synthetic_classes || !o->synthetic_height || !o->synthetic_width ||
	     o->synthetic_height > GN_IMAGE_MAX_SIDE || o->synthetic_width > GN_IMAGE_MAX_SIDE ||
	     (uint64_t)o->synthetic_height * o->synthetic_width > GN_IMAGE_MAX_PIXELS))
		return gn_err_set(err, GN_ERR_USAGE, "--synthetic needs --classes N and --size HxW, at most %ux%u pixels",
				  GN_IMAGE_MAX_SIDE, GN_IMAGE_MAX_SIDE);
	if (o->synthetic_count && o->synthetic_classes > o->synthetic_count)
		return gn_err_set(err, GN_ERR_USAGE, "%llu synthetic images are too few for %u classes",
				  (unsigned long long)o->synthetic_count, o->synthetic_classes);
	if (!o->shard_bytes || o->threads < 1 || o->quality < 1 || o->quality > 100 || o->seed > INT64_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "shard size, threads, quality or seed out of range");
	for (size_t i = 0; i < o->source_count; i++)
		for (size_t k = 0; k < i; k++)
			if (gn_file_is_same(o->sources[i], o->sources[k]))
				return gn_err_set(err, GN_ERR_USAGE, "the sources %s and %s are the same: its images would be there twice",
						  o->sources[k], o->sources[i]);
	if (o->split)
		status = gn_pack_split_parse(o->split, &split, err);
	return status ? status : gn_data_key_check(o->key_file, err);
}

/* Bad images can be repaired or skipped: the good ones serve the next pack. */
static void keep_good(const struct gn_pack_options *options, struct gn_pack_output *output, struct gn_err *err)
{
	struct gn_err cause;

	output->keep = 1;
	if (!err)
		return;
	cause = *err;
	gn_err_set(err, cause.status, "%s; %s.tmp-pack keeps the good images for the next pack", cause.text, options->out);
}

static void add_result(struct gn_pack_result *r, const struct gn_pack_options *options, const struct gn_manifest *m, size_t part)
{
	struct gn_pack_split split;

	r->classes = m->class_count;
	r->shards += m->shard_count;
	if (part && !gn_pack_split_parse(options->split, &split, NULL)) {
		r->split_samples = m->samples;
		memcpy(r->split_name, split.name, sizeof split.name);
	}
}

/* The second pass: each part's shards and manifest; the manifests once spool and journal, which belong to no dataset, are removed. */
static enum gn_status write_parts(struct gn_pack_set *set, const struct gn_pack_options *options, const struct gn_pack_output *output,
				  struct gn_pack_result *result, struct gn_err *err)
{
	struct gn_manifest manifests[2] = {{0}, {0}};
	struct gn_pack_part parts[2];
	size_t count = 0;
	enum gn_status status = gn_pack_split_parts(set, options, output, parts, &count, err);

	if (!status)
		status = gn_pack_note_order(set, err);
	for (size_t i = 0; i < count && !status; i++)
		status = gn_pack_write(set, options, &parts[i], &manifests[i], err);
	if (!status && unlink(set->spool_path))
		status = gn_err_set(err, GN_ERR_IO, "cannot remove %s", set->spool_path);
	if (!status)
		status = gn_pack_journal_remove(set->journal, err);
	for (size_t i = 0; i < count && !status; i++) {
		status = gn_manifest_save(&manifests[i], parts[i].folder, err);
		add_result(result, options, &manifests[i], i);
	}
	for (size_t i = 0; i < 2; i++)
		gn_manifest_release(&manifests[i]);
	return status;
}

/* Everything between locking the output folder and its rename. */
static enum gn_status fill(const struct gn_pack_options *options, struct gn_pack_output *output,
			   struct gn_pack_result *result, struct gn_err *err)
{
	struct gn_pack_set set;
	enum gn_status status = gn_pack_set_init(&set, options, output, err);

	if (!status)
		output->keep = 0;
	if (!status)
		status = gn_pack_collect(&set, options, err);
	if (!status)
		status = gn_pack_arrange(&set, options, err);
	*result = (struct gn_pack_result){.samples = set.count, .skipped = set.bad, .data_bytes = set.data_bytes,
					  .converted = set.converted, .warned = set.warned, .passed = set.passed,
					  .rotated = set.rotated};
	if (!status)
		status = write_parts(&set, options, output, result, err);
	if (status == GN_ERR_STOPPED)
		output->keep = 1;
	else if (status == GN_ERR_DATA && set.bad && set.count && !options->skip_bad)
		keep_good(options, output, err);
	gn_pack_set_release(&set);
	return status;
}

/* Before an earlier pack's folder is touched. A class that is empty in one source may have images in another. */
static enum gn_status check_sources(const struct gn_pack_options *o, struct gn_err *err)
{
	int may_be_empty = o->classes_file || o->source_count > 1;
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < o->source_count && !o->labels_file && !status; i++) {
		status = gn_source_check_splits(o->sources[i], err);
		if (!status)
			status = gn_source_check_classes(o->sources[i], may_be_empty, err);
	}
	return status;
}

enum gn_status gn_pack(const struct gn_pack_options *options, struct gn_pack_result *out, struct gn_err *err)
{
	struct gn_pack_output output;
	struct gn_pack_result result;
	enum gn_status status = check_options(options, err);

	if (status)
		return status;
	status = check_sources(options, err);
	if (status)
		return status;
	status = gn_pack_output_begin(&output, options, err);
	if (!status)
		status = fill(options, &output, &result, err);
	if (!status)
		status = gn_pack_output_commit(&output, err);
	gn_pack_output_end(&output);
	if (!status)
		*out = result;
	return status;
}
