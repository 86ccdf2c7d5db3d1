/* Ranks that are much slower than the others. */
#include "src/train/loop/session.h"

#include "src/base/sort.h"
#include "transport/bootstrap/regroup.h"

#include <inttypes.h>
#include <stdlib.h>

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
