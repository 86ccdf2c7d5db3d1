#include "backend.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/utils/pybind.h>

#include <cstdint>

namespace gannet {

class Work : public c10d::Work {
public:
	Work(int rank, c10d::OpType type, const char *name, const Tensors &inputs, Tensors outputs, const Group *group,
	     std::shared_ptr<std::vector<Staging::Side>> sides, std::shared_ptr<int> source)
	    : c10d::Work(rank, type, name, inputs), outputs_(std::move(outputs)), group_(group), insert_(Engine::insert_of(group)),
	      sides_(std::move(sides)), source_(std::move(source))
	{
	}
	// By who drives the engine. The functions of a future may wait for other operations, so they run in a thread of their own; a waiting
	// thread goes on after them, as with Gloo.
	static void end(const c10::intrusive_ptr<Work> &work, const std::shared_ptr<Group> &group, std::exception_ptr why)
	{
		bool has_future;
		{
			std::lock_guard<std::mutex> lock(work->future_mutex_);
			work->ended_ = true;
			work->why_ = why;
			has_future = work->future_.defined();
		}
		if (!has_future)
			return work->finish(why);
		try {
			Engine::get().call_back(group, [work] {
				work->complete();
				work->finish(work->why_);
			});
		} catch (...) {
			work->why_ = std::current_exception();
			work->complete();
			work->finish(work->why_);
		}
	}
	bool wait(std::chrono::milliseconds timeout) override
	{
		if (group_ && !isCompleted())
			Engine::get().give_way(group_, insert_);
		return c10d::Work::wait(timeout);
	}
	// The program's streams go on after the copies to the devices.
	void synchronize() override
	{
		for (auto &s : *sides_)
			s.event->block(c10::impl::VirtualGuardImpl(s.stream.device_type()).getStream(s.stream.device()));
	}
	Tensors result() override { return outputs_; }
	// Of a completed receive.
	int sourceRank() const override
	{
		TORCH_CHECK(source_, "gannet: only a receive has a source");
		return *source_;
	}
	// Most operations need none.
	c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
	{
		std::lock_guard<std::mutex> lock(future_mutex_);

		if (!future_) {
			std::vector<c10::Device> devices;

			for (auto &t : outputs_)
				if (!t.is_cpu())
					devices.push_back(t.device());
			future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
			if (ended_)
				complete();
		}
		return future_;
	}

private:
	// A future takes its values' devices to have done what is in the current streams.
	void complete()
	{
		std::vector<c10::Stream> streams;

		for (auto &s : *sides_)
			streams.push_back(s.stream);
		c10::MultiStreamGuard guard(streams);
		if (why_)
			future_->setError(why_);
		else
			future_->markCompleted(c10::IValue(outputs_));
	}
	Tensors outputs_;
	const Group *group_; // to compare; NULL: a message
	std::shared_ptr<Insert> insert_; // that it is part of
	std::shared_ptr<std::vector<Staging::Side>> sides_;
	std::shared_ptr<int> source_;
	std::mutex future_mutex_;
	bool ended_ = false; // getFuture() completes what it makes from then on
	std::exception_ptr why_;
	c10::intrusive_ptr<c10::ivalue::Future> future_;
};

static at::Tensor &only(Tensors &t)
{
	TORCH_CHECK(t.size() == 1, "gannet: one tensor, not ", t.size());
	return t[0];
}

template <typename Options> static Turn turn_of(const Options &o)
{
	return o.asyncOp ? Turn::in_order : Turn::waited_for;
}

Backend::Backend(int rank, int size, const std::vector<int> &world_ranks, const std::string &name, bool is_default, int64_t timeout_ms)
    : c10d::Backend(rank, size),
      group_(Engine::get().make_group(world_ranks, name.empty() ? "group" : name, is_default, std::chrono::milliseconds(timeout_ms)))
{
}

// The engine may need the interpreter's lock, to let go of a tensor, before it comes to this.
Backend::~Backend()
{
	if (Py_IsInitialized() && PyGILState_Check()) {
		py::gil_scoped_release unlocked;
		group_.reset();
	}
}

Backend::Work Backend::submit(c10d::OpType type, const char *name, const Tensors &inputs, Tensors outputs, Staging &staging,
			       std::vector<Step> steps, Turn turn, std::shared_ptr<int> source)
{
	auto group = turn == Turn::beside ? nullptr : group_;
	auto work = c10::make_intrusive<gannet::Work>(getRank(), type, name, inputs, std::move(outputs), group.get(), staging.sides(),
						      std::move(source));

	sequence_ += turn != Turn::beside;
	/* the functions of another thread's future may need the interpreter's lock while this one drives */
	if (turn == Turn::waited_for && Py_IsInitialized() && PyGILState_Check())
		turn = Turn::in_order;
	auto finish = [work, group](std::exception_ptr why) { gannet::Work::end(work, group, why); };
	Engine::get().submit(group_, {staging.around(std::move(steps)), finish}, turn);
	return work;
}

Backend::Work Backend::broadcast(Tensors &t, const c10d::BroadcastOptions &o)
{
	Staging staging;
	std::vector<Step> steps{gannet::broadcast(group_, staging.in_out(only(t)), static_cast<int>(o.rootRank))};

	return submit(c10d::OpType::BROADCAST, "gannet:broadcast", t, t, staging, std::move(steps), turn_of(o));
}

Backend::Work Backend::allreduce(Tensors &t, const c10d::AllreduceOptions &o)
{
	Staging staging;
	std::vector<Step> steps{all_reduce(group_, staging.in_out(only(t)), o.reduceOp)};

	return submit(c10d::OpType::ALLREDUCE, "gannet:all_reduce", t, t, staging, std::move(steps), turn_of(o));
}

Backend::Work Backend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &o)
{
	Staging staging;
	std::vector<Step> steps;

	for (auto &t : tensors)
		steps.push_back(all_reduce(group_, staging.in_out(t), o.reduceOp));
	return submit(c10d::OpType::ALLREDUCE_COALESCED, "gannet:all_reduce", tensors, tensors, staging, std::move(steps), turn_of(o));
}

Backend::Work Backend::reduce(Tensors &t, const c10d::ReduceOptions &o)
{
	Staging staging;
	std::vector<Step> steps{gannet::reduce(group_, staging.in_out(only(t)), o.reduceOp, static_cast<int>(o.rootRank))};

	return submit(c10d::OpType::REDUCE, "gannet:reduce", t, t, staging, std::move(steps), turn_of(o));
}

// The lists of one tensor for each rank, as long as `like`.
static Tensors all_out(const Tensors &list, const at::Tensor &like, int size, Staging &staging)
{
	Tensors all;

	TORCH_CHECK(list.size() == static_cast<size_t>(size), "gannet: a list of ", list.size(), " tensors for ", size, " ranks");
	for (auto &t : list) {
		TORCH_CHECK(t.numel() == like.numel() && t.scalar_type() == like.scalar_type(),
			    "gannet: tensors of a list that differ in type or number of elements");
		all.push_back(staging.out(t));
	}
	return all;
}

Backend::Work Backend::allgather(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &o)
{
	Staging staging;
	std::vector<Step> steps;

	TORCH_CHECK(outputs.size() == 1, "gannet: one list of outputs");
	steps.push_back(all_gather(group_, all_out(outputs[0], only(inputs), getSize(), staging), staging.in(inputs[0])));
	return submit(c10d::OpType::ALLGATHER, "gannet:all_gather", inputs, outputs[0], staging, std::move(steps), turn_of(o));
}

Step Backend::gather_into(const at::Tensor &output, const at::Tensor &input, Staging &staging)
{
	TORCH_CHECK(output.is_contiguous(), "gannet: a contiguous output");
	TORCH_CHECK(output.numel() == input.numel() * getSize() && output.scalar_type() == input.scalar_type(),
		    "gannet: the output has to hold ", getSize(), " inputs of the same type");
	return all_gather_into(group_, staging.out(output), staging.in(input));
}

Backend::Work Backend::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &o)
{
	Staging staging;
	auto step = gather_into(output, input, staging);

	return submit(c10d::OpType::_ALLGATHER_BASE, "gannet:all_gather_into_tensor", {input}, {output}, staging, {step}, turn_of(o));
}

Backend::Work Backend::allgather_coalesced(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &o)
{
	Staging staging;
	std::vector<Step> steps;
	Tensors all;

	for (size_t r = 0; r < outputs.size(); r++)
		all.insert(all.end(), outputs[r].begin(), outputs[r].end());
	for (size_t i = 0; i < inputs.size(); i++) {
		Tensors of_ranks;

		for (auto &list : outputs)
			of_ranks.push_back(list.at(i));
		steps.push_back(all_gather(group_, all_out(of_ranks, inputs[i], getSize(), staging), staging.in(inputs[i])));
	}
	return submit(c10d::OpType::ALLGATHER_COALESCED, "gannet:all_gather", inputs, all, staging, std::move(steps), turn_of(o));
}

Backend::Work Backend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &o)
{
	Staging staging;
	std::vector<Step> steps;

	TORCH_CHECK(outputs.size() == inputs.size(), "gannet: as many outputs as inputs");
	for (size_t i = 0; i < inputs.size(); i++)
		steps.push_back(gather_into(outputs[i], inputs[i], staging));
	return submit(c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED, "gannet:all_gather_into_tensor", inputs, outputs, staging,
		      std::move(steps), turn_of(o));
}

Backend::Work Backend::gather(Lists &outputs, Tensors &inputs, const c10d::GatherOptions &o)
{
	Staging staging;
	std::vector<Step> steps;
	int root = static_cast<int>(o.rootRank);
	Tensors list, to;

	if (getRank() == root) {
		TORCH_CHECK(outputs.size() == 1, "gannet: one list of outputs on the root");
		list = outputs[0];
		to = all_out(list, only(inputs), getSize(), staging);
	}
	steps.push_back(gannet::gather(group_, to, staging.in(only(inputs)), root));
	return submit(c10d::OpType::GATHER, "gannet:gather", inputs, list, staging, std::move(steps), turn_of(o));
}

Backend::Work Backend::scatter(Tensors &outputs, Lists &inputs, const c10d::ScatterOptions &o)
{
	Staging staging;
	std::vector<Step> steps;
	int root = static_cast<int>(o.rootRank);
	Tensors from;

	if (getRank() == root) {
		TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()), "gannet: a list of one input for each rank on the root");
		for (auto &t : inputs[0]) {
			TORCH_CHECK(t.numel() == only(outputs).numel() && t.scalar_type() == outputs[0].scalar_type(),
				    "gannet: inputs of the output's type and length");
			from.push_back(staging.in(t));
		}
	}
	steps.push_back(gannet::scatter(group_, staging.out(only(outputs)), from, root));
	return submit(c10d::OpType::SCATTER, "gannet:scatter", from, outputs, staging, std::move(steps), turn_of(o));
}

Backend::Work Backend::reduce_scatter(Tensors &outputs, Lists &inputs, const c10d::ReduceScatterOptions &o)
{
	Staging staging;
	std::vector<Step> steps;
	Tensors from;

	TORCH_CHECK(inputs.size() == 1 && inputs[0].size() == static_cast<size_t>(getSize()),
		    "gannet: a list of one input for each rank");
	for (auto &t : inputs[0]) {
		TORCH_CHECK(t.numel() == only(outputs).numel() && t.scalar_type() == outputs[0].scalar_type(), "gannet: inputs as long as the output");
		from.push_back(staging.in(t));
	}
	steps.push_back(gannet::reduce_scatter(group_, staging.out(outputs[0]), from, o.reduceOp));
	return submit(c10d::OpType::REDUCE_SCATTER, "gannet:reduce_scatter", inputs[0], outputs, staging, std::move(steps), turn_of(o));
}

Step Backend::scatter_from(const at::Tensor &output, const at::Tensor &input, const c10d::ReduceOp &op, Staging &staging)
{
	TORCH_CHECK(output.is_contiguous(), "gannet: a contiguous output");
	TORCH_CHECK(input.numel() == output.numel() * getSize() && output.scalar_type() == input.scalar_type(),
		    "gannet: the input has to hold ", getSize(), " outputs of the same type");
	return reduce_scatter_from(group_, staging.out(output), staging.in(input), op);
}

Backend::Work Backend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &o)
{
	Staging staging;
	auto step = scatter_from(output, input, o.reduceOp, staging);

	return submit(c10d::OpType::_REDUCE_SCATTER_BASE, "gannet:reduce_scatter_tensor", {input}, {output}, staging, {step}, turn_of(o));
}

Backend::Work Backend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &o)
{
	Staging staging;
	std::vector<Step> steps;

	TORCH_CHECK(outputs.size() == inputs.size(), "gannet: as many outputs as inputs");
	for (size_t i = 0; i < inputs.size(); i++)
		steps.push_back(scatter_from(outputs[i], inputs[i], o.reduceOp, staging));
	return submit(c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, "gannet:reduce_scatter_tensor", inputs, outputs, staging,
		      std::move(steps), turn_of(o));
}

// Elements for each rank, from rows for each rank; none given: as many for each.
static std::vector<size_t> shares(const std::vector<int64_t> &rows, const at::Tensor &t, int size)
{
	std::vector<size_t> counts(static_cast<size_t>(size));
	int64_t total = 0, each = t.dim() && t.size(0) ? t.numel() / t.size(0) : 0;

	TORCH_CHECK(rows.empty() ? t.numel() % size == 0 : rows.size() == counts.size(), "gannet: split sizes for ", size, " ranks");
	for (size_t r = 0; r < counts.size(); r++) {
		TORCH_CHECK(rows.empty() || rows[r] >= 0, "gannet: a negative split size");
		counts[r] = static_cast<size_t>(rows.empty() ? t.numel() / size : rows[r] * each);
		total += rows.empty() ? 0 : rows[r];
	}
	TORCH_CHECK(rows.empty() || total == (t.dim() ? t.size(0) : 0), "gannet: split sizes do not sum up to the tensor's rows");
	return counts;
}

Backend::Work Backend::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &from, std::vector<int64_t> &to,
				     const c10d::AllToAllOptions &o)
{
	Staging staging;
	std::vector<Step> steps;

	TORCH_CHECK(output.scalar_type() == input.scalar_type(), "gannet: output and input of one type");
	steps.push_back(all_to_all(group_, staging.out(output), staging.in(input), shares(from, output, getSize()), shares(to, input, getSize())));
	return submit(c10d::OpType::ALLTOALL_BASE, "gannet:all_to_all_single", {input}, {output}, staging, std::move(steps), turn_of(o));
}

Backend::Work Backend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &o)
{
	std::vector<size_t> from, to;
	Staging staging;

	TORCH_CHECK(outputs.size() == static_cast<size_t>(getSize()) && inputs.size() == outputs.size(), "gannet: a tensor for each rank");
	for (size_t r = 0; r < outputs.size(); r++) {
		TORCH_CHECK(outputs[r].scalar_type() == inputs[0].scalar_type() && inputs[r].scalar_type() == inputs[0].scalar_type(),
			    "gannet: tensors of one type");
		from.push_back(static_cast<size_t>(outputs[r].numel()));
		to.push_back(static_cast<size_t>(inputs[r].numel()));
	}
	auto output = staging.out_of(outputs), input = staging.in_of(inputs);

	return submit(c10d::OpType::ALLTOALL, "gannet:all_to_all", inputs, outputs, staging, {all_to_all(group_, output, input, from, to)},
		      turn_of(o));
}

static uint32_t checked_tag(int tag)
{
	TORCH_CHECK(tag >= 0 && static_cast<uint32_t>(tag) < tags, "gannet: tags are from 0 to ", tags - 1, ", not ", tag);
	return static_cast<uint32_t>(tag);
}

Backend::Work Backend::send(Tensors &t, int peer, int tag)
{
	Staging staging;
	auto step = gannet::send(group_, staging.in(only(t)), peer, checked_tag(tag));

	return submit(c10d::OpType::SEND, "gannet:send", t, {}, staging, {step}, Turn::beside);
}

Backend::Work Backend::receive(c10d::OpType type, Tensors &t, int peer, int tag)
{
	auto source = std::make_shared<int>(peer);
	Staging staging;
	std::vector<Step> steps{gannet::receive(group_, staging.out(only(t)), peer, checked_tag(tag), source)};

	return submit(type, "gannet:recv", {}, t, staging, std::move(steps), Turn::beside, source);
}

Backend::Work Backend::recv(Tensors &t, int peer, int tag)
{
	TORCH_CHECK(peer >= 0, "gannet: no rank ", peer);
	return receive(c10d::OpType::RECV, t, peer, tag);
}

Backend::Work Backend::recvAnysource(Tensors &t, int tag)
{
	return receive(c10d::OpType::RECVANYSOURCE, t, GANNET_ANY_SOURCE, tag);
}

Backend::Work Backend::barrier(const c10d::BarrierOptions &o)
{
	Staging none;

	return submit(c10d::OpType::BARRIER, "gannet:barrier", {}, {}, none, {gannet::barrier(group_)}, turn_of(o));
}

// After a barrier, since the allocation blocks who drives all operations.
at::Tensor Backend::allocateTensor(long count, at::TensorOptions options)
{
	auto memory = std::make_shared<void *>(nullptr);
	size_t width = options.dtype().itemsize(), bytes = static_cast<size_t>(count) * width;
	Staging none;

	TORCH_CHECK(count >= 0 && (!width || static_cast<size_t>(count) <= PTRDIFF_MAX / width), "gannet: a tensor of ", count, " elements");
	TORCH_CHECK(options.device().is_cpu(), "gannet: memory of processors, not of ", options.device());
	auto allocate = once([group = group_, memory, bytes] { *memory = group->allocate(bytes); });
	auto steps = std::vector<Step>{gannet::barrier(group_), allocate};

	std::optional<py::gil_scoped_release> unlocked;

	if (Py_IsInitialized() && PyGILState_Check())
		unlocked.emplace();
	submit(c10d::OpType::BARRIER, "gannet:allocate", {}, {}, none, std::move(steps), Turn::in_order)->wait();
	return at::from_blob(*memory, {count}, [group = group_](void *m) { Engine::get().release(group, m); }, options);
}

} // namespace gannet
