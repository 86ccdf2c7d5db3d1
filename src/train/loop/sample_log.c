#include "src/train/loop/sample_log.h"

#include "src/base/file.h"
#include "src/base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gn_sample_log {
	char path[PATH_MAX];
	int fd, has_failed;
	struct gn_json json;
	struct gn_log *log;
};

enum gn_status gn_sample_log_open(const char *directory, uint64_t world, int rank, struct gn_log *warnings, struct gn_sample_log **out,
				  struct gn_err *err)
{
	struct gn_sample_log *l = calloc(1, sizeof *l);
	char name[64];
	enum gn_status status;

	if (!l)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a log of samples");
	snprintf(name, sizeof name, "world-%" PRIu64 "-rank-%d.jsonl", world, rank);
	gn_json_init(&l->json);
	l->log = warnings;
	l->fd = -1;
	status = gn_path_join(l->path, sizeof l->path, directory, name, err);
	if (!status)
		status = gn_make_dirs(directory, err);
	if (!status && (l->fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666)) < 0)
		status = gn_err_set(err, GN_ERR_IO, "cannot open %s: %s", l->path, strerror(errno));
	if (status)
		gn_sample_log_close(l);
	else
		*out = l;
	return status;
}

void gn_sample_log_batch(struct gn_sample_log *l, uint64_t step, uint64_t epoch, const uint64_t *samples, size_t count)
{
	struct gn_json *j = l ? &l->json : NULL;
	struct gn_err err;

	if (!l || l->has_failed)
		return;
	gn_json_clear(j);
	gn_json_put(j, "{ step %lu epoch %lu samples [", step, epoch);
	for (size_t i = 0; i < count; i++)
		gn_json_uint(j, NULL, samples[i]);
	gn_json_put(j, "] }");
	gn_strbuf_puts(&j->text, "\n");
	if (!gn_json_failed(j) && !gn_write_full(l->fd, gn_json_text(j), j->text.len, l->path, &err))
		return;
	l->has_failed = 1;
	gn_log_warn(l->log, "samples are logged no more: %s", gn_json_failed(j) ? "no memory" : err.text);
}

void gn_sample_log_close(struct gn_sample_log *l)
{
	if (!l)
		return;
	if (l->fd >= 0)
		close(l->fd);
	gn_json_release(&l->json);
	free(l);
}
