/* It would take a jump to another stack for an error. */
#undef _FORTIFY_SOURCE
#include "tests/gpu/emulate.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

static const unsigned THREADS_MAX = 1024;
static const size_t STACK_BYTES = 128 << 10; /* AddressSanitizer's frames are large */

dim3 gridDim, blockDim, blockIdx, threadIdx;

/* Where something goes on: at context when it has not begun, later at `at`, since a jump costs no system call. */
struct place {
	ucontext_t context;
	jmp_buf at;
	int has_begun;
};

/* Made once, for all blocks to come. */
struct fibre {
	place own;
	int done;
};

static place scheduler;
static fibre fibres[THREADS_MAX];
static const std::function<void()> *body;

static void go_on(place *from, place *to)
{
#ifdef __SANITIZE_ADDRESS__ /* which is told by swapcontext alone that stacks change */
	swapcontext(&from->context, &to->context);
#else
	from->has_begun = 1;
	if (_setjmp(from->at))
		return;
	if (to->has_begun)
		_longjmp(to->at, 1);
	setcontext(&to->context);
#endif
}

static void run_threads(void)
{
	fibre *own = &fibres[threadIdx.x];

	for (;;) {
		(*body)();
		own->done = 1;
		go_on(&own->own, &scheduler);
	}
}

/* Set while threads run without fibres of their own, because the block's first one ended without a barrier. */
static int straight, broken;

void gn_emulate_barrier(void)
{
	unsigned own = threadIdx.x;

	if (straight) {
		broken = 1;
		return;
	}
	go_on(&fibres[own].own, &scheduler);
	threadIdx.x = own;
}

static void run_fibre(unsigned thread)
{
	place *own = &fibres[thread].own;

	if (!own->context.uc_stack.ss_sp) {
		getcontext(&own->context);
		own->context.uc_stack.ss_sp = malloc(STACK_BYTES);
		own->context.uc_stack.ss_size = STACK_BYTES;
		makecontext(&own->context, run_threads, 0);
	}
	threadIdx.x = thread;
	go_on(&scheduler, own);
}

static int run_straight(unsigned threads, unsigned first)
{
	broken = 0;
	straight = 1;
	for (unsigned i = 0; i < threads; i++) {
		threadIdx.x = first ? threads - 1 - i : i;
		if (threadIdx.x != first)
			(*body)();
	}
	straight = 0;
	return broken ? -1 : 0;
}

/* All threads up to their next barrier or end, until all have ended. Nonzero when only some of them have. */
static int run_block(unsigned threads, int backward)
{
	unsigned first = backward ? threads - 1 : 0;

	for (unsigned i = 0; i < threads; i++)
		fibres[i].done = 0;
	run_fibre(first);
	if (fibres[first].done)
		return run_straight(threads, first);
	for (int begun = 1;;) {
		unsigned done = 0;

		for (unsigned i = 0; i < threads; i++) {
			unsigned at = backward ? threads - 1 - i : i;

			if (!begun || at != first)
				run_fibre(at);
			done += fibres[at].done;
		}
		begun = 0;
		if (done == threads)
			return 0;
		if (done)
			return -1;
	}
}

/* On the thread that does the GPUs' work. */
static void run_grid(int backward, dim3 grid, unsigned threads, const std::function<void()> &kernel, const char *name)
{
	gridDim = grid;
	blockDim = dim3(threads);
	body = &kernel;
	for (unsigned y = 0; y < grid.y; y++) {
		for (unsigned x = 0; x < grid.x; x++) {
			blockIdx = dim3(x, y);
			if (!run_block(threads, backward))
				continue;
			fprintf(stderr, "%s: not every thread came to a barrier\n", name);
			abort();
		}
	}
}

enum gn_status gn_emulate(const struct gn_cuda_stream *s, dim3 grid, unsigned threads, const std::function<void()> &kernel,
			  const char *name, struct gn_err *err)
{
	int backward = gn_cuda_device_info(gn_cuda_stream_device(s))->ordinal % 2;

	/* what a GPU refuses, too */
	if (threads < 1 || threads > THREADS_MAX || grid.x < 1 || grid.x > INT32_MAX || grid.y < 1 || grid.y > 65535)
		return gn_err_set(err, GN_ERR_FAILED, "%s: %u x %u blocks of %u threads", name, grid.x, grid.y,
				  threads);
	return gn_emulate_queue(s, [=] { run_grid(backward, grid, threads, kernel, name); }, name, err);
}

extern "C" enum gn_status gn_cuda_kernels_probe(int ordinal, struct gn_err *err)
{
	(void)ordinal;
	(void)err;
	return GN_OK;
}
