#include "src/train/score.h"

#include <math.h>
#include <string.h>

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

void gn_score_add(struct gn_score *score, const float *logits, const int32_t *labels, uint32_t count, int classes)
{
	for (uint32_t i = 0; i < count; i++) {
		const float *row = logits + (size_t)i * (size_t)classes;
		int32_t label = labels[i];
		int better = 0;

		for (int32_t k = 0; k < classes; k++)
			better += row[k] > row[label] || (row[k] == row[label] && k < label);
		score->images++;
		score->top1 += better < 1;
		score->top5 += better < 5;
		score->loss_sum += cross_entropy(row, label, classes);
	}
}

static enum gn_status sum_over_ranks(struct gn_comm *comm, struct gn_score *score, struct gn_err *err)
{
	int64_t counts[3] = {(int64_t)score->images, (int64_t)score->top1, (int64_t)score->top5};
	enum gn_status status = gn_comm_allreduce(comm, counts, 3, GN_I64, NULL, err);

	if (!status)
		status = gn_comm_allreduce(comm, &score->loss_sum, 1, GN_F64, NULL, err);
	if (status)
		return status;
	score->images = (uint64_t)counts[0];
	score->top1 = (uint64_t)counts[1];
	score->top5 = (uint64_t)counts[2];
	return GN_OK;
}

enum gn_status gn_score_run(struct gn_plan *plan, struct gn_loader *loader, struct gn_comm *comm, int classes, float *logits,
			    struct gn_score *out, struct gn_err *err)
{
	struct gn_score score = {0};
	uint64_t batches = gn_loader_batches(loader);
	enum gn_status status = gn_loader_start(loader, 0, 0, err);

	gn_plan_freeze(plan);
	for (uint64_t b = 0; b < batches && !status; b++) {
		struct gn_batch batch;
		const float *rows;

		status = gn_loader_next(loader, &batch, err);
		if (!status && batch.count) {
			status = gn_plan_forward(plan, gn_batch_input(&batch), 0, &rows, err);
			if (!status)
				gn_score_add(&score, rows, batch.labels, batch.count, classes);
			for (uint32_t i = 0; i < batch.count && logits && !status; i++)
				memcpy(logits + batch.indices[i] * (size_t)classes, rows + (size_t)i * (size_t)classes,
				       (size_t)classes * sizeof *rows);
		}
		if (!status)
			status = gn_world_check(gn_comm_world(comm), err);
	}
	if (!status)
		status = sum_over_ranks(comm, &score, err);
	if (!status)
		*out = score;
	return status;
}
