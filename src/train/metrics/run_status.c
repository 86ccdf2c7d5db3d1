#include "src/train/metrics/run_status.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/base/thread.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* While training waits for a silent rank, nobody else would write the file: a thread looks once a second at what the heartbeats have told
 * (gn_world_heard_ns()), and writes the last status again when ranks have become silent, or are no longer. */
#define SILENCE_S 2.5 /* a rank sends a message each second */
#define SILENT_LISTED 8

struct silence {
	char *path;
	const struct gn_world *world;
	pthread_t thread;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	int stop, listed;     /* listed: how many silent ranks the file has */
	char *object;	      /* as it was written last; NULL: nothing yet */
};

/* Writes the silent ranks into the open object and returns their number. */
static int put_silent(const struct gn_world *w, struct gn_json *j)
{
	double now = gn_clock_unix_s();
	int count = 0;

	gn_json_array(j, "silent");
	for (int r = 1; r < gn_world_size(w); r++) {
		uint64_t heard = gn_world_heard_ns(w, r), now_ns = gn_clock_ns();
		double age = heard && heard < now_ns ? (double)(now_ns - heard) / 1e9 : 0;

		if (age < SILENCE_S || count++ >= SILENT_LISTED)
			continue;
		gn_json_put(j, "{ rank %d host %s since %.1f }", r, gn_world_host_of(w, r), now - age);
	}
	gn_json_put(j, "] silent_count %d", count);
	return count;
}

/* Under the lock. always: also when no rank is silent and none was. */
static enum gn_status write_file(struct silence *s, int always, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	struct gn_strbuf text = {0};
	struct gn_json j;
	int count;

	gn_json_init(&j);
	gn_json_object(&j, NULL);
	count = put_silent(s->world, &j);
	gn_json_end(&j);
	if (s->object && (always || count || s->listed)) {
		/* both objects as one: without the end of the first and the beginning of the second */
		gn_strbuf_append(&text, s->object, strlen(s->object) - 1);
		gn_strbuf_printf(&text, ", %s\n", gn_json_text(&j) + 1);
		text.failed |= gn_json_failed(&j);
		status = gn_file_replace_text(s->path, &text, GN_REPLACE_UNSYNCED, err);
		s->listed = count;
	}
	gn_strbuf_release(&text);
	gn_json_release(&j);
	return status;
}

static void *silence_thread(void *argument)
{
	struct silence *s = argument;
	struct timespec until;

	pthread_setname_np(pthread_self(), "gannet-silence");
	clock_gettime(CLOCK_MONOTONIC, &until);
	pthread_mutex_lock(&s->lock);
	while (!s->stop) {
		until.tv_sec++;
		while (!s->stop && !pthread_cond_timedwait(&s->changed, &s->lock, &until))
			;
		/* a failure is warned of when training writes */
		if (!s->stop)
			write_file(s, 0, NULL);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* Rank 0. path is copied; world is borrowed. */
static enum gn_status silence_create(const char *path, const struct gn_world *world, struct silence **out, struct gn_err *err)
{
	struct silence *s = calloc(1, sizeof *s);
	pthread_condattr_t monotonic;
	int failure;

	if (!s || !(s->path = strdup(path))) {
		free(s);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the silent ranks");
	}
	s->world = world;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	failure = gn_thread_start(&s->thread, silence_thread, s);
	if (!failure) {
		*out = s;
		return GN_OK;
	}
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s);
	return gn_err_errno(err, failure, "cannot start the thread of silent ranks");
}

/* Ends the thread. NULL is fine. */
static void silence_destroy(struct silence *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stop = 1;
	pthread_cond_signal(&s->changed);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s->object);
	free(s->path);
	free(s);
}

/* Replaces the file. object: the text of a JSON object; copied. Blocks on its file system. */
static enum gn_status silence_write(struct silence *s, const char *object, struct gn_err *err)
{
	char *copy = strdup(object);
	enum gn_status status;

	if (!copy)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", s->path);
	pthread_mutex_lock(&s->lock);
	free(s->object);
	s->object = copy;
	status = write_file(s, 1, err);
	pthread_mutex_unlock(&s->lock);
	return status;
}

static const char *const part_names[GN_RUN_STATUS_PARTS] = {"data", "forward", "backward", "communication_exposed", "optimizer"};

/* --- status file --- */

/* One JSON object. now: seconds since 1970. */
static void write_json(const struct gn_run_status *s, double now, struct gn_json *j)
{
	gn_json_put(j, "{ time %.3f doing %s running? %d host %s job %s step %lu total_steps %lu epoch %.4f loss %g lr %g "
		    "images_per_s %.1f top1 %g slow [", now, s->doing, s->running, s->host, s->job, s->step, s->total_steps, s->epoch,
		    s->loss, s->lr, s->images_per_s, s->top1);
	for (int i = 0; i < s->slow_count; i++)
		gn_json_put(j, "{ rank %d host %s compute_ms %.3f }", s->slow[i].rank, s->slow[i].host, s->slow[i].compute_s * 1e3);
	gn_json_put(j, "] nodes [");
	for (int n = 0; s->usage && n < s->usage->nodes; n++)
		gn_node_load_write(s->usage->node[n].host, &s->usage->node[n].load, s->usage->node[n].rss_bytes, j);
	gn_json_put(j, "] }");
}

/* --- Prometheus --- */

/* Of a label: backslash, quote and line break are escaped. */
static void put_label(struct gn_strbuf *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\\' || *text == '"')
			gn_strbuf_puts(out, "\\");
		gn_strbuf_append(out, *text == '\n' ? "\\n" : text, *text == '\n' ? 2 : 1);
	}
}

static void put_head(struct gn_strbuf *out, const char *name, const char *type, const char *help)
{
	gn_strbuf_printf(out, "# HELP gannet_train_%s %s\n# TYPE gannet_train_%s %s\n", name, help, name, type);
}

/* more: further labels, ",part=\"data\"", or "". */
static void put_sample(struct gn_strbuf *out, const struct gn_run_status *s, const char *name, const char *more, double value)
{
	const char *const labels[][2] = {{"{run=\"", s->run}, {"\",user=\"", s->user}, {"\",jobid=\"", s->jobid}, {"\",host=\"", s->host}};

	gn_strbuf_printf(out, "gannet_train_%s", name);
	for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
		gn_strbuf_puts(out, labels[i][0]);
		put_label(out, labels[i][1]);
	}
	gn_strbuf_printf(out, "\"%s} %.15g\n", more, value);
}

/* All metrics, gannet_train_..., with the labels run, user, jobid and host. */
static void write_prometheus(const struct gn_run_status *s, double now, struct gn_strbuf *out)
{
	const struct gn_usage *u = s->usage;
	const struct {
		const char *name, *type, *help;
		double value; /* NaN: left out */
	} all[] = {
		{"running", "gauge", "1 while the run goes on, 0 after it has ended.", s->running},
		{"last_update_timestamp_seconds", "gauge", "When this file was written.", now},
		{"ranks", "gauge", "Processes of the run.", s->ranks},
		{"nodes", "gauge", "Nodes of the run.", s->nodes},
		{"step", "gauge", "Training step.", (double)s->step},
		{"steps", "gauge", "Steps that the run will have when it is done.", (double)s->total_steps},
		{"epoch", "gauge", "Epochs done, with the fraction of the present one.", s->epoch},
		{"skipped_steps", "gauge", "Steps without an update for gradients that were not finite.", (double)s->skipped},
		{"loss", "gauge", "Training loss, mean over the last interval of the log.", s->loss},
		{"learning_rate", "gauge", "Learning rate of the last step.", s->lr},
		{"images_per_second", "gauge", "Images trained on a second, in the last interval.", s->images_per_s},
		{"top1_ratio", "gauge", "Top-1 accuracy of the last evaluation, 0 to 1.", s->top1},
		{"step_seconds", "gauge", "Mean time of a step in the last interval.", s->step_s},
		{"checkpoints_total", "counter", "Checkpoints of this start.", (double)s->checkpoints},
		{"evaluations_total", "counter", "Evaluations of this start.", (double)s->evaluations},
		{"cpu_seconds_total", "counter", "User and system time of all ranks since they started.", u && u->age_s > 0 ? u->cpu_s : NAN},
		{"max_resident_memory_bytes", "gauge", "Largest resident set of a rank so far.", u && u->age_s > 0 ? u->max_rss_bytes : NAN},
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (!isfinite(all[i].value))
			continue;
		put_head(out, all[i].name, all[i].type, all[i].help);
		put_sample(out, s, all[i].name, "", all[i].value);
	}
	if (!(s->step_s > 0))
		return;
	put_head(out, "step_part_seconds", "gauge", "Parts of the mean step of rank 0 in the last interval.");
	for (int p = 0; p < GN_RUN_STATUS_PARTS; p++) {
		char more[64];

		snprintf(more, sizeof more, ",part=\"%s\"", part_names[p]);
		put_sample(out, s, "step_part_seconds", more, s->part_s[p]);
	}
}

/* --- files --- */

struct gn_status_files {
	char metrics_path[PATH_MAX];	 /* "": none */
	int in_folder;		 /* that is one of many, which is removed when the run ends */
	struct silence *status; /* writes the status file; NULL: none */
	int failed;		 /* the last writing, which was warned of */
	uint64_t written_ns;	 /* 0: not yet */
	const char *doing;	 /* as it was written */
	struct gn_log *warnings;
};

/* Sets f->metrics_path and in_folder. */
static enum gn_status name_metrics(struct gn_status_files *f, const char *metrics, const struct gn_run_status *s, struct gn_err *err)
{
	enum gn_status status;
	struct stat info;
	int len;

	f->in_folder = !stat(metrics, &info) && S_ISDIR(info.st_mode);
	len = f->in_folder ? snprintf(f->metrics_path, PATH_MAX, "%s/gannet-%s-%s-%s.prom", metrics, s->user, s->jobid, s->run)
			   : snprintf(f->metrics_path, PATH_MAX, "%s", metrics);
	if (len >= PATH_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", metrics);
	status = gn_file_check_replaceable(f->metrics_path, err);
	if (!status && !lstat(f->metrics_path, &info) && info.st_uid != geteuid())
		status = gn_err_set(err, GN_ERR_USAGE, "%s belongs to another user: name another file, or its folder, in which each run has its own",
				    f->metrics_path);
	if (!status && !gn_text_ends_with(f->metrics_path, ".prom"))
		status = gn_err_set(err, GN_ERR_USAGE, "%s is no folder, and no name that ends with .prom, as node_exporter reads files", metrics);
	return status ? status : gn_file_check_own(f->metrics_path, "# HELP gannet_train_", "metrics file of gannet train", err);
}

enum gn_status gn_status_files_create(const char *status_path, const char *metrics, const struct gn_run_status *s,
				      const struct gn_world *world, struct gn_log *warnings, struct gn_status_files **out, struct gn_err *err)
{
	struct gn_status_files *f = calloc(1, sizeof *f);
	enum gn_status status = f ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the files of status and metrics");

	if (!status && metrics && name_metrics(f, metrics, s, err))
		status = gn_err_prefix(err, "--metrics");
	if (!status && status_path)
		status = silence_create(status_path, world, &f->status, err);
	if (!status)
		f->warnings = warnings;
	if (status)
		gn_status_files_destroy(f);
	else
		*out = f;
	return status;
}

void gn_status_files_destroy(struct gn_status_files *f)
{
	if (!f)
		return;
	silence_destroy(f->status);
	free(f);
}

static enum gn_status write_status(const struct gn_status_files *f, const struct gn_run_status *s, double now, struct gn_err *err)
{
	enum gn_status status;
	struct gn_json j;

	gn_json_init(&j);
	write_json(s, now, &j);
	status = gn_json_failed(&j) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the status file")
				    : silence_write(f->status, gn_json_text(&j), err);
	gn_json_release(&j);
	return status;
}

static enum gn_status write_metrics(const struct gn_status_files *f, const struct gn_run_status *s, double now, struct gn_err *err)
{
	enum gn_status status;
	struct gn_strbuf text = {0};

	if (f->in_folder && !s->running)
		return unlink(f->metrics_path) && errno != ENOENT ? gn_err_errno(err, errno, "cannot remove %s", f->metrics_path) : GN_OK;
	write_prometheus(s, now, &text);
	status = gn_file_replace_text(f->metrics_path, &text, GN_REPLACE_PUBLIC, err);
	gn_strbuf_release(&text);
	return status;
}

void gn_status_files_write(struct gn_status_files *f, const struct gn_run_status *s, int force)
{
	uint64_t now_ns = gn_clock_ns(), due_s = f && f->doing == s->doing ? GN_RUN_STATUS_S : 1;
	enum gn_status status = GN_OK, second = GN_OK;
	struct gn_err err;

	if (!f || (!force && f->written_ns && now_ns - f->written_ns < due_s * 1000000000))
		return;
	f->written_ns = now_ns;
	f->doing = s->doing;
	if (f->status)
		status = write_status(f, s, gn_clock_unix_s(), &err);
	if (*f->metrics_path)
		second = write_metrics(f, s, gn_clock_unix_s(), status ? NULL : &err);
	status = status ? status : second;
	if (status && !f->failed)
		gn_log_warn(f->warnings, "cannot write how the run is doing: %s", err.text);
	f->failed = status != GN_OK;
}
