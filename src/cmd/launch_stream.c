#include "src/cmd/launch_stream.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 65536

static void pass_on(const struct gn_launch_stream *s, size_t len)
{
	/* whoever read us is gone: the ranks go on all the same */
	gn_write_full(s->to, s->line, len, "standard output", NULL);
}

/* Writes out the whole lines; a line that fills the buffer goes in parts. */
static void flush_lines(struct gn_launch_stream *s, int all)
{
	char *end = s->len ? memrchr(s->line, '\n', s->len) : NULL;
	size_t len = all || (!end && s->len == LINE_MAX_BYTES) ? s->len : end ? (size_t)(end - s->line) + 1 : 0;

	if (!len)
		return;
	pass_on(s, len);
	memmove(s->line, s->line + len, s->len - len);
	s->len -= len;
}

void gn_launch_stream_close(struct gn_launch_stream *s)
{
	flush_lines(s, 1);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

void gn_launch_stream_read(struct gn_launch_stream *s)
{
	ssize_t n = gn_read_some(s->fd, s->line + s->len, LINE_MAX_BYTES - s->len);

	if (n <= 0) {
		gn_launch_stream_close(s);
		return;
	}
	s->len += (size_t)n;
	flush_lines(s, 0);
}

enum gn_status gn_launch_stream_open(struct gn_launch_stream *s, int to, int *write_end, struct gn_err *err)
{
	int ends[2];

	s->to = to;
	s->line = malloc(LINE_MAX_BYTES);
	if (!s->line)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a line");
	if (pipe2(ends, O_CLOEXEC))
		return gn_err_errno(err, errno, "no pipe for a rank");
	s->fd = ends[0];
	*write_end = ends[1];
	return GN_OK;
}
