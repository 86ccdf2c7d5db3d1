#include "src/train/metrics/metrics_log.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/trust.h"
#include "src/train/metrics/log_event.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct gn_metrics_log {
	char *path;
	int fd;
	int had_lines;
	struct gn_json json;
	struct gn_log *log;
	uint64_t lost; /* lines lost since the last successful write */
	enum gn_status (*may_write)(void *context, struct gn_err *err); /* NULL: always */
	void *guard_context;
};

/* Ends an incomplete last line (full disk, power loss), so that only that line is lost. */
static enum gn_status end_torn_line(struct gn_metrics_log *log, struct gn_err *err)
{
	struct stat info;
	char last = '\n';
	int fd;

	log->had_lines = !fstat(log->fd, &info) && S_ISREG(info.st_mode) && info.st_size > 0;
	if (!log->had_lines || (fd = open(log->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0)
		return GN_OK;
	if (pread(fd, &last, 1, info.st_size - 1) != 1)
		last = '\n';
	close(fd);
	return last == '\n' ? GN_OK : gn_write_full(log->fd, "\n", 1, log->path, err);
}

static int open_log(const char *path, struct gn_err *err)
{
	int fd = -1, flags;
	struct stat info;

	if (gn_trust_check_links(path, err))
		return -1;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
	if (fd < 0 && errno == ENXIO && !stat(path, &info) && S_ISFIFO(info.st_mode)) {
		gn_err_set(err, GN_ERR_IO, "the log %s is a FIFO without a reader: start its reader first, or name a file", path);
		return -1;
	}
	flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK)) {
		/* GN_ERR_NOT_FOUND for a missing folder would blame the input */
		gn_err_set(err, GN_ERR_IO, "cannot open the log %s: %s", path, gn_errno_text(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	return fd;
}

/* A run that was killed may still be going away when the job starts again. */
#define LOCK_TRIES 30

/* Lines of two runs in one file would be read as one run's. A file system without locks has none; standard output is anybody's. */
static enum gn_status lock_log(const struct gn_metrics_log *log, int tries, struct gn_err *err)
{
	struct stat info;

	if (!strcmp(log->path, "-") || fstat(log->fd, &info) || !S_ISREG(info.st_mode))
		return GN_OK;
	for (int i = 0; i < tries; i++) {
		if (!flock(log->fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK)
			return GN_OK;
		gn_clock_sleep_ns(100000000);
	}
	return gn_err_set(err, GN_ERR_USAGE, "another run is writing the log %s: name another file, or end that run", log->path);
}

enum gn_status gn_metrics_log_open(const char *path, int goes_on, struct gn_log *warnings, struct gn_metrics_log **out, struct gn_err *err)
{
	struct gn_metrics_log *log = calloc(1, sizeof *log);
	enum gn_status status;

	if (!log || !(log->path = strdup(path))) {
		free(log);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the log %s", path);
	}
	if (strcmp(path, "-"))
		log->fd = open_log(path, err);
	else if ((log->fd = dup(STDOUT_FILENO)) < 0)
		gn_err_set(err, GN_ERR_IO, "cannot write the log to standard output: %s", gn_errno_text(errno));
	if (log->fd < 0) {
		free(log->path);
		free(log);
		return GN_ERR_IO;
	}
	gn_json_init(&log->json);
	log->log = warnings;
	status = lock_log(log, goes_on ? 1 : LOCK_TRIES, err);
	if (status && goes_on)
		status = GN_OK;
	if (!status)
		status = end_torn_line(log, err);
	if (status)
		gn_metrics_log_close(log);
	else
		*out = log;
	return status;
}

int gn_metrics_log_had_lines(const struct gn_metrics_log *log)
{
	return log && log->had_lines;
}

void gn_metrics_log_close(struct gn_metrics_log *log)
{
	if (!log)
		return;
	close(log->fd);
	gn_json_release(&log->json);
	free(log->path);
	free(log);
}

/* NULL: not a regular file, or not readable. */
static FILE *open_regular(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat info;
	FILE *file = fd >= 0 && !fstat(fd, &info) && S_ISREG(info.st_mode) ? fdopen(fd, "r") : NULL;

	if (!file && fd >= 0)
		close(fd);
	return file;
}

/* Visits the lines of a log but those of steps, which are many and are not parsed; none of standard output and of what cannot be read. */
static void visit_events(const char *path, void (*visit)(void *context, const json_t *line), void *context)
{
	FILE *file = path && strcmp(path, "-") ? open_regular(path) : NULL;
	char *text = NULL;
	size_t room = 0;

	while (file && getline(&text, &room, file) > 0) {
		json_t *line = strncmp(text, "{\"event\": \"step\"", 16) ? json_loads(text, 0, NULL) : NULL;

		if (line)
			visit(context, line);
		json_decref(line);
	}
	free(text);
	if (file)
		fclose(file);
}

struct sought_eval {
	uint64_t step;
	int found;
};

static void note_eval(void *sought, const json_t *line)
{
	struct sought_eval *s = sought;

	if (gn_event_is(line, "start"))
		s->found = 0;
	else if (gn_event_is(line, "eval"))
		s->found |= json_integer_value(json_object_get(line, "step")) == (json_int_t)s->step;
}

int gn_metrics_log_has_eval(const char *path, uint64_t step)
{
	struct sought_eval sought = {step, 0};

	visit_events(path, note_eval, &sought);
	return sought.found;
}

static void note_world(void *world, const json_t *line)
{
	const json_t *number = json_object_get(line, "world");

	if (gn_event_is(line, "start") || gn_event_is(line, "resume"))
		*(uint64_t *)world = json_is_integer(number) ? (uint64_t)json_integer_value(number) : 1;
	else if (gn_event_is(line, "end") || gn_event_is(line, "stop") || gn_event_is(line, "failed"))
		*(uint64_t *)world = 0;
}

uint64_t gn_metrics_log_running_world(const char *path)
{
	uint64_t world = 0;

	visit_events(path, note_world, &world);
	return world;
}

struct scores {
	struct {
		json_int_t step;
		double top1;
	} *all;
	size_t count, room;
};

/* A line that finds no memory is left out. */
static void add_score(struct scores *s, json_int_t step, double top1)
{
	if (gn_array_grow(&s->all, &s->room, s->count, sizeof *s->all))
		return;
	s->all[s->count].step = step;
	s->all[s->count++].top1 = top1;
}

static void note_score(void *scores, const json_t *line)
{
	struct scores *s = scores;
	json_int_t step = json_integer_value(json_object_get(line, "step"));
	const json_t *top1 = json_object_get(line, "top1");

	if (gn_event_is(line, "start"))
		s->count = 0;
	else if (gn_event_is(line, "resume"))
		while (s->count && s->all[s->count - 1].step > step)
			s->count--;
	else if (gn_event_is(line, "eval") && json_is_number(top1))
		add_score(s, step, json_number_value(top1));
}

double gn_metrics_log_best_top1(const char *path)
{
	struct scores s = {0};
	double best = -1;

	visit_events(path, note_score, &s);
	for (size_t i = 0; i < s.count; i++)
		best = s.all[i].top1 > best ? s.all[i].top1 : best;
	free(s.all);
	return best;
}

void gn_metrics_log_set_guard(struct gn_metrics_log *log, enum gn_status (*may_write)(void *context, struct gn_err *err), void *context)
{
	if (!log)
		return;
	log->may_write = may_write;
	log->guard_context = context;
}

struct gn_json *gn_metrics_log_begin(struct gn_metrics_log *log, const char *event)
{
	char stamp[32];
	struct tm utc;
	time_t now;

	if (!log)
		return NULL;
	now = time(NULL);
	gmtime_r(&now, &utc);
	strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", &utc);
	gn_json_clear(&log->json);
	gn_json_put(&log->json, "{ event %s time %s", event, stamp);
	return &log->json;
}

/* A failure to write the log does not end the run. */
static void write_line(struct gn_metrics_log *log)
{
	struct gn_err err;
	enum gn_status status = log->lost ? end_torn_line(log, &err) : GN_OK;

	if (!status)
		status = gn_write_full(log->fd, gn_json_text(&log->json), log->json.text.len, log->path, &err);
	if (status && !log->lost)
		gn_log_warn(log->log, "cannot write the log, lines are lost until it is writable again: %s", err.text);
	if (!status && log->lost)
		gn_log_warn(log->log, "the log %s is writable again: %" PRIu64 " line%s lost", log->path, log->lost,
			    log->lost == 1 ? " is" : "s are");
	log->lost = status ? log->lost + 1 : 0;
}

enum gn_status gn_metrics_log_end(struct gn_metrics_log *log, struct gn_err *err)
{
	enum gn_status status = log && log->may_write ? log->may_write(log->guard_context, err) : GN_OK;

	if (!log || status)
		return status;
	gn_json_end(&log->json);
	gn_strbuf_puts(&log->json.text, "\n");
	if (gn_json_failed(&log->json))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a line of the log %s", log->path);
	write_line(log);
	return GN_OK;
}

void gn_metrics_log_failure(struct gn_metrics_log *log, uint64_t step, double epoch, const struct gn_err *why)
{
	struct gn_json *j = gn_metrics_log_begin(log, "failed");
	struct gn_err ignored;

	if (!j)
		return;
	gn_json_put(j, "step %lu epoch %.4f status %s reason %s", step, epoch, gn_status_text(why->status), why->text);
	gn_metrics_log_end(log, &ignored);
}
