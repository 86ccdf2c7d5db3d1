/* He, Zhang, Ren and Sun, "Deep residual learning for image recognition", 2015: the networks of table 1 with torchvision's names
 * and its stride in the 3x3 convolution ("v1.5"), and the 20-layer network of section 4.2 for small images, with projections
 * (option B) where the shape changes. */
#include "src/train/model/model_internal.h"

struct shape {
	int depth, bottleneck;
	int small; /* section 4.2: 3x3 stem without pooling, three stages of 16, 32, 64 channels */
	int blocks[4];
};

static const struct shape shapes[] = {
	{18, 0, 0, {2, 2, 2, 2}},   {34, 0, 0, {3, 4, 6, 3}},   {50, 1, 0, {3, 4, 6, 3}},
	{101, 1, 0, {3, 4, 23, 3}}, {152, 1, 0, {3, 8, 36, 3}}, {20, 0, 1, {3, 3, 3, 0}},
};

static const struct gn_window one = {1, 1, 0};

/* Appends a convolution and a batch norm named block + conv and block + norm. */
static int add_normed(struct gn_model *m, const char *block, const char *conv, const char *norm, int x, int channels,
		      struct gn_window window)
{
	char name[GN_MODEL_NAME];

	x = gn_model_add_conv(m, gn_model_named(name, "%s%s", block, conv), x, channels, window, 0);
	return gn_model_add_batch_norm(m, gn_model_named(name, "%s%s", block, norm), x);
}

static int add_block(struct gn_model *m, const struct shape *s, const char *block, int x, int width, int stride,
		     int project)
{
	struct gn_window three = {3, 1, 1}, three_strided = {3, stride, 1}, one_strided = {1, stride, 0};
	int out = s->bottleneck ? 4 * width : width, y, shortcut = x;

	if (s->bottleneck) {
		y = gn_model_add_relu(m, add_normed(m, block, "conv1", "bn1", x, width, one));
		y = gn_model_add_relu(m, add_normed(m, block, "conv2", "bn2", y, width, three_strided));
		y = add_normed(m, block, "conv3", "bn3", y, out, one);
	} else {
		y = gn_model_add_relu(m, add_normed(m, block, "conv1", "bn1", x, width, three_strided));
		y = add_normed(m, block, "conv2", "bn2", y, width, three);
	}
	if (project)
		shortcut = add_normed(m, block, "downsample.0", "downsample.1", x, out, one_strided);
	return gn_model_add_relu(m, gn_model_add_sum(m, y, shortcut));
}

static int add_stage(struct gn_model *m, const struct shape *s, int stage, int x, int width)
{
	char block[GN_MODEL_NAME];

	for (int i = 0; i < s->blocks[stage]; i++) {
		int first = i == 0;

		gn_model_named(block, "layer%d.%d.", stage + 1, i);
		x = add_block(m, s, block, x, width, first && stage ? 2 : 1, first && (stage || s->bottleneck));
	}
	return x;
}

void gn_model_build_resnet(struct gn_model *m, int depth)
{
	struct gn_window stem = {7, 2, 3}, small_stem = {3, 1, 1}, pool = {3, 2, 1};
	const struct shape *s = shapes;
	int x, width;

	while (s->depth != depth)
		s++;
	width = s->small ? 16 : 64;
	x = gn_model_add_relu(m, add_normed(m, "", "conv1", "bn1", 0, width, s->small ? small_stem : stem));
	if (!s->small)
		x = gn_model_add_max_pool(m, x, pool);
	for (int stage = 0; stage < 4; stage++, width *= 2)
		x = add_stage(m, s, stage, x, width);
	x = gn_model_add_adaptive_avg_pool(m, x, 1);
	gn_model_add_linear(m, "fc", x, m->classes);
}
