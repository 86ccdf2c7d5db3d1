#include "data/stage/stage_internal.h"

#include "data/shard/folders.h"
#include "data/stage/stage_marker.h"
#include "data/stage/staged.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/text.h"
#include "src/base/trust.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_TRIES 10

enum gn_status gn_stage_refuse(const char *path, struct gn_err *err)
{
	return gn_err_set(err, GN_ERR_EXISTS, "%s exists and was not staged by gannet: choose another folder, or move it away", path);
}

static enum gn_status remove_file(const char *folder, const char *name, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, folder, name, err);

	if (!status && unlink(path) && errno != ENOENT)
		status = gn_err_errno(err, errno, "cannot remove %s", path);
	return status;
}

/* What an earlier stage left in the folder of a dataset, and its removal. The lock of the folder is held, so that no other process writes
 * there. Blocks on the file system. Errors: GN_ERR_EXISTS for what no stage has put there, GN_ERR_IO. */

/* Removes partial files of a killed stage. */
static enum gn_status stage_clear_parts(const char *folder, struct gn_err *err)
{
	DIR *d = opendir(folder);
	enum gn_status status = GN_OK;
	struct dirent *entry;

	if (!d)
		return gn_err_errno(err, errno, "cannot read folder %s", folder);
	while (!status && (entry = readdir(d)))
		if (gn_text_ends_with(entry->d_name, GN_STAGE_PART_ENDING))
			status = remove_file(folder, entry->d_name, err);
	closedir(d);
	return status;
}

static int names_shard(const struct gn_manifest *m, const char *file)
{
	for (uint32_t i = 0; i < m->shard_count; i++)
		if (!strcmp(m->shards[i].file, file))
			return 1;
	return 0;
}

static enum gn_status refuse_dataset(const char *folder, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, folder, GN_MANIFEST_NAME, err);

	return status ? status : gn_stage_refuse(path, err);
}

/* A reader that comes after the claim finds no manifest, and one that came before prevents it. */
static enum gn_status replace(const char *from, const char *to, const struct gn_manifest *old, const struct gn_manifest *m, struct gn_log *log,
			      struct gn_err *err)
{
	int held = -1;
	enum gn_status status = gn_stage_claim(to, "holds another dataset that a program reads: it is not replaced; give another folder, or wait until "
					       "gannet stage --list does not say \"in use\"", &held, err);

	if (status)
		return status;
	gn_log_warn(log, "%s held another dataset (%u shards, digest %.12s), which is replaced by that of %s (%u shards, digest %.12s)", to,
		    old->shard_count, old->digest, from, m->shard_count, m->digest);
	status = remove_file(to, GN_MANIFEST_NAME, err);
	if (held >= 0)
		close(held);
	for (uint32_t i = 0; !status && i < old->shard_count; i++)
		if (!names_shard(m, old->shards[i].file))
			status = remove_file(to, old->shards[i].file, err);
	return status ? status : gn_sync_dir(to, err);
}

/* Before anything of m, the dataset in from, is done in the folder `to`: removes the manifest of another dataset there, and shards that belong
 * only to that. It is refused, and untouched, unless begun: a stage has put it there (gn_staged_check_target()); and while a program holds
 * it (data/shard/folders.h). Else a line in log (may be NULL) says that it is replaced. */
static enum gn_status stage_clear_other(const char *from, const char *to, const struct gn_manifest *m, int begun, struct gn_log *log,
					struct gn_err *err)
{
	enum gn_status status = GN_OK;
	struct gn_manifest old;

	if (gn_manifest_load(to, &old, NULL))
		return GN_OK;
	if (strcmp(old.digest, m->digest) != 0)
		status = begun ? replace(from, to, &old, m, log, err) : refuse_dataset(to, err);
	gn_manifest_release(&old);
	return status;
}

/* Before shards are copied: the folder has no manifest until all are there. */
static enum gn_status stage_clear_manifest(const char *to, struct gn_err *err)
{
	enum gn_status status = remove_file(to, GN_MANIFEST_NAME, err);

	return status ? status : gn_sync_dir(to, err);
}

/* Takes the lock; while another process has it, which of the shards it has verified is read from its marker. */
static enum gn_status follow(struct gn_stage_run *s, const char *lock, int *out, struct gn_err *err)
{
	const char *to = s->options->to;
	struct timespec seen = {0};
	enum gn_status status;

	while ((status = gn_stage_lock(lock, to, 0, s->options->log, out, NULL, err)) == GN_ERR_EXISTS) {
		if (gn_stage_is_stopped(s))
			return gn_err_set(err, GN_ERR_STOPPED, "stopped while another process copies to %s", to);
		if (gn_stage_marker_follow(&s->manifest, to, s->right, &seen))
			gn_stage_tell_ready(s);
	}
	memset(s->right, 0, s->manifest.shard_count);
	return status;
}

static enum gn_status take_lock(struct gn_stage_run *s, int *out, struct gn_err *err)
{
	const struct gn_stage_options *o = s->options;
	double start = gn_clock_s();
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, o->to, GN_STAGE_LOCK_NAME, err);

	if (status)
		return status;
	if (o->stop || o->ready)
		status = follow(s, path, out, err);
	else
		status = gn_stage_lock(path, o->to, 1, o->log, out, NULL, err);
	s->result.wait_s = gn_clock_s() - start;
	return status;
}

static enum gn_status check_space(const struct gn_stage_run *s, uint64_t needed, struct gn_err *err)
{
	uint64_t free_bytes;
	enum gn_status status = gn_free_bytes(s->options->to, &free_bytes, err);

	if (!status && needed > free_bytes)
		status = gn_err_set(err, GN_ERR_NO_SPACE, "no space left in %s: %llu MB needed, %llu MB are "
				    "free", s->options->to, (unsigned long long)(needed >> 20),
				    (unsigned long long)(free_bytes >> 20));
	return status;
}

static int manifest_is_there(const struct gn_stage_run *s)
{
	struct gn_manifest there;
	int same;

	if (gn_manifest_load(s->options->to, &there, NULL))
		return 0;
	same = !strcmp(there.digest, s->manifest.digest);
	gn_manifest_release(&there);
	return same;
}

static int own_manifest_is_there(const struct gn_stage_run *s)
{
	char path[PATH_MAX];

	return !gn_path_join(path, sizeof path, s->options->to, GN_MANIFEST_NAME, NULL) && gn_stage_is_own_path(path) &&
	       manifest_is_there(s);
}

static enum gn_status copy_missing(struct gn_stage_run *s, uint64_t bytes, struct gn_err *err)
{
	const struct gn_stage_options *o = s->options;
	double start = gn_clock_s();
	enum gn_status status = stage_clear_manifest(o->to, err);

	if (!status)
		status = check_space(s, bytes, err);
	if (status)
		return status;
	gn_progress_bar_begin(o->progress, "staging", "B", bytes);
	status = gn_stage_run_jobs(s, GN_STAGE_JOBS_COPY, err);
	gn_progress_bar_end(o->progress);
	if (!status)
		status = gn_sync_dir(o->to, err);
	if (!status)
		status = gn_stage_marker_save(&s->manifest, o->to, s->right, err);
	if (!status)
		status = gn_manifest_save(&s->manifest, o->to, err);
	s->result.copy_s = gn_clock_s() - start;
	return status;
}

static void count_shards(struct gn_stage_run *s)
{
	const struct gn_manifest *m = &s->manifest;

	for (uint32_t i = 0; i < m->shard_count; i++) {
		if (!gn_stage_is_ours(s, i))
			continue;
		*(s->right[i] ? &s->result.kept : &s->result.copied) += 1;
		*(s->right[i] ? &s->result.kept_bytes : &s->result.copied_bytes) += m->shards[i].size_bytes;
	}
}

/* The target belongs to another user: it is only read, and every digest is verified. */
static enum gn_status check_foreign(struct gn_stage_run *s, const struct stat *to, struct gn_err *err)
{
	enum gn_status status = gn_stage_run_jobs(s, GN_STAGE_JOBS_CHECK_FOREIGN, err);

	if (status)
		return status;
	count_shards(s);
	s->result.foreign = 1;
	s->result.owner = to->st_uid;
	if (s->result.copied || !manifest_is_there(s))
		return gn_err_set(err, GN_ERR_IO, "%s belongs to user %u and is not a complete copy of %s (%u of %u shards are "
				  "right, and "
				  "the manifest is %s): choose another folder", s->options->to, (unsigned)to->st_uid,
				  s->options->from, s->result.kept, s->manifest.shard_count,
				  manifest_is_there(s) ? "there" : "missing or different");
	gn_log_info(s->options->log, "%s belongs to user %u; the digests of all its shards are right, so it is used unchanged",
		    s->options->to, (unsigned)to->st_uid);
	gn_stage_tell_ready(s);
	return GN_OK;
}

/* The lock is held. */
static enum gn_status fill(struct gn_stage_run *s, struct gn_err *err)
{
	const struct gn_stage_options *o = s->options;
	const struct gn_manifest *m = &s->manifest;
	/* before the shards are verified, which removes those with names of m's and other digests */
	enum gn_status status = stage_clear_other(o->from, o->to, m, s->begun, o->log, err);

	if (!status)
		status = stage_clear_parts(o->to, err);
	if (status)
		return status;
	if (!o->check)
		gn_stage_marker_load(m, o->to, s->right);
	status = gn_stage_run_jobs(s, GN_STAGE_JOBS_CHECK, err);
	if (status)
		return status;
	count_shards(s);
	gn_stage_tell_ready(s);
	status = gn_staged_make_room(o->to, s->result.copied_bytes + s->result.kept_bytes, o->quota_bytes, o->log, err);
	if (status)
		return status;
	if (s->result.copied || !own_manifest_is_there(s))
		return copy_missing(s, s->result.copied_bytes, err);
	/* also without news: it says when the copy was last used */
	return gn_stage_marker_save(m, o->to, s->right, err);
}

static enum gn_status make_own_folder(const char *to, struct gn_err *err)
{
	/* Checked before, so that nothing is created behind a link, and after, because another user may have created one
	 * meanwhile. */
	enum gn_status status = gn_trust_check_path(to, err);

	if (!status)
		status = gn_stage_check_private(to, err);
	if (!status)
		status = gn_make_dirs(to, err);
	if (!status)
		status = gn_trust_check_path(to, err);
	return status ? status : gn_stage_close_folder(to, err);
}

static enum gn_status fill_own(struct gn_stage_run *s, struct gn_err *err)
{
	enum gn_status status;
	char path[PATH_MAX];
	int lock = -1, tries = 0;

	/* gannet stage --remove may remove the folder before the lock is taken */
	do {
		status = gn_staged_check_target(s->options->to, &s->begun, err);
		if (!status)
			status = make_own_folder(s->options->to, err);
		if (!status && gn_file_is_same(s->options->from, s->options->to))
			status = gn_err_set(err, GN_ERR_USAGE, "--from and --to are the same folder, %s", s->options->to);
		if (!status)
			status = take_lock(s, &lock, err);
	} while (status == GN_ERR_NOT_FOUND && ++tries < FOLDER_TRIES);
	if (!status)
		status = fill(s, err);
	/* the lock would say the next time that a dataset was staged here */
	if (lock >= 0 && status == GN_ERR_EXISTS && !s->begun && !gn_path_join(path, sizeof path, s->options->to, GN_STAGE_LOCK_NAME, NULL))
		unlink(path);
	if (lock >= 0)
		close(lock);
	return status;
}

static enum gn_status stage_loaded(struct gn_stage_run *s, struct gn_err *err)
{
	const struct gn_stage_options *o = s->options;
	enum gn_status status = gn_thread_pool_create(o->threads, (size_t)o->threads, &s->pool, err);
	struct stat to;

	if (status)
		return status;
	if (!stat(o->to, &to) && S_ISDIR(to.st_mode) && to.st_uid != geteuid()) {
		/* The folder is another user's and is only read; a third user's link could lead to another one afterwards. */
		status = gn_trust_check_links(o->to, err);
		if (!status)
			status = check_foreign(s, &to, err);
	} else {
		status = fill_own(s, err);
	}
	gn_thread_pool_destroy(s->pool);
	return status;
}

enum gn_status gn_stage_load_source(const struct gn_stage_options *options, struct gn_manifest *out, struct gn_err *err)
{
	enum gn_status status = gn_manifest_load(options->from, out, err);

	if (status || !options->digest || !strcmp(options->digest, out->digest))
		return status;
	gn_manifest_release(out);
	return gn_err_set(err, GN_ERR_DATA, "%s holds another dataset than when it was opened", options->from);
}

enum gn_status gn_stage(const struct gn_stage_options *options, struct gn_stage_result *out, struct gn_err *err)
{
	struct gn_stage_run s = {.options = options};
	enum gn_status status;

	if (gn_folders_count(options->to) > 1)
		return gn_stage_spread(options, out, err);
	status = gn_stage_load_source(options, &s.manifest, err);
	if (status)
		return status;
	pthread_mutex_init(&s.lock, NULL);
	s.result.samples = s.manifest.samples;
	s.right = calloc(s.manifest.shard_count, 1);
	s.told = calloc(s.manifest.shard_count, 1);
	if (!s.right || !s.told)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u shards", s.manifest.shard_count);
	else
		status = stage_loaded(&s, err);
	if (!status)
		*out = s.result;
	free(s.told);
	free(s.right);
	pthread_mutex_destroy(&s.lock);
	gn_manifest_release(&s.manifest);
	return status;
}
