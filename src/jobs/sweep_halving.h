/* Successive halving without a scheduler: at certain shares of its steps, rungs, each trial of a sweep compares itself with the trials
 * that have come as far, by their logs, and stops unless it is among the best FACTOR-th of them.
 *
 * This is the asynchronous form (Li et al., "A System for Massively Parallel Hyperparameter Tuning", 2020) in which trials that are
 * behind are stopped instead of paused: no trial waits for another. Compared is top-1 of the last evaluation by then, if all have one,
 * else the loss of the interval. Rung k of a trial is at step total / FACTOR^k. Thread safety: any thread. Blocks on the file system.
 */
#ifndef GN_JOBS_SWEEP_HALVING_H
#define GN_JOBS_SWEEP_HALVING_H

#include "src/base/status.h"

#include <stddef.h>

/* Rungs that a sweep of so many trials has: as often as the trials can be divided, from 1 to 5. */
int gn_halving_rungs(size_t trials, int factor);
/* Place of the trial with this log, which lies beside the sweep's ledger.jsonl, among the *of trials that have reached rung (1: the last
 * one): 1 is the best. GN_ERR_DATA: it is no trial of a sweep, or has not reached the rung. */
enum gn_status gn_halving_place(const char *log, int factor, int rung, size_t *place, size_t *of, struct gn_err *err);
/* Whether a trial of that place goes on. */
int gn_halving_goes_on(size_t place, size_t of, int factor);

#endif
