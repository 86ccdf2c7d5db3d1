/* What becomes of training images: options that gannet train and gannet preview share. They fill a struct gn_train_options.
 *
 * FIELD(name) is the offset of its field `name` in the command's target. An option that changes training images belongs here, so that
 * gannet preview shows what it does.
 */
#ifndef GN_CMD_SAMPLE_OPTIONS_H
#define GN_CMD_SAMPLE_OPTIONS_H

/* clang-format off */
#define GN_CMD_SAMPLE_OPTIONS(FIELD)                                                                                                  \
	GN_OPT_INT("side", FIELD(side), "N", "0", 0, 4096, "side of the images in pixels; 0: the network's default (28, 32, 224)"), \
	GN_OPT_INT("channels", FIELD(channels), "N", "0", 0, 0, "1: grey, 3: colour; 0: the network's default", .choices = "0|1|3"), \
	GN_OPT_REAL("mixup", FIELD(mixup), "X", "0", 0, 1000, "mixup: blend pairs of images with lambda from Beta(X, X) (0.2; Zhang et " \
		    "al. 2018, arXiv 1710.09412); 0: none"), \
	GN_OPT_REAL("cutmix", FIELD(cutmix), "X", "0", 0, 1000, "cutmix: replace a box of an image by its pair's, of area 1 - lambda " \
		    "from Beta(X, X) (1; Yun et al. 2019, arXiv 1905.04899); with --mixup either happens to an image with probability " \
		    "1/2; 0: none"), \
	GN_OPT_TEXT("randaugment", FIELD(randaugment), "N,M", "RandAugment: N random operations per image, of magnitude M in 0..30 (2,9; " \
		    "Cubuk et al. 2020, arXiv 1909.13719)"), \
	GN_OPT_FLAG("trivialaugment", FIELD(trivialaugment), "TrivialAugment Wide: one random operation of random magnitude per image " \
		    "(Mueller and Hutter 2021, arXiv 2103.10158)"), \
	GN_OPT_CHOICE("auto-augment", FIELD(auto_augment), "NAME", "none", "none|imagenet", "AutoAugment's policy for ImageNet (Cubuk et " \
		    "al. 2019, arXiv 1805.09501)"), \
	GN_OPT_TEXT("color-jitter", FIELD(color_jitter), "B,C,S,H", "vary brightness, contrast and saturation by factors of up to 1 - X " \
		    "to 1 + X, and hue by up to H of a turn, at most 0.5 (0.4,0.4,0.4,0.1)"), \
	GN_OPT_REAL("random-erasing", FIELD(random_erasing), "P", "0", 0, 1, "erase a rectangle of an image with probability P, after " \
		    "normalisation (0.1; Zhong et al. 2020, arXiv 1708.04896)"), \
	GN_OPT_CHOICE("interpolation", FIELD(interpolation), "NAME", "bilinear", "bilinear|bicubic", "filter of resizing, antialiased, " \
		    "in training and evaluation"), \
	GN_OPT_CHOICE("augment", FIELD(augment), "NAME", "auto", "auto|none|crop-flip|shift|shift-flip", "augmentation; auto is " \
		    "crop-flip for sides of 64 and more, else shift"), \
	GN_OPT_INT("pad", FIELD(pad), "N", "-1", -1, 1024, "shift: padding in pixels; -1: a fourteenth of the side"), \
	GN_OPT_INT("resize", FIELD(resize_shorter), "N", "-1", -1, 8192, "evaluation, and augmentation none and shift: shorter side " \
		    "before the centre crop, as torchvision's Resize; -1: 8/7 of the side; with shift and with sides below 64 images of " \
		    "nearly that size are not resized"), \
	GN_OPT_TEXT("mean", FIELD(mean), "X[,X,X]", "mean of pixels in 0..1: divide means of 0..255 by 255 (default: ImageNet's for " \
		    "colour, 0.5 for grey)"), \
	GN_OPT_TEXT("deviation", FIELD(deviation), "X[,X,X]", "standard deviation of pixels in 0..1, at most 1 (default: ImageNet's for " \
		    "colour, 0.5 for grey)"), \
	GN_OPT_CHOICE("sampling", FIELD(sampling), "HOW", "shuffled", "shuffled|balanced", "order of samples: shuffled, each once an " \
		    "epoch; balanced: every class equally often, repeating images of small classes"), \
	GN_OPT_INT("seed", FIELD(seed), "N", "1", 0, 9e15, "seed of sample order, augmentation and initial parameters")
/* clang-format on */

#endif
