/* The emulated machine inside (emulate_runtime.h): what its streams, events and graphs are, and who does their work.
 *
 * Thread safety: the lock is taken by the callers, but for wait_until. */
#ifndef GN_TESTS_GPU_EMULATE_MACHINE_H
#define GN_TESTS_GPU_EMULATE_MACHINE_H

#include "tests/gpu/emulate_runtime.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

struct CUgraph_st {
	std::vector<emulate::work> works;
};

struct CUgraphExec_st {
	std::shared_ptr<std::vector<emulate::work>> works;
};

struct CUstream_st {
	int ordinal;
	std::deque<emulate::work> queue;
	std::chrono::steady_clock::time_point not_before; /* it pauses */
	CUgraph_st *recorded;
	std::thread::id recorder;
	int invalid; /* something was done that a recording must not */
	int dropped; /* to be deleted when it is empty */
};

struct CUevent_st {
	int ordinal;
	uint64_t recorded;
	std::shared_ptr<std::atomic<uint64_t>> reached;
};

namespace emulate
{

struct machine {
	std::mutex lock;
	std::condition_variable given, done;
	std::vector<cudaStream_t> streams;
	cudaStream_t legacy[64];
	std::minstd_rand random;
	int serial, gpus, started;
};

/* What the runtime knows of each thread. */
struct caller {
	int device;
	cudaError_t last;
	cudaStream_t recording; /* NULL: none */
};
extern thread_local caller here;

/* Never freed: its thread runs until the process ends. */
machine &m(void);
/* Work was given: somebody does it, if not this thread. */
void set_going(void);
/* With seed 0: all work that can go on, now. */
void run_here(std::unique_lock<std::mutex> &held);
/* Blocks until work has brought it about. */
void wait_until(const std::function<bool()> &holds);

} // namespace emulate
#endif
