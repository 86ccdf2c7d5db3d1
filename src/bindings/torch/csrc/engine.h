// The one thread of this process that calls libgannet. Tasks of a group's queue run one after the other; those of different groups, and
// messages, beside each other: programs may start operations of two groups in another order on each rank.
#pragma once

#include "callbacks.h"

#include <gannet.h>

#include <atomic>
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

// Called again and again, in the engine's thread, until it returns true. It never blocks. An exception ends it; `finish` gets it.
struct Task {
	std::function<bool()> step;
	std::function<void(std::exception_ptr)> finish; // nullptr: without failure. It calls no function of the program.
};

// What a group has: its prepared operations on its staging memory, which ranks of a node reach directly.
class Group {
public:
	Group(gannet_group *g, bool owned);
	// In the engine's thread.
	~Group();
	gannet_group *get() const { return group_; }
	int rank() const { return gannet_rank(group_); }
	int size() const { return gannet_size(group_); }
	char *staging() const { return staging_; }
	// Whether large tensors are reduced without the staging memory: few ranks, all of one node, of a group that
	// is the world.
	bool takes_tensors() const { return takes_tensors_; }
	// The prepared operation for these arguments, made at the first call. The order of calls is the same on all ranks.
	gannet_op *op(gannet_args args);

	std::deque<Task> tasks; // the engine's
	static constexpr size_t staging_bytes = 32 << 20;

private:
	using Key = std::tuple<int, const void *, void *, size_t, int, int, void *, int>;
	gannet_group *group_;
	bool owned_;
	char *staging_ = nullptr;
	bool takes_tensors_;
	std::map<Key, gannet_op *> ops_;
	std::deque<Key> order_;
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
	std::shared_ptr<Group> make_group(const std::vector<int> &ranks, const std::string &name, bool is_default);
	void submit(const std::shared_ptr<Group> &group, Task task, bool in_order);
	// Runs f in the thread and waits for it.
	void run(const std::function<void()> &f);
	// For functions of the program.
	Callbacks &callbacks() { return callbacks_; }
	// At the end of the process: waits for the other ranks' ends.
	void stop();

private:
	void loop();
	bool advance();
	void pause(unsigned looks, bool busy);
	// To be called by the thread.
	void post(std::function<void()> call);
	void drain();
	bool is_forked() const { return started() && process_ != getpid(); }
	void check_process() const;
	std::thread thread_;
	pid_t process_ = 0;
	int rank_ = -1;
	std::mutex mutex_;
	std::condition_variable wake_;
	std::deque<std::function<void()>> calls_;
	std::atomic<bool> has_calls_{false}, stopping_{false};
	bool waits_in_library_ = false; // woken by gannet_wake(), not by wake_
	gannet_group *world_ = nullptr;
	// of the thread alone
	bool made_whole_ = false; // a group of all ranks
	std::vector<std::weak_ptr<Group>> groups_;
	std::vector<Task> beside_;
	bool closed_ = false; // operations that come now fail
	Callbacks callbacks_;
};

} // namespace gannet
