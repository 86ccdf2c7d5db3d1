/* Which device computes, and in which numbers: from what people write to a plan's options.
 *
 * Thread safety: none of its own.
 */
#ifndef GN_TRAIN_PLAN_DEVICE_H
#define GN_TRAIN_PLAN_DEVICE_H

#include "src/train/plan/plan.h"

/* For option tables. */
#define GN_DEVICE_CHOICES "host|cuda|auto|ref"
#define GN_PRECISION_CHOICES "fp32|bf16|bf16-emulated|fp16|tf32"

/* Sets backend, gpu, tune and the precision in o. name: one of GN_DEVICE_CHOICES; auto is a GPU where there is one and the
 * build can use it, else the host. precision: one of GN_PRECISION_CHOICES. index: of this rank on its host, where each takes a
 * GPU of its own as long as there are enough. cuda without CUDA in the build, without a GPU or with a driver that is too old is
 * GN_ERR_UNSUPPORTED. bf16-emulated is bf16, and also where processors have no instructions for it. */
enum gn_status gn_device_choose(const char *name, const char *precision, int index, struct gn_plan_options *o,
				struct gn_err *err);
/* What people read of the precision that o asks for: one of GN_PRECISION_CHOICES, or "bf16 (emulated)" where this processor has to. */
const char *gn_device_precision(const struct gn_plan_options *o);
#define GN_DEVICE_PCI_MAX 32
/* The PCI address of the GPU that the same name and index mean, for who tells what is near it; "" when that is none. */
void gn_device_pci(const char *name, int index, char out[GN_DEVICE_PCI_MAX]);

#endif
