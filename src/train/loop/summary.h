/* What a run logs for people when it starts and when it is done, in a line or two each, on rank 0.
 *
 * Internal to src/train. Neither collective nor blocking; failures to format a line leave it out.
 */
#ifndef GN_TRAIN_LOOP_SUMMARY_H
#define GN_TRAIN_LOOP_SUMMARY_H

#include "src/train/loop/session.h"

/* What options, recipe and network come to, as one line: input, augmentation, evaluation, optimizer, schedule, seed, and the images
 * that are not used in each epoch. */
void gn_summary_resolved(const struct gn_session *s, struct gn_strbuf *out);
/* Model, classes, images, global batch and steps to the end: "training lenet on DIR: 7000 images of 10 classes, ...", then
 * gn_summary_resolved, and warnings of a run that cannot do what was meant. Times of gn_summary_end begin here. */
void gn_summary_start(struct gn_session *s, uint64_t steps_left);
/* On rank 0: the method of compression and the bytes of a step; nothing without one. */
void gn_summary_compress(const struct gn_session *s);
/* Steps, time, images/s with all that interrupts training, top-1 of this start's evaluations, checkpoint. */
void gn_summary_end(const struct gn_session *s);

#endif
