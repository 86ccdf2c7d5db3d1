/* Where a step's time goes on each rank, and how much of it the ranks gain by being many.
 *
 * A rank computes while it waits for data, goes forward and backward, and updates; the rest is communication that computing
 * could not hide, or waiting for slower ranks. Measured efficiency is the mean over ranks of the time that they compute, over
 * the time of the step: what the ranks do together over what they would do if each were alone, as far as communication and
 * uneven ranks go (ranks of a node that share its memory are slowed down by that alike in both). Predicted efficiency is that of
 * rank 0 if its buckets, ready when they were, were summed one after the other in the times that gn_coll_predict gives, beside
 * computing, without uneven ranks. What processors have to do for a sum they take from computing, at least what was seen to
 * be taken, unless a thread makes progress on a processor that computes nothing. Sums in shared memory hide behind nothing: the computing thread makes them itself.
 * Nothing is predicted where more threads compute than there are processors: who runs when is then the kernel's choice, and a rank
 * waits for others that have no processor.
 * Internal to src/train.
 */
#ifndef GN_TRAIN_METRICS_SCALING_REPORT_H
#define GN_TRAIN_METRICS_SCALING_REPORT_H

#include "src/train/loop/step.h"

enum gn_scaling_report_part {
	GN_SCALING_REPORT_DATA,
	GN_SCALING_REPORT_FORWARD,
	GN_SCALING_REPORT_BACKWARD,
	GN_SCALING_REPORT_EXPOSED,
	GN_SCALING_REPORT_OPTIMIZER,
	GN_SCALING_REPORT_STEP,
	GN_SCALING_REPORT_COMPUTE, /* all but exposed */
	GN_SCALING_REPORT_PARTS
};

/* Of an interval, in seconds a step. */
struct gn_scaling_report {
	double min[GN_SCALING_REPORT_PARTS], mean[GN_SCALING_REPORT_PARTS], max[GN_SCALING_REPORT_PARTS];
	int ranks, slowest;	   /* the rank that computes longest */
	float *compute;		   /* by rank, freed by gn_scaling_report_release */
	double measured, predicted; /* efficiencies; predicted 0: not known */
	struct gn_processors processors; /* shared ones are why nothing is predicted */
};

/* Collective. */
enum gn_status gn_scaling_report_gather(const struct gn_session *s, const struct gn_interval *sums, struct gn_scaling_report *out,
			       struct gn_err *err);
void gn_scaling_report_release(struct gn_scaling_report *split);
/* Where the prediction's costs come from: "guessed", "measured" or "tried", as gn_coll_predict says, the worst of all buckets'. */
const char *gn_scaling_report_source(const struct gn_session *s);
/* "ranks": {...}, "efficiency": {...} of a line of the log. */
void gn_scaling_report_json(const struct gn_scaling_report *split, const struct gn_world *world, const char *source,
			    struct gn_json *j);
/* ", efficiency 93 % (predicted 95 %, costs tried), rank 3 on n2 computes 20 % longer", as far as there is something to say. */
void gn_scaling_report_text(const struct gn_scaling_report *split, const struct gn_world *world, const char *source,
			    struct gn_strbuf *out);

/* Collective. How many threads compute on how many processors; before gn_scaling_report_predict_buckets. */
enum gn_status gn_scaling_report_find_processors(struct gn_session *s, struct gn_err *err);
/* Asks for the times of the exchange's buckets: rank 0, once for each exchange. Failures are told to the log as warnings. */
void gn_scaling_report_predict_buckets(struct gn_session *s);
/* What the step that just ended should have taken; 0 when buckets' times are not known. compute_end_s: when backward was
 * through, less communication. */
double gn_scaling_report_predict_step(const struct gn_session *s, uint64_t began_ns, double compute_end_s, double optimizer_s);

#endif
