#include "src/train/metrics/trace_internal.h"

#include "src/base/file.h"
#include "src/base/option.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPANS_MIN = 1 << 12, SPANS_MAX = 1 << 20 };

/* Parses "A:B" or "N". */
static enum gn_status parse_steps(const char *text, struct gn_trace *t, struct gn_err *err)
{
	const char *colon = strchr(text, ':');
	char *copy = strdup(text);
	int64_t first = 0, last = 0;
	enum gn_status status = GN_OK;

	if (!copy)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a trace");
	if (colon) {
		copy[colon - text] = 0;
		status = gn_parse_int(colon + 1, &last, err);
	}
	if (!status)
		status = gn_parse_int(copy, &first, err);
	if (!status && (first < 1 || (colon && last < first)))
		status = GN_ERR_USAGE;
	free(copy);
	if (status)
		return gn_err_set(err, GN_ERR_USAGE, "--trace-steps '%s': give A:B (steps are counted from 1), or N for the last N "
				  "steps",
				  text);
	t->first = (uint64_t)first;
	t->last = (uint64_t)last;
	return GN_OK;
}

/* Fails before training instead of hours later. */
static enum gn_status try_file(const char *path, struct gn_err *err)
{
	char probe[4096];
	int fd;

	if (gn_file_check_replaceable(path, err))
		return gn_err_prefix(err, "--trace");
	if (snprintf(probe, sizeof probe, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof probe)
		return gn_err_set(err, GN_ERR_USAGE, "--trace: the name is too long");
	fd = open(probe, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return gn_err_set(err, GN_ERR_IO, "--trace: cannot write %s: %s", path, strerror(errno));
	close(fd);
	unlink(probe);
	return GN_OK;
}

enum gn_status gn_trace_create(const struct gn_trace_options *options, const struct gn_comm *comm, struct gn_trace **out,
			       struct gn_err *err)
{
	struct gn_trace *t = calloc(1, sizeof *t);
	uint64_t steps, spans;
	enum gn_status status;

	if (!t)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a trace");
	pthread_mutex_init(&t->lock, NULL);
	status = parse_steps(options->steps, t, err);
	if (!status && gn_comm_rank(comm) == 0)
		status = try_file(options->path, err);
	if (!status) {
		steps = t->last ? t->last - t->first + 1 : t->first;
		spans = steps > SPANS_MAX ? SPANS_MAX : (steps + 1) * options->step_spans;
		t->room = spans < SPANS_MIN ? SPANS_MIN : spans > SPANS_MAX ? SPANS_MAX : (size_t)spans;
		t->ring = calloc(t->room, sizeof *t->ring);
		t->path = strdup(options->path);
		if (!t->ring || !t->path)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a trace of %zu spans", t->room);
	}
	if (status)
		gn_trace_destroy(t);
	else
		*out = t;
	return status;
}

void gn_trace_destroy(struct gn_trace *t)
{
	if (!t)
		return;
	pthread_mutex_destroy(&t->lock);
	free(t->ring);
	free(t->path);
	free(t);
}

enum gn_status gn_trace_begin(struct gn_trace *t, struct gn_comm *comm, struct gn_err *err)
{
	return gn_clock_sync_compare(comm, &t->begun, err);
}

void gn_trace_set_step(struct gn_trace *t, uint64_t step)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->step = step;
	t->on = !t->written && (!t->last || (step >= t->first && step <= t->last));
	pthread_mutex_unlock(&t->lock);
}

int gn_trace_is_on(const struct gn_trace *t)
{
	return t && t->on;
}

void gn_trace_add(struct gn_trace *t, enum gn_span kind, int thread, uint32_t detail, uint64_t begin_ns, uint64_t end_ns)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	if (t->on) {
		t->ring[t->next] = (struct gn_trace_span){begin_ns, end_ns, t->step, detail, (uint16_t)kind, (uint16_t)thread};
		t->next = (t->next + 1) % t->room;
		t->count += t->count < t->room;
	}
	pthread_mutex_unlock(&t->lock);
}

int gn_trace_is_full(const struct gn_trace *t, uint64_t step)
{
	return t && !t->written && t->last && step >= t->last;
}

int gn_trace_is_written(const struct gn_trace *t)
{
	return t->written;
}
