// torch.distributed's view: each call makes a Work and hands its steps to the engine.
#pragma once

#include "staging.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace gannet {

class Backend : public c10d::Backend {
public:
	Backend(int rank, int size, const std::vector<int> &world_ranks, const std::string &name, bool is_default, int64_t timeout_ms);
	~Backend() override;
	const std::string getBackendName() const override { return "gannet"; }
	uint64_t getSequenceNumberForGroup() override { return sequence_; }
	void setSequenceNumberForGroup() override {}

	using Work = c10::intrusive_ptr<c10d::Work>;
	using Lists = std::vector<Tensors>;
	Work broadcast(Tensors &t, const c10d::BroadcastOptions &o) override;
	Work allreduce(Tensors &t, const c10d::AllreduceOptions &o) override;
	Work allreduce_coalesced(Tensors &t, const c10d::AllreduceCoalescedOptions &o) override;
	Work reduce(Tensors &t, const c10d::ReduceOptions &o) override;
	Work allgather(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &o) override;
	Work _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &o) override;
	Work allgather_coalesced(Lists &outputs, Tensors &inputs, const c10d::AllgatherOptions &o) override;
	Work allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &o) override;
	Work gather(Lists &outputs, Tensors &inputs, const c10d::GatherOptions &o) override;
	Work scatter(Tensors &outputs, Lists &inputs, const c10d::ScatterOptions &o) override;
	Work reduce_scatter(Tensors &outputs, Lists &inputs, const c10d::ReduceScatterOptions &o) override;
	Work _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &o) override;
	Work reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &o) override;
	Work alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &from, std::vector<int64_t> &to,
			   const c10d::AllToAllOptions &o) override;
	Work alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &o) override;
	Work send(Tensors &t, int peer, int tag) override;
	Work recv(Tensors &t, int peer, int tag) override;
	Work recvAnysource(Tensors &t, int tag) override;
	Work barrier(const c10d::BarrierOptions &o) override;
	// Collective: memory that the ranks of a node reach directly, in which all_reduce() is fastest.
	at::Tensor allocateTensor(long count, at::TensorOptions options) override;

private:
	Work submit(c10d::OpType type, const char *name, const Tensors &inputs, Tensors outputs, Staging &staging, std::vector<Step> steps,
		    Turn turn, std::shared_ptr<int> source = nullptr);
	Work receive(c10d::OpType type, Tensors &t, int peer, int tag);
	Step gather_into(const at::Tensor &output, const at::Tensor &input, Staging &staging);
	Step scatter_from(const at::Tensor &output, const at::Tensor &input, const c10d::ReduceOp &op, Staging &staging);
	std::shared_ptr<Group> group_;
	uint64_t sequence_ = 0;
};

} // namespace gannet
