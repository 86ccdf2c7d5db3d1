/* Evaluation of a checkpoint, or of a file of weights, on a dataset, over all ranks.
 *
 * What the network is and how images become its input come from the checkpoint, so that an evaluation cannot differ from the
 * training's own by an option forgotten. A file of weights that gannet export wrote says it, too; options override that, with a
 * warning, and say what other files do not.
 */
#ifndef GN_TRAIN_LOOP_EVALUATE_H
#define GN_TRAIN_LOOP_EVALUATE_H

#include "src/train/loop/network.h"
#include "src/train/metrics/metrics.h"

/* What one rank may take between two collectives before the others, who wait for it, take it for hanging: reading and computing
 * a batch, with a slow disk. */
#define GN_EVALUATE_STALL_MS 600000

struct gn_evaluate_options {
	const char *data, *key_file; /* key_file: gn_dataset_unlock(); may be NULL */
	struct gn_network_options network;
	const char *logits; /* a file for them, as logits.h says; NULL: none. Every rank then keeps those of all samples. */
	const char *per_class; /* a file for gn_confusion_write; "-": text to *classes; NULL: none */
	const char *device, *precision, *transport;
	int64_t batch, threads, loader_threads, prefetch;
	struct gn_world_options world;
	int transport_strict;
};

/* Collective. folder (PATH_MAX) gets the checkpoint that was taken, on rank 0; with weights it stays as it is, and *step is 0. classes
 * gets the text of gn_confusion_text() on rank 0. A dataset with other classes than the checkpoint's, or another number of them than the
 * weights', is GN_ERR_DATA. err is required. */
enum gn_status gn_evaluate(const struct gn_evaluate_options *options, struct gn_comm *comm, struct gn_log *log,
			   char *folder, uint64_t *step, struct gn_metrics *out, struct gn_strbuf *classes, struct gn_err *err);

#endif
