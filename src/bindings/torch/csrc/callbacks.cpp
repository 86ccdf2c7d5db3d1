#include "callbacks.h"

#include <pthread.h>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

namespace gannet {

void Callbacks::post(std::function<void()> f)
{
	std::lock_guard<std::mutex> lock(mutex_);

	queue_.push_back(std::move(f));
	try {
		call_one();
	} catch (...) {
		queue_.pop_back();
		throw;
	}
}

// For the first of the queue. The thread that takes it calls one for the next, so that many short functions need few threads.
void Callbacks::call_one()
{
	if (free_) {
		posted_.notify_one();
		return;
	}
	try {
		std::thread([this] { loop(); }).detach();
		threads_++;
		free_++;
	} catch (const std::system_error &e) {
		if (!threads_) // else one of those that there are comes to it
			throw std::runtime_error(std::string("gannet: no thread can be made for the functions of a future: ") + e.what() +
						 " (see ulimit -u and the memory that is left)");
	}
}

void Callbacks::loop()
{
	std::unique_lock<std::mutex> lock(mutex_);

	pthread_setname_np(pthread_self(), "gannet-futures");
	for (;;) {
		posted_.wait(lock, [this] { return !queue_.empty() || free_ > 1 || stopping_; });
		if (queue_.empty())
			break;
		auto f = std::move(queue_.front());

		queue_.pop_front();
		free_--;
		if (!queue_.empty())
			call_one();
		lock.unlock();
		f();
		f = nullptr; // what it holds may be the last of its kind
		lock.lock();
		free_++;
	}
	free_--;
	threads_--;
	ended_.notify_all();
}

void Callbacks::stop()
{
	std::unique_lock<std::mutex> lock(mutex_);

	stopping_ = true;
	posted_.notify_all();
	ended_.wait(lock, [this] { return !threads_; });
}

} // namespace gannet
