/* Liu et al. 2022, "A ConvNet for the 2020s": ConvNeXt-T with torchvision's names, which are positions in sequences that include
 * permutations and activations. Linear layers over the channels of each pixel are convolutions of one pixel here. */
#include "src/train/model/model_internal.h"

static int add_block(struct gn_model *m, const char *prefix, int x, int channels, double drop_share)
{
	const struct gn_window seven = {7, 1, 3};
	char name[GN_MODEL_NAME];
	int y = gn_model_add_depthwise(m, gn_model_named(name, "%s.block.0", prefix), x, seven, 1);

	y = gn_model_add_layer_norm(m, gn_model_named(name, "%s.block.2", prefix), y, 1e-6);
	y = gn_model_add_pixel_linear(m, gn_model_named(name, "%s.block.3", prefix), y, 4 * channels);
	y = gn_model_add_activation(m, y, GN_ACTIVATION_GELU);
	y = gn_model_add_pixel_linear(m, gn_model_named(name, "%s.block.5", prefix), y, channels);
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
	char prefix[GN_MODEL_NAME], name[GN_MODEL_NAME];

	m->init_rule = GN_INIT_CONVNEXT;
	m->drop_path = 0.1;
	x = gn_model_add_layer_norm(m, "features.0.1", x, 1e-6);
	for (int s = 0; s < STAGES; s++) {
		for (int i = 0; i < blocks[s]; i++) {
			x = add_block(m, gn_model_named(prefix, "features.%d.%d", 2 * s + 1, i), x, channels[s], (double)index++ / (BLOCKS - 1));
		}
		if (s + 1 == STAGES)
			break;
		gn_model_named(prefix, "features.%d", 2 * s + 2);
		x = gn_model_add_layer_norm(m, gn_model_named(name, "%s.0", prefix), x, 1e-6);
		x = gn_model_add_conv(m, gn_model_named(name, "%s.1", prefix), x, channels[s + 1], (struct gn_window){2, 2, 0}, 1);
	}
	x = gn_model_add_layer_norm(m, "classifier.0", gn_model_add_adaptive_avg_pool(m, x, 1), 1e-6);
	gn_model_add_linear(m, "classifier.2", x, m->classes);
}
