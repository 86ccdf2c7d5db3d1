lib_LIBRARIES += libgannet_kernels.a
# clang warns where a sanitizer keeps a simd loop from becoming one
# nobody here reads what sqrtf leaves in errno, and looking for it keeps loops from becoming vectors
libgannet_kernels_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) -Wno-pass-failed -fno-math-errno
libgannet_kernels_a_SOURCES = \
	kernels/activation_formulas.h kernels/op.c kernels/op.h kernels/backend.h \
	kernels/compute.h kernels/compute_dispatch.c kernels/loss.h \
	kernels/sliced_loss.c kernels/sliced_loss.h \
	kernels/conjugate.c \
	kernels/optim.c kernels/optim.h \
	kernels/weight.c kernels/weight.h \
	kernels/ref/ref.h \
	kernels/ref/attention.c \
	kernels/ref/conv.c \
	kernels/ref/linear.c \
	kernels/ref/loss.c \
	kernels/ref/norm.c \
	kernels/ref/op.c \
	kernels/ref/pointwise.c \
	kernels/ref/pool.c \
	kernels/host/host.h \
	kernels/host/activation.c \
	kernels/host/adaptive.c \
	kernels/host/attention.c \
	kernels/host/batch_norm.c kernels/host/norm_loops.h kernels/host/batch_norm_loops.h \
	kernels/host/batch_norm_avx2.c \
	kernels/host/batch_norm_avx512.c \
	kernels/host/batch_norm_plain.c \
	kernels/host/bf16.h kernels/host/bf16_loops.h \
	kernels/host/bf16_avx2.c \
	kernels/host/bf16_avx512.c \
	kernels/host/bf16_plain.c \
	kernels/host/compute.c \
	kernels/host/dropout.c \
	kernels/host/layer.h kernels/host/layer_loops.h kernels/host/pool_loops.h \
	kernels/host/layer_avx2.c \
	kernels/host/layer_avx512.c \
	kernels/host/layer_plain.c \
	kernels/host/layer_norm.c \
	kernels/host/loss.c kernels/host/max_pool.c \
	kernels/host/op.c \
	kernels/host/optim.c \
	kernels/host/pointwise.c \
	kernels/host/scale.c \
	kernels/host/tokens.c \
	kernels/host/update.c \
	kernels/host/weight_pack.c kernels/host/weight_pack.h \
	kernels/host/winograd.c kernels/host/winograd.h kernels/host/winograd_loops.h \
	kernels/host/winograd_avx2.c kernels/host/winograd_avx512.c \
	kernels/host/onednn.h kernels/host/onednn_internal.h \
	kernels/host/onednn_compat.c kernels/host/onednn_compat.h kernels/host/onednn.c \
	kernels/host/onednn_conv.c \
	kernels/host/onednn_linear.c \
	kernels/host/onednn_reorder.c
KERNELS_LIBS = libgannet_kernels.a $(DNNL_LIBS) $(OPENMP_CFLAGS)

# Our own kernels for GPUs. nvcc names headers it read in a file of make rules, as gcc does for automake.
CU_FILES = \
	kernels/cuda/activation.cu \
	kernels/cuda/batch_norm.cu \
	kernels/cuda/batch_norm_grad.cu \
	kernels/cuda/image.cu \
	kernels/cuda/layer_norm.cu \
	kernels/cuda/layout.cu \
	kernels/cuda/loss.cu \
	kernels/cuda/optim.cu \
	kernels/cuda/pointwise.cu \
	kernels/cuda/pool.cu \
	kernels/cuda/tokens.cu
CU_INCLUDED = kernels/cuda/batch_norm.cuh src/device/cuda.h src/device/cuda_native.h src/device/device.h src/device/device_internal.h kernels/cuda/kernels.h \
	kernels/cuda/layers.h kernels/op.h kernels/weight.h kernels/cuda/launch.cuh kernels/cuda/pointwise.cuh kernels/cuda/shape.h kernels/cuda/type.h kernels/loss.h src/base/crop.h \
	kernels/activation_formulas.h
EXTRA_DIST += $(CU_FILES) $(CU_INCLUDED)
NVCC_FLAGS = -std=c++17 -O3 --Werror all-warnings -Xcompiler -fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fPIC,-Wall
SUFFIXES = .cu .eo
.cu.$(OBJEXT):
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(NVCC) $(NVCC_FLAGS) $(NVCC_ARCH) -I$(top_srcdir) -c -o $@ $<
if HAVE_CUDA
lib_LIBRARIES += libgannet_cuda.a
libgannet_cuda_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
libgannet_cuda_a_SOURCES = \
	kernels/cuda/blas.c kernels/cuda/blas.h \
	kernels/cuda/compute.c \
	kernels/cuda/dnn.c kernels/cuda/dnn.h kernels/cuda/dnn_internal.h \
	kernels/cuda/dnn_graph.c \
	kernels/cuda/dnn_plan.c \
	kernels/cuda/dnn_run.c \
	kernels/cuda/dnn_store.c \
	kernels/cuda/dnn_table.c \
	kernels/cuda/autotune.c kernels/cuda/autotune.h \
	kernels/cuda/op_attention.c \
	kernels/cuda/op_conv.c kernels/cuda/op_conv.h \
	kernels/cuda/op_conv_bn.c \
	kernels/cuda/op_layers.c \
	kernels/cuda/op_linear.c \
	kernels/cuda/op_norm.c \
	kernels/cuda/op_simple.c \
	kernels/cuda/ops.c kernels/cuda/ops.h kernels/cuda/ops_internal.h \
	kernels/cuda/update.c \
	$(CU_FILES)
KERNELS_CUDA_LIBS = libgannet_cuda.a $(CUDA_LIBS)
# Makefile: --with-cuda-arch may have changed
$(CU_FILES:.cu=.$(OBJEXT)): $(CU_INCLUDED) Makefile
endif
