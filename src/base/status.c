#include "src/base/status.h"

#include "src/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

const char *gn_status_text(enum gn_status status)
{
	switch (status) {
#define X(name, value, text)                                                                                           \
	case name:                                                                                                     \
		return text;
		GN_STATUS_LIST(X)
#undef X
	}
	return "unknown status";
}

__attribute__((format(printf, 3, 0))) static void set_text(struct gn_err *err, enum gn_status status, const char *format, va_list args)
{
	char raw[GN_ERR_TEXT_MAX];

	if (err) {
		vsnprintf(raw, sizeof raw, format, args);
		err->status = status;
		err->cause = GN_OK;
		err->told = 0;
		gn_text_visible(raw, err->text, sizeof err->text);
	}
}

enum gn_status gn_err_set(struct gn_err *err, enum gn_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	set_text(err, status, format, args);
	va_end(args);
	return status;
}

static enum gn_status status_of_errno(int errnum)
{
	switch (errnum) {
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return GN_ERR_NO_SPACE;
	case ENOENT:
		return GN_ERR_NOT_FOUND;
	case ENOMEM:
		return GN_ERR_NO_MEMORY;
	default:
		return GN_ERR_IO;
	}
}

const char *gn_errno_text(int errnum)
{
	struct rlimit limit;

	if (errnum == EFBIG && !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY)
		return "File too large: this process has a file size limit (ulimit -f)";
	if (errnum == ENOMEM && !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
		return "Cannot allocate memory: this process has a limit of its address space (ulimit -v)";
	return strerror(errnum);
}

enum gn_status gn_err_errno(struct gn_err *err, int errnum, const char *format, ...)
{
	enum gn_status status = status_of_errno(errnum);
	va_list args;

	va_start(args, format);
	set_text(err, status, format, args);
	va_end(args);
	if (err) {
		size_t used = strlen(err->text);

		snprintf(err->text + used, sizeof err->text - used, ": %s", gn_errno_text(errnum));
	}
	return status;
}

enum gn_status gn_err_prefix(struct gn_err *err, const char *format, ...)
{
	char raw[GN_ERR_TEXT_MAX], context[GN_ERR_TEXT_MAX];
	va_list args;
	size_t used;

	if (!err)
		return GN_ERR_FAILED;
	va_start(args, format);
	vsnprintf(raw, sizeof raw, format, args);
	va_end(args);
	gn_text_visible(raw, context, sizeof context);
	used = strlen(context);
	if (used + 2 < sizeof context) {
		size_t room = sizeof context - used - 3, length = strnlen(err->text, room);

		memcpy(context + used, ": ", 2);
		memcpy(context + used + 2, err->text, length);
		context[used + 2 + length] = 0;
	}
	memcpy(err->text, context, sizeof err->text);
	return err->status;
}
