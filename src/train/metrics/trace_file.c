#include "src/train/metrics/trace_internal.h"

#include "src/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define THREAD_STRIDE 1000000 /* larger than any number of ranks */
#define FLUSH_BYTES ((size_t)1 << 20)

static const char *const names[GN_SPAN_COUNT] = {
	"step", "data wait", "forward", "backward", "exchange", "exposed communication", "optimizer", NULL, NULL, "bucket", "decode",
	"evaluate", "checkpoint", "log",
};

enum gn_status gn_trace_file_open(struct gn_trace_file *o, const char *path, struct gn_err *err)
{
	gn_json_init(&o->json);
	snprintf(o->path, sizeof o->path, "%s", path);
	/* the length was checked at creation */
	if (snprintf(o->temporary, sizeof o->temporary, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof o->temporary)
		return gn_err_set(err, GN_ERR_USAGE, "--trace: the name is too long");
	o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (o->fd < 0)
		return gn_err_set(err, GN_ERR_IO, "cannot write the trace %s: %s", path, gn_errno_text(errno));
	gn_strbuf_puts(&o->text, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
	return GN_OK;
}

static enum gn_status flush(struct gn_trace_file *o, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (gn_strbuf_failed(&o->text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write the trace %s", o->path);
	else
		status = gn_write_full(o->fd, gn_strbuf_text(&o->text), o->text.len, o->path, err);
	gn_strbuf_clear(&o->text);
	return status;
}

/* Ends the event in o->json. */
static void json_event(struct gn_trace_file *o)
{
	gn_json_end(&o->json);
	if (gn_json_failed(&o->json))
		o->text.failed = 1;
	gn_strbuf_append(&o->text, gn_json_text(&o->json), o->json.text.len);
	gn_strbuf_puts(&o->text, ",\n");
}

/* Perfetto identifies threads by tid alone, independent of the process, and treats a thread whose tid equals its process's as the
 * main thread; tid 0 is the kernel's. */
static void json_place(struct gn_json *j, int rank, int thread)
{
	gn_json_put(j, "pid %d tid %ld", rank + 1, rank + 1 + thread * (int64_t)THREAD_STRIDE);
}

static void json_meta(struct gn_trace_file *o, int rank, int thread, const char *what, const char *key, const char *text,
		      int number)
{
	struct gn_json *j = &o->json;

	gn_json_clear(j);
	gn_json_put(j, "{ ph M");
	json_place(j, rank, thread);
	gn_json_put(j, "name %s args {", what);
	if (text)
		gn_json_string(j, key, text);
	else
		gn_json_int(j, key, number);
	gn_json_end(j);
	json_event(o);
}

static void json_names(struct gn_trace_file *o, const struct gn_world *world, int rank, const struct gn_trace_span *spans,
		      size_t count)
{
	char text[128];
	int thread = -1;

	snprintf(text, sizeof text, "rank %d on %.90s", rank, gn_world_host_of(world, rank));
	json_meta(o, rank, 0, "process_name", "name", text, 0);
	json_meta(o, rank, 0, "process_sort_index", "sort_index", NULL, rank);
	for (size_t i = 0; i < count; i++) {
		if (spans[i].thread == thread)
			continue;
		thread = spans[i].thread;
		if (thread == GN_TRACE_MAIN)
			snprintf(text, sizeof text, "compute");
		else if (thread < GN_TRACE_DECODE)
			snprintf(text, sizeof text, "sums %d", thread - GN_TRACE_SUMS + 1);
		else
			snprintf(text, sizeof text, "decode %d", thread - GN_TRACE_DECODE);
		json_meta(o, rank, thread, "thread_name", "name", text, 0);
		json_meta(o, rank, thread, "thread_sort_index", "sort_index", NULL, thread);
	}
}

/* "conv layer1.0.conv1"; for layers without a name, their kind. */
static void json_name(struct gn_trace_file *o, const struct gn_trace_span *span)
{
	static const char *const kinds[] = {"input", "conv", "batch norm", "relu", "max pool", "average pool", "add", "linear",
					    "dropout"};
	char text[128];

	if (span->kind == GN_SPAN_OP_FORWARD || span->kind == GN_SPAN_OP_BACKWARD) {
		const struct gn_shm *node = gn_model_node(o->model, (int)span->detail);

		snprintf(text, sizeof text, "%s%s%s", kinds[node->kind], node->name[0] ? " " : "", node->name);
	} else if (span->kind == GN_SPAN_STEP) {
		snprintf(text, sizeof text, "step %" PRIu64, span->step);
	} else if (span->kind == GN_SPAN_BUCKET) {
		snprintf(text, sizeof text, "bucket %u", span->detail);
	} else {
		snprintf(text, sizeof text, "%s", names[span->kind]);
	}
	gn_json_string(&o->json, "name", text);
}

static const char *category(const struct gn_trace_span *span)
{
	switch ((enum gn_span)span->kind) {
	case GN_SPAN_OP_FORWARD:
		return "forward";
	case GN_SPAN_OP_BACKWARD:
		return "backward";
	case GN_SPAN_BUCKET:
	case GN_SPAN_EXCHANGE:
	case GN_SPAN_WAIT:
		return "communication";
	case GN_SPAN_DATA:
	case GN_SPAN_DECODE:
		return "data";
	default:
		return "step";
	}
}

uint64_t gn_trace_move(const struct gn_trace_header *h, uint64_t at_ns)
{
	double between = (double)(h->ended.at_ns - h->begun.at_ns);
	double share = between > 0 ? ((double)at_ns - (double)h->begun.at_ns) / between : 0;

	return at_ns - (uint64_t)(h->begun.ahead_ns + (int64_t)(share * (double)(h->ended.ahead_ns - h->begun.ahead_ns)));
}

enum gn_status gn_trace_file_put(struct gn_trace_file *o, const struct gn_world *world, int rank,
				 const struct gn_trace_header *h, const struct gn_trace_span *spans, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	json_names(o, world, rank, spans, h->count);
	for (size_t i = 0; i < h->count && !status; i++) {
		uint64_t begin = gn_trace_move(h, spans[i].begin_ns), end = gn_trace_move(h, spans[i].end_ns);
		struct gn_json *j = &o->json;

		gn_json_clear(j);
		gn_json_put(j, "{ ph X");
		json_place(j, rank, spans[i].thread);
		/* both ends are rounded alike, so that a span never exceeds its parent */
		gn_json_put(j, "ts %.3f dur %.3f", (double)(int64_t)(begin - o->zero_ns) * 1e-3, (double)(int64_t)(end - begin) * 1e-3);
		json_name(o, &spans[i]);
		gn_json_put(j, "cat %s args { step %lu", category(&spans[i]), spans[i].step);
		if (spans[i].kind == GN_SPAN_DECODE)
			gn_json_uint(j, "images", spans[i].detail);
		if ((spans[i].kind == GN_SPAN_FORWARD || spans[i].kind == GN_SPAN_BACKWARD) && spans[i].detail)
			gn_json_uint(j, "micro_batch", spans[i].detail - 1);
		gn_json_end(j);
		json_event(o);
		o->spans++;
		if (o->text.len > FLUSH_BYTES)
			status = flush(o, err);
	}
	return status;
}

/* Appends the clock offsets, and ends the list of events without a trailing comma. */
static void json_end(struct gn_trace_file *o, const struct gn_world *world, const struct gn_trace_header *all, int first,
		    int count, const char *failure)
{
	struct gn_json *j = &o->json;

	json_meta(o, first, 0, "process_labels", "labels", first ? "of a run that failed" : "clock of reference", 0);
	o->text.len -= 2;
	o->text.text[o->text.len] = 0;
	gn_strbuf_puts(&o->text, "\n], \"otherData\":\n");
	gn_json_clear(j);
	gn_json_put(j, "{ clock %s", "rank 0's; others are corrected by ahead_us, measured by round trips, with an error of at most "
		    "uncertain_us");
	if (failure)
		gn_json_string(j, "failure", failure);
	gn_json_array(j, "ranks");
	for (int r = 0; r < count; r++) {
		int64_t off = all[r].begun.uncertain_ns > all[r].ended.uncertain_ns ? all[r].begun.uncertain_ns
										    : all[r].ended.uncertain_ns;

		gn_json_put(j, "{ rank %d host %s ahead_us %.3f drift_us %.3f uncertain_us %.3f spans %lu dropped_steps %lu }", first + r,
			    gn_world_host_of(world, first + r), (double)all[r].ended.ahead_ns * 1e-3,
			    (double)(all[r].ended.ahead_ns - all[r].begun.ahead_ns) * 1e-3, (double)off * 1e-3, all[r].count,
			    all[r].dropped_steps);
	}
	gn_json_put(j, "] }");
	gn_strbuf_append(&o->text, gn_json_text(j), j->text.len);
	gn_strbuf_puts(&o->text, "}\n");
}

static enum gn_status move_into_place(struct gn_trace_file *o, struct gn_err *err)
{
	enum gn_status status = flush(o, err);

	if (!status && fsync(o->fd))
		status = gn_err_set(err, GN_ERR_IO, "cannot write the trace %s: %s", o->path, gn_errno_text(errno));
	if (!status && rename(o->temporary, o->path))
		status = gn_err_set(err, GN_ERR_IO, "cannot rename the trace to %s: %s", o->path, gn_errno_text(errno));
	return status ? status : gn_sync_parent(o->path, err);
}

enum gn_status gn_trace_file_finish(struct gn_trace_file *o, const struct gn_world *world, const struct gn_trace_header *all,
				    int first, int count, const char *failure, struct gn_err *err)
{
	json_end(o, world, all, first, count, failure);
	return move_into_place(o, err);
}

void gn_trace_file_release(struct gn_trace_file *o)
{
	if (o->fd >= 0) {
		close(o->fd);
		unlink(o->temporary); /* fails with ENOENT after success */
	}
	gn_json_release(&o->json);
	gn_strbuf_release(&o->text);
}
