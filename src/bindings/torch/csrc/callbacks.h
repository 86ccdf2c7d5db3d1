// Threads for functions of the program, which may wait for operations, and so for functions that are posted later.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace gannet {

// As many threads as functions run, or wait, at a time; one of those with nothing to do stays.
class Callbacks {
public:
	// Any thread; does not block. f throws nothing. Throws when there is no thread, and none can be made.
	void post(std::function<void()> f);
	// Waits until all that was posted has run, and for the ends of the threads.
	void stop();

private:
	void loop();
	void call_one();
	std::mutex mutex_;
	std::condition_variable posted_, ended_;
	std::deque<std::function<void()>> queue_;
	size_t threads_ = 0, free_ = 0; // free: that have no function, or are about to begin
	bool stopping_ = false;
};

} // namespace gannet
