/* Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014, configuration D, with the
 * names of torchvision's vgg16: positions in a sequence that includes relu, pooling and dropout. */
#include "src/train/model/model_internal.h"

static int add_features(struct gn_model *m)
{
	static const int maps[] = {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0};
	const struct gn_window three = {3, 1, 1}, halve = {2, 2, 0};
	int x = 0, position = 0;
	char name[GN_MODEL_NAME];

	for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
		if (!maps[i]) {
			x = gn_model_add_max_pool(m, x, halve);
			position++;
			continue;
		}
		x = gn_model_add_relu(m, gn_model_add_conv(m, gn_model_named(name, "features.%d", position), x, maps[i], three, 1));
		position += 2;
	}
	return x;
}

void gn_model_build_vgg16(struct gn_model *m)
{
	int x = gn_model_add_adaptive_avg_pool(m, add_features(m), 7);

	m->init_rule = GN_INIT_VGG;
	x = gn_model_add_relu(m, gn_model_add_linear(m, "classifier.0", x, 4096));
	x = gn_model_add_dropout(m, x, 0.5);
	x = gn_model_add_relu(m, gn_model_add_linear(m, "classifier.3", x, 4096));
	x = gn_model_add_dropout(m, x, 0.5);
	gn_model_add_linear(m, "classifier.6", x, m->classes);
}
