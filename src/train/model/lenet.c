/* LeCun, Bottou, Bengio and Haffner, "Gradient-based learning applied to document recognition", 1998, in the variant of Caffe: two
 * convolutions with max pooling, 20 and 50 maps, and 500 hidden units. */
#include "src/train/model/model_internal.h"

void gn_model_build_lenet(struct gn_model *m)
{
	const struct gn_window five = {5, 1, 0}, halve = {2, 2, 0};
	int x = gn_model_add_conv(m, "conv1", 0, 20, five, 1);

	x = gn_model_add_max_pool(m, x, halve);
	x = gn_model_add_conv(m, "conv2", x, 50, five, 1);
	x = gn_model_add_max_pool(m, x, halve);
	x = gn_model_add_linear(m, "fc1", x, 500);
	x = gn_model_add_relu(m, x);
	gn_model_add_linear(m, "fc2", x, m->classes);
}
