/* What a rank writes, passed on line by line, so that lines of several ranks do not mix. */
#ifndef GN_CMD_LAUNCH_STREAM_H
#define GN_CMD_LAUNCH_STREAM_H

#include "src/base/status.h"

#include <stddef.h>

/* One stream of one rank: its bytes wait here until a line is whole. fd -1: closed. */
struct gn_launch_stream {
	int fd, to;
	size_t len;
	char *line;
};

/* *write_end is the rank's. */
enum gn_status gn_launch_stream_open(struct gn_launch_stream *s, int to, int *write_end, struct gn_err *err);
/* What there is to read; closes at the end. */
void gn_launch_stream_read(struct gn_launch_stream *s);
void gn_launch_stream_close(struct gn_launch_stream *s);

#endif
