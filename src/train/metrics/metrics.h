/* Counts of correct predictions of a classifier, exact for any number of ranks.
 *
 * A prediction is correct among the top k when fewer than k classes have a higher logit than the label's class. In a tie the class
 * with the smaller index ranks higher, so that counts are deterministic. A prediction with a non-finite logit counts as wrong.
 * Thread safety: a struct belongs to one thread.
 */
#ifndef GN_TRAIN_METRICS_METRICS_H
#define GN_TRAIN_METRICS_METRICS_H

#include "data/loader/loader.h"
#include "src/base/log.h"
#include "src/train/metrics/confusion.h"
#include "src/train/plan/plan.h"
#include "transport/coll/comm.h"

#include <signal.h>

struct gn_metrics {
	uint64_t images, top1, top5;
	uint64_t nonfinite; /* images with a logit that is NaN or infinite */
	double loss_sum;    /* cross entropy without smoothing, summed over images; non-finite if a logit is */
};

/* Adds count rows of logits [count][classes] with their labels. */
void gn_metrics_add(struct gn_metrics *score, const float *logits, const int32_t *labels, uint32_t count, int classes);
/* Logs a warning with the count of non-finite predictions, if any. */
void gn_metrics_warn(const struct gn_metrics *score, struct gn_log *log);
/* What goes on beside an evaluation: when is_busy() is 0 on all ranks at an agreement on a stop, advance() is called on all of them. */
struct gn_metrics_beside {
	int (*is_busy)(void *context);
	enum gn_status (*advance)(void *context, struct gn_err *err); /* collective */
	void *context;
};

/* Collective: evaluates the loader's whole dataset (started here, at epoch 0) with an inference plan and sums over all ranks: *out
 * is the same everywhere. batch is the plan's and the loader's. logits (may be NULL): [samples of the dataset][classes]; rows of
 * samples that this rank evaluates are filled in. confusion (may be NULL): this rank's are added, not summed. With stop (may be
 * NULL) ranks agree every few batches whether any rank's *stop is set; *stopping is then 1 everywhere, and *out all 0 unless the
 * evaluation was complete. stopping and beside (may be NULL) are used only with stop. */
enum gn_status gn_metrics_run(struct gn_plan *plan, struct gn_loader *loader, struct gn_comm *comm, int classes, float *logits,
			    struct gn_confusion *confusion, const volatile sig_atomic_t *stop, int *stopping, const struct gn_metrics_beside *beside,
			    struct gn_metrics *out,
			    struct gn_err *err);

#endif
