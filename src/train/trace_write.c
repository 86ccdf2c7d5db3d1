#include "src/train/trace_internal.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/train/agree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLUSH_BYTES ((size_t)1 << 20)

/* What each rank tells of itself before its spans. */
struct header {
	struct gn_clock_offset begun, ended;
	uint64_t count;
	uint64_t dropped_steps; /* of those asked for, for want of memory */
};

static const char *const names[GN_SPAN_COUNT] = {
	"step", "data wait", "forward", "backward", "exchange", "exposed communication", "optimizer", NULL, NULL, "bucket", "decode",
	"evaluate", "checkpoint", "log",
};

/* --- this rank's spans --- */

/* By thread, then time; what holds others comes before them. */
static int by_time(const void *left, const void *right)
{
	const struct gn_trace_span *a = left, *b = right;

	if (a->thread != b->thread)
		return a->thread < b->thread ? -1 : 1;
	if (a->begin_ns != b->begin_ns)
		return a->begin_ns < b->begin_ns ? -1 : 1;
	if (a->end_ns != b->end_ns)
		return a->end_ns > b->end_ns ? -1 : 1;
	return (a->kind > b->kind) - (a->kind < b->kind);
}

/* The first step that was asked for, and the first of which everything is there. */
static uint64_t first_whole(const struct gn_trace *t, uint64_t *wanted)
{
	*wanted = t->last ? t->first : t->step < t->first ? 1 : t->step - t->first + 1;
	/* The step of the oldest span may have lost some. */
	if (t->count == t->room && t->ring[t->next].step >= *wanted)
		return t->ring[t->next].step + 1;
	return *wanted;
}

/* Copies what is to be told; *out is the caller's to free. What began before the first step of it (reading ahead) is left
 * out. */
static enum gn_status collect(struct gn_trace *t, struct gn_trace_span **out, struct header *header, struct gn_err *err)
{
	struct gn_trace_span *list;
	uint64_t first, wanted, begin = UINT64_MAX;
	size_t kept = 0;

	pthread_mutex_lock(&t->lock);
	t->on = 0;
	pthread_mutex_unlock(&t->lock);
	list = malloc((t->count + 1) * sizeof *list);
	if (!list)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write a trace of %zu spans", t->count);
	first = first_whole(t, &wanted);
	for (size_t i = 0; i < t->count; i++)
		if (t->ring[i].step >= first && t->ring[i].kind == GN_SPAN_STEP && t->ring[i].begin_ns < begin)
			begin = t->ring[i].begin_ns;
	for (size_t i = 0; i < t->count; i++)
		if (t->ring[i].step >= first && t->ring[i].begin_ns >= begin)
			list[kept++] = t->ring[i];
	qsort(list, kept, sizeof *list, by_time);
	header->count = kept;
	header->dropped_steps = first - wanted;
	*out = list;
	return GN_OK;
}

/* --- the file --- */

struct output {
	const struct gn_model *model;
	struct gn_json json;
	struct gn_strbuf text;
	char path[4096], temporary[4096];
	int fd;
	uint64_t zero_ns, spans; /* zero_ns: of rank 0's clock */
};

static enum gn_status open_output(struct output *o, const char *path, struct gn_err *err)
{
	gn_json_init(&o->json);
	gn_strbuf_init(&o->text);
	snprintf(o->path, sizeof o->path, "%s", path);
	/* Its length was looked at before. */
	if (snprintf(o->temporary, sizeof o->temporary, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof o->temporary)
		return gn_err_set(err, GN_ERR_USAGE, "--trace: the name is too long");
	o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (o->fd < 0)
		return gn_err_set(err, GN_ERR_IO, "cannot write the trace %s: %s", path, strerror(errno));
	gn_strbuf_puts(&o->text, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
	return GN_OK;
}

static enum gn_status flush(struct output *o, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (gn_strbuf_failed(&o->text))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to write the trace %s", o->path);
	else
		status = gn_write_full(o->fd, gn_strbuf_text(&o->text), o->text.len, o->path, err);
	gn_strbuf_clear(&o->text);
	return status;
}

/* Ends the event that was begun in o->json. */
static void put_event(struct output *o)
{
	gn_json_end(&o->json);
	if (gn_json_failed(&o->json))
		o->text.failed = 1;
	gn_strbuf_append(&o->text, gn_json_text(&o->json), o->json.text.len);
	gn_strbuf_puts(&o->text, ",\n");
}

static void put_meta(struct output *o, int rank, int thread, const char *what, const char *key, const char *text, int number)
{
	struct gn_json *j = &o->json;

	gn_json_clear(j);
	gn_json_object(j, NULL);
	gn_json_string(j, "ph", "M");
	gn_json_int(j, "pid", rank);
	gn_json_int(j, "tid", thread);
	gn_json_string(j, "name", what);
	gn_json_object(j, "args");
	if (text)
		gn_json_string(j, key, text);
	else
		gn_json_int(j, key, number);
	gn_json_end(j);
	put_event(o);
}

static void put_names(struct output *o, const struct gn_world *world, int rank, const struct gn_trace_span *spans, size_t count)
{
	char text[128];
	int thread = -1;

	snprintf(text, sizeof text, "rank %d on %.90s", rank, gn_world_host_of(world, rank));
	put_meta(o, rank, 0, "process_name", "name", text, 0);
	put_meta(o, rank, 0, "process_sort_index", "sort_index", NULL, rank);
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
		put_meta(o, rank, thread, "thread_name", "name", text, 0);
		put_meta(o, rank, thread, "thread_sort_index", "sort_index", NULL, thread);
	}
}

/* "conv layer1.0.conv1", and for what has no name in the network its kind. */
static void put_name(struct output *o, const struct gn_trace_span *span)
{
	static const char *const kinds[] = {"input", "conv", "batch norm", "relu", "max pool", "average pool", "add", "linear",
					    "dropout"};
	char text[128];

	if (span->kind == GN_SPAN_OP_FORWARD || span->kind == GN_SPAN_OP_BACKWARD) {
		const struct gn_node *node = gn_model_node(o->model, (int)span->detail);

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

/* Of rank 0's clock: along the line through both comparisons. */
static uint64_t move(const struct header *h, uint64_t at_ns)
{
	double between = (double)(h->ended.at_ns - h->begun.at_ns);
	double share = between > 0 ? ((double)at_ns - (double)h->begun.at_ns) / between : 0;

	return at_ns - (uint64_t)(h->begun.ahead_ns + (int64_t)(share * (double)(h->ended.ahead_ns - h->begun.ahead_ns)));
}

static enum gn_status put_spans(struct output *o, const struct gn_world *world, int rank, const struct header *h,
				const struct gn_trace_span *spans, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	put_names(o, world, rank, spans, h->count);
	for (size_t i = 0; i < h->count && !status; i++) {
		uint64_t begin = move(h, spans[i].begin_ns), end = move(h, spans[i].end_ns);
		struct gn_json *j = &o->json;

		gn_json_clear(j);
		gn_json_object(j, NULL);
		gn_json_string(j, "ph", "X");
		gn_json_int(j, "pid", rank);
		gn_json_int(j, "tid", spans[i].thread);
		/* Both ends are rounded alike, or a span could stick out of the one that it is in. */
		gn_json_fixed(j, "ts", (double)(int64_t)(begin - o->zero_ns) * 1e-3, 3);
		gn_json_fixed(j, "dur", (double)(int64_t)(end - begin) * 1e-3, 3);
		put_name(o, &spans[i]);
		gn_json_string(j, "cat", category(&spans[i]));
		gn_json_object(j, "args");
		gn_json_uint(j, "step", spans[i].step);
		if (spans[i].kind == GN_SPAN_DECODE)
			gn_json_uint(j, "images", spans[i].detail);
		gn_json_end(j);
		put_event(o);
		o->spans++;
		if (o->text.len > FLUSH_BYTES)
			status = flush(o, err);
	}
	return status;
}

/* What is known of the clocks; also ends the list of events, whose last comma JSON would not forgive. */
static void put_end(struct output *o, const struct gn_world *world, const struct header *all, int ranks)
{
	struct gn_json *j = &o->json;

	put_meta(o, 0, 0, "process_labels", "labels", "clock of reference", 0);
	o->text.len -= 2;
	o->text.text[o->text.len] = 0;
	gn_strbuf_puts(&o->text, "\n], \"otherData\":\n");
	gn_json_clear(j);
	gn_json_object(j, NULL);
	gn_json_string(j, "clock", "rank 0's; others are moved by ahead_us, measured by messages to and fro, which may be off by "
				   "uncertain_us");
	gn_json_array(j, "ranks");
	for (int r = 0; r < ranks; r++) {
		int64_t off = all[r].begun.uncertain_ns > all[r].ended.uncertain_ns ? all[r].begun.uncertain_ns
										    : all[r].ended.uncertain_ns;

		gn_json_object(j, NULL);
		gn_json_int(j, "rank", r);
		gn_json_string(j, "host", gn_world_host_of(world, r));
		gn_json_fixed(j, "ahead_us", (double)all[r].ended.ahead_ns * 1e-3, 3);
		gn_json_fixed(j, "drift_us", (double)(all[r].ended.ahead_ns - all[r].begun.ahead_ns) * 1e-3, 3);
		gn_json_fixed(j, "uncertain_us", (double)off * 1e-3, 3);
		gn_json_uint(j, "spans", all[r].count);
		gn_json_uint(j, "dropped_steps", all[r].dropped_steps);
		gn_json_end(j);
	}
	gn_json_end(j);
	gn_json_end(j);
	gn_strbuf_append(&o->text, gn_json_text(j), j->text.len);
	gn_strbuf_puts(&o->text, "}\n");
}

static enum gn_status move_into_place(struct output *o, struct gn_err *err)
{
	enum gn_status status = flush(o, err);

	if (!status && fsync(o->fd))
		status = gn_err_set(err, GN_ERR_IO, "cannot write the trace %s: %s", o->path, strerror(errno));
	if (!status && rename(o->temporary, o->path))
		status = gn_err_set(err, GN_ERR_IO, "cannot name the trace %s: %s", o->path, strerror(errno));
	return status ? status : gn_sync_parent(o->path, err);
}

static void close_output(struct output *o)
{
	if (o->fd >= 0) {
		close(o->fd);
		unlink(o->temporary); /* gone when all went well */
	}
	gn_json_release(&o->json);
	gn_strbuf_release(&o->text);
}

/* --- all ranks --- */

/* From rank `from` to rank 0; for all others nothing. */
static enum gn_status send(struct gn_comm *comm, int from, void *mine, void *theirs, size_t bytes, struct gn_err *err)
{
	int rank = gn_comm_rank(comm);
	struct gn_coll_args args = {.what = GN_COLLECTIVE_SEND_RECV, .in = mine, .out = theirs, .count = bytes, .type = GN_BYTES,
				    .to = rank == from ? 0 : -1, .from = rank ? -1 : from};

	return gn_comm_run(comm, &args, err);
}

/* Rank 0 gets and writes one rank's spans after the other. A failure to write is kept until all have sent. */
static enum gn_status gather(struct gn_comm *comm, const struct header *all, struct gn_trace_span *mine, struct output *o,
			     enum gn_status *wrote, struct gn_err *err)
{
	const struct gn_world *world = gn_comm_world(comm);
	int root = gn_comm_rank(comm) == 0;
	struct gn_err why;
	struct gn_trace_span *theirs;
	uint64_t most = 0;
	enum gn_status status;

	for (int r = 0; r < gn_comm_size(comm); r++)
		most = all[r].count > most ? all[r].count : most;
	theirs = malloc((root ? (size_t)most : 0) * sizeof *theirs + 1);
	status = gn_agree_status(comm, theirs ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a trace"), err);
	if (!status && root && !*wrote)
		*wrote = put_spans(o, world, 0, &all[0], mine, err);
	for (int r = 1; r < gn_comm_size(comm) && !status; r++) {
		if (all[r].count)
			status = send(comm, r, mine, theirs, (size_t)all[r].count * sizeof *mine, *wrote ? &why : err);
		if (!status && root && !*wrote)
			*wrote = put_spans(o, world, r, &all[r], theirs, err);
	}
	free(theirs);
	return status;
}

/* The earliest span is at 0. */
static enum gn_status find_zero(struct gn_comm *comm, const struct header *mine, const struct gn_trace_span *spans, uint64_t *out,
				struct gn_err *err)
{
	int64_t first = INT64_MAX;
	enum gn_status status;

	for (size_t i = 0; i < mine->count; i++)
		if ((int64_t)move(mine, spans[i].begin_ns) < first)
			first = (int64_t)move(mine, spans[i].begin_ns);
	status = gn_comm_allreduce(comm, &first, 1, GN_I64, gn_reduce_min(GN_I64), err);
	if (!status)
		*out = (uint64_t)first;
	return status;
}

static enum gn_status write_all(struct gn_trace *t, struct gn_comm *comm, struct header *mine, struct gn_trace_span *spans,
				struct header *all, struct output *o, struct gn_err *err)
{
	int root = gn_comm_rank(comm) == 0;
	enum gn_status status = gn_agree_gather(comm, mine, sizeof *mine, all, err), wrote = GN_OK;

	if (!status)
		status = find_zero(comm, mine, spans, &o->zero_ns, err);
	if (status)
		return status;
	if (root)
		wrote = open_output(o, t->path, err);
	status = gather(comm, all, spans, o, &wrote, err);
	if (status)
		return status;
	if (root && !wrote) {
		put_end(o, gn_comm_world(comm), all, gn_comm_size(comm));
		wrote = move_into_place(o, err);
	}
	return gn_agree_status(comm, wrote, err);
}

enum gn_status gn_trace_write(struct gn_trace *t, struct gn_comm *comm, const struct gn_model *model, uint64_t *spans,
			      struct gn_err *err)
{
	struct header mine = {.begun = t->begun}, *all = calloc((size_t)gn_comm_size(comm), sizeof *all);
	struct output o = {.model = model, .fd = -1};
	struct gn_trace_span *list = NULL;
	enum gn_status status = all ? collect(t, &list, &mine, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a trace");

	t->written = 1;
	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_clocks_compare(comm, &mine.ended, err);
	if (!status)
		status = write_all(t, comm, &mine, list, all, &o, err);
	if (!status)
		*spans = o.spans;
	close_output(&o);
	free(list);
	free(all);
	return status;
}
