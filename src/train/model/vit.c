/* Dosovitskiy et al. 2021, "An image is worth 16x16 words": ViT-B/16 with torchvision's names. The head reads the class token alone, so
 * that what follows the last attention is computed for that token only. */
#include "src/train/model/model_internal.h"

enum { WIDTH = 768, HEADS = 12, LAYERS = 12, PATCH = 16 };

static int add_layer(struct gn_model *m, int index, int x)
{
	char prefix[GN_MODEL_NAME], name[GN_MODEL_NAME];
	int y;

	gn_model_named(prefix, "encoder.layers.encoder_layer_%d", index);
	y = gn_model_add_layer_norm(m, gn_model_named(name, "%s.ln_1", prefix), x, 1e-6);
	y = gn_model_add_named_linear(m, gn_model_named(name, "%s.self_attention", prefix), y, 3 * WIDTH, "in_proj_weight", "in_proj_bias");
	y = gn_model_add_attention(m, y, HEADS);
	if (index == LAYERS - 1) {
		y = gn_model_add_first_pixel(m, y);
		x = gn_model_add_first_pixel(m, x);
	}
	x = gn_model_add_sum(m, gn_model_add_pixel_linear(m, gn_model_named(name, "%s.self_attention.out_proj", prefix), y, WIDTH), x);
	y = gn_model_add_layer_norm(m, gn_model_named(name, "%s.ln_2", prefix), x, 1e-6);
	y = gn_model_add_activation(m, gn_model_add_pixel_linear(m, gn_model_named(name, "%s.mlp.0", prefix), y, 4 * WIDTH), GN_ACTIVATION_GELU);
	return gn_model_add_sum(m, gn_model_add_pixel_linear(m, gn_model_named(name, "%s.mlp.3", prefix), y, WIDTH), x);
}

void gn_model_build_vit_b_16(struct gn_model *m)
{
	int x = gn_model_add_conv(m, "conv_proj", 0, WIDTH, (struct gn_window){PATCH, PATCH, 0}, 1);

	m->init_rule = GN_INIT_VIT;
	x = gn_model_add_tokens(m, x);
	for (int i = 0; i < LAYERS; i++)
		x = add_layer(m, i, x);
	gn_model_add_linear(m, "heads.head", gn_model_add_layer_norm(m, "encoder.ln", x, 1e-6), m->classes);
}
