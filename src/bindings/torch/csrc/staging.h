// What the steps of an operation work on: the program's tensor itself where it is contiguous and on the processor, else a copy of it there,
// which is made when the operation's turn comes, and is written back at its end. Copies from and to a device are made on a stream beside the
// program's ones, by way of PyTorch's interface for all devices: with CUDA in pinned memory.
#pragma once

#include "moves.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace gannet {

class Staging {
public:
	// Of tensors that the operation reads, writes, or both. Throws for a tensor that it cannot take. Any thread.
	at::Tensor in(const at::Tensor &t) { return stage(t, true, false); }
	at::Tensor out(const at::Tensor &t) { return stage(t, false, true); }
	at::Tensor in_out(const at::Tensor &t) { return stage(t, true, true); }
	// The same of several tensors, at least one: one copy of them, one after the other.
	at::Tensor in_of(const Tensors &tensors) { return join(tensors, true); }
	at::Tensor out_of(const Tensors &tensors) { return join(tensors, false); }
	// The operation with its copies. What was said above is what the program's streams had before.
	Step around(std::vector<Step> steps);

	// A device's stream, and what is to be waited for: the program's stream as it was when the operation was submitted, then the copies in,
	// at the end those out.
	struct Side {
		c10::Stream stream;
		std::shared_ptr<c10::Event> event;
	};
	// Of the devices in use; events are those at the end once the steps have ended.
	const std::shared_ptr<std::vector<Side>> &sides() const { return sides_; }

private:
	struct Copy {
		at::Tensor tensor, host;
		bool in, out;
	};
	at::Tensor stage(const at::Tensor &t, bool in, bool out);
	at::Tensor join(const Tensors &tensors, bool in);
	void use(const at::Tensor &t);
	std::vector<Copy> copies_;
	std::shared_ptr<std::vector<Side>> sides_ = std::make_shared<std::vector<Side>>();
};

} // namespace gannet
