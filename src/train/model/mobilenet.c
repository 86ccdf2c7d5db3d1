/* Networks of inverted residual blocks with torchvision's names: Sandler et al. 2018, "MobileNetV2: inverted residuals and linear
 * bottlenecks"; Howard et al. 2019, "Searching for MobileNetV3"; Tan and Le 2019, "EfficientNet: rethinking model scaling for
 * convolutional neural networks"; with squeeze and excitation (Hu et al. 2018) in the latter two. */
#include "src/train/model/model_internal.h"

/* What follows a batch norm. */
enum active { LINEAR, RELU, RELU6, HARD_SWISH, SILU };

static int add_active(struct gn_model *m, int x, enum active active)
{
	switch (active) {
	case RELU:
		return gn_model_add_relu(m, x);
	case RELU6:
		return gn_model_add_activation(m, x, GN_ACTIVATION_RELU6);
	case HARD_SWISH:
		return gn_model_add_activation(m, x, GN_ACTIVATION_HARD_SWISH);
	case SILU:
		return gn_model_add_activation(m, x, GN_ACTIVATION_SILU);
	case LINEAR:
		break;
	}
	return x;
}

/* torchvision's Conv2dNormActivation: prefix.0 and prefix.1; a depthwise one where channels is 0. */
static int add_normed(struct gn_model *m, const char *prefix, int x, int channels, int kernel, int stride, enum active active)
{
	const struct gn_window window = {kernel, stride, (kernel - 1) / 2};
	char name[GN_MODEL_NAME];

	gn_model_named(name, "%s.0", prefix);
	x = channels ? gn_model_add_conv(m, name, x, channels, window, 0) : gn_model_add_depthwise(m, name, x, window, 0);
	return add_active(m, gn_model_add_batch_norm(m, gn_model_named(name, "%s.1", prefix), x), active);
}

/* Feature number index: expansion by a factor, a depthwise convolution, and a projection without activation. */
static int add_v2_block(struct gn_model *m, int index, int x, int in, int factor, int out, int stride)
{
	char prefix[GN_MODEL_NAME], name[GN_MODEL_NAME];
	int y = x, at = 0;

	gn_model_named(prefix, "features.%d.conv", index);
	if (factor > 1) {
		y = add_normed(m, gn_model_named(name, "%s.%d", prefix, at++), y, in * factor, 1, 1, RELU6);
	}
	y = add_normed(m, gn_model_named(name, "%s.%d", prefix, at++), y, 0, 3, stride, RELU6);
	y = gn_model_add_conv(m, gn_model_named(name, "%s.%d", prefix, at++), y, out, (struct gn_window){1, 1, 0}, 0);
	y = gn_model_add_batch_norm(m, gn_model_named(name, "%s.%d", prefix, at), y);
	return stride == 1 && in == out ? gn_model_add_sum(m, y, x) : y;
}

void gn_model_build_mobilenet_v2(struct gn_model *m)
{
	static const struct {
		int factor, channels, blocks, stride;
	} stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
	int x = add_normed(m, "features.0", 0, 32, 3, 2, RELU6), channels = 32, index = 1;
	char name[GN_MODEL_NAME];

	for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
		for (int i = 0; i < stages[s].blocks; i++) {
			x = add_v2_block(m, index++, x, channels, stages[s].factor, stages[s].channels, i ? 1 : stages[s].stride);
			channels = stages[s].channels;
		}
	x = add_normed(m, gn_model_named(name, "features.%d", index), x, 1280, 1, 1, RELU6);
	x = gn_model_add_dropout(m, gn_model_add_adaptive_avg_pool(m, x, 1), 0.2);
	gn_model_add_linear(m, "classifier.1", x, m->classes);
	m->init_rule = GN_INIT_VGG;
}

/* An inverted residual of MobileNetV3 and EfficientNet. */
struct block {
	int in, expanded, out, kernel, stride;
	int squeezed; /* channels between squeeze and excitation; 0: none */
	enum active active;
	double drop_share; /* see gn_model_add_drop_path() */
};

/* Each map is scaled by a function of the means of all. */
static int add_squeeze(struct gn_model *m, const char *prefix, int x, const struct block *b)
{
	const struct gn_window one = {1, 1, 0};
	int f = gn_model_add_adaptive_avg_pool(m, x, 1);
	char name[GN_MODEL_NAME];

	f = add_active(m, gn_model_add_conv(m, gn_model_named(name, "%s.fc1", prefix), f, b->squeezed, one, 1), b->active == SILU ? SILU : RELU);
	f = gn_model_add_conv(m, gn_model_named(name, "%s.fc2", prefix), f, b->expanded, one, 1);
	f = gn_model_add_activation(m, f, b->active == SILU ? GN_ACTIVATION_SIGMOID : GN_ACTIVATION_HARD_SIGMOID);
	return gn_model_add_scale(m, x, f);
}

static int add_block(struct gn_model *m, const char *prefix, int x, const struct block *b)
{
	char name[GN_MODEL_NAME];
	int y = x, at = 0;

	if (b->expanded != b->in) {
		y = add_normed(m, gn_model_named(name, "%s.block.%d", prefix, at++), y, b->expanded, 1, 1, b->active);
	}
	y = add_normed(m, gn_model_named(name, "%s.block.%d", prefix, at++), y, 0, b->kernel, b->stride, b->active);
	if (b->squeezed) {
		y = add_squeeze(m, gn_model_named(name, "%s.block.%d", prefix, at++), y, b);
	}
	y = add_normed(m, gn_model_named(name, "%s.block.%d", prefix, at), y, b->out, 1, 1, LINEAR);
	if (b->stride != 1 || b->in != b->out)
		return y;
	if (b->drop_share > 0)
		y = gn_model_add_drop_path(m, y, b->drop_share);
	return gn_model_add_sum(m, y, x);
}

void gn_model_build_mobilenet_v3_large(struct gn_model *m)
{
	static const struct block blocks[] = {
		{16, 16, 16, 3, 1, 0, RELU, 0},		{16, 64, 24, 3, 2, 0, RELU, 0},		{24, 72, 24, 3, 1, 0, RELU, 0},
		{24, 72, 40, 5, 2, 24, RELU, 0},	{40, 120, 40, 5, 1, 32, RELU, 0},	{40, 120, 40, 5, 1, 32, RELU, 0},
		{40, 240, 80, 3, 2, 0, HARD_SWISH, 0},	{80, 200, 80, 3, 1, 0, HARD_SWISH, 0},	{80, 184, 80, 3, 1, 0, HARD_SWISH, 0},
		{80, 184, 80, 3, 1, 0, HARD_SWISH, 0},	{80, 480, 112, 3, 1, 120, HARD_SWISH, 0}, {112, 672, 112, 3, 1, 168, HARD_SWISH, 0},
		{112, 672, 160, 5, 2, 168, HARD_SWISH, 0}, {160, 960, 160, 5, 1, 240, HARD_SWISH, 0}, {160, 960, 160, 5, 1, 240, HARD_SWISH, 0},
	};
	int x, count = (int)(sizeof blocks / sizeof *blocks);
	char name[GN_MODEL_NAME];

	m->norm_eps = 1e-3;
	m->norm_momentum = 0.01;
	m->init_rule = GN_INIT_VGG;
	x = add_normed(m, "features.0", 0, 16, 3, 2, HARD_SWISH);
	for (int i = 0; i < count; i++) {
		x = add_block(m, gn_model_named(name, "features.%d", i + 1), x, &blocks[i]);
	}
	x = gn_model_add_adaptive_avg_pool(m, add_normed(m, gn_model_named(name, "features.%d", count + 1), x, 960, 1, 1, HARD_SWISH), 1);
	x = add_active(m, gn_model_add_linear(m, "classifier.0", x, 1280), HARD_SWISH);
	gn_model_add_linear(m, "classifier.3", gn_model_add_dropout(m, x, 0.2), m->classes);
}

void gn_model_build_efficientnet_b0(struct gn_model *m)
{
	enum { BLOCKS = 16 };
	static const struct {
		int factor, kernel, stride, channels, blocks;
	} stages[] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2}, {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
	int x = add_normed(m, "features.0", 0, 32, 3, 2, SILU), channels = 32, index = 0, count = (int)(sizeof stages / sizeof *stages);
	char name[GN_MODEL_NAME];

	m->init_rule = GN_INIT_EFFICIENTNET;
	m->drop_path = 0.2;
	for (int s = 0; s < count; s++)
		for (int i = 0; i < stages[s].blocks; i++) {
			const struct block b = {channels, channels * stages[s].factor, stages[s].channels, stages[s].kernel, i ? 1 : stages[s].stride,
						channels / 4, SILU, (double)index++ / BLOCKS};

			x = add_block(m, gn_model_named(name, "features.%d.%d", s + 1, i), x, &b);
			channels = stages[s].channels;
		}
	x = gn_model_add_adaptive_avg_pool(m, add_normed(m, gn_model_named(name, "features.%d", count + 1), x, 1280, 1, 1, SILU), 1);
	gn_model_add_linear(m, "classifier.1", gn_model_add_dropout(m, x, 0.2), m->classes);
}
