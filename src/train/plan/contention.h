/* Whether the thread that computes gets a processor when it wants one, by /proc/thread-self/schedstat.
 *
 * OpenMP's threads spin where a parallel loop ends: 300,000 turns of libgomp, some milliseconds, before they sleep. Where threads outnumber
 * processors (ranks of this job, other jobs) they take the time of those that they wait for, and a step lasts 5 to 40 times as long. Where it
 * has more threads than processors in all, libgomp spins 1,000 turns, or 100 (its manual, GOMP_SPINCOUNT): idle threads, added while this
 * thread waits for processors and taken away when it does not, make it so. Those who have set OMP_WAIT_POLICY or GOMP_SPINCOUNT keep what
 * they chose.
 *
 * One watch a process. Thread safety: what gn_contention_look() finds in another thread than the watch's it ignores.
 */
#ifndef GN_TRAIN_PLAN_CONTENTION_H
#define GN_TRAIN_PLAN_CONTENTION_H

#include "src/base/log.h"

/* Watches the calling thread from now on. ranks: of this job on this host. log: is warned once, with the remedy, when it goes on for seconds;
 * borrowed until the next call; NULL: nobody is. */
void gn_contention_watch(int ranks, struct gn_log *log);
/* Before a pass over a batch. Does not block; mostly it only reads the clock. */
void gn_contention_look(void);

#endif
