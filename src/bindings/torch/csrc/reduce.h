// How a type and an operation of torch.distributed are reduced: by a type of libgannet, or by a function of ours on elements of its size.
#pragma once

#include <gannet.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <ATen/ATen.h>

namespace gannet {

struct Reduction {
	gannet_type type = GANNET_BYTES;
	gannet_reduction reduction = GANNET_SUM;
	gannet_reduce_fn function = nullptr;
	size_t per_element = 1; // elements of `type` in an element of the tensor
};

// Throws with a sentence when the type has no such operation.
Reduction reduction_of(at::ScalarType type, const c10d::ReduceOp &op);

} // namespace gannet
