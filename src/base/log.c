#include "src/base/log.h"

#include "src/base/text.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct gn_log {
	int fd;
	enum gn_log_level level;
	atomic_int rank;
	char host[65];
};

static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG"};

enum gn_status gn_log_create(int fd, enum gn_log_level level, struct gn_log **out, struct gn_err *err)
{
	struct gn_log *log = calloc(1, sizeof *log);

	if (!log)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a log");
	log->fd = fd;
	log->level = level;
	atomic_init(&log->rank, -1);
	if (gethostname(log->host, sizeof log->host - 1))
		memcpy(log->host, "?", 2);
	*out = log;
	return GN_OK;
}

void gn_log_destroy(struct gn_log *log)
{
	free(log);
}

enum gn_status gn_log_level_parse(const char *text, enum gn_log_level *out, struct gn_err *err)
{
	static const char *const words[] = {"error", "warn", "info", "debug"};

	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		if (!strcmp(text, words[i])) {
			*out = (enum gn_log_level)i;
			return GN_OK;
		}
	}
	return gn_err_set(err, GN_ERR_USAGE, "log level '%s': use error, warn, info or debug", text);
}

void gn_log_set_rank(struct gn_log *log, int rank)
{
	if (log)
		atomic_store(&log->rank, rank);
}

static size_t write_prefix(struct gn_log *log, enum gn_log_level level, char *line, size_t size)
{
	struct timespec now;
	struct tm local;
	char stamp[32], rank[16] = "";
	int rank_number = atomic_load(&log->rank);

	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &local);
	strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &local);
	if (rank_number >= 0)
		snprintf(rank, sizeof rank, "[%d]", rank_number);
	return (size_t)snprintf(line, size, "%s.%03ld %s %s%s ", stamp, now.tv_nsec / 1000000, level_names[level],
				log->host, rank);
}

void gn_log_line(struct gn_log *log, enum gn_log_level level, const char *format, ...)
{
	char line[2048], text[2048];
	size_t used;
	int more;
	va_list args;
	ssize_t written;

	if (!log || level > log->level)
		return;
	used = write_prefix(log, level, line, sizeof line);
	va_start(args, format);
	more = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (more < 0)
		return;
	/* A file name with a line break must not look like a log line. */
	used += strlen(gn_text_visible(text, line + used, sizeof line - used - 1));
	line[used++] = '\n';
	/* There is nowhere to report a failed write to the log. */
	written = write(log->fd, line, used);
	(void)written;
}
