#include "src/train/runlog.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct gn_runlog {
	char *path;
	int fd;
	struct gn_json json;
};

/* What a full disk or a power cut tore gets a line of its own, so that only that line is lost. */
static enum gn_status end_torn_line(const struct gn_runlog *log, struct gn_err *err)
{
	struct stat info;
	char last = '\n';
	int fd;

	if (fstat(log->fd, &info) || !S_ISREG(info.st_mode) || !info.st_size ||
	    (fd = open(log->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) < 0)
		return GN_OK;
	if (pread(fd, &last, 1, info.st_size - 1) != 1)
		last = '\n';
	close(fd);
	return last == '\n' ? GN_OK : gn_write_full(log->fd, "\n", 1, log->path, err);
}

enum gn_status gn_runlog_open(const char *path, struct gn_runlog **out, struct gn_err *err)
{
	struct gn_runlog *log = calloc(1, sizeof *log);
	enum gn_status status;

	if (!log || !(log->path = strdup(path))) {
		free(log);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the log %s", path);
	}
	log->fd = !strcmp(path, "-") ? dup(STDOUT_FILENO) : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (log->fd < 0) {
		/* Not GN_ERR_NOT_FOUND when a folder is missing: that would blame the input. */
		gn_err_set(err, GN_ERR_IO, "cannot open the log %s: %s", path, strerror(errno));
		free(log->path);
		free(log);
		return GN_ERR_IO;
	}
	gn_json_init(&log->json);
	status = end_torn_line(log, err);
	if (status)
		gn_runlog_close(log);
	else
		*out = log;
	return status;
}

void gn_runlog_close(struct gn_runlog *log)
{
	if (!log)
		return;
	close(log->fd);
	gn_json_release(&log->json);
	free(log->path);
	free(log);
}

struct gn_json *gn_runlog_begin(struct gn_runlog *log, const char *event)
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
	gn_json_object(&log->json, NULL);
	gn_json_string(&log->json, "event", event);
	gn_json_string(&log->json, "time", stamp);
	return &log->json;
}

enum gn_status gn_runlog_end(struct gn_runlog *log, struct gn_err *err)
{
	if (!log)
		return GN_OK;
	gn_json_end(&log->json);
	gn_strbuf_puts(&log->json.text, "\n");
	if (gn_json_failed(&log->json))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a line of the log %s", log->path);
	return gn_write_full(log->fd, gn_json_text(&log->json), log->json.text.len, log->path, err);
}
