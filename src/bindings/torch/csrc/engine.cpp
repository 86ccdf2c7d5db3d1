#include "engine.h"

#include <chrono>
#include <future>
#include <numeric>
#include <sched.h>
#include <time.h>

namespace gannet {

// Operations that a group keeps prepared.
static constexpr size_t kept_ops = 64;

Group::Group(gannet_group *g, bool owned) : group_(g), owned_(owned)
{
	void *memory = nullptr;

	check(gannet_alloc(g, staging_bytes, &memory));
	staging_ = static_cast<char *>(memory);
}

// gannet_finalize() has freed what groups had.
static bool finalized;

Group::~Group()
{
	if (finalized)
		return;
	for (auto &key : order_)
		gannet_op_free(ops_[key]);
	gannet_release(group_, staging_);
	if (owned_)
		gannet_group_free(group_);
}

gannet_op *Group::op(gannet_args a)
{
	Key key{a.what, a.in, a.out, a.count, a.type, a.reduction, reinterpret_cast<void *>(a.reduce), a.root};
	auto found = ops_.find(key);

	if (found != ops_.end())
		return found->second;
	if (order_.size() == kept_ops) {
		gannet_op_free(ops_[order_.front()]);
		ops_.erase(order_.front());
		order_.pop_front();
	}
	gannet_op *op = nullptr;
	a.size_bytes = sizeof a;
	check(gannet_prepare(group_, &a, &op));
	order_.push_back(key);
	return ops_[key] = op;
}

Engine &Engine::get()
{
	static Engine *engine = new Engine; // outlives every static object that may still use it
	return *engine;
}

void Engine::start(const std::string &rendezvous, int rank, int size)
{
	if (!started()) {
		thread_ = std::thread([this] { loop(); });
		run([&] {
			gannet_options o = {};

			o.size_bytes = sizeof o;
			if (!rendezvous.empty())
				o.rendezvous = rendezvous.c_str();
			o.rank = rank;
			o.size = size;
			check(gannet_init(&o, &world_));
		});
	}
	if (!world_)
		throw std::runtime_error("gannet: the world could not be made before, see the first error");
	if (gannet_rank(world_) != rank || gannet_size(world_) != size)
		throw std::runtime_error("gannet: PyTorch's rank " + std::to_string(rank) + " of " + std::to_string(size) + " is rank " +
					 std::to_string(gannet_rank(world_)) + " of " + std::to_string(gannet_size(world_)) +
					 " to the launcher: a process has one world, and groups of torch.distributed.new_group() are parts of it");
}

std::shared_ptr<Group> Engine::make_group(const std::vector<int> &ranks, const std::string &name)
{
	std::shared_ptr<Group> made;

	run([&] {
		std::vector<int> all(static_cast<size_t>(gannet_size(world_)));
		gannet_group *g = world_;
		bool owned;

		std::iota(all.begin(), all.end(), 0);
		owned = ranks != all;
		if (owned)
			check(gannet_group_of(world_, ranks.data(), static_cast<int>(ranks.size()), name.substr(0, 31).c_str(), &g));
		made = std::shared_ptr<Group>(new Group(g, owned), [this](Group *group) { run([&] { delete group; }); });
		groups_.push_back(made);
	});
	return made;
}

void Engine::run(const std::function<void()> &f)
{
	std::promise<void> done;

	if (std::this_thread::get_id() == thread_.get_id() || !started())
		return f();
	{
		std::lock_guard<std::mutex> lock(mutex_);
		calls_.push_back([&] {
			try {
				f();
				done.set_value();
			} catch (...) {
				done.set_exception(std::current_exception());
			}
		});
	}
	wake_.notify_one();
	done.get_future().get();
}

void Engine::submit(const std::shared_ptr<Group> &group, Task task, bool in_order)
{
	{
		std::lock_guard<std::mutex> lock(mutex_);
		calls_.push_back([this, group, in_order, task = std::move(task)]() mutable {
			if (in_order)
				group->tasks.push_back(std::move(task));
			else
				beside_.push_back(std::move(task));
		});
	}
	wake_.notify_one();
}

// Whether the task has ended.
static bool ended(Task &task)
{
	std::exception_ptr why;

	try {
		if (!task.step())
			return false;
	} catch (...) {
		why = std::current_exception();
	}
	task.finish(why);
	return true;
}

// Advances what is there; false: there is nothing.
bool Engine::advance()
{
	bool any = false;

	for (size_t i = 0; i < groups_.size();) {
		auto group = groups_[i].lock();

		if (!group) {
			groups_.erase(groups_.begin() + static_cast<long>(i));
			continue;
		}
		while (!group->tasks.empty() && ended(group->tasks.front()))
			group->tasks.pop_front();
		any |= !group->tasks.empty();
		i++;
	}
	for (size_t i = 0; i < beside_.size();)
		if (ended(beside_[i]))
			beside_.erase(beside_.begin() + static_cast<long>(i));
		else
			i++;
	return any || !beside_.empty();
}

// A thread that looks without pause takes a processor from those that compute: after 50 us it looks every 20 us only.
static void pause(unsigned looks)
{
	const struct timespec nap = {0, 20000};

	if (looks > 200)
		nanosleep(&nap, nullptr);
	else if (looks > 20)
		sched_yield();
}

void Engine::loop()
{
	unsigned looks = 0;

	for (;;) {
		std::deque<std::function<void()>> calls;
		bool busy = advance();

		{
			std::unique_lock<std::mutex> lock(mutex_);
			/* the tail of a message over tcp may be queued still */
			if (!busy && calls_.empty() && !stopping_)
				wake_.wait_for(lock, std::chrono::milliseconds(1));
			if (stopping_ && calls_.empty())
				return;
			calls.swap(calls_);
		}
		if (!busy && calls.empty() && world_)
			gannet_progress();
		looks = calls.empty() ? looks + 1 : 0;
		for (auto &call : calls)
			call();
		if (busy && calls.empty())
			pause(looks);
	}
}

void Engine::stop()
{
	if (!started())
		return;
	run([] {
		gannet_finalize();
		finalized = true;
	});
	{
		std::lock_guard<std::mutex> lock(mutex_);
		world_ = nullptr;
		stopping_ = true;
	}
	wake_.notify_one();
	thread_.join();
}

} // namespace gannet
