#include "tests/gpu/emulate_machine.h"

#include "src/device/cuda_native.h"
#include "tests/gpu/emulate_queue.h"

#include <stdio.h>
#include <stdlib.h>

using namespace emulate;
typedef std::chrono::steady_clock now_clock;

/* How often a stream pauses, one time in so many, and for how long at most. */
static const unsigned PAUSE_EVERY = 8, PAUSE_US = 1000;
static const auto LOOK_AGAIN = std::chrono::microseconds(50);

int emulate::setting(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text && *text ? atoi(text) : otherwise;
}

machine &emulate::m(void)
{
	static machine *only = [] {
		machine *made = new machine();
		int seed = setting("GANNET_EMULATED_SEED", 1);

		made->gpus = setting("GANNET_EMULATED_GPUS", 2);
		made->serial = seed == 0;
		made->random.seed((unsigned)seed);
		return made;
	}();

	return *only;
}

/* --- doing the work; with the lock --- */

/* One piece of work of one stream that can go on, from a stream drawn by lot. 0: there was none. */
static int advance(std::unique_lock<std::mutex> &held)
{
	auto now = now_clock::now();
	size_t count = m().streams.size(), first = count ? m().random() % count : 0;

	for (size_t i = 0; i < count; i++) {
		cudaStream_t s = m().streams[(first + i) % count];
		work w;
		int through;

		if (s->queue.empty() || (!m().serial && s->not_before > now))
			continue;
		w = s->queue.front();
		if (!m().serial)
			held.unlock();
		through = w();
		if (!m().serial)
			held.lock();
		if (!through)
			continue;
		s->queue.pop_front();
		if (m().random() % PAUSE_EVERY == 0)
			s->not_before = now_clock::now() + std::chrono::microseconds(m().random() % PAUSE_US);
		return 1;
	}
	return 0;
}

static int is_idle(void)
{
	for (cudaStream_t s : m().streams)
		if (!s->queue.empty())
			return 0;
	return 1;
}

static void remove_dropped(void)
{
	for (size_t i = m().streams.size(); i-- > 0;) {
		cudaStream_t s = m().streams[i];

		if (!s->dropped || !s->queue.empty())
			continue;
		m().streams.erase(m().streams.begin() + (ptrdiff_t)i);
		delete s;
	}
}

/* The GPUs, all of them. */
static void run_gpus(void)
{
	std::unique_lock<std::mutex> held(m().lock);

	for (;;) {
		remove_dropped();
		if (is_idle())
			m().given.wait(held);
		else if (advance(held))
			m().done.notify_all();
		else
			m().given.wait_for(held, LOOK_AGAIN);
	}
}

/* Within the call that waits or asks, as far as it goes. */
void emulate::run_here(std::unique_lock<std::mutex> &held)
{
	if (!is_idle()) {
		open_memory(1);
		while (advance(held))
			;
		open_memory(0);
	}
	remove_dropped();
}

void emulate::set_going(void)
{
	if (m().serial)
		return;
	if (!m().started++)
		std::thread(run_gpus).detach();
	m().given.notify_all();
}

void emulate::wait_until(const std::function<bool()> &holds)
{
	std::unique_lock<std::mutex> held(m().lock);

	while (!holds()) {
		if (m().serial)
			run_here(held);
		if (!holds())
			m().done.wait_for(held, m().serial ? LOOK_AGAIN : std::chrono::microseconds(10000));
	}
}

/* --- what the other files of the emulation ask for --- */

thread_local caller emulate::here;

cudaError_t emulate::answer(cudaError_t code)
{
	if (code != cudaSuccess)
		here.last = code;
	if (here.recording && (code == cudaErrorStreamCaptureUnsupported || code == cudaErrorStreamCaptureIsolation))
		here.recording->invalid = 1;
	return code;
}

int emulate::fails(const char *call)
{
	static const int at = setting("GANNET_EMULATED_FAIL_AT", 0), own = setting("PMIX_RANK", 0);
	static const int rank = setting("GANNET_EMULATED_FAIL_RANK", own);
	static const int sticky = setting("GANNET_EMULATED_FAIL_STICKY", 0);
	static std::atomic<int> calls;
	int number = at && own == rank ? ++calls : 0;

	if (sticky && number > at)
		return 1;
	if (!number || number != at)
		return 0;
	fprintf(stderr, "emulated: call %d, %s, fails\n", at, call);
	return 1;
}

int emulate::current_device(void)
{
	return here.device;
}

int emulate::thread_records(void)
{
	return here.recording != NULL;
}

int emulate::records(cudaStream_t s)
{
	return s->recorded != NULL;
}

int emulate::guarded(void)
{
	return m().serial && !getenv("GANNET_EMULATED_DIRECT");
}

cudaStream_t emulate::legacy_stream(void)
{
	std::unique_lock<std::mutex> held(m().lock);

	if (!m().legacy[here.device]) {
		m().legacy[here.device] = new CUstream_st{here.device, {}, {}, NULL, {}, 0, 0};
		m().streams.push_back(m().legacy[here.device]);
	}
	return m().legacy[here.device];
}

cudaError_t emulate::queue(cudaStream_t s, const work &w)
{
	std::unique_lock<std::mutex> held(m().lock);

	if (s->recorded) {
		if (s->recorder != std::this_thread::get_id())
			return answer(cudaErrorStreamCaptureWrongThread);
		s->recorded->works.push_back(w);
		return cudaSuccess;
	}
	s->queue.push_back(w);
	set_going();
	return cudaSuccess;
}

void emulate::drain(cudaStream_t s)
{
	wait_until([=] { return s->queue.empty(); });
}

void emulate::drain_device(int ordinal)
{
	wait_until([=] {
		for (cudaStream_t s : m().streams)
			if (s->ordinal == ordinal && !s->queue.empty())
				return false;
		return true;
	});
}

enum gn_status gn_emulate_queue(const struct gn_cuda_stream *s, const std::function<void()> &w, const char *name,
				struct gn_err *err)
{
	cudaError_t code = fails(name) ? answer(cudaErrorUnknown) : queue(s->native, [=] { return w(), 1; });

	return gn_cuda_check(code, name, s->device->info.ordinal, err);
}

enum gn_status gn_emulate_call(const struct gn_cuda_stream *s, void (*run)(const void *args), const void *args, size_t bytes,
			       const char *name, struct gn_err *err)
{
	std::vector<char> copy((const char *)args, (const char *)args + bytes);

	return gn_emulate_queue(s, [=] { run(copy.data()); }, name, err);
}
