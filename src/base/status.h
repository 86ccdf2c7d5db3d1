/* Status codes and error text for every Gannet library.
 *
 * A function that can fail returns enum gn_status and takes an optional last argument struct gn_err *. On failure it leaves its
 * outputs untouched and, when err is not NULL, writes what happened, where, and what to do about it. The first layer that
 * classifies an error writes the text; callers add context with gn_err_prefix() and pass it on.
 *
 * Thread safety: a struct gn_err belongs to one thread. Nothing here allocates or prints.
 */
#ifndef GN_BASE_STATUS_H
#define GN_BASE_STATUS_H

#include <stdarg.h>

/* X(name, value, text): the only list of codes */
#define GN_STATUS_LIST(X)                                                                                              \
	X(GN_OK, 0, "success")                                                                                         \
	X(GN_ERR_FAILED, -1, "operation failed")                                                                       \
	X(GN_ERR_USAGE, -2, "wrong usage")                                                                             \
	X(GN_ERR_DATA, -3, "bad input data")                                                                           \
	X(GN_ERR_PEER_LOST, -4, "a peer was lost")                                                                     \
	X(GN_ERR_STOPPED, -5, "stopped on request")                                                                    \
	X(GN_ERR_NO_MEMORY, -6, "out of memory")                                                                       \
	X(GN_ERR_IO, -7, "input or output error")                                                                      \
	X(GN_ERR_NO_SPACE, -8, "no space left")                                                                        \
	X(GN_ERR_NOT_FOUND, -9, "not found")                                                                           \
	X(GN_ERR_UNSUPPORTED, -10, "not supported here")                                                               \
	X(GN_ERR_MISMATCH, -11, "ranks disagree")                                                                      \
	X(GN_ERR_STALL, -12, "no progress in time")                                                                    \
	X(GN_ERR_EXISTS, -13, "already exists")

enum gn_status {
#define X(name, value, text) name = value,
	GN_STATUS_LIST(X)
#undef X
};

#define GN_ERR_TEXT_MAX 1024

struct gn_err {
	enum gn_status status;
	char text[GN_ERR_TEXT_MAX];
	/* With GN_ERR_PEER_LOST: the failure by which the lost rank ended the job, as it said itself; GN_OK: it said none. It decides the exit code. */
	enum gn_status cause;
	int told; /* another rank tells the user */
};

/* The text of a code ("bad input data"); "unknown status" for a number that is no code. Never NULL. */
const char *gn_status_text(enum gn_status status);

/* Every text is one line: control characters become \xNN, see gn_text_visible(). */
/* Writes status and text into err (may be NULL) and returns status: `return gn_err_set(...)`. */
enum gn_status gn_err_set(struct gn_err *err, enum gn_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* As strerror(); where a limit of this process explains it (ulimit -f, ulimit -v) that is named. Never NULL; valid until this thread's
 * next call. */
const char *gn_errno_text(int errnum);
/* As gn_err_set(), with ": " and gn_errno_text() appended. The status is GN_ERR_NO_SPACE for ENOSPC, EDQUOT and EFBIG, GN_ERR_NOT_FOUND
 * for ENOENT, GN_ERR_NO_MEMORY for ENOMEM, else GN_ERR_IO. */
enum gn_status gn_err_errno(struct gn_err *err, int errnum, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Prepends formatted context to the text: "context: text". Returns err's status, or GN_ERR_FAILED when err is NULL. */
enum gn_status gn_err_prefix(struct gn_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
