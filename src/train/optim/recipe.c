#include "src/train/optim/recipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char gn_recipe_names[] = "goyal|nvidia-50|mlperf-lars|torchvision-v1|torchvision-v2|timm-a2|timm-a3|ffcv-16|ffcv-24|ffcv-32|ffcv-40|"
			       "ffcv-56|ffcv-88";

struct entry {
	const char *option, *value, *source;
};

/* Sections and tables are of the paper. */
static const struct entry goyal[] = {
	{"epochs", "90", "sec. 5.1"},
	{"optimizer", "sgd", "sec. 5.1"},
	{"lr", "0.1", "sec. 2.1: 0.1 k n / 256"},
	{"lr-batch", "256", "sec. 2.1"},
	{"lr-start", "-1", "sec. 2.2: gradual warm-up, from the rate of one worker"},
	{"warmup-epochs", "5", "sec. 2.2"},
	{"schedule", "step", "sec. 5.1"},
	{"milestones", "30,60,80", "sec. 5.1"},
	{"lr-factor", "0.1", "sec. 5.1"},
	{"momentum", "0.9", "sec. 5.1"},
	{"nesterov", "1", "sec. 5.1"},
	{"weight-decay", "1e-4", "sec. 5.1"},
	{"decay-all", "0", "sec. 5.1: not on batch norm"},
	{"label-smoothing", "0", "not used"},
	{"zero-gamma", "1", "sec. 5.1"},
	{NULL, NULL, NULL},
};

/* PyTorch/Classification/ConvNets/resnet50v1.5, training with mixed precision. */
static const struct entry nvidia[] = {
	{"epochs", "50", "README: 50 epochs"},
	{"optimizer", "sgd", "README: optimizer"},
	{"lr", "0.256", "README: 0.256 for a batch of 256"},
	{"lr-batch", "256", "README: linear scaling"},
	{"lr-start", "0", "README: linear warm-up"},
	{"lr-final", "0", "README: cosine"},
	{"warmup-epochs", "8", "main.py --warmup 8"},
	{"schedule", "cosine", "README: cosine"},
	{"momentum", "0.875", "README: momentum"},
	{"nesterov", "0", "README: optimizer"},
	{"decay-all", "0", "README: not on batch norm"},
	{"weight-decay", "3.0517578125e-05", "README: 1/32768"},
	{"label-smoothing", "0.1", "README: label smoothing"},
	{NULL, NULL, NULL},
};

static const char rcps[] = "rcps_resnet.json, the nearest batch";

static const struct entry mlperf[] = {
	{"optimizer", "lars", rcps},
	{"lr-batch", "0", "the rate is that of the batch"},
	{"lr-start", "0", "LARS of the MLPerf rules: warm-up from 0"},
	{"schedule", "polynomial", "LARS of the MLPerf rules"},
	{"lr-power", "2", "LARS of the MLPerf rules"},
	{"lr-final", "0.0001", "LARS of the MLPerf rules: end_lr"},
	{"trust", "0.001", "LARS of the MLPerf rules: eeta"},
	{"eps", "0", "LARS of the MLPerf rules"},
	{"nesterov", "0", "LARS of the MLPerf rules"},
	{"label-smoothing", "0.1", "rules: label smoothing"},
	{"decay-all", "0", "rules: not on batch norm and biases"},
	{NULL, NULL, NULL},
};

/* Defaults of references/classification/train.py, eight GPUs. */
static const struct entry torchvision_v1[] = {
	{"epochs", "90", "train.py --epochs"},
	{"optimizer", "sgd", "train.py --opt"},
	{"lr", "0.1", "train.py --lr, for 32 images on each of 8 GPUs"},
	{"lr-batch", "256", "the same; linear scaling by Goyal et al. 2017"},
	{"warmup-epochs", "0", "train.py --lr-warmup-epochs"},
	{"schedule", "step", "train.py --lr-scheduler steplr"},
	{"milestones", "30,60", "train.py --lr-step-size 30"},
	{"lr-factor", "0.1", "train.py --lr-gamma"},
	{"momentum", "0.9", "train.py --momentum"},
	{"nesterov", "0", "train.py --opt"},
	{"weight-decay", "1e-4", "train.py --weight-decay"},
	{"decay-all", "1", "train.py: one group of parameters"},
	{"label-smoothing", "0", "train.py --label-smoothing"},
	{"augment", "crop-flip", "presets.py"},
	{NULL, NULL, NULL},
};

static const struct entry torchvision_v2[] = {
	{"epochs", "600", "--epochs 600"},
	{"optimizer", "sgd", "--opt sgd"},
	{"lr", "0.5", "--lr 0.5, --batch-size 128 on each of 8 GPUs"},
	{"lr-batch", "1024", "the same; linear scaling by Goyal et al. 2017"},
	{"lr-start", "0.005", "--lr-warmup-decay 0.01"},
	{"lr-final", "0", "--lr-scheduler cosineannealinglr"},
	{"warmup-epochs", "5", "--lr-warmup-epochs 5"},
	{"schedule", "cosine", "--lr-scheduler cosineannealinglr"},
	{"momentum", "0.9", "train.py --momentum"},
	{"nesterov", "0", "--opt sgd"},
	{"weight-decay", "2e-5", "--weight-decay 0.00002"},
	{"decay-all", "0", "--norm-weight-decay 0.0; here not on biases either"},
	{"label-smoothing", "0.1", "--label-smoothing 0.1"},
	{"mixup", "0.2", "--mixup-alpha 0.2"},
	{"cutmix", "1", "--cutmix-alpha 1.0"},
	{"trivialaugment", "1", "--auto-augment ta_wide"},
	{"random-erasing", "0.1", "--random-erase 0.1"},
	{"ema", "0.999966", "--model-ema-decay 0.99998 --model-ema-steps 32, by step"},
	{"augment", "crop-flip", "presets.py"},
	{"side", "224", "presets.py: --val-crop-size 224"},
	{"resize-schedule", "0:176", "--train-crop-size 176"},
	{"resize", "232", "--val-resize-size 232"},
	{NULL, NULL, NULL},
};

static const char *const torchvision_v2_missing[] = {"repeated augmentation (--ra-sampler --ra-reps 4)", NULL};

/* Table 2, but for what it does not have: timm's own defaults of that time. */
static const struct entry timm[] = {
	{"optimizer", "lamb", "table 2"},
	{"lr-batch", "0", "the rate is that of the batch"},
	{"lr-start", "0.0001", "timm's train.py --warmup-lr"},
	{"lr-final", "0.000001", "timm's train.py --min-lr"},
	{"warmup-epochs", "5", "table 2"},
	{"schedule", "cosine", "table 2"},
	{"momentum", "0.9", "timm's lamb.py: betas"},
	{"beta2", "0.999", "timm's lamb.py: betas"},
	{"clip", "1", "timm's lamb.py: max_grad_norm"},
	{"weight-decay", "0.02", "table 2"},
	{"decay-all", "0", "timm: not on vectors"},
	{"label-smoothing", "0", "table 2"},
	{"mixup", "0.1", "table 2"},
	{"cutmix", "1", "table 2"},
	{"augment", "crop-flip", "table 2"},
	{"interpolation", "bicubic", "timm's resnet.py: interpolation"},
	{"side", "224", "table 2: test resolution"},
	{"resize", "235", "table 2: test crop ratio 0.95"},
	{NULL, NULL, NULL},
};

/* Magnitudes of 0 to 10 in the paper, of 0 to 30 in --randaugment; timm applies two operations. */
static const struct entry timm_a2[] = {
	{"epochs", "300", "table 2"},
	{"lr", "0.005", "table 2"},
	{"randaugment", "2,21", "table 2: 7 of 10, without the deviation of 0.5"},
	{NULL, NULL, NULL},
};

static const struct entry timm_a3[] = {
	{"epochs", "100", "table 2"},
	{"lr", "0.008", "table 2"},
	{"resize-schedule", "0:160", "table 2: train resolution"},
	{"randaugment", "2,18", "table 2: 6 of 10, without the deviation of 0.5"},
	{NULL, NULL, NULL},
};

static const char *const timm_a2_missing[] = {
	"binary cross-entropy (cross-entropy is computed instead)", "repeated augmentation", "stochastic depth 0.05 of residual networks",
	NULL};

static const char *const timm_a3_missing[] = {
	"binary cross-entropy (cross-entropy is computed instead)", NULL};

/* rn50_configs/, which differ in length only; train_imagenet.py. */
static const struct entry ffcv[] = {
	{"optimizer", "sgd", "training.optimizer"},
	{"lr", "1.7", "lr.lr, training.batch_size 512 on each of 8 GPUs"},
	{"lr-batch", "4096", "the same; linear scaling by Goyal et al. 2017"},
	{"lr-start", "0.00017", "get_cyclic_lr: 1e-4 of the rate"},
	{"lr-final", "0", "get_cyclic_lr"},
	{"warmup-epochs", "2", "lr.lr_peak_epoch"},
	{"schedule", "polynomial", "lr.lr_schedule_type cyclic"},
	{"lr-power", "1", "get_cyclic_lr: linear"},
	{"momentum", "0.9", "training.momentum"},
	{"nesterov", "0", "create_optimizer"},
	{"weight-decay", "1e-4", "training.weight_decay"},
	{"decay-all", "0", "training.bn_wd; here not on biases either"},
	{"label-smoothing", "0.1", "training.label_smoothing"},
	{"augment", "crop-flip", "create_train_loader"},
	{"side", "256", "validation.resolution"},
	{NULL, NULL, NULL},
};

static const char *const ffcv_missing[] = {"blur before strided convolutions (training.use_blurpool)",
					   "mirrored images in evaluation (validation.lr_tta)", NULL};

static const char ramp[] = "get_resolution: the epoch from which it is nearer to 192 than to 160";

/* What get_resolution() gives for 160 to 192 pixels: a ramp, rounded to multiples of 32. */
static const struct entry ffcv_lengths[][3] = {
	{{"epochs", "16", "training.epochs"}, {"resize-schedule", "0:160,12:192", ramp}, {NULL, NULL, NULL}},
	{{"epochs", "24", "training.epochs"}, {"resize-schedule", "0:160,19:192", ramp}, {NULL, NULL, NULL}},
	{{"epochs", "32", "training.epochs"}, {"resize-schedule", "0:160,25:192", ramp}, {NULL, NULL, NULL}},
	{{"epochs", "40", "training.epochs"}, {"resize-schedule", "0:160,32:192", ramp}, {NULL, NULL, NULL}},
	{{"epochs", "56", "training.epochs"}, {"resize-schedule", "0:160,45:192", ramp}, {NULL, NULL, NULL}},
	{{"epochs", "88", "training.epochs"}, {"resize-schedule", "0:160,71:192", ramp}, {NULL, NULL, NULL}},
};

static const char ffcv_title[] = "FFCV's ResNet-50, github.com/libffcv/ffcv-imagenet, rn50_configs";

/* parts: entries of the recipe, and of its family. missing and batch: as in struct gn_recipe. */
static const struct recipe {
	const char *name, *title;
	const struct entry *parts[2];
	const char *const *missing;
	int64_t batch;
} recipes[] = {
	{"goyal", "Goyal et al. 2017, arXiv 1706.02677: ResNet-50, 76.3 % top-1 on ImageNet", {goyal}, NULL, 0},
	{"nvidia-50", "NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, 50 epochs", {nvidia}, NULL, 0},
	{"mlperf-lars", "MLPerf training, github.com/mlcommons/logging, reference convergence points of ResNet-50", {mlperf}, NULL, 0},
	{"torchvision-v1", "github.com/pytorch/vision, references/classification: ResNet50_Weights.IMAGENET1K_V1, 76.13 %",
	 {torchvision_v1}, NULL, 0},
	{"torchvision-v2", "pytorch.org/blog/how-to-train-state-of-the-art-models-using-torchvision-latest-primitives: "
	 "ResNet50_Weights.IMAGENET1K_V2, 80.86 %", {torchvision_v2}, torchvision_v2_missing, 0},
	{"timm-a2", "Wightman et al. 2021, arXiv 2110.00476, procedure A2: ResNet-50, 79.8 %", {timm_a2, timm}, timm_a2_missing, 2048},
	{"timm-a3", "Wightman et al. 2021, arXiv 2110.00476, procedure A3: ResNet-50, 78.1 %", {timm_a3, timm}, timm_a3_missing, 2048},
	{"ffcv-16", ffcv_title, {ffcv_lengths[0], ffcv}, ffcv_missing, 0},
	{"ffcv-24", ffcv_title, {ffcv_lengths[1], ffcv}, ffcv_missing, 0},
	{"ffcv-32", ffcv_title, {ffcv_lengths[2], ffcv}, ffcv_missing, 0},
	{"ffcv-40", ffcv_title, {ffcv_lengths[3], ffcv}, ffcv_missing, 0},
	{"ffcv-56", ffcv_title, {ffcv_lengths[4], ffcv}, ffcv_missing, 0},
	{"ffcv-88", ffcv_title, {ffcv_lengths[5], ffcv}, ffcv_missing, 0},
};

/* epochs: until the rate has reached its end, which is the published number of decay steps, with the warm-up before it where
 * the run would otherwise have ended before it converged. */
static const struct mlperf_row {
	int64_t batch;
	double lr, warmup, decay, momentum;
	int epochs;
} mlperf_rows[] = {
	{1632, 7.4, 2, 5e-5, 0.9, 37},		    {3264, 10.5, 2, 5e-5, 0.9, 37},
	{4096, 10, 5, 2e-4, 0.9, 42},		    {8192, 17, 5, 2e-4, 0.9, 44},
	{13056, 12.8, 9, 2.5e-5, 0.9, 48},	    {32768, 21.2, 16, 2.5e-5, 0.94, 58},
	{49152, 19.405, 24, 1e-4, 0.951807, 71},    {58880, 23.246, 29, 1e-4, 0.951807, 82},
	{65536, 24.699, 31, 1e-4, 0.951807, 89},    {67840, 24.699, 31, 1e-4, 0.951807, 91},
};

static void choose(struct gn_recipe *r, const char *option, const char *value, const char *source)
{
	struct gn_recipe_choice *c = &r->choices[r->count++];

	c->option = option;
	c->source = source;
	snprintf(c->value, sizeof c->value, "%s", value);
}

static void choose_all(struct gn_recipe *r, const struct entry *entries)
{
	for (; entries && entries->option; entries++)
		choose(r, entries->option, entries->value, entries->source);
}

static void choose_number(struct gn_recipe *r, const char *option, double value)
{
	char text[24];

	snprintf(text, sizeof text, "%.10g", value);
	choose(r, option, text, rcps);
}

static void choose_row(struct gn_recipe *r, int64_t global_batch)
{
	const struct mlperf_row *best = mlperf_rows;

	for (size_t i = 1; i < sizeof mlperf_rows / sizeof *mlperf_rows; i++)
		if (fabs(log((double)mlperf_rows[i].batch / (double)global_batch)) <
		    fabs(log((double)best->batch / (double)global_batch)))
			best = &mlperf_rows[i];
	choose_number(r, "epochs", best->epochs);
	choose_number(r, "lr", best->lr);
	choose_number(r, "warmup-epochs", best->warmup);
	choose_number(r, "weight-decay", best->decay);
	choose_number(r, "momentum", best->momentum);
	r->batch = best->batch;
}

enum gn_status gn_recipe_find(const char *name, int64_t global_batch, struct gn_recipe *out, struct gn_err *err)
{
	const struct recipe *found = NULL;
	struct gn_recipe r = {.count = 0};

	for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
		if (!strcmp(recipes[i].name, name))
			found = &recipes[i];
	if (!found)
		return gn_err_set(err, GN_ERR_USAGE, "no recipe is called '%s'; there are %s", name, gn_recipe_names);
	r.title = found->title;
	r.missing = found->missing;
	r.batch = found->batch;
	if (found->parts[0] == mlperf)
		choose_row(&r, global_batch);
	choose_all(&r, found->parts[0]);
	choose_all(&r, found->parts[1]);
	for (size_t i = 0; i < r.count; i++)
		if (!strcmp(r.choices[i].option, "epochs"))
			r.epochs = strtod(r.choices[i].value, NULL);
	*out = r;
	return GN_OK;
}

static struct gn_recipe_choice *choice_of(struct gn_recipe *r, const char *option)
{
	for (size_t i = 0; i < r->count; i++)
		if (!strcmp(r->choices[i].option, option))
			return &r->choices[i];
	return NULL;
}

/* "0:160,12:192" */
static void fit_schedule(char value[24], double ratio)
{
	char out[24] = "", *at = value;
	size_t len = 0;
	int epoch, side, read;

	while (sscanf(at, "%d:%d%n", &epoch, &side, &read) == 2) {
		long fitted = lround(side * ratio / 8) * 8;

		len += (size_t)snprintf(out + len, sizeof out - len, "%s%d:%ld", len ? "," : "", epoch, fitted < 8 ? 8 : fitted);
		at += read + (at[read] == ',');
	}
	memcpy(value, out, sizeof out);
}

void gn_recipe_fit(struct gn_recipe *r, int64_t side, int64_t global_batch, int scales)
{
	struct gn_recipe_choice *own = choice_of(r, "side"), *resize = choice_of(r, "resize"), *schedule = choice_of(r, "resize-schedule");
	struct gn_recipe_choice *start = choice_of(r, "lr-start"), *batch = choice_of(r, "lr-batch");
	double ratio = own && side ? (double)side / strtod(own->value, NULL) : 1;

	if (ratio != 1 && resize)
		snprintf(resize->value, sizeof resize->value, "%ld", lround(strtod(resize->value, NULL) * ratio));
	if (ratio != 1 && schedule)
		fit_schedule(schedule->value, ratio);
	if (scales && start && batch && strtod(start->value, NULL) > 0 && strtod(batch->value, NULL) > 0)
		snprintf(start->value, sizeof start->value, "%.6g",
			 strtod(start->value, NULL) * (double)global_batch / strtod(batch->value, NULL));
}

void gn_recipe_describe(const char *name, const struct gn_recipe *recipe, const int *filled, int64_t global_batch, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "%s: %s\nfor a global batch of %lld", name, recipe->title, (long long)global_batch);
	if (recipe->batch && recipe->batch != global_batch)
		gn_strbuf_printf(out, ", published for %lld", (long long)recipe->batch);
	gn_strbuf_puts(out, "\n");
	for (size_t i = 0; i < recipe->count; i++) {
		const struct gn_recipe_choice *c = &recipe->choices[i];
		int width = (int)(strlen(c->option) + strlen(c->value) + 3);

		gn_strbuf_printf(out, "  %s = %s%*s%s%s\n", c->option, c->value, width < 36 ? 36 - width : 1, "", c->source,
				 filled[i] ? "" : "; not set: another value is given");
	}
	for (const char *const *m = recipe->missing; m && *m; m++)
		gn_strbuf_printf(out, "  missing here: %s\n", *m);
}
