// The steps of each operation: functions that an Engine calls until they return true. Tensors are contiguous and on the processor.
#pragma once

#include "engine.h"
#include "reduce.h"

#include <vector>

namespace gannet {

using Step = std::function<bool()>;
using Tensors = std::vector<at::Tensor>;

// One after the other.
Step chain(std::vector<Step> steps);
// Once.
Step once(std::function<void()> f);

Step all_reduce(std::shared_ptr<Group> g, at::Tensor t, const c10d::ReduceOp &op);
Step reduce(std::shared_ptr<Group> g, at::Tensor t, const c10d::ReduceOp &op, int root);
Step broadcast(std::shared_ptr<Group> g, at::Tensor t, int root);
// outputs: one of each rank, as long as input
Step all_gather(std::shared_ptr<Group> g, Tensors outputs, at::Tensor input);
// The same into one contiguous tensor.
Step all_gather_into(std::shared_ptr<Group> g, at::Tensor output, at::Tensor input);
// inputs: one for each rank, as long as output
Step reduce_scatter(std::shared_ptr<Group> g, at::Tensor output, Tensors inputs, const c10d::ReduceOp &op);
// The same from one contiguous tensor.
Step reduce_scatter_from(std::shared_ptr<Group> g, at::Tensor output, at::Tensor input, const c10d::ReduceOp &op);
// to[r]: elements of input for rank r, from[r]: elements of output that come from it
Step all_to_all(std::shared_ptr<Group> g, at::Tensor output, at::Tensor input, std::vector<size_t> from, std::vector<size_t> to);
// Of the root: a tensor for each rank. Of the others: none.
Step gather(std::shared_ptr<Group> g, Tensors outputs, at::Tensor input, int root);
Step scatter(std::shared_ptr<Group> g, at::Tensor output, Tensors inputs, int root);
Step send(std::shared_ptr<Group> g, at::Tensor t, int peer, uint32_t tag);
// peer: or GANNET_ANY_SOURCE. source: set to the rank that it came from.
Step receive(std::shared_ptr<Group> g, at::Tensor t, int peer, uint32_t tag, std::shared_ptr<int> source);
Step barrier(std::shared_ptr<Group> g);

// A program's tags are below this.
constexpr uint32_t tags = GANNET_TAGS - 1;

} // namespace gannet
