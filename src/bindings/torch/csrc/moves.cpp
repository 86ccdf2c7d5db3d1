#include "moves.h"

#include <algorithm>
#include <cstring>

namespace gannet {

using Copy = std::function<void(size_t at, size_t count)>;

Step chain(std::vector<Step> steps)
{
	return [steps = std::move(steps), at = size_t(0)]() mutable {
		while (at < steps.size() && steps[at]())
			at++;
		return at == steps.size();
	};
}

Step once(std::function<void()> f)
{
	return [f = std::move(f)] {
		f();
		return true;
	};
}

static char *bytes(const at::Tensor &t)
{
	return static_cast<char *>(t.data_ptr());
}

// An operation on `total` elements of the group's staging memory, at most `most` at a time.
static Step in_pieces(std::shared_ptr<Group> g, gannet_args args, size_t total, size_t most, Copy in, Copy out)
{
	gannet_op *op = nullptr;
	size_t at = 0;

	return [=]() mutable {
		for (int done; at < total; at += std::min(most, total - at)) {
			if (!op) {
				in(at, std::min(most, total - at));
				args.out = g->staging();
				args.count = std::min(most, total - at);
				op = g->op(args);
				check(gannet_start(op));
			}
			check(gannet_test(op, &done));
			if (!done)
				return false;
			op = nullptr;
			out(at, std::min(most, total - at));
		}
		return true;
	};
}

static gannet_args reducing(gannet_collective what, const Reduction &r)
{
	gannet_args a = {};

	a.what = what;
	a.type = r.type;
	a.reduction = r.reduction;
	a.reduce = r.function;
	return a;
}

// Starts what `prepare` makes, and frees it when all is done, after `done` of each.
static Step started(std::function<void(std::vector<gannet_op *> &)> prepare, std::function<void(gannet_op *)> done_with = nullptr)
{
	struct Ops {
		std::vector<gannet_op *> all;
		~Ops()
		{
			for (auto op : all)
				gannet_op_free(op);
		}
	};
	auto ops = std::make_shared<Ops>();
	bool first = true;

	return [=]() mutable {
		int done, left = 0;

		if (first) {
			first = false;
			prepare(ops->all);
			for (auto op : ops->all)
				check(gannet_start(op));
		}
		for (auto op : ops->all) {
			check(gannet_test(op, &done));
			left += !done;
		}
		if (!left) {
			for (auto op : ops->all) {
				if (done_with)
					done_with(op);
				gannet_op_free(op);
			}
			ops->all.clear();
		}
		return !left;
	};
}

static Step reducing_whole(gannet_collective what, std::shared_ptr<Group> g, at::Tensor t, const c10d::ReduceOp &op, int root, bool has_result)
{
	Reduction r = reduction_of(t.scalar_type(), op);
	gannet_args a = reducing(what, r);
	size_t size = static_cast<size_t>(t.element_size()) / r.per_element;

	a.root = root;
	return in_pieces(
		g, a, static_cast<size_t>(t.numel()) * r.per_element, Group::staging_bytes / size,
		[=](size_t at, size_t n) { std::memcpy(g->staging(), bytes(t) + at * size, n * size); },
		[=](size_t at, size_t n) {
			if (has_result)
				std::memcpy(bytes(t) + at * size, g->staging(), n * size);
		});
}

// From this size on the ranks of one node pass tensors slice by slice through the processors' caches, faster than in staging memory.
static constexpr size_t direct_bytes = 64 << 10;

static bool overlap(const at::Tensor &a, const at::Tensor &b)
{
	return bytes(a) < bytes(b) + b.nbytes() && bytes(b) < bytes(a) + a.nbytes();
}

// An operation on the tensors themselves, but for an input that shares memory with the output, which is copied: ranks may differ in that, and
// all have to go the same way.
static Step direct(std::shared_ptr<Group> g, gannet_args a, at::Tensor output, at::Tensor input)
{
	auto copy = std::make_shared<at::Tensor>();

	a.size_bytes = sizeof a;
	a.in = input.defined() ? bytes(input) : nullptr;
	a.out = bytes(output);
	return started([=](std::vector<gannet_op *> &ops) mutable {
		if (input.defined() && overlap(output, input)) {
			*copy = input.clone();
			a.in = bytes(*copy);
		}
		ops.push_back(nullptr);
		check(gannet_prepare(g->get(), &a, &ops.back()));
	}, [output, input, copy](gannet_op *) {});
}

// The same into blocks, or from them. By their output's memory libgannet would select another algorithm, so an output in memory that ranks reach
// directly, which may be so on this rank alone, is written by way of other memory.
static Step direct_blocks(std::shared_ptr<Group> g, gannet_args a, at::Tensor output, at::Tensor input)
{
	if (!Group::owns(output.data_ptr()))
		return direct(g, a, output, input);
	auto other = at::empty_like(output);

	return chain({direct(g, a, other, input), once([output, other] { std::memcpy(bytes(output), bytes(other), output.nbytes()); })});
}

// As many parts as ranks.
static Tensors parts(const at::Tensor &t, int size)
{
	return t.numel() ? t.view({size, -1}).unbind(0) : Tensors();
}

Step all_reduce(std::shared_ptr<Group> g, at::Tensor t, const c10d::ReduceOp &op)
{
	if (Group::owns(t.data_ptr()) || (g->takes_tensors() && t.nbytes() >= direct_bytes)) {
		Reduction r = reduction_of(t.scalar_type(), op);
		gannet_args a = reducing(GANNET_ALLREDUCE, r);

		a.count = static_cast<size_t>(t.numel()) * r.per_element;
		return direct(g, a, t, {});
	}
	return reducing_whole(GANNET_ALLREDUCE, g, t, op, 0, true);
}

Step reduce(std::shared_ptr<Group> g, at::Tensor t, const c10d::ReduceOp &op, int root)
{
	return reducing_whole(GANNET_REDUCE, g, t, op, root, root == g->rank());
}

Step broadcast(std::shared_ptr<Group> g, at::Tensor t, int root)
{
	gannet_args a = {};
	bool sends = root == g->rank();

	a.what = GANNET_BROADCAST;
	a.type = GANNET_BYTES;
	a.root = root;
	return in_pieces(
		g, a, t.nbytes(), Group::staging_bytes,
		[=](size_t at, size_t n) {
			if (sends)
				std::memcpy(g->staging(), bytes(t) + at, n);
		},
		[=](size_t at, size_t n) {
			if (!sends)
				std::memcpy(bytes(t) + at, g->staging(), n);
		});
}

Step all_gather(std::shared_ptr<Group> g, Tensors outputs, at::Tensor input)
{
	gannet_args a = {};
	size_t rank = static_cast<size_t>(g->rank());

	a.what = GANNET_ALLGATHER;
	a.type = GANNET_BYTES;
	return in_pieces(
		g, a, input.nbytes(), Group::staging_bytes / static_cast<size_t>(g->size()),
		[=](size_t at, size_t n) { std::memcpy(g->staging() + rank * n, bytes(input) + at, n); },
		[=](size_t at, size_t n) {
			for (size_t r = 0; r < outputs.size(); r++)
				std::memcpy(bytes(outputs[r]) + at, g->staging() + r * n, n);
		});
}

Step reduce_scatter(std::shared_ptr<Group> g, at::Tensor output, Tensors inputs, const c10d::ReduceOp &op)
{
	Reduction r = reduction_of(output.scalar_type(), op);
	size_t size = static_cast<size_t>(output.element_size()) / r.per_element, rank = static_cast<size_t>(g->rank());

	return in_pieces(
		g, reducing(GANNET_REDUCE_SCATTER, r), static_cast<size_t>(output.numel()) * r.per_element,
		Group::staging_bytes / size / static_cast<size_t>(g->size()),
		[=](size_t at, size_t n) {
			for (size_t i = 0; i < inputs.size(); i++)
				std::memcpy(g->staging() + i * n * size, bytes(inputs[i]) + at * size, n * size);
		},
		[=](size_t at, size_t n) { std::memcpy(bytes(output) + at * size, g->staging() + rank * n * size, n * size); });
}

Step all_gather_into(std::shared_ptr<Group> g, at::Tensor output, at::Tensor input)
{
	bool in_place = bytes(input) == bytes(output) + static_cast<size_t>(g->rank()) * input.nbytes();

	if (!g->takes_tensors() || output.nbytes() < direct_bytes)
		return all_gather(g, parts(output, g->size()), input);
	gannet_args a = {};

	a.what = GANNET_ALLGATHER;
	a.type = GANNET_BYTES;
	a.count = input.nbytes();
	return direct_blocks(g, a, output, in_place && !Group::owns(output.data_ptr()) ? at::Tensor() : input);
}

Step reduce_scatter_from(std::shared_ptr<Group> g, at::Tensor output, at::Tensor input, const c10d::ReduceOp &op)
{
	if (!g->takes_tensors() || input.nbytes() < direct_bytes)
		return reduce_scatter(g, output, parts(input, g->size()), op);
	Reduction r = reduction_of(output.scalar_type(), op);
	gannet_args a = reducing(GANNET_REDUCE_SCATTER, r);

	a.count = static_cast<size_t>(output.numel()) * r.per_element;
	return direct_blocks(g, a, output, input);
}

Step all_to_all(std::shared_ptr<Group> g, at::Tensor output, at::Tensor input, std::vector<size_t> from, std::vector<size_t> to)
{
	size_t size = static_cast<size_t>(input.element_size());

	for (auto &n : from)
		n *= size;
	for (auto &n : to)
		n *= size;
	return started([=](std::vector<gannet_op *> &ops) {
		gannet_args a = {};

		a.size_bytes = sizeof a;
		a.what = GANNET_ALL_TO_ALL;
		a.type = GANNET_BYTES;
		a.in = bytes(input);
		a.out = bytes(output);
		a.counts = to.data();
		a.counts_from = from.data();
		ops.push_back(nullptr);
		check(gannet_prepare(g->get(), &a, &ops.back()));
	});
}

static void add_receive(const Group &g, std::vector<gannet_op *> &ops, const at::Tensor &t, int peer, uint32_t tag)
{
	gannet_op *op;

	check(gannet_prepare_receive(g.get(), peer, tag, bytes(t), t.nbytes(), &op));
	ops.push_back(op);
}

static void add_send(const Group &g, std::vector<gannet_op *> &ops, const at::Tensor &t, int peer, uint32_t tag)
{
	gannet_op *op;

	check(gannet_prepare_send(g.get(), peer, tag, bytes(t), t.nbytes(), &op));
	ops.push_back(op);
}

Step gather(std::shared_ptr<Group> g, Tensors outputs, at::Tensor input, int root)
{
	return started([=](std::vector<gannet_op *> &ops) {
		if (g->rank() != root)
			return add_send(*g, ops, input, root, tags);
		for (int r = 0; r < g->size(); r++)
			if (r != root)
				add_receive(*g, ops, outputs[static_cast<size_t>(r)], r, tags);
		std::memcpy(bytes(outputs[static_cast<size_t>(root)]), bytes(input), input.nbytes());
	});
}

Step scatter(std::shared_ptr<Group> g, at::Tensor output, Tensors inputs, int root)
{
	return started([=](std::vector<gannet_op *> &ops) {
		if (g->rank() != root)
			return add_receive(*g, ops, output, root, tags);
		for (int r = 0; r < g->size(); r++)
			if (r != root)
				add_send(*g, ops, inputs[static_cast<size_t>(r)], r, tags);
		std::memcpy(bytes(output), bytes(inputs[static_cast<size_t>(root)]), output.nbytes());
	});
}

Step send(std::shared_ptr<Group> g, at::Tensor t, int peer, uint32_t tag)
{
	return started([=](std::vector<gannet_op *> &ops) { add_send(*g, ops, t, peer, tag); });
}

Step receive(std::shared_ptr<Group> g, at::Tensor t, int peer, uint32_t tag, std::shared_ptr<int> source)
{
	return started([=](std::vector<gannet_op *> &ops) { add_receive(*g, ops, t, peer, tag); },
		       [=](gannet_op *op) { *source = gannet_op_peer(op); });
}

Step barrier(std::shared_ptr<Group> g)
{
	gannet_args a = {};

	a.what = GANNET_BARRIER;
	return in_pieces(g, a, 1, 1, [](size_t, size_t) {}, [](size_t, size_t) {});
}

} // namespace gannet
