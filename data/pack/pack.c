#include "data/pack/pack.h"

#include "data/pack/pack_journal.h"
#include "data/pack/pack_parts_internal.h"
#include "data/pack/source.h"
#include "data/pack/split.h"
#include "data/sample/image.h"
#include "src/base/data_key.h"
#include "src/base/file.h"
#include "src/base/trust.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME ".gannet-pack.lock"

static enum gn_status check_empty(const char *path, struct gn_err *err)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	int found = 0;

	if (!folder)
		return errno == ENOENT ? GN_OK : gn_err_errno(err, errno, "cannot use %s as output folder", path);
	while (!found && (entry = readdir(folder)))
		found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	closedir(folder);
	if (found)
		return gn_err_set(err, GN_ERR_EXISTS, "%s exists and is not empty: remove it or choose another "
				  "--out", path);
	return GN_OK;
}

/* An existing out may be named through symbolic links or as "."; rename() needs the final path. */
static enum gn_status set_names(struct gn_pack_output *o, const char *out, struct gn_err *err)
{
	size_t len = strlen(out);

	if (gn_trust_check_links(out, err))
		return GN_ERR_IO;
	if (!realpath(out, o->final)) {
		while (len > 1 && out[len - 1] == '/')
			len--;
		if (!len || len >= sizeof o->final)
			return gn_err_set(err, GN_ERR_USAGE, "bad output folder name '%s'", out);
		memcpy(o->final, out, len);
		o->final[len] = '\0';
	}
	if (!strcmp(o->final, "/"))
		return gn_err_set(err, GN_ERR_USAGE, "the output folder cannot be /");
	if ((size_t)snprintf(o->temporary, sizeof o->temporary, "%s.tmp-pack", o->final) >= sizeof o->temporary)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", out);
	return GN_OK;
}

enum gn_status gn_pack_output_sweep(const char *folder, struct gn_err *err)
{
	DIR *d = opendir(folder);
	enum gn_status status = GN_OK;
	char path[PATH_MAX];
	struct dirent *entry;

	if (!d)
		return gn_err_errno(err, errno, "cannot read folder %s", folder);
	while (!status && (entry = readdir(d))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || !strcmp(entry->d_name, LOCK_NAME))
			continue;
		status = gn_path_join(path, sizeof path, folder, entry->d_name, err);
		if (!status)
			status = gn_remove_tree(path, err);
	}
	closedir(d);
	return status;
}

/* Some shared file systems lack flock: a folder that this process created then counts as locked. */
static int no_locks(int errnum)
{
	return errnum == ENOSYS || errnum == EOPNOTSUPP || errnum == ENOLCK;
}

/* Creates and locks the folder; *again when another pack renamed or removed it meanwhile. */
static enum gn_status try_lock(struct gn_pack_output *o, int *again, struct gn_err *err)
{
	char path[PATH_MAX];
	int made = !mkdir(o->temporary, 0777), errnum = errno;
	struct stat ours, theirs;
	enum gn_status status = gn_path_join(path, sizeof path, o->temporary, LOCK_NAME, err);

	if (status)
		return status;
	if (!made && errnum != EEXIST)
		return gn_err_errno(err, errnum, "cannot make folder %s", o->temporary);
	/* another user's would have links of his in it */
	if (!made && (status = gn_trust_check_path(o->temporary, err)))
		return status;
	o->keep = !made;
	o->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (o->lock < 0) {
		*again = errno == ENOENT;
		errnum = errno;
		if (made)
			rmdir(o->temporary);
		return *again ? GN_OK : gn_err_errno(err, errnum, "cannot create %s", path);
	}
	if (flock(o->lock, LOCK_EX | LOCK_NB) && !(made && no_locks(errno))) {
		errnum = errno;
		close(o->lock);
		o->lock = -1;
		return gn_err_set(err, GN_ERR_EXISTS, "another gannet pack is writing %s (%s is %s)", o->final,
				  o->temporary, no_locks(errnum) ? "there; remove it if no pack is running" : "locked");
	}
	*again = fstat(o->lock, &ours) || stat(path, &theirs) || ours.st_ino != theirs.st_ino;
	if (*again) {
		close(o->lock);
		o->lock = -1;
	}
	return GN_OK;
}

/* An output inside a source would be packed itself. */
static enum gn_status check_outside(const struct gn_pack_output *o, const struct gn_pack_options *options,
				    struct gn_err *err)
{
	char ours[PATH_MAX], theirs[PATH_MAX];

	if (!realpath(o->temporary, ours))
		return gn_err_errno(err, errno, "cannot stat %s", o->temporary);
	for (size_t i = 0; i < options->source_count; i++) {
		size_t len = realpath(options->sources[i], theirs) ? strlen(theirs) : 0;

		if (len == 1 || (len && !strncmp(ours, theirs, len) && ours[len] == '/'))
			return gn_err_set(err, GN_ERR_USAGE, "--out %s lies inside source %s: choose a folder outside it",
					  options->out, options->sources[i]);
	}
	return GN_OK;
}

enum gn_status gn_pack_check_stop(const struct gn_pack_options *options, struct gn_err *err)
{
	if (options->stop && *options->stop)
		return gn_err_set(err, GN_ERR_STOPPED, "stopped on request; %s.tmp-pack holds the finished part: the same command "
				  "resumes it", options->out);
	return GN_OK;
}

/* Refuses an out that is not empty or lies in a source. Creates and locks the temporary folder, which is kept on failure if it
 * existed before. */
static enum gn_status pack_output_begin(struct gn_pack_output *o, const struct gn_pack_options *options, struct gn_err *err)
{
	char parent[PATH_MAX];
	enum gn_status status;
	int again = 1;

	memset(o, 0, sizeof *o);
	o->lock = -1;
	status = set_names(o, options->out, err);
	if (!status)
		status = check_empty(o->final, err);
	gn_path_parent(o->final, parent);
	if (!status)
		status = gn_make_dirs(parent, err);
	for (int tries = 0; !status && again && tries < 10; tries++)
		status = try_lock(o, &again, err);
	if (!status && again)
		status = gn_err_set(err, GN_ERR_EXISTS, "other gannet pack commands are using %s", o->final);
	if (!status)
		status = check_outside(o, options, err);
	return status;
}

/* Renames the folder to its final name, synced. */
static enum gn_status pack_output_commit(struct gn_pack_output *o, struct gn_err *err)
{
	enum gn_status status = gn_sync_dir(o->temporary, err);
	char path[PATH_MAX];

	if (status)
		return status;
	if (rename(o->temporary, o->final))
		return gn_err_errno(err, errno, "cannot rename %s to %s%s", o->temporary, o->final,
				    errno == EXDEV || errno == EBUSY
					    ? " (a mount point cannot be the output: name a folder inside it)"
					    : "");
	/* only now: until the rename the lock excludes other packs */
	if (!gn_path_join(path, sizeof path, o->final, LOCK_NAME, err))
		unlink(path);
	close(o->lock);
	o->lock = -1;
	return gn_sync_parent(o->final, err);
}

/* Removes the folder unless committed or kept. May be called after either. */
static void pack_output_end(struct gn_pack_output *o)
{
	if (o->lock < 0)
		return;
	if (!o->keep)
		gn_remove_tree(o->temporary, NULL);
	close(o->lock);
	o->lock = -1;
}

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
	status = pack_output_begin(&output, options, err);
	if (!status)
		status = fill(options, &output, &result, err);
	if (!status)
		status = pack_output_commit(&output, err);
	pack_output_end(&output);
	if (!status)
		*out = result;
	return status;
}
