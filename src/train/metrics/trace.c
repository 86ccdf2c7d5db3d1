#include "src/train/metrics/trace_internal.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/option.h"
#include "transport/coll/agree.h"
#include "transport/coll/p2p.h"

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

enum { ROUNDS = 20 };

/* A round trip between rank 0 and one other rank; the other ranks do not take part. */
struct ping {
	struct gn_p2p *there, *back;
	uint64_t out, in;
};

static enum gn_status prepare(struct gn_comm *comm, int other, struct ping *p, struct gn_err *err)
{
	int root = gn_comm_rank(comm) == 0;
	struct gn_p2p_args send = {.peer = root ? other : 0, .data = &p->out, .len_bytes = sizeof p->out}, receive = send;
	enum gn_status status;

	receive.data = &p->in;
	status = gn_p2p_prepare_send(comm, &send, root ? &p->there : &p->back, err);
	return status ? status : gn_p2p_prepare_receive(comm, &receive, root ? &p->back : &p->there, err);
}

static enum gn_status run(struct gn_p2p *p, struct gn_err *err)
{
	enum gn_status status = gn_p2p_start(p, NULL, err);

	return status ? status : gn_p2p_wait(p, err);
}

/* On rank 0, *best is the offset of the other's clock. */
static enum gn_status exchange(struct gn_comm *comm, int other, struct gn_clock_offset *best, struct gn_err *err)
{
	struct ping p = {.out = 0};
	enum gn_status status;

	if (gn_comm_rank(comm) && gn_comm_rank(comm) != other)
		return GN_OK;
	status = prepare(comm, other, &p, err);
	best->uncertain_ns = INT64_MAX;
	for (int i = 0; i < ROUNDS && !status; i++) {
		uint64_t sent = gn_clock_ns(), middle;
		int64_t half;

		status = run(p.there, err);
		p.out = gn_clock_ns();
		if (!status)
			status = run(p.back, err);
		half = (int64_t)(gn_clock_ns() - sent) / 2 + 1;
		middle = sent + (uint64_t)half;
		if (!status && half < best->uncertain_ns)
			*best = (struct gn_clock_offset){p.in, (int64_t)(p.in - middle), half};
	}
	gn_p2p_free(p.there);
	gn_p2p_free(p.back);
	return status;
}

enum gn_status gn_clock_sync_compare(struct gn_comm *comm, struct gn_clock_offset *out, struct gn_err *err)
{
	const struct gn_world *w = gn_comm_world(comm);
	struct gn_clock_offset *all = calloc((size_t)gn_world_nodes(w), sizeof *all);
	int known = 1, rank = gn_comm_rank(comm);
	enum gn_status status = all ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to compare clocks");

	status = gn_agree_status(comm, status, err);
	/* nodes are numbered in the order of their first ranks */
	for (int r = 1; r < gn_comm_size(comm) && !status; r++)
		if (gn_world_node_of(w, r) == known)
			status = exchange(comm, r, &all[known++], err);
	if (!status)
		status = gn_comm_broadcast(comm, all, (size_t)gn_world_nodes(w) * sizeof *all, 0, err);
	if (!status) {
		*out = all[gn_world_node_of(w, rank)];
		if (gn_world_node_of(w, rank) == gn_world_node_of(w, 0))
			*out = (struct gn_clock_offset){.at_ns = gn_clock_ns()};
	}
	free(all);
	return status;
}

/* By thread, then time; enclosing spans first. */
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

/* The first requested step, and the first step whose spans are all present. */
static uint64_t first_whole(const struct gn_trace *t, uint64_t *wanted)
{
	*wanted = t->last ? t->first : t->step < t->first ? 1 : t->step - t->first + 1;
	/* the step of the oldest span may be incomplete */
	if (t->count == t->room && t->ring[t->next].step >= *wanted)
		return t->ring[t->next].step + 1;
	return *wanted;
}

/* Copies the spans to write; the caller frees *out. Spans that began before the first such step (prefetching) are omitted. */
static enum gn_status collect(struct gn_trace *t, struct gn_trace_span **out, struct gn_trace_header *header, struct gn_err *err)
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
	/* the run ended in its first step */
	if (begin == UINT64_MAX)
		begin = 0;
	for (size_t i = 0; i < t->count; i++)
		if (t->ring[i].step >= first && t->ring[i].begin_ns >= begin)
			list[kept++] = t->ring[i];
	qsort(list, kept, sizeof *list, by_time);
	header->count = kept;
	header->dropped_steps = first - wanted;
	*out = list;
	return GN_OK;
}

/* From rank `from` to rank 0; the other ranks do not take part. */
static enum gn_status send(struct gn_comm *comm, int from, const void *mine, void *theirs, size_t bytes, struct gn_err *err)
{
	int rank = gn_comm_rank(comm);

	if (rank && rank != from)
		return GN_OK;
	return rank ? gn_p2p_send(comm, 0, 0, mine, bytes, err) : gn_p2p_receive(comm, from, 0, theirs, bytes, err);
}

/* Rank 0 receives and writes the spans of one rank after the other. A failure to write is reported after all ranks have sent. */
static enum gn_status gather(struct gn_comm *comm, const struct gn_trace_header *all, struct gn_trace_span *mine,
			     struct gn_trace_file *o, enum gn_status *wrote, struct gn_err *err)
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
		*wrote = gn_trace_file_put(o, world, 0, &all[0], mine, err);
	for (int r = 1; r < gn_comm_size(comm) && !status; r++) {
		if (all[r].count)
			status = send(comm, r, mine, theirs, (size_t)all[r].count * sizeof *mine, *wrote ? &why : err);
		if (!status && root && !*wrote)
			*wrote = gn_trace_file_put(o, world, r, &all[r], theirs, err);
	}
	free(theirs);
	return status;
}

/* The earliest span is at time 0. */
static enum gn_status find_zero(struct gn_comm *comm, const struct gn_trace_header *mine, const struct gn_trace_span *spans,
				uint64_t *out, struct gn_err *err)
{
	int64_t first = INT64_MAX;
	enum gn_status status;

	for (size_t i = 0; i < mine->count; i++)
		if ((int64_t)gn_trace_move(mine, spans[i].begin_ns) < first)
			first = (int64_t)gn_trace_move(mine, spans[i].begin_ns);
	status = gn_comm_allreduce(comm, &first, 1, GN_I64, gn_reduce_min(GN_I64), err);
	if (!status)
		*out = (uint64_t)first;
	return status;
}

static enum gn_status write_all(struct gn_trace *t, struct gn_comm *comm, struct gn_trace_header *mine, struct gn_trace_span *spans,
				struct gn_trace_header *all, struct gn_trace_file *o, struct gn_err *err)
{
	int root = gn_comm_rank(comm) == 0;
	enum gn_status status = gn_agree_gather(comm, mine, sizeof *mine, all, err), wrote = GN_OK;

	if (!status)
		status = find_zero(comm, mine, spans, &o->zero_ns, err);
	if (status)
		return status;
	if (root)
		wrote = gn_trace_file_open(o, t->path, err);
	status = gather(comm, all, spans, o, &wrote, err);
	if (status)
		return status;
	if (root && !wrote)
		wrote = gn_trace_file_finish(o, gn_comm_world(comm), all, 0, gn_comm_size(comm), NULL, err);
	return gn_agree_status(comm, wrote, err);
}

enum gn_status gn_trace_write(struct gn_trace *t, struct gn_comm *comm, const struct gn_model *model, uint64_t *spans,
			      struct gn_err *err)
{
	struct gn_trace_header mine = {.begun = t->begun}, *all = calloc((size_t)gn_comm_size(comm), sizeof *all);
	struct gn_trace_file o = {.model = model, .fd = -1};
	struct gn_trace_span *list = NULL;
	enum gn_status status = all ? collect(t, &list, &mine, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a trace");

	t->written = 1;
	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_clock_sync_compare(comm, &mine.ended, err);
	if (!status)
		status = write_all(t, comm, &mine, list, all, &o, err);
	if (!status)
		*spans = o.spans;
	gn_trace_file_release(&o);
	free(list);
	free(all);
	return status;
}
enum gn_status gn_trace_write_part(struct gn_trace *t, const struct gn_comm *comm, const struct gn_model *model, const char *failure,
				   char *path, size_t path_size, uint64_t *spans, struct gn_err *err)
{
	/* the offset before the first step: the clocks cannot be compared again */
	struct gn_trace_header mine = {.begun = t->begun, .ended = t->begun};
	struct gn_trace_file o = {.model = model, .fd = -1};
	struct gn_trace_span *list = NULL;
	int rank = gn_comm_rank(comm);
	enum gn_status status = collect(t, &list, &mine, err);

	t->written = 1;
	if (!status && snprintf(path, path_size, "%s.rank%d.json", t->path, rank) >= (int)path_size)
		status = gn_err_set(err, GN_ERR_USAGE, "--trace: the name is too long");
	if (!status && mine.count)
		status = gn_trace_file_open(&o, path, err);
	if (!status && mine.count)
		status = gn_trace_file_put(&o, gn_comm_world(comm), rank, &mine, list, err);
	if (!status && mine.count)
		status = gn_trace_file_finish(&o, gn_comm_world(comm), &mine, rank, 1, failure, err);
	if (!status)
		*spans = o.spans;
	gn_trace_file_release(&o);
	free(list);
	return status;
}
