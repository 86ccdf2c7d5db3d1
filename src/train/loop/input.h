/* How images become a network's input: sizes, normalisation, augmentation, from options or from a checkpoint. */
#ifndef GN_TRAIN_LOOP_INPUT_H
#define GN_TRAIN_LOOP_INPUT_H

#include "data/loader/loader.h"
#include "data/sample/order.h"
#include "src/train/checkpoint/checkpoint.h"
#include "src/train/loop/options.h"
#include "src/train/model/model.h"
#include "src/train/plan/plan.h"

/* "a" or, with three channels, "a,b,c" into three numbers; NULL leaves the usual ones: ImageNet's for colour, 0.5 for
 * grey. */
enum gn_status gn_input_parse(const char *mean, const char *deviation, int channels, struct gn_input_spec *out,
			      struct gn_err *err);
/* Refuses values that were meant for pixels in 0..255, GN_ERR_USAGE: of those that were given, means lie in 0..1 and deviations are
 * at most 1. spec: what gn_input_parse made of them. */
enum gn_status gn_input_check(const char *mean, const char *deviation, const struct gn_input_spec *spec, struct gn_err *err);
/* Warns where only the images of one, of the network's training or of the dataset in directory, were turned as their EXIF orientation says. */
void gn_input_compare_turned(const struct gn_input_spec *input, const char *directory, int exif_rotate, struct gn_log *log);
/* Of the options of training: mean and deviation, filter and resize. checked: refuses what gn_input_check() does. */
enum gn_status gn_input_of_train(const struct gn_train_options *o, int channels, int checked, struct gn_input_spec *out, struct gn_err *err);
/* "auto": random resized crops and flips for sides of 64 and more, shifts below; none, crop-flip, shift, shift-flip. */
enum gn_status gn_input_augment_parse(const char *text, int side, enum gn_augment *out, struct gn_err *err);
/* The fields that training and evaluation share. */
void gn_input_loader_options(const struct gn_input_spec *input, int channels, int side, struct gn_loader_options *out);
/* Whether a plan that trains with these options takes images as crops: a GPU does, of three channels. pixels: for the plan, when it does;
 * may be NULL. */
int gn_input_is_crops(const struct gn_input_spec *input, int channels, const struct gn_plan_options *on, struct gn_plan_pixels *pixels);
/* --sampling balanced over the classes of a dataset (data/sample/order.h); the caller destroys *out. "shuffled" and NULL: *out is NULL. */
enum gn_status gn_input_sampling(const char *sampling, const struct gn_dataset *dataset, uint64_t seed, struct gn_balance **out,
				 struct gn_err *err);
/* What training does to images: the fields of out that options o, input and the side of the images decide. full: the side that o means. */
enum gn_status gn_input_train_options(const struct gn_train_options *o, const struct gn_input_spec *input, int channels, int side, int full,
				      struct gn_loader_options *out, struct gn_err *err);
/* Sets the OpenMP threads of this process: threads, or when that is 0 this rank's share of the processors it may use. One rank a node warns
 * on log when they do not get them (gn_contention_watch()), until the log is NULL. */
void gn_input_threads(int64_t threads, const struct gn_world *world, struct gn_log *log);
/* SHA-256 of the class names in order. */
enum gn_status gn_input_classes_digest(const struct gn_dataset *dataset, char hex[65], struct gn_err *err);

#endif
