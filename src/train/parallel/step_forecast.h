/* What a step should take according to the cost model, to compare with what it takes.
 *
 * Buckets become ready when they were seen to, and are summed one after the other in the times that gn_coll_predict gives, beside
 * computing, without uneven ranks. The processor time of a sum is taken from computing, at least what was seen to be taken, unless
 * a progress thread has a processor on which no thread computes. Sums in shared memory overlap nothing, because the computing
 * thread makes them, unless a thread makes progress. Nothing is predicted where more threads compute than there are processors:
 * the kernel's scheduler then decides when a rank runs. Rank 0 predicts; other ranks know no times.
 *
 * Thread safety: one thread. Internal to src/train.
 */
#ifndef GN_TRAIN_PARALLEL_STEP_FORECAST_H
#define GN_TRAIN_PARALLEL_STEP_FORECAST_H

#include "src/base/log.h"
#include "src/train/parallel/reducer.h"
#include "src/train/plan/processors.h"

/* A zeroed one predicts nothing and need not be released. */
struct gn_step_forecast {
	struct gn_coll_forecast *sums;	 /* by bucket; NULL: not known */
	size_t count;
	struct gn_processors processors; /* where threads share them most */
	struct gn_comm *comm;		 /* the times are due after the next step; NULL: they are not. Borrowed */
	struct gn_log *log;
	int progress_thread;		 /* a thread makes progress */
	int spare_processor;		 /* on a processor on which no thread of this rank computes */
};

/* Collective. Counts the threads that compute (threads, on this rank) and the processors; progress_thread: as above. */
enum gn_status gn_step_forecast_init(struct gn_step_forecast *f, struct gn_comm *comm, int threads, int progress_thread,
				     struct gn_err *err);
void gn_step_forecast_release(struct gn_step_forecast *f);
/* The times of the reducer's buckets, again for each other reducer, are computed by gn_step_forecast_step after the next step: the
 * first step waits for none of it. comm and log are borrowed until then. Failures are logged as warnings. */
void gn_step_forecast_sums(struct gn_step_forecast *f, struct gn_comm *comm, struct gn_log *log);
/* Where the times come from: "guessed", "measured" or "tried", as gn_coll_predict says, the least certain of all buckets'. */
const char *gn_step_forecast_source(const struct gn_step_forecast *f);
/* Seconds that the step that just ended should have taken; 0 when the sums' times are not known. compute_end_s: from began_ns to the
 * end of backward, less communication. */
double gn_step_forecast_step(struct gn_step_forecast *f, const struct gn_reducer *x, uint64_t began_ns, double compute_end_s,
			     double optimizer_s);

#endif
