/* Graph construction for the families of networks. Private to model.c and the family files.
 *
 * Every function appends a node with its parameters in torchvision's order and returns its number. A failure (no memory, name too
 * long) is remembered in the model and reported by gn_model_create().
 */
#ifndef GN_TRAIN_MODEL_MODEL_INTERNAL_H
#define GN_TRAIN_MODEL_MODEL_INTERNAL_H

#include "src/train/model/model.h"

struct gn_model {
	const char *name;
	int classes, channels, side;
	int failed;
	int node_count, param_count, buffer_count;
	size_t node_room, param_room, buffer_room;
	struct gn_shm *nodes;
	struct gn_map {
		int c, h, w;
	} *maps; /* per node; sides may be <= 0, which the plan refuses */
	struct gn_param *params, *buffers;
	size_t param_elements, buffer_elements;
	enum gn_init_rule init_rule;
	double norm_eps, norm_momentum; /* of batch norms that are added */
	double drop_path;
	struct gn_model_origin origin; /* of a part */
	int is_cut_off;		       /* another part follows */
	struct gn_model_tensor tensor; /* of a slice */
};

struct gn_window {
	int kernel, stride, pad;
};

enum { GN_MODEL_NAME = 64 };
/* Writes a name, and returns it. */
const char *gn_model_named(char name[GN_MODEL_NAME], const char *format, ...) __attribute__((format(printf, 2, 3)));

int gn_model_add_conv(struct gn_model *m, const char *name, int input, int channels_out, struct gn_window window,
		      int bias);
/* Each channel by itself. */
int gn_model_add_depthwise(struct gn_model *m, const char *name, int input, struct gn_window window, int bias);
int gn_model_add_batch_norm(struct gn_model *m, const char *name, int input);
int gn_model_add_layer_norm(struct gn_model *m, const char *name, int input, double eps);
/* A linear layer over the channels of each pixel: a convolution whose weight is OI. */
int gn_model_add_pixel_linear(struct gn_model *m, const char *name, int input, int features);
/* The same with full names of weight and bias. */
int gn_model_add_named_linear(struct gn_model *m, const char *name, int input, int features, const char *weight, const char *bias);
/* Parameters class_token and encoder.pos_embedding. */
int gn_model_add_tokens(struct gn_model *m, int input);
int gn_model_add_attention(struct gn_model *m, int input, int heads);
int gn_model_add_first_pixel(struct gn_model *m, int input);
int gn_model_add_relu(struct gn_model *m, int input);
int gn_model_add_activation(struct gn_model *m, int input, enum gn_activation kind);
/* factors: a node of maps of one pixel. */
int gn_model_add_scale(struct gn_model *m, int input, int factors);
int gn_model_add_channel_scale(struct gn_model *m, const char *name, int input);
int gn_model_add_drop_path(struct gn_model *m, int input, double share);
int gn_model_add_max_pool(struct gn_model *m, int input, struct gn_window window);
int gn_model_add_adaptive_avg_pool(struct gn_model *m, int input, int out_side);
int gn_model_add_sum(struct gn_model *m, int a, int b);
int gn_model_add_linear(struct gn_model *m, const char *name, int input, int features);
int gn_model_add_dropout(struct gn_model *m, int input, double rate);

void gn_model_build_lenet(struct gn_model *m);
/* depth: 18, 20, 34, 50, 101 or 152. */
void gn_model_build_resnet(struct gn_model *m, int depth);
void gn_model_build_vgg16(struct gn_model *m);
void gn_model_build_mobilenet_v2(struct gn_model *m);
void gn_model_build_mobilenet_v3_large(struct gn_model *m);
void gn_model_build_efficientnet_b0(struct gn_model *m);
void gn_model_build_convnext_tiny(struct gn_model *m);
void gn_model_build_vit_b_16(struct gn_model *m);

#endif
