#include "staging.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>

namespace gannet {

// One for all groups. Its copies wait only for what programs have put on their streams before.
static c10::Stream side_stream(c10::Device device)
{
	static std::mutex mutex;
	static auto *streams = new std::map<std::pair<int, int>, c10::Stream>; // outlives the engine's thread
	std::lock_guard<std::mutex> lock(mutex);
	std::pair<int, int> key(static_cast<int>(device.type()), device.index());
	auto found = streams->find(key);

	if (found == streams->end())
		found = streams->emplace(key, c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true)).first;
	return found->second;
}

// Throws for a tensor that is nothing for us; has its device's stream follow what the program's one has to do now.
void Staging::use(const at::Tensor &t)
{
	auto is_its = [&t](const Side &s) { return s.stream.device() == t.device(); };

	TORCH_CHECK(!t.is_sparse(), "gannet: no sparse tensors");
	TORCH_CHECK(t.is_cpu() || t.is_cuda() || t.is_privateuseone(), "gannet: tensors of processors and of CUDA only, not on ", t.device());
	if (t.is_cpu() || std::any_of(sides_->begin(), sides_->end(), is_its))
		return;
	auto event = std::make_shared<c10::Event>(t.device().type());

	event->record(c10::impl::VirtualGuardImpl(t.device().type()).getStream(t.device()));
	sides_->push_back({side_stream(t.device()), event});
}

static at::Tensor host_memory(at::IntArrayRef sizes, const at::Tensor &like)
{
	return at::empty(sizes, like.options().device(at::kCPU).pinned_memory(like.is_cuda()));
}

at::Tensor Staging::stage(const at::Tensor &t, bool in, bool out)
{
	use(t);
	if (t.is_cpu() && t.is_contiguous() && !t.is_conj() && !t.is_neg())
		return t;
	copies_.push_back({t, host_memory(t.sizes(), t), in, out});
	return copies_.back().host;
}

at::Tensor Staging::join(const Tensors &tensors, bool in)
{
	int64_t total = 0;

	for (auto &t : tensors)
		total += t.numel();
	auto host = host_memory({total}, tensors.front());

	total = 0;
	for (auto &t : tensors) {
		use(t);
		copies_.push_back({t, host.narrow(0, total, t.numel()).view(t.sizes()), in, !in});
		total += t.numel();
	}
	return host;
}

static void move_data(const at::Tensor &to, const at::Tensor &from)
{
	const auto &device = to.is_cpu() ? from : to;
	at::AutoDispatchBelowADInplaceOrView no_grad;

	if (device.is_cpu()) {
		to.copy_(from);
		return;
	}
	auto stream = side_stream(device.device());
	c10::StreamGuard guard(stream);

	to.copy_(from, true);
	device.record_stream(stream);
}

// Until the devices have made the copies in.
static Step arrival(std::shared_ptr<std::vector<Staging::Side>> sides)
{
	struct Polled {
		Polled() { Engine::get().polled++; }
		~Polled() { Engine::get().polled--; }
	};
	std::shared_ptr<Polled> polled;

	return [=]() mutable {
		for (auto &s : *sides)
			if (!s.event->query()) {
				if (!polled)
					polled = std::make_shared<Polled>();
				return false;
			}
		polled.reset();
		return true;
	};
}

Step Staging::around(std::vector<Step> steps)
{
	std::vector<Step> all;

	if (copies_.empty())
		return chain(std::move(steps));
	all.push_back(once([copies = copies_, sides = sides_] {
		for (auto &s : *sides)
			s.event->block(s.stream);
		for (auto &c : copies)
			if (c.in)
				move_data(c.host, c.tensor);
		for (auto &s : *sides)
			s.event->record(s.stream);
	}));
	if (!sides_->empty() && std::any_of(copies_.begin(), copies_.end(), [](const Copy &c) { return c.in; }))
		all.push_back(arrival(sides_));
	for (auto &s : steps)
		all.push_back(std::move(s));
	all.push_back(once([copies = copies_, sides = sides_] {
		for (auto &c : copies)
			if (c.out)
				move_data(c.tensor, c.host);
		for (auto &s : *sides)
			s.event->record(s.stream);
	}));
	return chain(std::move(all));
}

} // namespace gannet
