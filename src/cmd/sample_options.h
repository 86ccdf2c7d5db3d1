/* What becomes of training images: options that gannet train and gannet preview share. They fill a struct gn_train_options.
 *
 * FIELD(name) is the offset of its field `name` in the command's target. An option that changes training images belongs here, so that
 * gannet preview shows what it does.
 */
#ifndef GN_CMD_SAMPLE_OPTIONS_H
#define GN_CMD_SAMPLE_OPTIONS_H

/* clang-format off */
#define GN_CMD_SAMPLE_OPTIONS(FIELD)                                                                                                  \
	{.name = "side", .kind = GN_OPTION_INT, .offset = FIELD(side), .value_name = "N", .initial = "0", .min = 0, .max = 4096,       \
	 .help = "side of the images in pixels; 0: the network's default (28, 32, 224)"},                                              \
	{.name = "channels", .kind = GN_OPTION_INT, .offset = FIELD(channels), .value_name = "N", .initial = "0",                      \
	 .choices = "0|1|3", .help = "1: grey, 3: colour; 0: the network's default"},                                                  \
	{.name = "mixup", .kind = GN_OPTION_REAL, .offset = FIELD(mixup), .value_name = "X", .initial = "0", .min = 0, .max = 1000,    \
	 .help = "mixup: blend pairs of images with lambda from Beta(X, X) (0.2; Zhang et al. 2018, arXiv 1710.09412); 0: none"},      \
	{.name = "cutmix", .kind = GN_OPTION_REAL, .offset = FIELD(cutmix), .value_name = "X", .initial = "0", .min = 0, .max = 1000, \
	 .help = "cutmix: replace a box of an image by its pair's, of area 1 - lambda from Beta(X, X) (1; Yun et al. 2019, arXiv " \
		 "1905.04899); with --mixup either happens to an image with probability 1/2; 0: none"}, \
	{.name = "randaugment", .kind = GN_OPTION_TEXT, .offset = FIELD(randaugment), .value_name = "N,M", \
	 .help = "RandAugment: N random operations per image, of magnitude M in 0..30 (2,9; Cubuk et al. 2020, arXiv 1909.13719)"}, \
	{.name = "trivialaugment", .kind = GN_OPTION_FLAG, .offset = FIELD(trivialaugment), \
	 .help = "TrivialAugment Wide: one random operation of random magnitude per image (Mueller and Hutter 2021, arXiv 2103.10158)"}, \
	{.name = "auto-augment", .kind = GN_OPTION_CHOICE, .offset = FIELD(auto_augment), .value_name = "NAME", .initial = "none", \
	 .choices = "none|imagenet", .help = "AutoAugment's policy for ImageNet (Cubuk et al. 2019, arXiv 1805.09501)"}, \
	{.name = "color-jitter", .kind = GN_OPTION_TEXT, .offset = FIELD(color_jitter), .value_name = "B,C,S,H", \
	 .help = "vary brightness, contrast and saturation by factors of up to 1 - X to 1 + X, and hue by up to H of a turn, at most 0.5 " \
		 "(0.4,0.4,0.4,0.1)"}, \
	{.name = "random-erasing", .kind = GN_OPTION_REAL, .offset = FIELD(random_erasing), .value_name = "P", .initial = "0", .min = 0, \
	 .max = 1, .help = "erase a rectangle of an image with probability P, after normalisation (0.1; Zhong et al. 2020, arXiv " \
		 "1708.04896)"}, \
	{.name = "interpolation", .kind = GN_OPTION_CHOICE, .offset = FIELD(interpolation), .value_name = "NAME", .initial = "bilinear", \
	 .choices = "bilinear|bicubic", .help = "filter of resizing, antialiased, in training and evaluation"}, \
	{.name = "augment", .kind = GN_OPTION_CHOICE, .offset = FIELD(augment), .value_name = "NAME", .initial = "auto",               \
	 .choices = "auto|none|crop-flip|shift|shift-flip",                                                                            \
	 .help = "augmentation; auto is crop-flip for sides of 64 and more, else shift"},                                              \
	{.name = "pad", .kind = GN_OPTION_INT, .offset = FIELD(pad), .value_name = "N", .initial = "-1", .min = -1, .max = 1024,       \
	 .help = "shift: padding in pixels; -1: a fourteenth of the side"},                                                            \
	{.name = "resize", .kind = GN_OPTION_INT, .offset = FIELD(resize_shorter), .value_name = "N", .initial = "-1", .min = -1,      \
	 .max = 8192,                                                                                                                  \
	 .help = "evaluation, and augmentation none and shift: shorter side before the centre crop, as torchvision's Resize; -1: 8/7 " \
		 "of the side; with shift and with sides below 64 images of nearly that size are not resized"},                        \
	{.name = "mean", .kind = GN_OPTION_TEXT, .offset = FIELD(mean), .value_name = "X[,X,X]",                                       \
	 .help = "mean of pixels in 0..1: divide means of 0..255 by 255 (default: ImageNet's for colour, 0.5 for grey)"},              \
	{.name = "deviation", .kind = GN_OPTION_TEXT, .offset = FIELD(deviation), .value_name = "X[,X,X]",                             \
	 .help = "standard deviation of pixels in 0..1, at most 1 (default: ImageNet's for colour, 0.5 for grey)"},                    \
	{.name = "sampling", .kind = GN_OPTION_CHOICE, .offset = FIELD(sampling), .value_name = "HOW", .initial = "shuffled",          \
	 .choices = "shuffled|balanced",                                                                                               \
	 .help = "order of samples: shuffled, each once an epoch; balanced: every class equally often, repeating images of small "     \
		 "classes"},                                                                                                           \
	{.name = "seed", .kind = GN_OPTION_INT, .offset = FIELD(seed), .value_name = "N", .initial = "1", .min = 0, .max = 9e15,       \
	 .help = "seed of sample order, augmentation and initial parameters"}
/* clang-format on */

#endif
