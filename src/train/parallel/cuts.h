/* Where a network is cut into the stages of a pipeline: by names (--cut), or so that the slowest stage is as fast as it can be.
 *
 * A network is a row of pieces between the places where one tensor alone passes (gn_model_can_cut). What a piece costs is measured by
 * running it, or estimated (the roofline of Williams, Waterman and Patterson 2009: the longer of moving and computing). A stage is some
 * pieces in a row. Its time for one micro-batch is that of its forward and backward, of adding its gradients to those of the other
 * micro-batches, its share of the update, and of what it sends, as if nothing of that overlapped:
 *     sum over pieces of (forward + backward + add * (M - 1) / M + 2 add / M) + output / rate to the next stage + input / rate to the one before
 * where M is the number of micro-batches, and an update (SGD with momentum) moves twice the bytes of an addition.
 *
 * Thread safety: one thread; OpenMP threads work inside a measurement. Local: one rank chooses and tells the others, because measured times differ.
 */
#ifndef GN_TRAIN_PARALLEL_CUTS_H
#define GN_TRAIN_PARALLEL_CUTS_H

#include "src/base/strbuf.h"
#include "src/train/plan/options.h"
#include "src/train/model/model.h"

/* For a micro-batch. */
struct gn_cut_piece {
	int node;	  /* the first: 1, or a place to cut */
	double forward_s, backward_s;
	double add_s;	  /* to add an array of its parameters' size to another one */
	double out_bytes; /* of its output: sent to the next stage, and as many come back; 0 of the last piece */
};

struct gn_cut_costs {
	struct gn_cut_piece *pieces; /* in the network's order */
	int count;
};

/* Runs each piece for a second at most, and at least once, with the OpenMP threads that are set now. options: of a plan of the whole network
 * for one micro-batch, on the host; weights, input, groups and what a run reports to are not read. slices: of as many ranks of a tensor group
 * that of the first, without what they exchange. Takes the memory of one piece at a time. Blocks. */
enum gn_status gn_cut_costs_measure(const struct gn_model *m, const struct gn_plan_options *options, int slices, struct gn_cut_costs *out,
				    struct gn_err *err);
/* The same by the operators' bytes and FLOPs (plan_cost.h) on a machine of these rates; nothing runs. */
enum gn_status gn_cut_costs_estimate(const struct gn_model *m, const struct gn_plan_options *options, int slices, double bytes_per_s,
				     double flops_per_s, struct gn_cut_costs *out, struct gn_err *err);
/* A zeroed one is fine. */
void gn_cut_costs_release(struct gn_cut_costs *c);

/* Of pieces first .. end - 1, for one micro-batch of `micro_batches`: compute alone, as above. */
double gn_cut_compute_s(const struct gn_cut_costs *c, int first, int end, int micro_batches);

/* nodes [stages - 1]: the first node of each stage but the first, in order, such that the slowest stage is as fast as possible; of several
 * such ways one in which all stages together send for the shortest time. By dynamic programming over (stage, piece), exact.
 * bytes_per_s [stages - 1]: of the link from each stage to the next. *slowest_s (may be NULL): that stage's time. GN_ERR_USAGE: there are
 * fewer pieces than stages. */
enum gn_status gn_cuts_choose(const struct gn_cut_costs *c, int stages, int micro_batches, const double *bytes_per_s, int *nodes, double *slowest_s,
			      struct gn_err *err);

/* "NAME,NAME": layers or blocks that begin the stages but the first, in order. GN_ERR_USAGE: not stages - 1 of them, one is out of order, or
 * the network cannot be cut there; the text names places near it. */
enum gn_status gn_cuts_parse(const struct gn_model *m, const char *text, int stages, int *nodes, struct gn_err *err);
/* Appends what gn_cuts_parse reads as these nodes, with the shortest names. */
void gn_cuts_text(const struct gn_model *m, const int *nodes, int count, struct gn_strbuf *out);

#endif
