/* Data-parallel training: the loop, its state, resume, evaluation and checkpoints.
 *
 * Every rank holds the whole model. A step is: a batch from the loader, forward, loss, backward with the gradient exchange
 * under way, one optimizer update (step.h). BN running statistics, the loss and the wish to stop travel with the gradients, so that
 * all ranks are bit-identical after every step and stop after the same one. What a run is (its seed, place in the data,
 * optimizer state) is in the checkpoint; which ranks do the work is not.
 *
 * Collective: all ranks call gn_train_run with the same options. Failures of one rank before the first step, and while
 * checkpointing, are agreed on by all; a failure within a step ends that rank, and the others with GN_ERR_PEER_LOST.
 */
#ifndef GN_TRAIN_LOOP_TRAINER_H
#define GN_TRAIN_LOOP_TRAINER_H

#include "src/train/loop/options.h"

#include <signal.h>

/* agreed_text: the options that must agree on every rank, as one line (gn_options_describe). stop is set by whoever takes
 * signals, and read between steps and every few batches of an evaluation. Returns GN_ERR_STOPPED after a stop on request, with a
 * checkpoint when there is a folder for one; an evaluation that was left out for it is made when the run goes on. *told (set
 * always): this rank need not tell an error, for rank 0 tells it for all, or it stands in the log already.
 * err is required. */
enum gn_status gn_train_run(const struct gn_train_options *options, const char *agreed_text,
			    const volatile sig_atomic_t *stop, struct gn_comm *comm, struct gn_log *log, int *told,
			    struct gn_err *err);

#endif
