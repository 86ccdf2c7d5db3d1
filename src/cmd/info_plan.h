/* The part of `gannet info` that tells what a training step or inference of a model does on this machine. */
#ifndef GN_CMD_INFO_PLAN_H
#define GN_CMD_INFO_PLAN_H

#include <stdint.h>

struct gn_info_plan_options {
	const char *model, *precision;
	int64_t batch, side, classes; /* side 0: the model's own */
	int inference, json;
	double gb_per_s, gflop_per_s; /* 0: measured */
};

/* Returns an enum gn_exit. */
int gn_info_plan(const struct gn_info_plan_options *options);

#endif
