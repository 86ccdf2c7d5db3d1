/* Levelled log lines that say when, which host and which rank.
 *
 * One line per call, written with a single write so that lines of several threads and processes do not mix:
 *     2026-11-21T08:35:31.123 WARN n2[3] text
 * Control characters in the text become question marks, so that a name from outside cannot forge a line.
 * A log is passed to whatever needs to speak; a NULL log is silent, so libraries never decide whether to print.
 *
 * Thread safety: all calls on one log may be made from any thread.
 */
#ifndef GN_BASE_LOG_H
#define GN_BASE_LOG_H

#include "src/base/status.h"

enum gn_log_level { GN_LOG_ERROR, GN_LOG_WARN, GN_LOG_INFO, GN_LOG_DEBUG };

struct gn_log;

/* A log to the file descriptor fd (borrowed) that drops lines above level. Rank is unset: lines then name host alone. */
enum gn_status gn_log_create(int fd, enum gn_log_level level, struct gn_log **out, struct gn_err *err);
void gn_log_destroy(struct gn_log *log);
/* "error", "warn", "info", "debug"; GN_ERR_USAGE for anything else. */
enum gn_status gn_log_level_parse(const char *text, enum gn_log_level *out, struct gn_err *err);
/* From now on lines name this rank (>= 0). Set the host when it should differ from gethostname(). */
void gn_log_set_rank(struct gn_log *log, int rank);
int gn_log_enabled(const struct gn_log *log, enum gn_log_level level);

void gn_log_line(struct gn_log *log, enum gn_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define gn_log_error(log, ...) gn_log_line(log, GN_LOG_ERROR, __VA_ARGS__)
#define gn_log_warn(log, ...) gn_log_line(log, GN_LOG_WARN, __VA_ARGS__)
#define gn_log_info(log, ...) gn_log_line(log, GN_LOG_INFO, __VA_ARGS__)
#define gn_log_debug(log, ...) gn_log_line(log, GN_LOG_DEBUG, __VA_ARGS__)

#endif
