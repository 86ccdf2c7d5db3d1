/* One rank's stage of a pipeline: what it exchanges with the stages before and behind it, and in which order it works.
 *
 * Activations go from stage to stage in the layout of the plan that computed them, followed by the labels of their images, which the last
 * stage needs; gradients of activations go back. Each stage has a rank in a communicator of one pipeline, its number.
 *
 * In an asynchronous run (pipe_schedule.h) numbers go back with each gradient, so that what later stages know reaches the first one; and each
 * message forward says how many micro-batches the run has, which the first stage may reduce.
 *
 * Thread safety: one thread, the communicator's. Blocking calls return GN_ERR_PEER_LOST, with both stages named, when a rank is lost.
 */
#ifndef GN_TRAIN_PARALLEL_PIPE_STAGE_H
#define GN_TRAIN_PARALLEL_PIPE_STAGE_H

#include "kernels/compute.h"
#include "src/train/parallel/pipe_schedule.h"
#include "transport/coll/comm.h"

struct gn_pipe_stage;

/* Floats that go back with the gradient of a micro-batch. */
enum { GN_PIPE_NEWS = 16 };
/* Messages that are received ahead: a run is not reduced to fewer than this after the next forward of the first stage. */
enum { GN_PIPE_AHEAD = 2 };

/* Local. comm: of this pipeline, borrowed; schedule: stage and stages are set here. */
enum gn_status gn_pipe_stage_create(struct gn_comm *comm, const struct gn_pipe_schedule *schedule, struct gn_pipe_stage **out, struct gn_err *err);
/* NULL is fine. */
void gn_pipe_stage_destroy(struct gn_pipe_stage *p);
const struct gn_pipe_schedule *gn_pipe_stage_schedule(const struct gn_pipe_stage *p);
int gn_pipe_stage_is_first(const struct gn_pipe_stage *p);
int gn_pipe_stage_is_last(const struct gn_pipe_stage *p);

/* --- making plans; collective, stage by stage: each waits for the one before it, then tells the next --- */

/* Blocks. The layout of what the stage before sends; of the first stage nothing. GN_ERR_FAILED: an earlier stage has no plan. */
enum gn_status gn_pipe_stage_get_layout(struct gn_pipe_stage *p, struct gn_layout *in, struct gn_err *err);
/* Tells the next stage the layout of this one's output, or NULL if there is no plan; then, if there is, makes messages for batches of so
 * many images. */
enum gn_status gn_pipe_stage_connect(struct gn_pipe_stage *p, const struct gn_layout *in, const struct gn_layout *out, int images,
				     struct gn_err *err);
/* Of one micro-batch to the next stage; of the last 0. The gradient that comes back has as many, but for the labels. */
size_t gn_pipe_stage_output_bytes(const struct gn_pipe_stage *p);

/* --- a step: begin, the schedule's actions, end, sums --- */

/* Of so many micro-batches, the schedule's from now on: of a step, or an asynchronous run; the same on all stages. */
enum gn_status gn_pipe_stage_begin(struct gn_pipe_stage *p, int batches, struct gn_err *err);
/* The first stage, in an asynchronous run: it has only so many micro-batches, which the others learn with their next input. */
void gn_pipe_stage_shorten(struct gn_pipe_stage *p, int batches);
/* Not of the first stage. Blocks until the next micro-batch is there: valid until gn_pipe_stage_input_done. */
enum gn_status gn_pipe_stage_input(struct gn_pipe_stage *p, const void **activations, struct gn_targets *targets, struct gn_err *err);
enum gn_status gn_pipe_stage_input_done(struct gn_pipe_stage *p, struct gn_err *err);
/* Not of the last. Copies both; blocks while two earlier ones are on their way. */
enum gn_status gn_pipe_stage_output(struct gn_pipe_stage *p, const void *activations, const struct gn_targets *targets, struct gn_err *err);
/* Not of the last. Blocks until the gradient of the next output is there: valid until gn_pipe_stage_gradient_done. news: GN_PIPE_NEWS floats
 * that came with it, and in an asynchronous run alone: likewise. */
enum gn_status gn_pipe_stage_gradient(struct gn_pipe_stage *p, const void **gradient, const float **news, struct gn_err *err);
enum gn_status gn_pipe_stage_gradient_done(struct gn_pipe_stage *p, struct gn_err *err);
/* Not of the first. As output. news: NULL, but in an asynchronous run. */
enum gn_status gn_pipe_stage_give_gradient(struct gn_pipe_stage *p, const void *gradient, const float *news, struct gn_err *err);
/* Makes progress on messages; does not block. */
void gn_pipe_stage_poll(struct gn_pipe_stage *p);
enum gn_status gn_pipe_stage_end(struct gn_pipe_stage *p, struct gn_err *err);
/* Collective; blocks. Host memory: values become their sums over the stages, the same bits on all. */
enum gn_status gn_pipe_stage_sum(struct gn_pipe_stage *p, float *values, size_t count, struct gn_err *err);
/* Where ranks divide the stage by channels: what the next one's doubles are summed over first. Borrowed. */
void gn_pipe_stage_set_slices(struct gn_pipe_stage *p, struct gn_update_group *slices);
/* The same of doubles, for an optimizer whose gradient's norm is over all stages, and their slices. Borrowed. */
struct gn_update_group *gn_pipe_stage_group(struct gn_pipe_stage *p);
/* Since creation: seconds that this stage waited for others, but for sums; bytes that it sent to them. */
double gn_pipe_stage_waited_s(const struct gn_pipe_stage *p);
uint64_t gn_pipe_stage_sent_bytes(const struct gn_pipe_stage *p);

#endif
