/* Counts of a classifier's right answers, exact over any number of ranks.
 *
 * An answer is right among the top k when fewer than k classes have a higher logit than the label's; a tie goes against the
 * label when the other class has the smaller index, so that the counts do not depend on luck.
 * No answer is right where any logit is not finite.
 */
#ifndef GN_TRAIN_METRICS_METRICS_H
#define GN_TRAIN_METRICS_METRICS_H

#include "data/loader/loader.h"
#include "src/base/log.h"
#include "src/train/plan/plan.h"
#include "transport/coll/comm.h"

#include <signal.h>

struct gn_metrics {
	uint64_t images, top1, top5;
	uint64_t nonfinite; /* images with a logit that is NaN or infinite */
	double loss_sum;    /* cross entropy without smoothing, summed over images; not finite where a logit is not */
};

/* Adds count rows of logits [count][classes] with their labels. */
void gn_metrics_add(struct gn_metrics *score, const float *logits, const int32_t *labels, uint32_t count, int classes);
/* A warning with the count where logits were not finite. */
void gn_metrics_warn(const struct gn_metrics *score, struct gn_log *log);
/* Collective: evaluates the whole of the loader's data set (started here, at epoch 0) with an inference plan and sums over
 * all ranks: *out is the same everywhere. batch is the plan's and the loader's. logits, when not NULL, is [samples of the
 * dataset][classes]: rows of samples that this rank evaluates are filled in. With stop (NULL: it is never stopped) ranks agree
 * every few batches whether any rank's *stop is set; *stopping is then 1 everywhere, and *out all 0 unless everything was
 * evaluated already. stopping is only used with stop. */
enum gn_status gn_metrics_run(struct gn_plan *plan, struct gn_loader *loader, struct gn_comm *comm, int classes, float *logits,
			    const volatile sig_atomic_t *stop, int *stopping, struct gn_metrics *out, struct gn_err *err);

#endif
