#include "src/train/loop/staging.h"

#include "data/shard/folders.h"
#include "data/stage/stage.h"
#include "src/base/file.h"
#include "src/base/text.h"
#include "src/base/thread.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define THREADS 2 /* that copy, beside those that train */

struct gn_staging {
	struct gn_staging_options options;
	pthread_t thread;
	atomic_int stop;
	int holds[GN_STAGING_DATASETS][GN_FOLDERS_MAX]; /* of the copies; -1: none */
};

/* Of one dataset, for ready(). */
struct copying {
	const struct gn_staging *s;
	struct gn_dataset *data;
	const char *to;
	int failed; /* a shard could not be opened: told once */
};

static enum gn_status name_copy(const struct gn_staging_options *o, int i, char to[PATH_MAX], struct gn_err *err)
{
	const char *directory = gn_dataset_directory(o->datasets[i]);
	char source[PATH_MAX], disk[PATH_MAX];
	size_t at = 0;

	if (!realpath(directory, source) || !source[1])
		return gn_err_set(err, GN_ERR_USAGE, "--stage cannot name a copy of %s", directory);
	for (int k = 0, count = gn_folders_count(o->directory); k < count; k++) {
		enum gn_status status = gn_folders_get(o->directory, k, disk, err);

		if (status)
			return status;
		at += (size_t)snprintf(to + at, PATH_MAX - at, "%s%s%s", k ? ":" : "", disk, strrchr(source, '/'));
		if (at >= PATH_MAX)
			return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", o->directory);
	}
	return GN_OK;
}

enum gn_status gn_staging_check(const struct gn_staging_options *o, struct gn_err *err)
{
	char to[GN_STAGING_DATASETS][PATH_MAX] = {"", ""};

	for (int i = 0; i < GN_STAGING_DATASETS; i++) {
		enum gn_status status = o->datasets[i] ? name_copy(o, i, to[i], err) : GN_OK;

		if (status)
			return status;
		if (o->datasets[i] && gn_file_is_same(to[i], gn_dataset_directory(o->datasets[i])))
			return gn_err_set(err, GN_ERR_USAGE, "--stage %s: %s lies there already", o->directory, gn_dataset_directory(o->datasets[i]));
	}
	if (*to[0] && !strcmp(to[0], to[1]) && !gn_file_is_same(gn_dataset_directory(o->datasets[0]), gn_dataset_directory(o->datasets[1])))
		return gn_err_set(err, GN_ERR_USAGE, "--stage would copy --data and --val both to %s: give one of them another name", to[0]);
	return GN_OK;
}

static void use(void *context, uint32_t shard, const char *folder)
{
	struct copying *c = context;
	struct gn_err err;

	if (gn_dataset_use_copy(c->data, shard, folder, &err) && !c->failed++)
		gn_log_warn(c->s->options.log, "staging: %s; the source is read instead", err.text);
}

static void tell(const struct gn_staging *s, const struct copying *c, const struct gn_stage_result *r, const struct gn_err *err)
{
	struct gn_log *log = s->options.log;
	const char *from = gn_dataset_directory(c->data);
	double source_mb = (double)gn_dataset_source_bytes(c->data) * 1e-6;

	/* what fails on one rank of a node fails on the others, too */
	if (!s->options.tells)
		return;
	if (err && err->status == GN_ERR_STOPPED)
		gn_log_info(log, "staging of %s ended with the run; the next one goes on with what is complete in %s", from, c->to);
	else if (err)
		gn_log_warn(log, "staging of %s failed: %s; the run goes on, and reads the source", from, err->text);
	else
		gn_log_info(log, "staged %s to %s: %u shard%s copied (%.1f MB in %.2f s), %u were there (%.1f MB); meanwhile this rank read %.1f MB of "
			    "images from the source", from, c->to, r->copied, gn_text_plural(r->copied), (double)r->copied_bytes * 1e-6, r->copy_s, r->kept,
			    (double)r->kept_bytes * 1e-6, source_mb);
}

static int stage(struct gn_staging *s, int i)
{
	struct copying c = {.s = s, .data = s->options.datasets[i]};
	struct gn_stage_options how = {.from = gn_dataset_directory(c.data), .digest = gn_dataset_digest(c.data), .threads = THREADS,
				       .log = s->options.tells ? s->options.log : NULL, .stop = &s->stop, .ready = use, .context = &c};
	struct gn_stage_result result;
	char to[PATH_MAX], folder[PATH_MAX];
	struct gn_err err;

	if (name_copy(&s->options, i, to, &err))
		return 0;
	how.to = c.to = to;
	if (s->options.tells)
		gn_log_info(s->options.log, "staging %s to %s; a shard is read from the source until it is there", how.from, to);
	if (gn_stage(&how, &result, &err)) {
		tell(s, &c, NULL, &err);
		return 0;
	}
	/* gannet stage --remove leaves it from now on; before, its removal would have changed nothing for descriptors that are open */
	for (int k = 0, count = gn_folders_count(to); k < count && !gn_folders_get(to, k, folder, NULL); k++)
		gn_hold(folder, &s->holds[i][k], NULL);
	tell(s, &c, &result, NULL);
	return 1;
}

static void *run(void *argument)
{
	struct gn_staging *s = argument;

	/* Copies must not be writable by the group, checkpoints may be: this thread gets a umask of its own where that is allowed. */
	unshare(CLONE_FS);
	umask(umask(077) | 022);
	for (int i = 0; i < GN_STAGING_DATASETS; i++)
		if (s->options.datasets[i] && !atomic_load(&s->stop) && !stage(s, i))
			break;
	return NULL;
}

enum gn_status gn_staging_begin(const struct gn_staging_options *o, struct gn_staging **out, struct gn_err *err)
{
	struct gn_staging *s = calloc(1, sizeof *s);
	int failed;

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to stage");
	s->options = *o;
	memset(s->holds, -1, sizeof s->holds);
	failed = gn_thread_start(&s->thread, run, s);
	if (failed) {
		free(s);
		return gn_err_errno(err, failed, "cannot start a thread to stage");
	}
	*out = s;
	return GN_OK;
}

void gn_staging_end(struct gn_staging *s)
{
	if (!s)
		return;
	atomic_store(&s->stop, 1);
	pthread_join(s->thread, NULL);
	for (int i = 0; i < GN_STAGING_DATASETS; i++)
		gn_folders_release(s->holds[i]);
	free(s);
}
