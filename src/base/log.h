/* Levelled log lines with time, host and rank.
 *
 * One line per call, written with one write(2), so that lines of threads and processes do not mix:
 *     2026-11-21T08:35:31.123 WARN n2[3] text
 * Control characters in the text become \xNN: a name from outside cannot forge a line. Libraries write only to a log that they are
 * given; a NULL log discards everything.
 *
 * Thread safety: any thread may call any function on one log.
 */
#ifndef GN_BASE_LOG_H
#define GN_BASE_LOG_H

#include "src/base/status.h"

enum gn_log_level { GN_LOG_ERROR, GN_LOG_WARN, GN_LOG_INFO, GN_LOG_DEBUG };

struct gn_log;

/* Creates a log on file descriptor fd (borrowed) that discards lines above level. Until a rank is set, lines name only the host. */
enum gn_status gn_log_create(int fd, enum gn_log_level level, struct gn_log **out, struct gn_err *err);
void gn_log_destroy(struct gn_log *log);
/* Parses "error", "warn", "info" or "debug"; GN_ERR_USAGE for anything else. */
enum gn_status gn_log_level_parse(const char *text, enum gn_log_level *out, struct gn_err *err);
/* Later lines name this rank (>= 0). */
void gn_log_set_rank(struct gn_log *log, int rank);

void gn_log_line(struct gn_log *log, enum gn_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define gn_log_error(log, ...) gn_log_line(log, GN_LOG_ERROR, __VA_ARGS__)
#define gn_log_warn(log, ...) gn_log_line(log, GN_LOG_WARN, __VA_ARGS__)
#define gn_log_info(log, ...) gn_log_line(log, GN_LOG_INFO, __VA_ARGS__)
#define gn_log_debug(log, ...) gn_log_line(log, GN_LOG_DEBUG, __VA_ARGS__)

#endif
