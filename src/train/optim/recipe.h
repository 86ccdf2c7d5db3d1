/* Published recipes: which options they set, to what, and where that is published.
 *
 *   goyal        Goyal et al. 2017, "Accurate, large minibatch SGD: training ImageNet in 1 hour", arXiv 1706.02677: SGD with
 *                Nesterov's momentum 0.9, rate 0.1 for a batch of 256 scaled linearly, 5 epochs of warm-up, a tenth of the
 *                rate at epochs 30, 60 and 80 of 90, decay 1e-4 but not on batch norm, last gamma of each block 0.
 *   nvidia-50    NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, 50 epochs: SGD with momentum 0.875, rate 0.256 for a
 *                batch of 256 scaled linearly, 8 epochs of warm-up from 0, cosine, decay 1/32768, label smoothing 0.1.
 *   mlperf-lars  MLPerf training's reference convergence points of ResNet-50 (mlcommons/logging, rcps_resnet.json): LARS with
 *                trust coefficient 0.001, warm-up from 0, then a parabola down to 1e-4, label smoothing 0.1; the rate, warm-up,
 *                decay, momentum and epochs of the published batch that is nearest in ratio.
 *   torchvision-v1, -v2   the reference scripts' commands for ResNet50_Weights.IMAGENET1K_V1 and _V2.
 *   timm-a2, -a3          Wightman, Touvron and Jegou 2021, "ResNet strikes back", arXiv 2110.00476: LAMB, 300 and 100 epochs.
 *   ffcv-16 .. -88        FFCV's ResNet-50 by epochs: SGD, a triangle of the rate, images of 160 and then 192 pixels.
 *
 * What a recipe has and Gannet has not is listed, too. Thread safety: pure functions.
 */
#ifndef GN_TRAIN_OPTIM_RECIPE_H
#define GN_TRAIN_OPTIM_RECIPE_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

#include <stddef.h>
#include <stdint.h>

struct gn_recipe_choice {
	const char *option; /* its long name */
	char value[24];	    /* as on a command line */
	const char *source; /* where in the publication */
};

#define GN_RECIPE_CHOICES_MAX 32

struct gn_recipe {
	struct gn_recipe_choice choices[GN_RECIPE_CHOICES_MAX];
	size_t count;
	double epochs; /* that the schedule is made for */
	int64_t batch; /* the global batch that the values were published for; 0: any, by scaling */
	const char *title;	    /* what it is, and where it is published */
	const char *const *missing; /* parts of it that no option has, ended by NULL; NULL: none */
};

/* "goyal|nvidia-50|mlperf-lars|...": for option tables. */
extern const char gn_recipe_names[];
/* What the recipe says for a global batch (>= 1). An unknown name is GN_ERR_USAGE. */
enum gn_status gn_recipe_find(const char *name, int64_t global_batch, struct gn_recipe *out, struct gn_err *err);
/* For images of another side (0: the recipe's): what a recipe resizes to changes in the ratio of sides, in multiples of 8 while training.
 * The rate that warm-up begins with, where it is above 0, is one of the rate: it changes with the global batch as that does; scales: lr and
 * lr-batch are the recipe's. */
void gn_recipe_fit(struct gn_recipe *recipe, int64_t side, int64_t global_batch, int scales);
/* Appends the recipe for people, a line for each choice with its source, and one for each missing part. filled: by choice, whether it is
 * set; another value was given for the others. */
void gn_recipe_describe(const char *name, const struct gn_recipe *recipe, const int *filled, int64_t global_batch, struct gn_strbuf *out);

#endif
