/* The CUDA runtime of a machine whose GPUs are emulated: the functions of <cuda_runtime_api.h> that Gannet calls, so that
 * everything of Gannet but kernels' machine code and NVIDIA's libraries runs as it is where there is no GPU.
 *
 * Work runs when a GPU would: later, in the order of its stream, in no order between streams but what events ask for. A thread
 * does it, which lets streams pause at random, so that what is not waited for is not there. What a GPU or its driver refuses is
 * refused: memory beyond what there is, waiting within a recording, events of another GPU, copies out of allocated memory, kernels
 * that are given the host's memory, or another GPU's. Copies to memory that is not pinned block until it is written; from such memory
 * they read when they run, as a driver may: what has been changed or freed by then is copied as it is.
 *
 * The environment says which machine it is:
 *   GANNET_EMULATED_GPUS   how many (2)
 *   GANNET_EMULATED_SEED   of the pauses (1). 0: nothing is done before somebody waits or asks for it, and outside of such calls
 *                          the device's memory may not be touched: who does so on the host crashes (not under
 *                          AddressSanitizer, which looks at bounds instead)
 *   GANNET_EMULATED_FAIL_AT=N, GANNET_EMULATED_FAIL_RANK=R
 *                          call number N of the process, or of rank R's, of the runtime, a kernel or NCCL fails, and a line on
 *                          stderr says which that is; with GANNET_EMULATED_FAIL_STICKY=1 all later ones do, too, as behind a
 *                          kernel's fault
 *   GANNET_EMULATED_HOLD_MS=N, GANNET_EMULATED_HOLD_RANK=R
 *                          the first copy up in rank R takes so long
 *   GANNET_EMULATED_LATE_DOWN_MS=N
 *                          a copy of 4 KiB or more to the host begins so late, while other streams go on
 *   GANNET_EMULATED_TIMES  seed of the times between events (1), 5 to 12 ms, which follow from it and from how many the process has
 *                          asked for: what is chosen by measuring differs from seed to seed, and is the same wherever the same is
 *                          measured. 0: always 8 ms, so that the first way is chosen
 * cuda:1 records no graphs, so that both ways are gone.
 *
 * Thread safety: as the runtime's; the current device belongs to the thread.
 */
#ifndef GN_TESTS_GPU_EMULATE_RUNTIME_H
#define GN_TESTS_GPU_EMULATE_RUNTIME_H

#include <cuda_runtime_api.h>

#include <functional>

namespace emulate
{

/* Called again and again until it returns nonzero: it is done. Not called while anything else of the process's GPUs runs. */
typedef std::function<int()> work;

/* Queues, or records. */
cudaError_t queue(cudaStream_t s, const work &w);
/* Blocks until all of the stream's work is done, or of all streams of the device. */
void drain(cudaStream_t s);
void drain_device(int ordinal);

int current_device(void);
/* The stream named 0 of the current device. */
cudaStream_t legacy_stream(void);
/* Nonzero: the stream is recorded; the calling thread records one. */
int records(cudaStream_t s);
int thread_records(void);
/* What a call returns: kept for cudaGetLastError. */
cudaError_t answer(cudaError_t code);
/* A number of the environment. */
int setting(const char *name, int otherwise);
/* Whether this call is to fail. */
int fails(const char *call);
#define MAY_FAIL() do { if (emulate::fails(__func__)) return emulate::answer(cudaErrorUnknown); } while (0)
/* Whether the device's memory is out of the host's reach. */
int guarded(void);

/* emulate_memory.cc. Opens (or closes) the device's memory to the processor. */
void open_memory(int open);
/* Whether the current device may read and write all of it. */
int reaches(const void *at, size_t bytes);

} // namespace emulate
#endif
