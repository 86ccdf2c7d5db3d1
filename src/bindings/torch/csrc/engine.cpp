#include "engine.h"

#include <algorithm>
#include <cstring>
#include <future>
#include <numeric>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

namespace gannet {

// Operations that a group keeps prepared.
static constexpr size_t kept_ops = 64;
// Up to so many ranks of a world on one node libgannet reduces private memory through caches.
static constexpr int direct_ranks = 4;

Group::Group(gannet_group *g, bool owned, std::chrono::milliseconds limit) : group_(g), owned_(owned), limit_(limit)
{
	void *memory = nullptr;

	check(gannet_alloc(g, staging_bytes, &memory));
	staging_ = static_cast<char *>(memory);
	for (int r = 1; r < gannet_size(g); r++)
		is_local_ &= !std::strcmp(gannet_host(g, r), gannet_host(g, 0));
	takes_tensors_ = is_local_ && !owned && gannet_size(g) > 1 && gannet_size(g) <= direct_ranks;
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

// Of all groups, with lengths.
static struct {
	std::mutex mutex;
	std::map<const char *, size_t> lengths;
} allocated;

void *Group::allocate(size_t len_bytes)
{
	void *memory;

	check(gannet_alloc(group_, len_bytes, &memory));
	std::lock_guard<std::mutex> lock(allocated.mutex);
	allocated.lengths[static_cast<char *>(memory)] = len_bytes;
	return memory;
}

void Group::release(void *memory)
{
	{
		std::lock_guard<std::mutex> lock(allocated.mutex);
		allocated.lengths.erase(static_cast<char *>(memory));
	}
	if (!finalized)
		gannet_release(group_, memory);
}

bool Group::owns(const void *memory)
{
	std::lock_guard<std::mutex> lock(allocated.mutex);
	auto after = allocated.lengths.upper_bound(static_cast<const char *>(memory));

	if (after == allocated.lengths.begin())
		return false;
	auto &[at, len] = *--after;
	return static_cast<const char *>(memory) < at + len;
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
	check_process();
	if (!started()) {
		process_ = getpid();
		thread_ = std::thread([this] { loop(); });
		run([&] {
			gannet_group *world = nullptr;
			gannet_options o = {};

			o.size_bytes = sizeof o;
			if (!rendezvous.empty())
				o.rendezvous = rendezvous.c_str();
			o.rank = rank;
			o.size = size;
			check(gannet_init(&o, &world));
			world_ = world;
		});
	}
	if (!world_)
		throw std::runtime_error("gannet: the world could not be made before, see the first error");
	rank_ = gannet_rank(world_);
	if (rank_ != rank || gannet_size(world_) != size)
		throw std::runtime_error("gannet: PyTorch's rank " + std::to_string(rank) + " of " + std::to_string(size) + " is rank " +
					 std::to_string(rank_) + " of " + std::to_string(gannet_size(world_)) +
					 " to the launcher: a process has one world, and groups of torch.distributed.new_group() are parts of it");
}

std::shared_ptr<Group> Engine::make_group(const std::vector<int> &ranks, const std::string &name, bool is_default,
					  std::chrono::milliseconds limit)
{
	std::shared_ptr<Group> made;

	run([&] {
		std::vector<int> all(static_cast<size_t>(gannet_size(world_)));
		gannet_group *g = world_;
		bool owned;

		std::iota(all.begin(), all.end(), 0);
		owned = ranks != all || (made_whole_ && !is_default);
		made_whole_ |= ranks == all;
		if (owned)
			check(gannet_group_of(world_, ranks.data(), static_cast<int>(ranks.size()), name.substr(0, 31).c_str(), &g));
		made = std::shared_ptr<Group>(new Group(g, owned, limit), [this](Group *group) {
			/* a forked process leaves it to its parent */
			if (!is_forked())
				run([&] { delete group; });
		});
		groups_.push_back(made);
	});
	return made;
}

// The thread is the parent's, which may hold the mutex.
void Engine::check_process() const
{
	if (is_forked())
		throw std::runtime_error("gannet: this process was forked from rank " + std::to_string(rank_) +
					 " and is no rank itself; call init_process_group() after the fork, or start the process by spawn");
}

void Engine::run(const std::function<void()> &f)
{
	std::promise<void> done;

	check_process();
	if (std::this_thread::get_id() == driver_.load() || !started())
		return f();
	post([&] {
		try {
			f();
			done.set_value();
		} catch (...) {
			done.set_exception(std::current_exception());
		}
	});
	done.get_future().get();
}

static std::exception_ptr too_late()
{
	return std::make_exception_ptr(std::runtime_error("gannet: the process ended before the operation was complete"));
}

// Of a thread that runs functions of a future.
static thread_local const Group *inserts_of;
static thread_local std::shared_ptr<Insert> inserts_into;

void Engine::call_back(const std::shared_ptr<Group> &group, std::function<void()> f)
{
	auto insert = group ? group->insert() : nullptr;

	try {
		callbacks_.post([this, group, insert, f = std::move(f)] {
			inserts_of = group.get();
			inserts_into = insert;
			f();
			inserts_of = nullptr;
			inserts_into = nullptr;
			if (insert)
				post([insert] { insert->is_over = true; });
		});
	} catch (...) {
		if (insert)
			insert->is_over = true;
		throw;
	}
}

std::shared_ptr<Insert> Engine::insert_of(const Group *group)
{
	return group && inserts_of == group ? inserts_into : nullptr;
}

void Engine::give_way(const Group *group, const std::shared_ptr<Insert> &waited_for)
{
	auto insert = insert_of(group);

	if (insert && insert != waited_for)
		post([insert] { insert->is_over = true; });
}

void Engine::submit(const std::shared_ptr<Group> &group, Task task, Turn turn)
{
	std::unique_lock<std::mutex> driving(driving_, std::defer_lock);
	std::shared_ptr<bool> ended;

	check_process();
	if (stopping_ || !started())
		throw std::runtime_error("gannet: the world has ended, at the end of the process");
	/* the tail of a message to another node may outlive its operation, and needs the thread */
	if (turn == Turn::waited_for && group->is_local() && std::this_thread::get_id() != driver_.load() && driving.try_lock()) {
		ended = std::make_shared<bool>(false);
		task.finish = [ended, finish = std::move(task.finish)](std::exception_ptr why) {
			finish(why);
			*ended = true;
		};
	}
	/* after what this thread has posted before */
	post([this, group, turn, insert = insert_of(group.get()), task = std::move(task)]() mutable {
		auto &queue = turn == Turn::beside ? beside_ : insert && !insert->is_over ? insert->tasks : group->queue.front()->tasks;

		may_rest_ = turn == Turn::waited_for && group->is_local();
		if (closed_)
			return task.finish(too_late());
		if (turn != Turn::beside && group->refuse(task))
			return;
		try {
			queue.push_back(std::move(task));
		} catch (...) { /* nothing was moved */
			task.finish(std::current_exception());
		}
	}, !ended);
	if (ended)
		drive(std::move(driving), *ended);
}

void Engine::release(std::shared_ptr<Group> group, void *memory) noexcept
{
	if (is_forked())
		return;
	try {
		post([group = std::move(group), memory] { group->release(memory); });
	} catch (const std::bad_alloc &) { /* it stays until the end */
	}
}

void Engine::post(std::function<void()> call, bool wakes)
{
	std::lock_guard<std::mutex> lock(mutex_);

	calls_.push_back(std::move(call));
	has_calls_ = true;
	if (wakes && idles_)
		gannet_wake();
	else if (wakes)
		wake_.notify_one();
}

// With driving_, which it gives back, until a task has ended. Saves two wakeups of threads, which take longer than a short operation.
void Engine::drive(std::unique_lock<std::mutex> driving, const bool &ended)
{
	unsigned looks = 0;

	driver_ = std::this_thread::get_id();
	while (!ended) {
		look(looks);
		if (!ended && looks)
			pause(looks, true);
	}
	bool leaves_some = is_busy();
	driver_ = std::thread::id();
	drives_++;
	driving.unlock();
	std::lock_guard<std::mutex> lock(mutex_);
	if (leaves_some || !calls_.empty()) {
		is_left_some_ = true;
		wake_.notify_one();
	}
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

bool Group::refuse(Task &task)
{
	if (failed_)
		task.finish(failed_);
	return failed_ != nullptr;
}

void Group::fail(std::exception_ptr why)
{
	failed_ = why;
	for (size_t i = queue.size(); i-- > 0;)
		for (auto &tasks = queue[i]->tasks; !tasks.empty(); tasks.pop_front())
			tasks.front().finish(why);
}

// To go on without the functions would be to guess: other ranks may have them before the operations that are held back.
static std::exception_ptr held_back(std::chrono::milliseconds limit)
{
	return std::make_exception_ptr(std::runtime_error(
		"gannet: a function of a future has run for " + std::to_string(limit.count() / 1000.0) +
		" s (the group's timeout) while later operations of its group were held back until it returns, to have one order on all ranks: let "
		"it wait for later operations by Work.wait() rather than Future.wait(), or enlarge the timeout; the group cannot be used any more"));
}

void Group::check_held_back(Insert &by)
{
	auto now = std::chrono::steady_clock::now();

	if (std::none_of(queue.begin(), queue.end(), [](auto &insert) { return !insert->tasks.empty(); }))
		by.since = now;
	else if (now - by.since > limit_)
		fail(held_back(limit_));
}

bool Group::advance()
{
	for (;;) {
		auto first = queue.back();

		if (!first->tasks.empty()) {
			if (!ended(first->tasks.front()))
				return true;
			first->tasks.pop_front();
			first->since = std::chrono::steady_clock::now();
			continue; // its future may have functions
		}
		if (queue.size() == 1)
			return false;
		if (!first->is_over && !failed_)
			check_held_back(*first);
		if (!first->is_over)
			return false;
		queue.pop_back();
		queue.back()->since = std::chrono::steady_clock::now();
	}
}

bool Engine::is_busy()
{
	for (auto &weak : groups_) {
		auto group = weak.lock();

		if (group && group->is_busy())
			return true;
	}
	return !beside_.empty();
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
		any |= group->advance();
		i++;
	}
	for (size_t i = 0; i < beside_.size();)
		if (ended(beside_[i]))
			beside_.erase(beside_.begin() + static_cast<long>(i));
		else
			i++;
	return any || !beside_.empty();
}

// How often a driver looks before it gives up the processor, and before it blocks: after some 50 us, so that it leaves the processor to
// those that compute.
static constexpr unsigned looks_before_yield = 20, looks_before_block = 200;

// How long the thread stays out of libgannet after the last drive of another one, which may be about to drive again.
static constexpr std::chrono::milliseconds rest_time(2);

// How long the end of the process waits for operations that nobody has waited for.
static constexpr int drain_s = 5;

// The driver's, when nothing has happened in the last `looks`. busy: operations are in flight.
void Engine::pause(unsigned looks, bool busy)
{
	if (looks <= looks_before_yield)
		return;
	if (looks <= looks_before_block)
		sched_yield();
	else
		idle(busy ? 5 : 100); // the limit finds what no event tells, as a lost rank
}

void Engine::idle(int limit_ms)
{
	const struct timespec nap = {0, 20000};
	{
		std::lock_guard<std::mutex> lock(mutex_);
		if (!calls_.empty())
			return;
		idles_ = true;
	}
	if (polled || !gannet_idle(limit_ms))
		nanosleep(&nap, nullptr);
	std::lock_guard<std::mutex> lock(mutex_);
	idles_ = false;
}

// The thread's, without driving_, when nothing is in flight: until something is, or nobody else has driven for a while.
void Engine::rest()
{
	std::unique_lock<std::mutex> lock(mutex_);
	auto is_called = [this] { return !calls_.empty() || stopping_ || is_left_some_; };
	unsigned drives;

	if (!world_)
		return wake_.wait(lock, is_called);
	do
		drives = drives_;
	while (!wake_.wait_for(lock, rest_time, is_called) && drives != drives_);
	is_left_some_ = false;
}

// Of who drives: advances what is there, and takes what was posted. Whether there is something.
bool Engine::look(unsigned &looks)
{
	std::deque<std::function<void()>> calls;
	bool busy = advance();

	if (has_calls_) {
		std::lock_guard<std::mutex> lock(mutex_);
		calls.swap(calls_);
		has_calls_ = false;
	}
	/* the tail of a message over tcp may be queued still */
	if (!busy && calls.empty() && world_)
		gannet_progress();
	for (auto &call : calls)
		call();
	looks = calls.empty() ? looks + 1 : 0;
	return busy || !calls.empty();
}

void Engine::loop()
{
	unsigned looks = 0;
	bool was_busy = false;

	pthread_setname_np(pthread_self(), "gannet-torch");
	while (!stopping_ || has_calls_) {
		bool rests = !world_;
		{
			std::lock_guard<std::mutex> lock(driving_);
			driver_ = std::this_thread::get_id();
			bool busy = look(looks);

			/* what is over was waited for by one that may drive next */
			if (was_busy && !busy)
				looks = may_rest_ ? looks_before_block : 1;
			rests |= !busy && looks == looks_before_block;
			if (looks && !rests)
				pause(looks, busy);
			was_busy = busy;
			driver_ = std::thread::id();
		}
		if (rests)
			rest();
	}
}

// Operations that nobody has waited for: a while for them to complete, then they fail. libgannet frees what is left of them.
void Engine::drain()
{
	auto until = std::chrono::steady_clock::now() + std::chrono::seconds(drain_s);
	auto why = too_late();

	for (unsigned looks = 0; advance() && std::chrono::steady_clock::now() < until; looks++)
		pause(looks, true);
	for (auto &weak : groups_) {
		auto group = weak.lock();

		if (group)
			group->fail(why);
	}
	for (auto &task : beside_)
		task.finish(why);
	beside_.clear();
	closed_ = true;
}

void Engine::stop()
{
	if (!started() || is_forked())
		return;
	run([this] {
		drain();
		gannet_finalize();
		finalized = true;
		world_ = nullptr;
	});
	callbacks_.stop();
	{
		std::lock_guard<std::mutex> lock(mutex_);
		stopping_ = true;
	}
	wake_.notify_one();
	thread_.join();
}

} // namespace gannet
