/* Liu et al. 2022, "A ConvNet for the 2020s": ConvNeXt-T with torchvision's names, which are positions in sequences that include
 * permutations and activations. Linear layers over the channels of each pixel are convolutions of one pixel here. */
#include "src/train/model/model_internal.h"

#include <stdio.h>

static const char *join(char name[48], const char *prefix, const char *suffix)
{
	snprintf(name, 48, "%s.%s", prefix, suffix);
	return name;
}

static int add_block(struct gn_model *m, const char *prefix, int x, int channels, double drop_share)
{
	const struct gn_window seven = {7, 1, 3};
	char name[48];
	int y = gn_model_add_depthwise(m, join(name, prefix, "block.0"), x, seven, 1);

	y = gn_model_add_layer_norm(m, join(name, prefix, "block.2"), y, 1e-6);
	y = gn_model_add_pixel_linear(m, join(name, prefix, "block.3"), y, 4 * channels);
	y = gn_model_add_activation(m, y, GN_ACTIVATION_GELU);
	y = gn_model_add_pixel_linear(m, join(name, prefix, "block.5"), y, channels);
	y = gn_model_add_channel_scale(m, prefix, y);
	if (drop_share > 0)
		y = gn_model_add_drop_path(m, y, drop_share);
	return gn_model_add_sum(m, y, x);
}

void gn_model_build_convnext_tiny(struct gn_model *m)
{
	enum { BLOCKS = 18, STAGES = 4 };
	static const int channels[STAGES] = {96, 192, 384, 768}, blocks[STAGES] = {3, 3, 9, 3};
	int x = gn_model_add_conv(m, "features.0.0", 0, channels[0], (struct gn_window){4, 4, 0}, 1), index = 0;
	char prefix[32], name[48];

	m->init_rule = GN_INIT_CONVNEXT;
	m->drop_path = 0.1;
	x = gn_model_add_layer_norm(m, "features.0.1", x, 1e-6);
	for (int s = 0; s < STAGES; s++) {
		for (int i = 0; i < blocks[s]; i++) {
			snprintf(prefix, sizeof prefix, "features.%d.%d", 2 * s + 1, i);
			x = add_block(m, prefix, x, channels[s], (double)index++ / (BLOCKS - 1));
		}
		if (s + 1 == STAGES)
			break;
		snprintf(prefix, sizeof prefix, "features.%d", 2 * s + 2);
		x = gn_model_add_layer_norm(m, join(name, prefix, "0"), x, 1e-6);
		x = gn_model_add_conv(m, join(name, prefix, "1"), x, channels[s + 1], (struct gn_window){2, 2, 0}, 1);
	}
	x = gn_model_add_layer_norm(m, "classifier.0", gn_model_add_adaptive_avg_pool(m, x, 1), 1e-6);
	gn_model_add_linear(m, "classifier.2", x, m->classes);
}
