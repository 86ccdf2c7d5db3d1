/* Networks with all that a plan needs, in each precision of a GPU, and what prints TAP: for test_plan.c and plan_runs.c. */
#ifndef TESTS_GPU_PLAN_NET_H
#define TESTS_GPU_PLAN_NET_H

#include "src/train/optim/optimizer.h"
#include "src/train/plan/device.h"
#include "src/train/plan/weight_layouts.h"
#include "src/train/plan/plan.h"

#include <stdint.h>

enum { NET_PRECISIONS = 4 };

struct net_precision {
	const char *name;
	int bf16, fp16, tf32;
	double tolerance; /* of norms, for what a few layers compute */
	double gradients; /* of the worst tensor's norm: units of relus that flip change whole gradients */
};
extern const struct net_precision net_precisions[NET_PRECISIONS];

struct net {
	struct gn_model *model;
	struct gn_plan *plan;
	struct gn_weight_layouts *layouts;
	struct gn_plan_device device;
	struct gn_array arrays[3];
	struct gn_buffer accumulated;
	struct gn_optimizer *optimizer;
	float *params, *grads, *buffers; /* the host's copies of the arrays */
	float *images, *lambdas;
	struct gn_crop *crops; /* NULL: images are given as floats */
	uint8_t *pixels;	  /* of all crops */
	int32_t *labels, *pair_labels;
	int batch;
	struct gn_err err;
};

/* Points so far, and those that did not hold. */
extern int net_points, net_failed;
__attribute__((format(printf, 2, 3))) void net_point(int ok, const char *format, ...);

struct gn_plan_options net_on_gpu(const struct net_precision *p);
/* count zeros; ends the program when there is no memory. */
float *net_floats(size_t count);
/* plan_models.c: a family, or small_vit or small_mobile. */
enum gn_status net_model(const char *name, int classes, int side, struct gn_model **out, struct gn_err *err);
/* n is to be destroyed in any case. */
enum gn_status net_make(struct net *n, const char *model, int batch, int side, struct gn_plan_options o);
void net_destroy(struct net *n);
const void *net_input(const struct net *n);
struct gn_targets net_targets(const struct net *n);
/* Between the host's copies and the device; block. */
enum gn_status net_send(struct net *n);
enum gn_status net_fetch(struct net *n);
/* Forward, loss and backward, call by call, from and to the host's copies. */
enum gn_status net_pass(struct net *n, double *loss, const float **logits);
/* Of two vectors, by the length of b. */
double net_distance(const float *a, const float *b, size_t count);

/* plan_runs.c: steps that are queued. */
void check_runs(const struct net_precision *p);
void check_skip(void);

#endif
