/* Published recipes: which options they set, and to what.
 *
 *   goyal        Goyal et al. 2017, "Accurate, large minibatch SGD: training ImageNet in 1 hour", arXiv 1706.02677: SGD with
 *                Nesterov's momentum 0.9, rate 0.1 for a batch of 256 scaled linearly, 5 epochs of warm-up, a tenth of the
 *                rate at epochs 30, 60 and 80 of 90, decay 1e-4 but not on batch norm, last gamma of each block 0.
 *   nvidia-50    NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, 50 epochs: SGD with momentum 0.875, rate 0.256 for a
 *                batch of 256 scaled linearly, 8 epochs of warm-up from 0, cosine, decay 1/32768, label smoothing 0.1.
 *   mlperf-lars  MLPerf training's reference convergence points of ResNet-50 (mlcommons/logging, rcps_resnet.json): LARS with
 *                trust coefficient 0.001, warm-up from 0, then a parabola down to 1e-4, label smoothing 0.1; the rate, warm-up,
 *                decay, momentum and epochs of the published batch that is nearest in ratio.
 *
 * Thread safety: pure functions.
 */
#ifndef GN_TRAIN_OPTIM_RECIPE_H
#define GN_TRAIN_OPTIM_RECIPE_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct gn_recipe_choice {
	const char *option; /* its long name */
	char value[24];	    /* as on a command line */
};

#define GN_RECIPE_CHOICES_MAX 24

struct gn_recipe {
	struct gn_recipe_choice choices[GN_RECIPE_CHOICES_MAX];
	size_t count;
	double epochs; /* that the schedule is made for */
	int64_t batch; /* the global batch that the values were published for; 0: any, by scaling */
};

/* "goyal|nvidia-50|mlperf-lars": for option tables. */
extern const char gn_recipe_names[];
/* What the recipe says for a global batch (>= 1). An unknown name is GN_ERR_USAGE. */
enum gn_status gn_recipe_find(const char *name, int64_t global_batch, struct gn_recipe *out, struct gn_err *err);

#endif
