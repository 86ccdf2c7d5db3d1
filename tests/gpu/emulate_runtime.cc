#include "tests/gpu/emulate_runtime.h"

#include "kernels/cuda/internal.h"
#include "tests/gpu/emulate_queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

using namespace emulate;
typedef std::chrono::steady_clock now_clock;

/* How often a stream pauses, one time in so many, and for how long at most. */
static const unsigned PAUSE_EVERY = 8, PAUSE_US = 1000;
static const auto LOOK_AGAIN = std::chrono::microseconds(50);

struct CUgraph_st {
	std::vector<work> works;
};

struct CUgraphExec_st {
	std::shared_ptr<std::vector<work>> works;
};

struct CUstream_st {
	int ordinal;
	std::deque<work> queue;
	now_clock::time_point not_before;
	CUgraph_st *recorded;
	std::thread::id recorder;
	int dropped; /* to be deleted when it is empty */
};

struct CUevent_st {
	int ordinal;
	uint64_t recorded;
	std::shared_ptr<std::atomic<uint64_t>> reached;
};

struct machine {
	std::mutex lock;
	std::condition_variable given, done;
	std::vector<cudaStream_t> streams;
	cudaStream_t legacy[64];
	std::minstd_rand random;
	int serial, gpus, started;
};

static int setting(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text && *text ? atoi(text) : otherwise;
}

/* Never freed: its thread runs until the process ends. */
static machine &m(void)
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
static void run_here(std::unique_lock<std::mutex> &held)
{
	if (!is_idle()) {
		open_memory(1);
		while (advance(held))
			;
		open_memory(0);
	}
	remove_dropped();
}

static void set_going(void)
{
	if (m().serial)
		return;
	if (!m().started++)
		std::thread(run_gpus).detach();
	m().given.notify_all();
}

static void wait_until(const std::function<bool()> &holds)
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

static thread_local int current;
static thread_local cudaError_t last;
static thread_local int recordings;

cudaError_t emulate::answer(cudaError_t code)
{
	if (code != cudaSuccess)
		last = code;
	return code;
}

int emulate::fails(const char *call)
{
	static const int at = setting("GANNET_EMULATED_FAIL_AT", 0), here = setting("PMIX_RANK", 0);
	static const int rank = setting("GANNET_EMULATED_FAIL_RANK", here);
	static std::atomic<int> calls;

	if (at == 0 || here != rank || ++calls != at)
		return 0;
	fprintf(stderr, "emulated: call %d, %s, fails\n", at, call);
	return 1;
}

int emulate::device_count(void)
{
	return m().gpus;
}

int emulate::current_device(void)
{
	return current;
}

int emulate::thread_records(void)
{
	return recordings;
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

	if (!m().legacy[current]) {
		m().legacy[current] = new CUstream_st{current, {}, {}, NULL, {}, 0};
		m().streams.push_back(m().legacy[current]);
	}
	return m().legacy[current];
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

/* --- devices --- */

cudaError_t cudaDriverGetVersion(int *out)
{
	MAY_FAIL();
	*out = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *out)
{
	MAY_FAIL();
	*out = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *out)
{
	MAY_FAIL();
	*out = m().gpus;
	return answer(m().gpus ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int ordinal)
{
	MAY_FAIL();
	if (ordinal < 0 || ordinal >= m().gpus)
		return answer(cudaErrorInvalidDevice);
	current = ordinal;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int ordinal)
{
	MAY_FAIL();
	memset(out, 0, sizeof *out);
	snprintf(out->name, sizeof out->name, "emulated, threads %s", ordinal % 2 ? "last to first" : "first to last");
	out->totalGlobalMem = (size_t)4 << 30;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr which, int ordinal)
{
	MAY_FAIL();
	*out = which == cudaDevAttrComputeCapabilityMajor	 ? 9
	       : which == cudaDevAttrMultiProcessorCount ? (ordinal % 2 ? 1 : 5)
	       : which == cudaDevAttrL2CacheSize	 ? 1 << 20
							 : 0;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int len, int ordinal)
{
	MAY_FAIL();
	snprintf(out, (size_t)len, "0000:%02x:00.0", ordinal + 1);
	return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	MAY_FAIL();
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
	MAY_FAIL();
	if (recordings)
		return answer(cudaErrorStreamCaptureUnsupported);
	drain_device(current);
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t code = last;

	last = cudaSuccess;
	return code;
}

const char *cudaGetErrorName(cudaError_t code)
{
	return code == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
	       : code == cudaErrorNoDevice	 ? "cudaErrorNoDevice"
	       : code == cudaErrorNotReady	 ? "cudaErrorNotReady"
						 : "cudaError";
}

const char *cudaGetErrorString(cudaError_t code)
{
	static thread_local char text[64];

	snprintf(text, sizeof text, "error %d of an emulated GPU", (int)code);
	return text;
}

/* --- streams --- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
	MAY_FAIL();
	std::unique_lock<std::mutex> held(m().lock);

	(void)flags;
	*out = new CUstream_st{current, {}, {}, NULL, {}, 0};
	m().streams.push_back(*out);
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
	MAY_FAIL();
	(void)priority;
	return cudaStreamCreateWithFlags(out, flags);
}

/* What it was given runs to its end. This and what else gives back does so also when it fails. */
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	std::unique_lock<std::mutex> held(m().lock);

	s->dropped = 1;
	set_going();
	MAY_FAIL();
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	MAY_FAIL();
	if (recordings)
		return answer(cudaErrorStreamCaptureUnsupported);
	drain(s);
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
	MAY_FAIL();
	std::shared_ptr<std::atomic<uint64_t>> reached = e->reached;
	uint64_t target = e->recorded;

	(void)flags;
	if (records(s))
		return answer(cudaErrorStreamCaptureIsolation);
	return target ? queue(s, [=] { return *reached >= target; }) : cudaSuccess;
}

/* --- events --- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
	MAY_FAIL();
	(void)flags;
	*out = new CUevent_st{current, 0, std::make_shared<std::atomic<uint64_t>>(0)};
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	delete e;
	MAY_FAIL();
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	MAY_FAIL();
	std::shared_ptr<std::atomic<uint64_t>> reached = e->reached;
	uint64_t number;

	if (e->ordinal != s->ordinal)
		return answer(cudaErrorInvalidResourceHandle);
	if (records(s))
		return answer(cudaErrorStreamCaptureUnsupported);
	number = ++e->recorded;
	return queue(s, [=] { return *reached = number, 1; });
}

static bool happened(cudaEvent_t e)
{
	return *e->reached >= e->recorded;
}

/* One call, as often as it may be made in vain. */
cudaError_t cudaEventQuery(cudaEvent_t e)
{
	std::unique_lock<std::mutex> held(m().lock);

	if (recordings)
		return answer(cudaErrorStreamCaptureUnsupported);
	if (m().serial)
		run_here(held);
	if (!happened(e))
		return answer(cudaErrorNotReady);
	MAY_FAIL();
	return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	MAY_FAIL();
	if (recordings)
		return answer(cudaErrorStreamCaptureUnsupported);
	wait_until([=] { return happened(e); });
	return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *out_ms, cudaEvent_t from, cudaEvent_t to)
{
	MAY_FAIL();
	std::unique_lock<std::mutex> held(m().lock);

	if (!happened(from) || !happened(to))
		return answer(cudaErrorNotReady);
	*out_ms = 1;
	return cudaSuccess;
}

/* --- graphs --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
	MAY_FAIL();
	std::unique_lock<std::mutex> held(m().lock);

	if (s->recorded || mode != cudaStreamCaptureModeThreadLocal)
		return answer(cudaErrorIllegalState);
	if (s->ordinal % 2)
		return answer(cudaErrorNotSupported);
	s->recorded = new CUgraph_st();
	s->recorder = std::this_thread::get_id();
	recordings++;
	return cudaSuccess;
}

/* The recording is over, also when this fails. */
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out)
{
	std::unique_lock<std::mutex> held(m().lock);
	cudaGraph_t recorded = s->recorded;

	if (!recorded || s->recorder != std::this_thread::get_id())
		return answer(cudaErrorIllegalState);
	s->recorded = NULL;
	recordings--;
	if (fails(__func__)) {
		delete recorded;
		return answer(cudaErrorUnknown);
	}
	*out = recorded;
	return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *count)
{
	MAY_FAIL();
	if (nodes)
		return answer(cudaErrorNotSupported);
	*count = g->works.size();
	return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags)
{
	MAY_FAIL();
	(void)flags;
	*out = new CUgraphExec_st{std::make_shared<std::vector<work>>(g->works)};
	return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
	delete g;
	MAY_FAIL();
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g)
{
	delete g;
	MAY_FAIL();
	return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t s)
{
	MAY_FAIL();
	std::shared_ptr<std::vector<work>> works = g->works;

	if (records(s))
		return answer(cudaErrorStreamCaptureUnsupported);
	return queue(s, [=] {
		for (const work &w : *works)
			w();
		return 1;
	});
}
