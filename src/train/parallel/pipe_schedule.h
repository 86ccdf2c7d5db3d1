/* The order in which a stage of a pipeline runs its micro-batches forward and backward, as data.
 *
 * gpipe (Huang et al. 2019, "GPipe"): all micro-batches of a batch forward, then all of them backward; a batch ends before the next one of
 * --accumulate begins. 1f1b (Narayanan et al. 2019, "PipeDream", with one update a step): stage s of P begins with P - 1 - s forwards, then one
 * forward and one backward alternate, then come the backwards that are left; batches of --accumulate follow without a pause. Both run
 * forwards and backwards in the order of the samples, so that all sums have the order of one rank that accumulates as many batches.
 *
 * Two are asynchronous: each stage updates its parameters after each backward, and micro-batches of many steps, a run, follow without a pause.
 * pipedream (Narayanan et al. 2019): the order of 1f1b; stage s keeps P - s versions of its parameters, so that the backward of a
 * micro-batch has those of its forward, which are P - 1 - s updates old (src/train/loop/step_async.c). decoupled (Jaderberg et al. 2017):
 * backward follows its forward at once, by a gradient that the stage predicts (pipe_predictor.h).
 *
 * Pure functions.
 */
#ifndef GN_TRAIN_PARALLEL_PIPE_SCHEDULE_H
#define GN_TRAIN_PARALLEL_PIPE_SCHEDULE_H

enum gn_pipe_kind { GN_PIPE_GPIPE, GN_PIPE_1F1B, GN_PIPE_PIPEDREAM, GN_PIPE_DECOUPLED };
#define GN_PIPE_SYNC_CHOICES "gpipe|1f1b"
#define GN_PIPE_CHOICES GN_PIPE_SYNC_CHOICES "|pipedream|decoupled"
/* Of GN_PIPE_CHOICES; NULL: 1f1b. */
enum gn_pipe_kind gn_pipe_kind_of(const char *name);
const char *gn_pipe_kind_name(enum gn_pipe_kind kind);
/* pipedream and decoupled: each micro-batch is an update. */
int gn_pipe_kind_is_async(enum gn_pipe_kind kind);

struct gn_pipe_schedule {
	enum gn_pipe_kind kind;
	int stage, stages;
	int micro;   /* micro-batches of a batch */
	int batches; /* micro-batches of a step, or of an asynchronous run: of global batches that pipelines share unevenly no multiple of micro */
};

struct gn_pipe_action {
	int is_backward;
	int batch; /* micro-batch of the step */
};

/* Number i of 2 * batches. */
struct gn_pipe_action gn_pipe_schedule_action(const struct gn_pipe_schedule *s, int i);
/* The most micro-batches that are between forward and backward at one time: micro, if there are so many; stages - stage, if there are so many, and of pipedream
 * in any case, whose runs differ; 1 of decoupled. */
int gn_pipe_schedule_in_flight(const struct gn_pipe_schedule *s);
/* The share of a step that a stage idles when all stages take equally long, and messages no time: (stages - 1) / (n + stages - 1) with
 * n = micro of gpipe, and batches of 1f1b and pipedream; 0 of decoupled, where no stage waits for a gradient. */
double gn_pipe_schedule_bubble(const struct gn_pipe_schedule *s);

#endif
