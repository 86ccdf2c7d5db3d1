#include "src/train/metrics/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* batches between two agreements on a stop, at which the ranks wait for the slowest */
enum { STOP_EVERY = 4 };

/* log(sum(exp(row))) - row[label], in double. */
static double cross_entropy(const float *row, int32_t label, int classes)
{
	double highest = row[0], sum = 0;

	for (int k = 1; k < classes; k++)
		highest = row[k] > highest ? row[k] : highest;
	for (int k = 0; k < classes; k++)
		sum += exp(row[k] - highest);
	return log(sum) + highest - row[label];
}

void gn_metrics_add(struct gn_metrics *score, const float *logits, const int32_t *labels, uint32_t count, int classes)
{
	for (uint32_t i = 0; i < count; i++) {
		const float *row = logits + (size_t)i * (size_t)classes;
		int32_t label = labels[i];
		int wrong = 0, finite = 1;

		/* comparisons with NaN are false: NaN counts as ranked before the label */
		for (int32_t k = 0; k < classes; k++) {
			wrong += !(row[k] < row[label] || (row[k] == row[label] && k >= label));
			finite &= isfinite(row[k]) != 0;
		}
		score->images++;
		score->nonfinite += !finite;
		score->top1 += finite && wrong < 1;
		score->top5 += finite && wrong < 5;
		score->loss_sum += cross_entropy(row, label, classes);
	}
}

void gn_metrics_warn(const struct gn_metrics *score, struct gn_log *log)
{
	if (score->nonfinite)
		gn_log_warn(log, "logits of %" PRIu64 " of %" PRIu64 " images are not finite, which counts as wrong: the network has diverged, "
			    "or its weights are damaged", score->nonfinite, score->images);
}

/* *stop: input of this rank, output: of any rank. */
static enum gn_status sum_over_ranks(struct gn_comm *comm, struct gn_metrics *score, int *stop, struct gn_err *err)
{
	int64_t counts[] = {(int64_t)score->images, (int64_t)score->top1, (int64_t)score->top5,
			    (int64_t)score->nonfinite, *stop};
	enum gn_status status = gn_comm_allreduce(comm, counts, sizeof counts / sizeof *counts, GN_I64, NULL, err);

	if (!status)
		status = gn_comm_allreduce(comm, &score->loss_sum, 1, GN_F64, NULL, err);
	if (status)
		return status;
	score->images = (uint64_t)counts[0];
	score->top1 = (uint64_t)counts[1];
	score->top5 = (uint64_t)counts[2];
	score->nonfinite = (uint64_t)counts[3];
	*stop = counts[4] > 0;
	return GN_OK;
}

/* Collective. *stop: input of this rank, output: of any rank. */
static enum gn_status agree_on_stop(struct gn_comm *comm, int *stop, const struct gn_metrics_beside *beside, struct gn_err *err)
{
	int32_t any[] = {*stop, beside && beside->is_busy(beside->context)};
	enum gn_status status = gn_comm_allreduce(comm, any, 2, GN_I32, gn_reduce_of(GN_I32, GN_MAX), err);

	*stop = !status && any[0];
	return status || !beside || any[1] ? status : beside->advance(beside->context, err);
}

/* Evaluates one batch of this rank. */
static enum gn_status score_batch(struct gn_plan *plan, struct gn_loader *loader, int classes, float *logits,
				  struct gn_confusion *confusion, struct gn_metrics *score, struct gn_err *err)
{
	struct gn_batch batch;
	const float *rows;
	enum gn_status status = gn_loader_next(loader, &batch, err);

	if (status || !batch.count)
		return status;
	status = gn_plan_forward(plan, gn_batch_input(&batch), 0, &rows, err);
	if (status)
		return status;
	gn_metrics_add(score, rows, batch.labels, batch.count, classes);
	if (confusion)
		gn_confusion_add(confusion, rows, batch.labels, batch.count);
	for (uint32_t i = 0; i < batch.count && logits; i++)
		memcpy(logits + batch.indices[i] * (size_t)classes, rows + (size_t)i * (size_t)classes,
		       (size_t)classes * sizeof *rows);
	return GN_OK;
}

enum gn_status gn_metrics_run(struct gn_plan *plan, struct gn_loader *loader, struct gn_comm *comm, int classes, float *logits,
			    struct gn_confusion *confusion, const volatile sig_atomic_t *stop, int *stopping, const struct gn_metrics_beside *beside,
			    struct gn_metrics *out, struct gn_err *err)
{
	struct gn_metrics score = {0};
	uint64_t batches = gn_loader_batches(loader), every = gn_comm_size(comm) > 1 ? STOP_EVERY : 1;
	int stopped = 0;
	enum gn_status status = gn_loader_start(loader, 0, 0, err);

	if (!status)
		status = gn_plan_freeze(plan, err);
	for (uint64_t b = 0; b < batches && !status; b++) {
		if (stop && b % every == 0) {
			stopped = *stop != 0;
			status = agree_on_stop(comm, &stopped, beside, err);
			if (stopped)
				break;
		}
		if (!status)
			status = score_batch(plan, loader, classes, logits, confusion, &score, err);
		if (!status)
			/* others may be lost where a run goes on without them */
			status = gn_comm_check(comm, 0, err);
	}
	if (stopped) {
		score = (struct gn_metrics){0};
	} else if (!status) {
		stopped = stop && *stop;
		status = sum_over_ranks(comm, &score, &stopped, err);
	}
	if (status)
		return status;
	if (stop)
		*stopping = stopped;
	*out = score;
	return GN_OK;
}
