#include "tests/gpu/emulate_machine.h"

#include <stdio.h>
#include <string.h>

using namespace emulate;

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
	here.device = ordinal;
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

/* Invalid, and the end of the recording, while any thread records a stream of the device. */
static bool spoils_recordings(int ordinal)
{
	std::unique_lock<std::mutex> held(m().lock);
	bool some = false;

	for (cudaStream_t s : m().streams) {
		if (s->ordinal != ordinal || !s->recorded)
			continue;
		s->invalid = 1;
		some = true;
	}
	return some;
}

cudaError_t cudaDeviceSynchronize(void)
{
	MAY_FAIL();
	if (spoils_recordings(here.device) || here.recording)
		return answer(cudaErrorStreamCaptureUnsupported);
	drain_device(here.device);
	return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t code = here.last;

	here.last = cudaSuccess;
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
	*out = new CUstream_st{here.device, {}, {}, NULL, {}, 0, 0};
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
	if (here.recording)
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
	*out = new CUevent_st{here.device, 0, std::make_shared<std::atomic<uint64_t>>(0)};
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

	if (here.recording)
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
	if (here.recording)
		return answer(cudaErrorStreamCaptureUnsupported);
	wait_until([=] { return happened(e); });
	return cudaSuccess;
}

/* Long enough that what is timed is not repeated often. splitmix64 of the seed and the number of the call. */
static float next_ms(void)
{
	static std::atomic<uint64_t> calls;
	const int seed = setting("GANNET_EMULATED_TIMES", 1);
	uint64_t z = ((uint64_t)seed << 32) + ++calls * 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return seed ? 5 + 7 * (float)(z >> 40) / (1 << 24) : 8;
}

cudaError_t cudaEventElapsedTime(float *out_ms, cudaEvent_t from, cudaEvent_t to)
{
	MAY_FAIL();
	std::unique_lock<std::mutex> held(m().lock);

	if (!happened(from) || !happened(to))
		return answer(cudaErrorNotReady);
	*out_ms = next_ms();
	return cudaSuccess;
}

/* --- graphs --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
	MAY_FAIL();
	std::unique_lock<std::mutex> held(m().lock);

	if (s->recorded || here.recording || mode != cudaStreamCaptureModeThreadLocal)
		return answer(cudaErrorIllegalState);
	if (s->ordinal % 2)
		return answer(cudaErrorNotSupported);
	s->recorded = new CUgraph_st();
	s->recorder = std::this_thread::get_id();
	here.recording = s;
	s->invalid = 0;
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
	here.recording = NULL;
	if (s->invalid || fails(__func__)) {
		delete recorded;
		*out = NULL;
		return answer(s->invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorUnknown);
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
