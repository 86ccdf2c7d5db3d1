/* Which device computes, and in which numbers: from option texts to a plan's options; and the device of a plan.
 *
 * Thread safety: none of its own.
 */
#ifndef GN_TRAIN_PLAN_DEVICE_H
#define GN_TRAIN_PLAN_DEVICE_H

#include "kernels/compute.h"
#include "src/train/plan/options.h"

/* For option tables. */
#define GN_DEVICE_CHOICES "host|cuda|auto|ref"
#define GN_PRECISION_CHOICES "fp32|bf16|bf16-emulated|fp16|tf32"
#define GN_CONVOLUTION_CHOICES "auto|direct|winograd"

/* Sets backend, gpu, tune and the precision in o. name: one of GN_DEVICE_CHOICES; auto is a GPU where there is one and the
 * build can use it, else the host. precision: one of GN_PRECISION_CHOICES. index: of this rank on its host, where each takes a
 * GPU of its own as long as there are enough. cuda without CUDA in the build, without a GPU or with a driver that is too old is
 * GN_ERR_UNSUPPORTED. bf16-emulated is bf16, and also where processors have no instructions for it. */
enum gn_status gn_device_choose(const char *name, const char *precision, int index, struct gn_plan_options *o,
				struct gn_err *err);
/* What people read of the precision that o asks for: one of GN_PRECISION_CHOICES, or "bf16 (emulated)" where this processor has to. */
const char *gn_device_precision(const struct gn_plan_options *o);
/* name: one of GN_CONVOLUTION_CHOICES, or what gn_convolution_name gives; NULL and others: auto. */
enum gn_convolution gn_convolution_of(const char *name);
/* For checkpoints and logs: auto with the number of its rule, which grows when a release chooses in another way. */
const char *gn_convolution_name(enum gn_convolution c);
#define GN_DEVICE_PCI_MAX 32
/* The PCI address of the GPU that the same name and index mean, to find what is near it; "" when that is none. */
void gn_device_pci(const char *name, int index, char out[GN_DEVICE_PCI_MAX]);

/* A device, a stream of it, and the arithmetic that is queued there. Plans and what works on their arrays share one. Zeroed: closed. */
struct gn_plan_device {
	struct gn_device *device;
	struct gn_stream *stream;
	struct gn_compute *compute;
};

/* As backend, gpu, tune and the precision say. On failure *out is closed. */
enum gn_status gn_plan_device_open(const struct gn_plan_options *o, struct gn_plan_device *out, struct gn_err *err);
/* After all that works there. Waits for queued work. A closed one is fine. */
void gn_plan_device_close(struct gn_plan_device *d);

#endif
