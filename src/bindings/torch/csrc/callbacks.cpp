#include "callbacks.h"

#include <pthread.h>
#include <system_error>
#include <thread>

namespace gannet {

void Callbacks::post(std::function<void()> f)
{
	std::lock_guard<std::mutex> lock(mutex_);

	queue_.push_back(std::move(f));
	if (idle_ >= queue_.size()) {
		posted_.notify_one();
		return;
	}
	try {
		std::thread([this] { loop(); }).detach();
		threads_++;
	} catch (const std::system_error &) {
		if (!threads_) // else one of those that there are comes to it
			throw;
	}
}

void Callbacks::loop()
{
	std::unique_lock<std::mutex> lock(mutex_);

	pthread_setname_np(pthread_self(), "gannet-futures");
	for (;;) {
		if (queue_.empty()) {
			if (idle_ || stopping_)
				break;
			idle_++;
			posted_.wait(lock, [this] { return !queue_.empty() || stopping_; });
			idle_--;
			continue;
		}
		auto f = std::move(queue_.front());

		queue_.pop_front();
		lock.unlock();
		f();
		f = nullptr; // what it holds may be the last of its kind
		lock.lock();
	}
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
