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
	GN_OPT_TEXT("checkpoint", FIELD(network.checkpoint), "DIR", "a checkpoint, or a folder of checkpoints, of which the newest valid " \
		    "one is used"), \
	GN_CMD_CHECKPOINT_KEY_OPTION(FIELD(network.checkpoint_key)), \
	GN_OPT_TEXT("weights", FIELD(network.weights), "FILE.safetensors", "instead of a checkpoint, a safetensors file with " \
		    "torchvision's, timm's or Transformers' names; a file written by gannet export needs none of --model to " \
		    "--interpolation"), \
	GN_OPT_CHOICE("model", FIELD(network.model), "NAME", NULL, gn_model_names, "with --weights: the network (default: from the " \
		    "file's metadata; required without it); the numbers of classes and channels are those of the tensors"), \
	GN_OPT_INT("side", FIELD(network.side), "N", "0", 0, 4096, "side of the images in pixels, which may be another than in training; " \
		    "0: from the checkpoint or the file, else the network's default (28, 32, 224)"), \
	GN_OPT_TEXT("mean", FIELD(network.mean), "X[,X,X]", "with --weights: mean of pixels in 0..1 (default: from the file, else " \
		    "ImageNet's for colour, 0.5 for grey)"), \
	GN_OPT_TEXT("deviation", FIELD(network.deviation), "X[,X,X]", "with --weights: standard deviation of pixels (default: from the " \
		    "file, else ImageNet's for colour, 0.5 for grey)"), \
	GN_OPT_INT("resize", FIELD(network.resize_shorter), "N", "-1", -1, 8192, "shorter side before the centre crop, as torchvision's " \
		    "Resize; -1: as in training; for --weights without metadata 8/7 of the side, and for sides below 64 images of nearly " \
		    "that size are not resized"), \
	GN_OPT_CHOICE("interpolation", FIELD(network.interpolation), "NAME", "auto", "auto|bilinear|bicubic", "filter of resizing; auto: " \
		    "as in training; for --weights without metadata bilinear"), \
	GN_OPT_FLAG("ema", FIELD(network.average), "use the exponential moving average of the weights (train --ema)")

#define GN_CMD_COMPUTE_OPTIONS(FIELD) \
	GN_OPT_CHOICE("device", FIELD(device), "NAME", "host", GN_DEVICE_CHOICES, "host: oneDNN; cuda: one GPU per rank of a node; auto: " \
		    "cuda if present, else host; ref: the plain-C reference, slow"), \
	GN_OPT_CHOICE("precision", FIELD(precision), "NAME", "fp32", GN_PRECISION_CHOICES, "of activations; fp16 and tf32 only on GPUs"), \
	GN_OPT_CHOICE("transport", FIELD(transport), "NAME", "auto", "auto|tcp|shm|rc|ud", "allowed transport (sets UCX_TLS)"), \
	GN_OPT_FLAG("transport-strict", FIELD(transport_strict), "fail instead of warn when nodes use different transports, or a node " \
		    "does not use its fastest device"), \
	GN_OPT_INT("threads", FIELD(threads), "N", "0", 0, 4096, "compute threads per rank; 0: the processors of its affinity mask " \
		    "divided among the ranks that share them"), \
	GN_OPT_INT("loader-threads", FIELD(loader_threads), "N", "2", 1, 1024, "threads per rank that read and decode")
/* clang-format on */

#endif
