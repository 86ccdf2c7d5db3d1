/* Evaluation of a checkpoint on a dataset, over all ranks.
 *
 * What the network is and how images become its input come from the checkpoint, so that an evaluation cannot differ from the
 * training's own by an option forgotten.
 */
#ifndef GN_TRAIN_EVALUATE_H
#define GN_TRAIN_EVALUATE_H

#include "src/train/score.h"

/* What one rank may take between two collectives before the others, who wait for it, take it for hanging: reading and computing
 * a batch, with a slow disk. */
#define GN_EVALUATE_STALL_MS 600000

struct gn_evaluate_options {
	const char *data, *checkpoint; /* checkpoint: a folder, or a folder of them */
	const char *logits; /* a file for them, as logits.h says; NULL: none. Every rank then keeps those of all samples. */
	const char *device, *precision, *transport;
	int64_t batch, threads, loader_threads, prefetch;
	int average; /* the moving average of the weights instead of the weights */
};

/* Collective. folder (PATH_MAX) gets the checkpoint that was taken, on rank 0. A dataset with other classes than the
 * checkpoint's is GN_ERR_DATA. err is required. */
enum gn_status gn_evaluate(const struct gn_evaluate_options *options, struct gn_comm *comm, struct gn_log *log,
			   char *folder, uint64_t *step, struct gn_score *out, struct gn_err *err);

#endif
