/* What is done for each shard: copied, or verified where it lies. */
#include "data/stage/stage_internal.h"

#include "data/shard/manifest.h"
#include "data/stage/stage_marker.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/progress_bar.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- one shard is copied and its digest verified; copies of different shards run concurrently --- */
struct stage_copy {
	const char *from, *to;	      /* folders */
	struct gn_progress_bar *progress; /* counts bytes */
	int (*stopped)(void *context); /* called between blocks: 1 when the copy is to be abandoned */
	void *context;
};

#define BLOCK_BYTES (4u << 20)

/* Copies exactly size_bytes from in to out, and updates sha. */
static enum gn_status copy_bytes(const struct stage_copy *c, int in, int out, const char *from, const char *to,
				 uint64_t size_bytes, struct gn_sha256 *sha, struct gn_err *err)
{
	unsigned char *block = malloc(BLOCK_BYTES);
	enum gn_status status = GN_OK;

	if (!block)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to copy %s", from);
	for (uint64_t done = 0; done < size_bytes && !status;) {
		size_t len = size_bytes - done < BLOCK_BYTES ? (size_t)(size_bytes - done) : BLOCK_BYTES;

		status = gn_pread_full(in, block, len, done, from, err);
		if (!status) {
			gn_sha256_update(sha, block, len);
			status = gn_pwrite_full(out, block, len, done, to, err);
		}
		if (!status && c->stopped(c->context))
			status = gn_err_set(err, GN_ERR_STOPPED, "stopped");
		gn_progress_bar_add(c->progress, len);
		done += len;
	}
	free(block);
	return status;
}

static enum gn_status copy_open_files(const struct stage_copy *c, int in, int out, const char *from, const char *to,
				      const struct gn_manifest_shard *m, struct gn_err *err)
{
	struct gn_sha256 *sha = NULL;
	char hex[GN_SHA256_HEX];
	struct stat info;
	enum gn_status status = gn_sha256_create(&sha, err);

	if (!status && fstat(in, &info))
		status = gn_err_errno(err, errno, "cannot stat %s", from);
	if (!status && (uint64_t)info.st_size != m->size_bytes)
		status = gn_err_set(err, GN_ERR_DATA, "%s has %lld bytes, the manifest says %llu: the source is damaged",
				    from, (long long)info.st_size, (unsigned long long)m->size_bytes);
	if (!status)
		status = copy_bytes(c, in, out, from, to, m->size_bytes, sha, err);
	if (!status) {
		gn_sha256_finish(sha, hex);
		if (strcmp(hex, m->sha256))
			status = gn_err_set(err, GN_ERR_DATA, "%s fails its SHA-256 digest: the source is damaged, see "
					    "gannet verify", from);
	}
	if (!status && fsync(out))
		status = gn_err_errno(err, errno, "cannot sync %s", to);
	gn_sha256_destroy(sha);
	return status;
}

/* Writes m's file to the folder to, under a temporary name with GN_STAGE_PART_ENDING until it is verified and synced. On failure
 * the temporary file is removed. GN_ERR_DATA for a damaged source, GN_ERR_STOPPED, GN_ERR_NO_SPACE, GN_ERR_IO. */
static enum gn_status stage_copy_shard(const struct stage_copy *c, const struct gn_manifest_shard *m, struct gn_err *err)
{
	char from[PATH_MAX], to[PATH_MAX], part[PATH_MAX];
	int in = -1, out = -1;
	enum gn_status status = gn_path_join(from, sizeof from, c->from, m->file, err);

	if (!status)
		status = gn_path_join(to, sizeof to, c->to, m->file, err);
	if (!status && (size_t)snprintf(part, sizeof part, "%s" GN_STAGE_PART_ENDING, to) >= sizeof part)
		status = gn_err_set(err, GN_ERR_USAGE, "path too long: %s", to);
	if (status)
		return status;
	in = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (in < 0)
		return gn_err_errno(err, errno, "cannot open %s", from);
	out = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (out < 0)
		status = gn_err_errno(err, errno, "cannot create %s", part);
	else
		status = copy_open_files(c, in, out, from, part, m, err);
	close(in);
	if (out >= 0 && close(out) && !status)
		status = gn_err_errno(err, errno, "cannot close %s", part);
	if (!status && rename(part, to))
		status = gn_err_errno(err, errno, "cannot rename %s to %s", part, to);
	if (status && out >= 0)
		unlink(part);
	return status;
}

#define SAVE_PAUSE_S 0.5 /* of many small shards not each writes the marker */

struct shard_job {
	struct gn_stage_run *s;
	uint32_t shard;
	int is_foreign; /* of another user's folder */
};

static void fail(struct gn_stage_run *s, const struct gn_err *err)
{
	pthread_mutex_lock(&s->lock);
	if (!s->failed)
		s->failure = *err;
	s->failed = 1;
	pthread_mutex_unlock(&s->lock);
}

int gn_stage_is_stopped(const struct gn_stage_run *s)
{
	return s->options->stop && atomic_load(s->options->stop);
}

static int stopped(void *context)
{
	struct gn_stage_run *s = context;
	int failed;

	pthread_mutex_lock(&s->lock);
	failed = s->failed;
	pthread_mutex_unlock(&s->lock);
	return failed || gn_stage_is_stopped(s);
}

/* The lock is held. */
static void tell_ready(struct gn_stage_run *s, uint32_t shard)
{
	if (s->options->ready && !s->told[shard])
		s->options->ready(s->options->context, shard, s->options->to);
	s->told[shard] = 1;
}

void gn_stage_tell_ready(struct gn_stage_run *s)
{
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->manifest.shard_count; i++)
		if (s->right[i] && gn_stage_is_ours(s, i))
			tell_ready(s, i);
	pthread_mutex_unlock(&s->lock);
}

/* Also in the marker: processes that wait for this one use the shard, and the next run does not digest it again. */
static enum gn_status shard_is_there(struct gn_stage_run *s, uint32_t shard, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	pthread_mutex_lock(&s->lock);
	s->right[shard] = 1;
	if (gn_clock_s() >= s->next_save_s) {
		status = gn_stage_marker_save(&s->manifest, s->options->to, s->right, err);
		s->next_save_s = gn_clock_s() + SAVE_PAUSE_S;
	}
	if (!status)
		tell_ready(s, shard);
	pthread_mutex_unlock(&s->lock);
	return status;
}

static void run_copy(void *argument)
{
	struct shard_job *job = argument;
	struct gn_stage_run *s = job->s;
	const struct gn_manifest_shard *m = &s->manifest.shards[job->shard];
	struct stage_copy copy = {.from = s->options->from, .to = s->options->to, .progress = s->options->progress,
				     .stopped = stopped, .context = s};
	struct gn_err err;

	if (!stopped(s) && (stage_copy_shard(&copy, m, &err) || shard_is_there(s, job->shard, &err)))
		fail(s, &err);
	free(job);
}

static int digest_is_right(const char *path, const struct stat *info, const struct gn_manifest_shard *m)
{
	char hex[GN_SHA256_HEX];

	return S_ISREG(info->st_mode) && (uint64_t)info->st_size == m->size_bytes && !gn_sha256_file(path, hex, NULL, NULL) &&
	       !strcmp(hex, m->sha256);
}

/* Digests an existing shard. Removes it if the digest is wrong (its space is needed) or another user could change it later, and a stage
 * has put it there; not from a folder of another user's. */
static void run_check(void *argument)
{
	struct shard_job *job = argument;
	struct gn_stage_run *s = job->s;
	const struct gn_manifest_shard *m = &s->manifest.shards[job->shard];
	char path[PATH_MAX];
	struct stat info;
	struct gn_err err;

	if (!stopped(s) && !gn_path_join(path, sizeof path, s->options->to, m->file, &err) && !lstat(path, &info)) {
		if ((job->is_foreign || gn_stage_is_own_file(&info)) && digest_is_right(path, &info, m))
			s->right[job->shard] = 1;
		else if (!job->is_foreign && !s->begun && info.st_uid == geteuid()) {
			gn_stage_refuse(path, &err);
			fail(s, &err);
		} else if (!job->is_foreign && unlink(path)) {
			gn_err_errno(&err, errno, "cannot remove the damaged %s", path);
			fail(s, &err);
		}
	}
	free(job);
}

enum gn_status gn_stage_run_jobs(struct gn_stage_run *s, enum gn_stage_jobs what, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (uint32_t i = 0; i < s->manifest.shard_count && !status; i++) {
		struct shard_job *job;

		if (s->right[i] || (what != GN_STAGE_JOBS_CHECK && !gn_stage_is_ours(s, i)))
			continue;
		job = malloc(sizeof *job);
		if (!job) {
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to stage a shard");
			break;
		}
		*job = (struct shard_job){s, i, what == GN_STAGE_JOBS_CHECK_FOREIGN};
		gn_thread_pool_submit(s->pool, what == GN_STAGE_JOBS_COPY ? run_copy : run_check, job);
	}
	gn_thread_pool_wait(s->pool);
	if (!status && s->failed)
		status = gn_err_set(err, s->failure.status, "%s", s->failure.text);
	if (!status && gn_stage_is_stopped(s))
		status = gn_err_set(err, GN_ERR_STOPPED, "stopped; the next run goes on with what is complete");
	return status;
}

