// Calls libgannet, in one thread at a time: the engine's own, or one that waits for its operation at once and finds the engine at rest. Tasks
// of a group's queue run one after the other; those of different groups, and messages, beside each other: programs may start operations of two
// groups in another order on each rank.
#pragma once

#include "callbacks.h"

#include <gannet.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace gannet {

// A failure of libgannet, with its text.
struct Error : std::runtime_error {
	gannet_status status;
	explicit Error(gannet_status s) : std::runtime_error(std::string("gannet: ") + gannet_error()), status(s) {}
};
inline void check(gannet_status status)
{
	if (status)
		throw Error(status);
}

// Called again and again, by who drives the engine, until it returns true. It never blocks. An exception ends it; `finish` gets it.
struct Task {
	std::function<bool()> step;
	std::function<void(std::exception_ptr)> finish; // nullptr: without failure. It calls no function of the program.
};

// A part of a group's queue: what the functions of one operation's future start comes directly after that operation, before all that was
// submitted after it, so that the order is the same on all ranks whichever thread was faster.
struct Insert {
	std::deque<Task> tasks;
	bool is_over = false; // the functions have returned, or wait for an operation that was submitted later
	std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now(); // operations are held back by it, or it last had a task
};

// What a group has: its prepared operations on its staging memory, which ranks of a node reach directly.
class Group {
public:
	// limit: so long may functions of futures hold operations back.
	Group(gannet_group *g, bool owned, std::chrono::milliseconds limit);
	// By who drives the engine.
	~Group();
	gannet_group *get() const { return group_; }
	int rank() const { return gannet_rank(group_); }
	int size() const { return gannet_size(group_); }
	char *staging() const { return staging_; }
	// Whether large tensors are reduced without the staging memory: few ranks, all of one node, of a group that is the world.
	bool takes_tensors() const { return takes_tensors_; }
	// Whether all ranks are of one node.
	bool is_local() const { return is_local_; }
	// Memory that all ranks of a node reach directly, of those who drive; it blocks until all ranks have come to it.
	void *allocate(size_t len_bytes);
	void release(void *memory);
	// Whether it is part of such memory, of any group. Any thread.
	static bool owns(const void *memory);
	// The prepared operation for these arguments, made at the first call. The order of calls is the same on all ranks.
	gannet_op *op(gannet_args args);

	// Of who drives the engine. The last one goes first; the first one is for all other threads.
	std::vector<std::shared_ptr<Insert>> queue{std::make_shared<Insert>()};
	// Whether there is something to advance.
	bool advance();
	// Fails a task of a group that has failed; false: it has not.
	bool refuse(Task &task);
	// Ends all that is queued.
	void fail(std::exception_ptr why);
	bool is_busy() const { return !queue.back()->tasks.empty(); }
	std::shared_ptr<Insert> insert() { return queue.emplace_back(std::make_shared<Insert>()); }
	static constexpr size_t staging_bytes = 32 << 20;

private:
	void check_held_back(Insert &by);
	using Key = std::tuple<int, const void *, void *, size_t, int, int, void *, int>;
	gannet_group *group_;
	bool owned_;
	char *staging_ = nullptr;
	bool is_local_ = true, takes_tensors_;
	std::chrono::milliseconds limit_;
	std::exception_ptr failed_; // of all operations from then on: the order could not be kept
	std::map<Key, gannet_op *> ops_;
	std::deque<Key> order_;
};

// Of a submitted task.
enum class Turn {
	in_order,
	waited_for, // in order, too, and the caller has nothing to do until it has ended: it drives the engine meanwhile, if it can
	beside
};

class Engine {
public:
	static Engine &get();
	// Starts the thread, and this process's world, at the first call; later ones compare rank and size. rendezvous "": as the launcher
	// says.
	void start(const std::string &rendezvous, int rank, int size);
	bool started() const { return thread_.joinable(); }
	// Collective over the ranks of the world that are listed. Each group has an order of operations of its own: only the default group, and
	// the first, are the world itself.
	std::shared_ptr<Group> make_group(const std::vector<int> &ranks, const std::string &name, bool is_default, std::chrono::milliseconds limit);
	void submit(const std::shared_ptr<Group> &group, Task task, Turn turn);
	// Releases memory of the group at some time. Any thread; does not block, nor throw.
	void release(std::shared_ptr<Group> group, void *memory) noexcept;
	// Lets who drives the engine run f, and waits for it.
	void run(const std::function<void()> &f);
	// Runs f, of the future of an operation of the group (NULL: a message), in a thread for functions of the program. To be called by who
	// drives. Throws when there is no such thread, and none can be made.
	void call_back(const std::shared_ptr<Group> &group, std::function<void()> f);
	// What this thread submits to the group is part of: NULL, unless it runs functions of a future of the group.
	static std::shared_ptr<Insert> insert_of(const Group *group);
	// This thread is about to wait for an unfinished operation of the group, that is not part of its insert and thus held back by it: all
	// later operations go on. The program does so at the same place on each rank, so that their order stays the same.
	void give_way(const Group *group, const std::shared_ptr<Insert> &waited_for);
	// Operations in flight that wait for what cannot wake who drives, as a device does.
	std::atomic<int> polled{0};
	// At the end of the process: waits for the other ranks' ends.
	void stop();

private:
	void loop();
	bool advance();
	bool look(unsigned &looks);
	bool is_busy();
	void drive(std::unique_lock<std::mutex> driving, const bool &ended);
	void rest();
	void pause(unsigned looks, bool busy);
	void idle(int limit_ms);
	// Posts a call, which throws nothing, to who drives.
	void post(std::function<void()> call, bool wakes = true);
	void drain();
	bool is_forked() const { return started() && process_ != getpid(); }
	void check_process() const;
	std::thread thread_;
	pid_t process_ = 0;
	int rank_ = -1;
	std::mutex driving_; // held by who calls libgannet, and advances tasks
	std::atomic<std::thread::id> driver_{};
	std::atomic<unsigned> drives_{0}; // by others than the engine's thread
	std::mutex mutex_;
	std::condition_variable wake_;
	std::deque<std::function<void()>> calls_;
	std::atomic<bool> has_calls_{false}, stopping_{false};
	bool idles_ = false;	   // the driver is in gannet_idle(), and woken by gannet_wake()
	bool is_left_some_ = false; // a driver has left tasks in flight to the thread
	std::atomic<gannet_group *> world_{nullptr};
	// of who drives
	bool may_rest_ = false; // who has posted last may drive next
	bool made_whole_ = false; // a group of all ranks
	std::vector<std::weak_ptr<Group>> groups_;
	std::deque<Task> beside_;
	bool closed_ = false; // operations that come now fail
	Callbacks callbacks_;
};

} // namespace gannet
