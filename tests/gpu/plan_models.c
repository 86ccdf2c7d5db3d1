/* Small networks with the operators of ViT, of mobile networks and of ConvNeXt, which no family has so small. */
#include "src/train/model/model_internal.h"
#include "tests/gpu/plan_net.h"

#include <stdlib.h>
#include <string.h>

static int add_encoder_layer(struct gn_model *m, int x, const char *const names[6], int is_last)
{
	int y = gn_model_add_pixel_linear(m, names[1], gn_model_add_layer_norm(m, names[0], x, 1e-6), 72);

	y = gn_model_add_attention(m, y, 3);
	if (is_last) {
		y = gn_model_add_first_pixel(m, y);
		x = gn_model_add_first_pixel(m, x);
	}
	x = gn_model_add_sum(m, gn_model_add_pixel_linear(m, names[2], y, 24), x);
	y = gn_model_add_pixel_linear(m, names[4], gn_model_add_layer_norm(m, names[3], x, 1e-6), 48);
	y = gn_model_add_activation(m, y, GN_ACTIVATION_GELU);
	return gn_model_add_sum(m, gn_model_add_pixel_linear(m, names[5], y, 24), x);
}

/* Patches of 4, 24 channels, two layers of three heads. */
static void build_small_vit(struct gn_model *m)
{
	static const char *const first[] = {"0.ln_1", "0.in", "0.out", "0.ln_2", "0.mlp_1", "0.mlp_2"};
	static const char *const second[] = {"1.ln_1", "1.in", "1.out", "1.ln_2", "1.mlp_1", "1.mlp_2"};
	int x = gn_model_add_tokens(m, gn_model_add_conv(m, "patches", 0, 24, (struct gn_window){4, 4, 0}, 1));

	x = add_encoder_layer(m, add_encoder_layer(m, x, first, 0), second, 1);
	gn_model_add_linear(m, "head", gn_model_add_layer_norm(m, "ln", x, 1e-6), m->classes);
}

/* An inverted residual with squeeze and excitation and stochastic depth, then a block of ConvNeXt. */
static void build_small_mobile(struct gn_model *m)
{
	const struct gn_window pixel = {1, 1, 0};
	int x = gn_model_add_batch_norm(m, "bn_0", gn_model_add_conv(m, "conv_0", 0, 16, (struct gn_window){3, 2, 1}, 0)), y, f;

	x = gn_model_add_activation(m, x, GN_ACTIVATION_HARD_SWISH);
	y = gn_model_add_batch_norm(m, "bn_1", gn_model_add_depthwise(m, "conv_1", x, (struct gn_window){3, 1, 1}, 0));
	y = gn_model_add_activation(m, y, GN_ACTIVATION_SILU);
	f = gn_model_add_relu(m, gn_model_add_conv(m, "squeeze", gn_model_add_adaptive_avg_pool(m, y, 1), 8, pixel, 1));
	f = gn_model_add_activation(m, gn_model_add_conv(m, "excite", f, 16, pixel, 1), GN_ACTIVATION_HARD_SIGMOID);
	y = gn_model_add_conv(m, "conv_2", gn_model_add_scale(m, y, f), 16, pixel, 0);
	x = gn_model_add_sum(m, gn_model_add_drop_path(m, gn_model_add_batch_norm(m, "bn_2", y), 1), x);
	y = gn_model_add_layer_norm(m, "ln", gn_model_add_depthwise(m, "conv_3", x, (struct gn_window){7, 1, 3}, 1), 1e-6);
	y = gn_model_add_activation(m, gn_model_add_pixel_linear(m, "mlp_1", y, 32), GN_ACTIVATION_GELU);
	y = gn_model_add_channel_scale(m, "scale", gn_model_add_pixel_linear(m, "mlp_2", y, 16));
	x = gn_model_add_adaptive_avg_pool(m, gn_model_add_sum(m, y, x), 1);
	gn_model_add_linear(m, "head", x, m->classes);
}

enum gn_status net_model(const char *name, int classes, int side, struct gn_model **out, struct gn_err *err)
{
	struct gn_model *m;

	if (strcmp(name, "small_vit") && strcmp(name, "small_mobile"))
		return gn_model_create(name, classes, 0, side, out, err);
	/* the input alone of a family */
	if (gn_model_create("lenet", classes, 3, side, &m, err))
		return GN_ERR_FAILED;
	m->node_count = 1;
	m->param_count = m->buffer_count = 0;
	m->param_elements = m->buffer_elements = 0;
	m->name = name;
	if (!strcmp(name, "small_vit"))
		build_small_vit(m);
	else
		build_small_mobile(m);
	*out = m;
	return m->failed ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", name) : GN_OK;
}
