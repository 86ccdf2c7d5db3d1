/* Breakdown of the step time on each rank, and scaling efficiency.
 *
 * A rank's compute time includes waiting for data, forward, backward and the update; the rest is communication that computing does
 * not hide, including waiting for slower ranks. Measured efficiency is the mean over ranks of the compute time divided by the step
 * time: what the ranks achieve together relative to each rank alone, as far as communication and imbalance are concerned (sharing a
 * node's memory slows both alike). Predicted efficiency is that of rank 0 (src/train/parallel/step_forecast.h).
 */
#ifndef GN_TRAIN_METRICS_SCALING_REPORT_H
#define GN_TRAIN_METRICS_SCALING_REPORT_H

#include "src/base/json.h"
#include "src/train/plan/processors.h"
#include "transport/coll/comm.h"

/* Sums over the steps of a log interval: seconds, and statistics of training. */
struct gn_interval {
	double step, data, forward, backward, exposed, optimizer;
	double within; /* part of exposed: time for starting and progressing reductions inside backward */
	double copies; /* part of exposed and optimizer: what is kept for a loss */
	/* rank 0: over the steps with a prediction, their predicted time and their compute time */
	double predicted, predicted_compute;
	double loss_sum, correct_sum, norm_sum; /* over the steps with an update, but for those that are unknown */
	double missed, wanted; /* of decoupled pipelines: squares of errors of predicted gradients, and of the gradients */
	double lr;
	uint64_t steps, skipped, unknown; /* unknown: their loss comes with a later step's */
	uint64_t images; /* of all workers that were not lost */
	uint64_t sent_bytes; /* by this rank: payload of messages to others in the steps themselves; shared memory does not count */
};

enum gn_scaling_report_part {
	GN_SCALING_REPORT_DATA,
	GN_SCALING_REPORT_FORWARD,
	GN_SCALING_REPORT_BACKWARD,
	GN_SCALING_REPORT_EXPOSED,
	GN_SCALING_REPORT_OPTIMIZER,
	GN_SCALING_REPORT_STEP,
	GN_SCALING_REPORT_COMPUTE, /* total without exposed communication */
	GN_SCALING_REPORT_PARTS
};

/* Of an interval, in seconds per step. */
struct gn_scaling_report {
	double min[GN_SCALING_REPORT_PARTS], mean[GN_SCALING_REPORT_PARTS], max[GN_SCALING_REPORT_PARTS];
	int ranks, slowest;	   /* slowest: the rank with the longest compute time */
	float *compute;		   /* by rank; freed by gn_scaling_report_release() */
	double measured, predicted; /* efficiencies; predicted 0: unknown */
	struct gn_processors processors; /* shared processors prevent a prediction */
};

/* Collective. processors: those of the node where most threads share them. */
enum gn_status gn_scaling_report_gather(struct gn_comm *comm, const struct gn_interval *sums, const struct gn_processors *processors,
					struct gn_scaling_report *out, struct gn_err *err);
void gn_scaling_report_release(struct gn_scaling_report *report);
/* "ranks": {...}, "efficiency": {...} of a log line. source: origin of the prediction's costs. */
void gn_scaling_report_json(const struct gn_scaling_report *report, const struct gn_world *world, const char *source,
			    struct gn_json *j);
/* ", efficiency 93 % (predicted 95 %, costs tried), rank 3 on n2 computes 20 % longer", as far as known. */
void gn_scaling_report_text(const struct gn_scaling_report *report, const struct gn_world *world, const char *source,
			    struct gn_strbuf *out);

#endif
