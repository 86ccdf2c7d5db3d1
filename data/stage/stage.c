#include "data/stage/stage_internal.h"

#include "data/shard/folders.h"
#include "data/stage/stage_clear.h"
#include "data/stage/stage_owner.h"
#include "data/stage/stage_marker.h"
#include "data/stage/staged.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/trust.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_TRIES 10

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
	enum gn_status status = gn_stage_clear_manifest(o->to, err);

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
	enum gn_status status = gn_stage_clear_other(o->from, o->to, m, s->begun, o->log, err);

	if (!status)
		status = gn_stage_clear_parts(o->to, err);
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
