#include "src/jobs/account.h"

#include "src/base/alloc.h"
#include "src/train/metrics/log_event.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What ends with one line of steps. */
struct interval {
	uint64_t first, step; /* after the first one, up to the last one */
	double seconds, data_s, communication_s;
};

struct reader {
	struct gn_account a;
	struct interval *intervals;
	size_t count, room;
	double start_time;	/* of the present start */
	double line_time;	/* of the last step's line */
	uint64_t step;		/* the last one told, or gone back to */
	int stepped, has_run;	/* stepped: since the present start */
	int has_usage;		/* told since the present start, last with these: */
	double cpu_s, available_s;
	int usage_ranks, processors; /* of which */
};

static double number_or_0(const json_t *object, const char *key)
{
	double v = gn_event_number(object, key);

	return isfinite(v) ? v : 0;
}

/* A count: what is no number, or out of bounds, is 0. */
static uint64_t count_of(const json_t *object, const char *key)
{
	double v = gn_event_number(object, key);

	return v >= 0 && v < 1e15 ? (uint64_t)v : 0;
}

static int small(const json_t *object, const char *key, int otherwise)
{
	double v = gn_event_number(object, key);

	return v >= 0 && v < 1e7 ? (int)v : otherwise;
}

/* --- events --- */

/* Whether an option of the run, one of `name=value name=value ...`, is a number above 0. */
static int is_set(const char *options, const char *name)
{
	const char *at = strstr(options, name);

	return at && strtod(at + strlen(name), NULL) > 0;
}

/* Epochs are always set, and count where nothing else is. */
static void note_saving(struct gn_account *a, const json_t *line)
{
	const char *options = json_string_value(json_object_get(line, "options"));

	a->saves_by_minutes = options && is_set(options, " checkpoint-minutes=");
	a->saves_by_steps = options && is_set(options, " checkpoint-every=");
	a->saves_by_epochs = options && !a->saves_by_minutes && !a->saves_by_steps && is_set(options, " checkpoint-epochs=");
}

/* What an interval had before `step` counts, the rest is lost. */
static void cut(struct reader *r, struct interval *i, uint64_t step)
{
	double kept = step > i->first ? (double)(step - i->first) / (double)(i->step - i->first) : 0;

	r->a.lost_s += (1 - kept) * i->seconds;
	i->seconds *= kept;
	i->data_s *= kept;
	i->communication_s *= kept;
	i->step = step;
	r->count -= kept <= 0;
}

static void go_back(struct reader *r, uint64_t step)
{
	while (r->count && r->intervals[r->count - 1].step > step)
		cut(r, &r->intervals[r->count - 1], step);
	r->step = step;
}

static void begin(struct reader *r, const json_t *line, double now, int resumed)
{
	struct gn_account *a = &r->a;
	const int is_after_loss = resumed && r->has_run && json_object_get(line, "world");

	if (!resumed || !r->has_run) {
		r->count = 0;
		*a = (struct gn_account){.first_time = now, .epoch = NAN, .loss = NAN, .lr = NAN, .images_per_s = NAN, .top1 = NAN,
					 .bad_lines = a->bad_lines};
	} else if (!is_after_loss && now > a->last_time) {
		a->between_s += now - a->last_time;
	}
	go_back(r, count_of(line, "step"));
	r->has_run = 1;
	/* the same processes, and what they take until the next step is in "recovered" */
	if (!is_after_loss) {
		r->stepped = r->has_usage = 0;
		a->starts++;
	}
	r->start_time = a->last_start_time = now;
	r->line_time = is_after_loss ? now : r->line_time;
	a->step = r->step;
	a->total_steps = count_of(line, "total_steps");
	a->ranks = small(line, "ranks", 0);
	a->nodes = small(line, "nodes", 0);
	a->global_batch = number_or_0(line, "global_batch");
	a->images = number_or_0(line, "images");
	note_saving(a, line);
	gn_event_text(line, "model", a->model, sizeof a->model);
	gn_event_text(line, "job", a->job, sizeof a->job);
	gn_event_text(line, "hosts", a->hosts, sizeof a->hosts);
	a->reason[0] = a->patience[0] = 0;
	a->slowest = -1;
	snprintf(a->state, sizeof a->state, "running");
}

static void push(double *values, int count, double value)
{
	if (count == GN_ACCOUNT_RECENT)
		memmove(values, values + 1, (GN_ACCOUNT_RECENT - 1) * sizeof *values);
	values[count == GN_ACCOUNT_RECENT ? count - 1 : count] = value;
}

static void note_ranks(struct gn_account *a, const json_t *line)
{
	const json_t *ranks = json_object_get(line, "ranks"), *compute = json_object_get(ranks, "compute");
	const json_t *low = json_array_get(compute, 0), *high = json_array_get(compute, 2);

	a->compute_low_ms = json_is_number(low) ? json_number_value(low) : NAN;
	a->compute_high_ms = json_is_number(high) ? json_number_value(high) : NAN;
	a->slowest = small(ranks, "slowest", -1);
	gn_event_text(ranks, "slowest_host", a->slowest_host, sizeof a->slowest_host);
}

static int add_step(struct reader *r, const json_t *line, double now)
{
	static const char *const parts[] = {"data", "forward", "backward", "communication_exposed", "optimizer"};
	const json_t *times = json_object_get(line, "time_ms");
	struct gn_account *a = &r->a;
	uint64_t step = count_of(line, "step");
	double steps = step > r->step ? (double)(step - r->step) : 0;
	struct interval i = {step > r->step ? r->step : step, step, 0, 0, 0};

	a->step_ms = number_or_0(times, "step");
	for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
		a->part_ms[p] = number_or_0(times, parts[p]);
	i.seconds = steps * a->step_ms / 1e3;
	i.data_s = steps * a->part_ms[0] / 1e3;
	i.communication_s = steps * a->part_ms[3] / 1e3;
	if (gn_array_grow(&r->intervals, &r->room, r->count, sizeof *r->intervals))
		return -1;
	r->intervals[r->count++] = i;
	if (!r->stepped && now - r->start_time > i.seconds)
		a->starting_s += now - r->start_time - i.seconds;
	a->interval_s = r->stepped ? now - r->line_time : 0;
	r->stepped = 1;
	r->line_time = now;
	r->step = a->step = step;
	a->epoch = gn_event_number(line, "epoch");
	a->loss = gn_event_number(line, "loss");
	a->lr = gn_event_number(line, "lr");
	a->images_per_s = gn_event_number(line, "images_per_s");
	push(a->recent_loss, a->recent, a->loss);
	push(a->recent_rate, a->recent, a->images_per_s);
	a->recent += a->recent < GN_ACCOUNT_RECENT;
	note_ranks(a, line);
	return 0;
}

/* After the world's "resume". */
static int add_recovery(struct reader *r, const json_t *line)
{
	struct gn_account *a = &r->a;
	const double unlogged_s = number_or_0(line, "unlogged_seconds");
	const uint64_t unlogged = count_of(line, "unlogged_steps");
	struct gn_account_world w = {count_of(line, "world"), count_of(line, "step"), count_of(line, "steps_redone"), small(line, "ranks", 0),
				     small(line, "ranks_before", 0), number_or_0(line, "seconds"), ""};

	gn_event_text(line, "after", w.after, sizeof w.after);
	/* processes that have joined are no loss */
	a->losses += w.ranks <= w.before;
	a->recovery_s += w.seconds;
	if (a->world_count == GN_ACCOUNT_WORLDS)
		memmove(a->worlds, a->worlds + 1, (GN_ACCOUNT_WORLDS - 1) * sizeof w);
	a->worlds[a->world_count == GN_ACCOUNT_WORLDS ? GN_ACCOUNT_WORLDS - 1 : a->world_count++] = w;
	if (w.redone) {
		a->lost_s += unlogged_s;
		return 0;
	}
	if (gn_array_grow(&r->intervals, &r->room, r->count, sizeof *r->intervals))
		return -1;
	r->intervals[r->count++] = (struct interval){w.step > unlogged ? w.step - unlogged : 0, w.step, unlogged_s, 0, 0};
	return 0;
}

static void add_pipeline(struct gn_account *a, const json_t *line)
{
	const json_t *stages = json_object_get(line, "stages");
	size_t count = json_array_size(stages);

	a->bubble_formula = number_or_0(line, "bubble_formula");
	a->stages = count > GN_ACCOUNT_STAGES ? GN_ACCOUNT_STAGES : (int)count;
	for (int i = 0; i < a->stages; i++) {
		a->bubble[i] = number_or_0(json_array_get(stages, (size_t)i), "bubble");
		a->stage_bytes[i] = number_or_0(json_array_get(stages, (size_t)i), "sent_bytes");
	}
}

static void add_end(struct gn_account *a, const char *event, const json_t *line)
{
	/* ended by --halving */
	snprintf(a->state, sizeof a->state, "%s", json_object_get(line, "halving") ? "pruned" : event);
	gn_event_text(line, "reason", a->reason, sizeof a->reason);
	gn_event_text(line, "patience", a->patience, sizeof a->patience);
}

/* Of what was counted for `before` ranks or processors: the share of those that still count. */
static double share_left(double counted, int before, int now)
{
	return now < before ? counted * now / before : counted;
}

/* Counts from the start of the processes: the last one of a start replaces those before it, but for the share of ranks that were lost. */
static void add_usage(struct reader *r, const json_t *usage)
{
	struct gn_account *a = &r->a;
	int ranks;

	if (!json_is_object(usage))
		return;
	ranks = small(usage, "ranks", a->ranks);
	a->usage_starts += !r->has_usage;
	a->processors = small(usage, "processors", 0);
	a->cpu_s -= r->has_usage ? share_left(r->cpu_s, r->usage_ranks, ranks) : 0;
	a->available_s -= r->has_usage ? share_left(r->available_s, r->processors, a->processors) : 0;
	r->has_usage = 1;
	r->usage_ranks = ranks;
	r->processors = a->processors;
	a->is_usage_partial |= ranks < a->ranks;
	r->cpu_s = number_or_0(usage, "cpu_s");
	r->available_s = number_or_0(usage, "age_s") * a->processors;
	a->waiting = r->available_s > 0 && ranks > 0 ? number_or_0(usage, "waited_s") / ranks / number_or_0(usage, "age_s") : 0;
	a->cpu_s += r->cpu_s;
	a->available_s += r->available_s;
	if (number_or_0(usage, "max_rss_bytes") > a->max_rss_bytes) {
		a->max_rss_bytes = number_or_0(usage, "max_rss_bytes");
		a->max_rss_rank = small(usage, "max_rss_rank", 0);
	}
}

static int add_event(struct reader *r, const json_t *line)
{
	const char *event = json_string_value(json_object_get(line, "event"));
	double now = gn_event_time(line);
	struct gn_account *a = &r->a;
	int failed = 0;

	if (!event || !isfinite(now))
		return 0;
	if (!strcmp(event, "start") || !strcmp(event, "resume"))
		begin(r, line, now, *event == 'r');
	else if (!r->has_run)
		return 0;
	else if (!strcmp(event, "step"))
		failed = add_step(r, line, now);
	else if (!strcmp(event, "pipeline"))
		add_pipeline(a, line);
	else if (!strcmp(event, "recovered"))
		failed = add_recovery(r, line);
	else if (!strcmp(event, "end") || !strcmp(event, "stop") || !strcmp(event, "failed"))
		add_end(a, event, line);
	if (!strcmp(event, "checkpoint")) {
		a->checkpoints++;
		/* of versions that wrote while training waited: all of it */
		a->checkpoint_s += number_or_0(line, json_object_get(line, "blocked_seconds") ? "blocked_seconds" : "seconds");
	} else if (!strcmp(event, "eval")) {
		a->evaluations++;
		a->evaluation_s += number_or_0(line, "seconds");
		a->top1 = gn_event_number(line, "top1");
	}
	add_usage(r, json_object_get(line, "usage"));
	a->last_time = now;
	return failed;
}

/* --- all lines --- */

static void finish(struct reader *r)
{
	struct gn_account *a = &r->a;
	double told;

	for (size_t i = 0; i < r->count; i++) {
		a->training_s += r->intervals[i].seconds;
		a->data_s += r->intervals[i].data_s;
		a->communication_s += r->intervals[i].communication_s;
	}
	a->wall_s = a->last_time > a->first_time ? a->last_time - a->first_time : 0;
	told = a->training_s + a->lost_s + a->evaluation_s + a->checkpoint_s + a->between_s + a->starting_s + a->recovery_s;
	/* times of lines are whole seconds */
	if (told > a->wall_s)
		a->wall_s = told;
	a->other_s = a->wall_s - told;
}

/* Regular files: a FIFO would block. */
static FILE *open_log(const char *path, struct gn_err *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	FILE *file = NULL;

	if (fd < 0) {
		gn_err_errno(err, errno, "cannot open %s", path);
		return NULL;
	}
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		gn_err_set(err, GN_ERR_DATA, "%s is no regular file", path);
	else if (!(file = fdopen(fd, "r")))
		gn_err_errno(err, errno, "cannot read %s", path);
	if (!file)
		close(fd);
	return file;
}

struct gn_account_log {
	struct reader r;
	FILE *file;
	char *path, *text;
	size_t room;
};

enum gn_status gn_account_open(const char *path, struct gn_account_log **out, struct gn_err *err)
{
	struct gn_account_log *log = calloc(1, sizeof *log);
	struct gn_err why;

	if (log && (log->path = strdup(path)) && (log->file = open_log(path, &why))) {
		*out = log;
		return GN_OK;
	}
	if (!log || !log->path)
		gn_err_set(&why, GN_ERR_NO_MEMORY, "no memory to read %s", path);
	gn_account_close(log);
	return gn_err_set(err, why.status, "%s", why.text);
}

void gn_account_close(struct gn_account_log *log)
{
	if (!log)
		return;
	if (log->file)
		fclose(log->file);
	free(log->r.intervals);
	free(log->text);
	free(log->path);
	free(log);
}

/* *torn: the last line is incomplete, and will be read again. */
static int read_lines(struct gn_account_log *log, int *torn)
{
	ssize_t len;
	int failed = 0;

	clearerr(log->file);
	*torn = 0;
	while (!failed && (len = getline(&log->text, &log->room, log->file)) > 0) {
		json_t *line = json_loads(log->text, 0, NULL);

		if (line)
			failed = add_event(&log->r, line);
		else if (log->text[len - 1] != '\n')
			*torn = !fseeko(log->file, -len, SEEK_CUR);
		else if (len > 1)
			log->r.a.bad_lines++;
		json_decref(line);
		if (*torn)
			break;
	}
	return failed;
}

enum gn_status gn_account_update(struct gn_account_log *log, struct gn_account *out, struct gn_err *err)
{
	struct reader r;
	int torn;

	if (read_lines(log, &torn))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", log->path);
	if (!log->r.has_run)
		return gn_err_set(err, GN_ERR_DATA, "%s has no start of a run: is it a log of gannet train?", log->path);
	r = log->r;
	r.a.bad_lines += (uint64_t)torn;
	finish(&r);
	*out = r.a;
	return GN_OK;
}

enum gn_status gn_account_read(const char *path, struct gn_account *out, struct gn_err *err)
{
	struct gn_account_log *log;
	enum gn_status status = gn_account_open(path, &log, err);

	if (status)
		return status;
	status = gn_account_update(log, out, err);
	gn_account_close(log);
	return status;
}

double gn_account_left_s(const struct gn_account *a)
{
	if (!(a->step_ms > 0) || a->total_steps < a->step)
		return NAN;
	/* with what interrupted training so far */
	return (double)(a->total_steps - a->step) * a->step_ms / 1e3 *
	       (a->training_s > 0 ? (a->training_s + a->evaluation_s + a->checkpoint_s) / a->training_s : 1);
}

int gn_account_is_dead(const struct gn_account *a, double now)
{
	return !strcmp(a->state, "running") && now - a->last_time > 600 && now - a->last_time > 10 * a->interval_s;
}

double gn_account_goodput(const struct gn_account *a)
{
	return a->wall_s > 0 ? a->training_s / a->wall_s : NAN;
}
