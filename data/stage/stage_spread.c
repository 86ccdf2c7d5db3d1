/* A dataset on several disks of a node: each shard in one of several folders, each of which is staged by itself. */
#include "data/stage/stage_internal.h"

#include "data/shard/folders.h"
#include "data/stage/stage_marker.h"
#include "data/stage/stage_place.h"
#include "data/stage/staged_internal.h"
#include "src/base/file.h"
#include "src/base/thread.h"
#include "src/base/trust.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct disk {
	struct gn_stage_options options;
	char to[PATH_MAX];
	unsigned char *only;
	uint64_t free_bytes;
	dev_t device;
	struct timespec followed; /* the time of the marker that was read last */
	pthread_t thread;
	int is_started;
	enum gn_status status;
	struct gn_stage_result result;
	struct gn_err err;
};

struct spread {
	const struct gn_stage_options *options;
	struct gn_manifest manifest;
	struct disk disks[GN_FOLDERS_MAX];
	int count;
	pthread_mutex_t lock; /* of options->ready, and of */
	unsigned char *told;  /* [shards] it was called */
};

static int has_shard(const struct disk *d, const struct gn_manifest_shard *m)
{
	char path[PATH_MAX];
	struct stat info;

	return !gn_path_join(path, sizeof path, d->to, m->file, NULL) && !lstat(path, &info) && S_ISREG(info.st_mode) &&
	       (uint64_t)info.st_size == m->size_bytes;
}

/* A shard stays where it is, else it goes where most is free. */
static void divide(struct spread *s)
{
	for (uint32_t i = 0; i < s->manifest.shard_count; i++) {
		const struct gn_manifest_shard *m = &s->manifest.shards[i];
		struct disk *d = s->disks;
		int k = 0;

		while (k < s->count && !has_shard(&s->disks[k], m))
			k++;
		for (int n = 1; n < s->count && k == s->count; n++)
			if (s->disks[n].free_bytes > d->free_bytes)
				d = &s->disks[n];
		if (k < s->count)
			d = &s->disks[k];
		else
			d->free_bytes -= m->size_bytes < d->free_bytes ? m->size_bytes : d->free_bytes;
		d->only[i] = 1;
	}
}

static void pass_ready(void *context, uint32_t shard, const char *folder)
{
	struct spread *s = context;

	pthread_mutex_lock(&s->lock);
	if (!s->told[shard])
		s->options->ready(s->options->context, shard, folder);
	s->told[shard] = 1;
	pthread_mutex_unlock(&s->lock);
}

static void *stage_disk(void *argument)
{
	struct disk *d = argument;

	d->status = gn_stage(&d->options, &d->result, &d->err);
	return NULL;
}

/* What another process that has the lock has copied so far, as its markers say. */
static void follow(struct spread *s)
{
	unsigned char *right = s->options->ready ? malloc(s->manifest.shard_count) : NULL;

	for (int i = 0; i < s->count && right; i++) {
		struct disk *d = &s->disks[i];

		if (gn_trust_check_path(d->to, NULL) || !gn_stage_marker_follow(&s->manifest, d->to, right, &d->followed))
			continue;
		for (uint32_t k = 0; k < s->manifest.shard_count; k++)
			if (right[k])
				pass_ready(s, k, d->to);
	}
	free(right);
}

/* One process at a time divides the shards and copies: another one, which would find other bytes free, waits, and finds them where they are. */
static enum gn_status take_lock(struct spread *s, int *out, struct gn_err *err)
{
	const struct gn_stage_options *o = s->options;
	char folder[PATH_MAX], name[PATH_MAX];
	struct gn_staged_paths paths;
	enum gn_status status = gn_staged_split(s->disks[0].to, folder, name, err);
	struct stat info;

	/* another user's copy is only read, and the lock beside it is his */
	if (!stat(s->disks[0].to, &info) && S_ISDIR(info.st_mode) && info.st_uid != geteuid())
		return GN_OK;
	if (!status)
		status = gn_trust_check_path(folder, err);
	if (!status)
		status = gn_make_dirs(folder, err);
	if (!status)
		status = gn_staged_paths_of(folder, name, &paths, err);
	if (status)
		return status;
	if (!o->stop)
		return gn_stage_lock(paths.lock, o->to, 1, o->log, out, NULL, err);
	while ((status = gn_stage_lock(paths.lock, o->to, 0, o->log, out, NULL, err)) == GN_ERR_EXISTS && !atomic_load(o->stop))
		follow(s);
	return status == GN_ERR_EXISTS ? gn_err_set(err, GN_ERR_STOPPED, "stopped while another process copies to %s", o->to) : status;
}

/* Of two folders of one file system the first reading counts for both, else what others write between the readings decides where all
 * shards go; readings far apart are two quotas. */
static enum gn_status read_free(struct spread *s, int i, struct gn_err *err)
{
	struct disk *d = &s->disks[i];
	char at[PATH_MAX];
	struct stat info;
	enum gn_status status = gn_free_bytes(gn_stage_place_above(d->to, at), &d->free_bytes, err);

	d->device = stat(at, &info) ? 0 : info.st_dev;
	for (const struct disk *o = s->disks; o < d && !status; o++)
		if (d->device && o->device == d->device && o->free_bytes / 4 * 3 < d->free_bytes && d->free_bytes / 4 * 3 < o->free_bytes)
			d->free_bytes = o->free_bytes;
	return status;
}

static enum gn_status prepare(struct spread *s, struct gn_err *err)
{
	char at[PATH_MAX];
	enum gn_status status = gn_folders_get(s->options->to, 0, at, err); /* also says whether they are too many */

	if (!status)
		status = gn_stage_load_source(s->options, &s->manifest, err);
	s->told = status ? NULL : calloc(s->manifest.shard_count + (size_t)1, 1);
	if (!status && !s->told)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u shards", s->manifest.shard_count);
	for (int i = 0; i < s->count && !status; i++) {
		struct disk *d = &s->disks[i];

		status = gn_folders_get(s->options->to, i, d->to, err);
		if (!status && !*d->to)
			status = gn_err_set(err, GN_ERR_USAGE, "%s has a folder without a name", s->options->to);
		if (!status)
			status = read_free(s, i, err);
		d->only = calloc(s->manifest.shard_count + (size_t)1, 1);
		if (!status && !d->only)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u shards", s->manifest.shard_count);
		d->options = *s->options;
		d->options.to = d->to;
		d->options.only = d->only;
		d->options.progress = NULL;
		d->options.context = s;
		d->options.ready = s->options->ready ? pass_ready : NULL;
	}
	return status;
}

/* The failure of the first disk that has one. */
static enum gn_status collect(struct spread *s, struct gn_stage_result *out, struct gn_err *err)
{
	*out = (struct gn_stage_result){.samples = s->manifest.samples};
	for (int i = 0; i < s->count; i++) {
		const struct gn_stage_result *r = &s->disks[i].result;

		if (s->disks[i].status)
			return gn_err_set(err, s->disks[i].status, "%s", s->disks[i].err.text);
		out->copied += r->copied;
		out->copied_bytes += r->copied_bytes;
		out->kept += r->kept;
		out->kept_bytes += r->kept_bytes;
		out->foreign |= r->foreign;
		out->owner = r->foreign ? r->owner : out->owner;
		out->copy_s = r->copy_s > out->copy_s ? r->copy_s : out->copy_s;
		out->wait_s = r->wait_s > out->wait_s ? r->wait_s : out->wait_s;
	}
	return GN_OK;
}

enum gn_status gn_stage_spread(const struct gn_stage_options *options, struct gn_stage_result *out, struct gn_err *err)
{
	struct spread *s = calloc(1, sizeof *s);
	int lock = -1;
	enum gn_status status;

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the disks of %s", options->to);
	s->options = options;
	s->count = gn_folders_count(options->to);
	pthread_mutex_init(&s->lock, NULL);
	status = prepare(s, err);
	if (!status)
		status = take_lock(s, &lock, err);
	if (!status) {
		divide(s);
		for (int i = 0; i < s->count; i++)
			s->disks[i].is_started = !gn_thread_start(&s->disks[i].thread, stage_disk, &s->disks[i]);
		for (int i = 0; i < s->count; i++)
			if (s->disks[i].is_started)
				pthread_join(s->disks[i].thread, NULL);
			else
				stage_disk(&s->disks[i]);
		status = collect(s, out, err);
	}
	if (lock >= 0)
		close(lock);
	for (int i = 0; i < GN_FOLDERS_MAX; i++)
		free(s->disks[i].only);
	free(s->told);
	gn_manifest_release(&s->manifest);
	pthread_mutex_destroy(&s->lock);
	free(s);
	return status;
}
