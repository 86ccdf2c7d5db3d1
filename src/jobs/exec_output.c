#include "src/jobs/exec_output.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES 65536
#define LAST_BYTES 2000

struct gn_exec_output {
	int fd, to, inside; /* inside: of a line that was passed on in part */
	char label[32];
	char buffer[BUFFER_BYTES], last[LAST_BYTES + 1];
	size_t len, last_len;
	int lost_errno; /* of the first write that failed; 0: none */
};

enum gn_status gn_exec_output_create(int to, const char *label, int *write_end, struct gn_exec_output **out, struct gn_err *err)
{
	struct gn_exec_output *s = calloc(1, sizeof *s);
	int ends[2];

	if (!s)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the program's output");
	if (pipe2(ends, O_CLOEXEC)) {
		free(s);
		return gn_err_errno(err, errno, "no pipe for the program's output");
	}
	s->fd = ends[0];
	s->to = to;
	snprintf(s->label, sizeof s->label, "%s", label);
	*write_end = ends[1];
	*out = s;
	return GN_OK;
}

int gn_exec_output_fd(const struct gn_exec_output *s)
{
	return s ? s->fd : -1;
}

static void remember(struct gn_exec_output *s, const char *text, size_t len)
{
	size_t keep = len < LAST_BYTES ? LAST_BYTES - len : 0;

	if (len > LAST_BYTES) {
		text += len - LAST_BYTES;
		len = LAST_BYTES;
	}
	if (s->last_len > keep) {
		memmove(s->last, s->last + s->last_len - keep, keep);
		s->last_len = keep;
	}
	memcpy(s->last + s->last_len, text, len);
	s->last_len += len;
}

/* In one write: a line and its label. The program continues when that fails. */
static void pass_on(struct gn_exec_output *s, const char *text, size_t len)
{
	char both[BUFFER_BYTES + sizeof s->label];
	size_t label = s->inside ? 0 : strlen(s->label);

	memcpy(both, s->label, label);
	memcpy(both + label, text, len);
	if (gn_write_full(s->to, both, label + len, "output", NULL) && errno != EPIPE && !s->lost_errno)
		s->lost_errno = errno;
	s->inside = text[len - 1] != '\n';
}

static void flush(struct gn_exec_output *s, int all)
{
	size_t done = 0;
	char *end;

	/* without labels as many lines as there are, at once */
	while (done < s->len) {
		end = *s->label ? memchr(s->buffer + done, '\n', s->len - done) : memrchr(s->buffer + done, '\n', s->len - done);
		if (!end && !all && (done || s->len < BUFFER_BYTES))
			break;
		end = end ? end + 1 : s->buffer + s->len;
		pass_on(s, s->buffer + done, (size_t)(end - s->buffer) - done);
		done = (size_t)(end - s->buffer);
	}
	memmove(s->buffer, s->buffer + done, s->len - done);
	s->len -= done;
}

void gn_exec_output_read(struct gn_exec_output *s)
{
	ssize_t n;

	if (!s || s->fd < 0)
		return;
	n = gn_read_some(s->fd, s->buffer + s->len, BUFFER_BYTES - s->len);
	if (n <= 0) {
		flush(s, 1);
		close(s->fd);
		s->fd = -1;
		return;
	}
	remember(s, s->buffer + s->len, (size_t)n);
	s->len += (size_t)n;
	flush(s, 0);
}

const char *gn_exec_output_last(struct gn_exec_output *s)
{
	char *first;

	if (!s)
		return "";
	s->last[s->last_len] = 0;
	if (s->last_len < LAST_BYTES)
		return s->last;
	/* half a line says little */
	first = memchr(s->last, '\n', s->last_len);
	return first && first[1] ? first + 1 : s->last;
}

enum gn_status gn_exec_output_end(struct gn_exec_output *s, struct gn_err *err)
{
	if (!s)
		return GN_OK;
	flush(s, 1);
	return s->lost_errno ? gn_err_errno(err, s->lost_errno, "cannot write %s", s->to == 1 ? "standard output" : "standard error") : GN_OK;
}

void gn_exec_output_destroy(struct gn_exec_output *s)
{
	if (!s)
		return;
	flush(s, 1);
	if (s->fd >= 0)
		close(s->fd);
	free(s);
}
