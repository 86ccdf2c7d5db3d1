/* How a run is doing: what rank 0 tells others of it, and what all ranks use of their nodes. */
#include "src/train/loop/session.h"

#include "src/base/sort.h"
#include "src/base/text.h"
#include "transport/bootstrap/library_versions.h"
#include "transport/bootstrap/regroup.h"

#include <inttypes.h>
#include <math.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Training time between two gathers of what the ranks use. */
#define GATHER_S 2.0

/* The log's name without folder and ".jsonl"; without a log the job's number, or the model. */
static void name_run(const struct gn_session *s, char *out, size_t size)
{
	const char *log = s->options->log, *base = log && strrchr(log, '/') ? strrchr(log, '/') + 1 : log;
	size_t len = base ? strlen(base) : 0;

	if (len > 6 && !strcmp(base + len - 6, ".jsonl"))
		len -= 6;
	if (base && strcmp(base, "-"))
		snprintf(out, size, "%.*s", (int)len, base);
	else
		snprintf(out, size, "%s", s->status.now.job[0] ? s->status.now.job : s->status.now.model);
}

/* Of rank 0. */
static enum gn_status open_files(struct gn_session *s, struct gn_err *err)
{
	struct gn_run_status *now = &s->status.now;
	const char *log = s->options->log;
	const char *number = getenv("SLURM_JOB_ID");
	const struct passwd *user = getpwuid(geteuid());
	char path[4200] = "", job[64];
	struct stat info;

	snprintf(now->model, sizeof now->model, "%s", gn_model_name(s->model));
	snprintf(now->job, sizeof now->job, "%s", gn_library_versions_job(job) ? job : "");
	gn_text_visible(gn_world_host_of(gn_comm_world(s->comm), 0), now->host, sizeof now->host);
	name_run(s, now->run, sizeof now->run);
	snprintf(now->user, sizeof now->user, "%u", (unsigned)geteuid());
	if (user)
		snprintf(now->user, sizeof now->user, "%s", user->pw_name);
	snprintf(now->jobid, sizeof now->jobid, "pid%ld", (long)getpid());
	if (number && *number)
		snprintf(now->jobid, sizeof now->jobid, "%s", number);
	if (s->metrics.log && strcmp(log, "-") && !stat(log, &info) && S_ISREG(info.st_mode))
		snprintf(path, sizeof path, "%s.status", log);
	return *path || s->options->metrics ? gn_status_files_create(*path ? path : NULL, s->options->metrics, now,
								     gn_comm_world(s->comm), s->log, &s->status.files, err)
					    : GN_OK;
}

enum gn_status gn_session_begin_status(struct gn_session *s, uint64_t total_steps, struct gn_err *err)
{
	struct gn_run_status *now = &s->status.now;
	enum gn_status status = gn_usage_create(s->comm, &s->status.usage, err);

	if (status)
		return status;
	*now = (struct gn_run_status){.doing = "starting", .running = 1, .ranks = gn_comm_size(s->comm),
				      .nodes = gn_world_nodes(gn_comm_world(s->comm)), .total_steps = total_steps, .epoch = gn_session_epoch(s),
				      .loss = NAN, .lr = NAN, .images_per_s = NAN, .top1 = NAN, .usage = gn_usage_last(s->status.usage)};
	s->status.saved_step = s->checkpoint.saved_step;
	if (gn_comm_rank(s->comm) == 0)
		status = gn_session_alone(s, open_files(s, err));
	gn_session_tell_status(s, "starting");
	return status;
}

static void add_slow(struct gn_run_status *now, int rank, const char *host, double compute_s)
{
	int at = now->slow_count < GN_RUN_STATUS_SLOW ? now->slow_count++ : GN_RUN_STATUS_SLOW - 1;

	if (now->slow_count == GN_RUN_STATUS_SLOW && at == GN_RUN_STATUS_SLOW - 1 && now->slow[at].host && now->slow[at].compute_s >= compute_s)
		return;
	for (; at > 0 && now->slow[at - 1].compute_s < compute_s; at--)
		now->slow[at] = now->slow[at - 1];
	now->slow[at].rank = rank;
	now->slow[at].host = host;
	now->slow[at].compute_s = compute_s;
}

/* The same decision on all ranks: report is. */
enum gn_status gn_session_interval_status(struct gn_session *s, const struct gn_interval *sums, const struct gn_scaling_report *report,
					  int *gathered, struct gn_err *err)
{
	double steps = (double)sums->steps, parts[GN_RUN_STATUS_PARTS] = {sums->data, sums->forward, sums->backward, sums->exposed,
									  sums->optimizer};
	struct gn_run_status *now = &s->status.now;
	enum gn_status status = GN_OK;

	s->status.since_s += steps * (report ? report->mean[GN_SCALING_REPORT_STEP] : sums->step / steps);
	*gathered = s->status.since_s >= GATHER_S;
	if (*gathered) {
		s->status.since_s = 0;
		status = gn_usage_gather(s->status.usage, err);
	}
	now->loss = sums->loss_sum / (steps - (double)sums->skipped - (double)sums->unknown);
	now->lr = sums->lr;
	now->images_per_s = (double)sums->images / sums->step;
	now->step_s = sums->step / steps;
	for (int p = 0; p < GN_RUN_STATUS_PARTS; p++)
		now->part_s[p] = parts[p] / steps;
	memset(now->slow, 0, sizeof now->slow);
	now->slow_count = 0;
	for (int r = 0; report && r < report->ranks; r++)
		add_slow(now, r, gn_world_host_of(gn_comm_world(s->comm), r), (double)report->compute[r]);
	return status;
}

void gn_session_tell_status(struct gn_session *s, const char *doing)
{
	struct gn_run_status *now = &s->status.now;

	now->doing = doing;
	now->step = s->state.step;
	now->skipped = s->state.skipped;
	now->epoch = gn_session_epoch(s);
	now->evaluations = s->metrics.evaluations;
	now->checkpoints += s->checkpoint.saved_step != s->status.saved_step;
	s->status.saved_step = s->checkpoint.saved_step;
	if (s->metrics.evaluations)
		now->top1 = s->metrics.last_top1;
	gn_status_files_write(s->status.files, now, !now->running);
}

void gn_session_end_status(struct gn_session *s, const char *how)
{
	if (!s->status.usage)
		return;
	s->status.now.running = 0;
	gn_session_tell_status(s, how);
}

/* --- ranks that are much slower than the others --- */

/* Of a batch: workers may have different numbers of them. */
static double batch_s(const struct gn_session *s, const struct gn_scaling_report *report, int rank)
{
	return (double)report->compute[rank] / gn_session_batches_of(s, s->pipeline ? gn_mesh_data_index(&s->pipeline->mesh, rank) : rank);
}

/* Ranks of different stages compute different things. */
static int stage_of(const struct gn_session *s, int rank)
{
	return s->pipeline ? gn_mesh_stage(&s->pipeline->mesh, rank) : 0;
}

/* Of the ranks of a stage; of two the faster one. */
static enum gn_status find_median(const struct gn_session *s, const struct gn_scaling_report *report, int stage, double *median,
				  struct gn_err *err)
{
	double *sorted = malloc((size_t)report->ranks * sizeof *sorted);
	size_t count = 0;

	if (!sorted)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the times of %d ranks", report->ranks);
	for (int r = 0; r < report->ranks; r++)
		if (stage_of(s, r) == stage)
			sorted[count++] = batch_s(s, report, r);
	gn_sort_doubles(sorted, count);
	*median = sorted[(count - 1) / 2];
	free(sorted);
	return GN_OK;
}

/* A change: the rank is slow, or is no longer. */
static enum gn_status tell(struct gn_session *s, int rank, double factor, struct gn_err *err)
{
	const char *host = gn_world_host_of(gn_comm_world(s->comm), rank);
	struct gn_json *j;

	if (!s->slow.is_named[rank]) {
		gn_log_info(s->log, "rank %d on %s is no longer slow", rank, host);
		return GN_OK;
	}
	gn_log_warn(s->log, "rank %d on %s is slow: for %" PRIu64 " steps a batch has taken it at least %g times as long as the median of the ranks, last "
		    "%.1f times", rank, host, s->slow.steps[rank], s->options->slow_factor, factor);
	if (s->options->slow_replace && !gn_regroup_has_substitute(s->options->regroup))
		gn_log_warn(s->log, "no process waits that could take the place of rank %d: it goes on", rank);
	j = gn_metrics_log_begin(s->metrics.log, "slow");
	if (j) {
		gn_json_uint(j, "step", s->state.step);
		gn_json_int(j, "rank", rank);
		gn_json_string(j, "host", host);
		gn_json_fixed(j, "factor", factor, 2);
		gn_json_uint(j, "steps", s->slow.steps[rank]);
	}
	return gn_metrics_log_end(s->metrics.log, err);
}

static enum gn_status note_stage(struct gn_session *s, const struct gn_interval *sums, const struct gn_scaling_report *report, int stage,
				 struct gn_err *err)
{
	double median = 0;
	enum gn_status status = find_median(s, report, stage, &median, err);

	for (int r = 0; r < report->ranks && !status; r++) {
		const double factor = median > 0 ? batch_s(s, report, r) / median : 0;
		char is_slow;

		if (stage_of(s, r) != stage)
			continue;
		s->slow.steps[r] = factor >= s->options->slow_factor ? s->slow.steps[r] + sums->steps : 0;
		is_slow = s->slow.steps[r] >= (uint64_t)s->options->slow_steps;
		if (is_slow && s->options->slow_replace && (s->slow.replaced < 0 || factor > s->slow.factor)) {
			s->slow.replaced = r;
			s->slow.factor = factor;
		}
		if (is_slow == s->slow.is_named[r])
			continue;
		s->slow.is_named[r] = is_slow;
		status = tell(s, r, factor, err);
	}
	return status;
}

enum gn_status gn_session_note_slow(struct gn_session *s, const struct gn_interval *sums, const struct gn_scaling_report *report,
				    struct gn_err *err)
{
	const int stages = s->pipeline ? s->pipeline->mesh.shape.pipeline : 1;
	enum gn_status status = GN_OK;

	if (gn_comm_rank(s->comm) || s->options->slow_factor <= 0)
		return GN_OK;
	if (!s->slow.steps)
		s->slow.steps = calloc((size_t)report->ranks, sizeof *s->slow.steps);
	if (!s->slow.is_named)
		s->slow.is_named = calloc((size_t)report->ranks, 1);
	if (!s->slow.steps || !s->slow.is_named)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", report->ranks);
	s->slow.replaced = -1;
	for (int k = 0; k < stages && !status; k++)
		status = note_stage(s, sums, report, k, err);
	if (s->slow.replaced >= 0 && !gn_regroup_has_substitute(s->options->regroup))
		s->slow.replaced = -1;
	return status;
}
