/* Options of commands that run a trained network, gannet eval and gannet predict: which network, and how it is computed.
 *
 * FIELD(name) is the offset of the target's field `name`; the target has a `struct gn_network_options network`, and the fields that
 * GN_CMD_COMPUTE_OPTIONS names.
 */
#ifndef GN_CMD_NETWORK_OPTIONS_H
#define GN_CMD_NETWORK_OPTIONS_H

#include "src/base/option.h"
#include "src/cmd/key_option.h"
#include "src/train/plan/device.h"

/* clang-format off */
#define GN_CMD_NETWORK_OPTIONS(FIELD) \
	{.name = "checkpoint", .kind = GN_OPTION_TEXT, .offset = FIELD(network.checkpoint), .value_name = "DIR", \
	 .help = "a checkpoint, or a folder of checkpoints, of which the newest valid one is used"}, \
	GN_CMD_CHECKPOINT_KEY_OPTION(FIELD(network.checkpoint_key)), \
	{.name = "weights", .kind = GN_OPTION_TEXT, .offset = FIELD(network.weights), .value_name = "FILE.safetensors", \
	 .help = "instead of a checkpoint, a safetensors file with torchvision's, timm's or Transformers' names; a file written by gannet export needs " \
		 "none of --model to --interpolation"}, \
	{.name = "model", .kind = GN_OPTION_CHOICE, .offset = FIELD(network.model), .value_name = "NAME", .choices = gn_model_names, \
	 .help = "with --weights: the network (default: from the file's metadata; required without it); the numbers of classes " \
		 "and channels are those of the tensors"}, \
	{.name = "side", .kind = GN_OPTION_INT, .offset = FIELD(network.side), .value_name = "N", .initial = "0", .min = 0, .max = 4096, \
	 .help = "side of the images in pixels, which may be another than in training; 0: from the checkpoint or the file, else the " \
		 "network's default (28, 32, 224)"}, \
	{.name = "mean", .kind = GN_OPTION_TEXT, .offset = FIELD(network.mean), .value_name = "X[,X,X]", \
	 .help = "with --weights: mean of pixels in 0..1 (default: from the file, else ImageNet's for colour, 0.5 for grey)"}, \
	{.name = "deviation", .kind = GN_OPTION_TEXT, .offset = FIELD(network.deviation), .value_name = "X[,X,X]", \
	 .help = "with --weights: standard deviation of pixels (default: from the file, else ImageNet's for colour, 0.5 for grey)"}, \
	{.name = "resize", .kind = GN_OPTION_INT, .offset = FIELD(network.resize_shorter), .value_name = "N", .initial = "-1", .min = -1, \
	 .max = 8192, \
	 .help = "shorter side before the centre crop, as torchvision's Resize; -1: as in training; for --weights without " \
		 "metadata 8/7 of the side, and for sides below 64 images of nearly that size are not resized"}, \
	{.name = "interpolation", .kind = GN_OPTION_CHOICE, .offset = FIELD(network.interpolation), .value_name = "NAME", .initial = "auto", \
	 .choices = "auto|bilinear|bicubic", \
	 .help = "filter of resizing; auto: as in training; for --weights without metadata bilinear"}, \
	{.name = "ema", .kind = GN_OPTION_FLAG, .offset = FIELD(network.average), \
	 .help = "use the exponential moving average of the weights (train --ema)"}

#define GN_CMD_COMPUTE_OPTIONS(FIELD) \
	{.name = "device", .kind = GN_OPTION_CHOICE, .offset = FIELD(device), .value_name = "NAME", .initial = "host", \
	 .choices = GN_DEVICE_CHOICES, \
	 .help = "host: oneDNN; cuda: one GPU per rank of a node; auto: cuda if present, else host; ref: the plain-C reference, " \
		 "slow"}, \
	{.name = "precision", .kind = GN_OPTION_CHOICE, .offset = FIELD(precision), .value_name = "NAME", .initial = "fp32", \
	 .choices = GN_PRECISION_CHOICES, .help = "of activations; fp16 and tf32 only on GPUs"}, \
	{.name = "transport", .kind = GN_OPTION_CHOICE, .offset = FIELD(transport), .value_name = "NAME", \
	 .initial = "auto", .choices = "auto|tcp|shm|rc|ud", .help = "allowed transport (sets UCX_TLS)"}, \
	{.name = "transport-strict", .kind = GN_OPTION_FLAG, .offset = FIELD(transport_strict), \
	 .help = "fail instead of warn when nodes use different transports, or a node does not use its fastest device"}, \
	{.name = "threads", .kind = GN_OPTION_INT, .offset = FIELD(threads), .value_name = "N", .initial = "0", .min = 0, \
	 .max = 4096, .help = "compute threads per rank; 0: the processors of its affinity mask divided among the ranks that share " \
		 "them"}, \
	{.name = "loader-threads", .kind = GN_OPTION_INT, .offset = FIELD(loader_threads), .value_name = "N", \
	 .initial = "2", .min = 1, .max = 1024, .help = "threads per rank that read and decode"}
/* clang-format on */

#endif
