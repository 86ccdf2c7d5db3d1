#include "tests/gpu/emulate.h"

#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <new>
#include <vector>

static const unsigned THREADS_MAX = 1024;
static const size_t MEMORY_BYTES = (size_t)4 << 30;
static const size_t STACK_BYTES = 128 << 10; /* AddressSanitizer's frames are large */

struct gn_cuda_device {
	struct gn_cuda_info info;
};

struct gn_cuda_stream {
	const struct gn_cuda_device *device;
};

struct gn_cuda_event {
	int unused;
};

struct gn_cuda_arena {
	size_t capacity, used;
	std::vector<void *> pieces;
};

dim3 gridDim, blockDim, blockIdx, threadIdx;

struct fibre {
	ucontext_t context;
	char *stack;
	int done;
};

static ucontext_t scheduler;
static fibre fibres[THREADS_MAX];
static void (*body_call)(const void *);
static const void *body_data;

static void run_thread(void)
{
	body_call(body_data);
	fibres[threadIdx.x].done = 1;
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
	swapcontext(&fibres[own].context, &scheduler);
	threadIdx.x = own;
}

static void prepare(fibre *f)
{
	if (!f->stack)
		f->stack = (char *)malloc(STACK_BYTES);
	f->done = 0;
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = f->stack;
	f->context.uc_stack.ss_size = STACK_BYTES;
	f->context.uc_link = &scheduler;
	makecontext(&f->context, run_thread, 0);
}

static int run_straight(unsigned threads, unsigned first)
{
	broken = 0;
	straight = 1;
	for (unsigned i = 0; i < threads; i++) {
		threadIdx.x = first ? threads - 1 - i : i;
		if (threadIdx.x != first)
			body_call(body_data);
	}
	straight = 0;
	return broken ? -1 : 0;
}

/* All threads up to their next barrier or end, until all have ended. Nonzero when only some of them have. */
static int run_block(unsigned threads, int backward)
{
	unsigned first = backward ? threads - 1 : 0;

	prepare(&fibres[first]);
	threadIdx.x = first;
	swapcontext(&scheduler, &fibres[first].context);
	if (fibres[first].done)
		return run_straight(threads, first);
	for (unsigned i = 0; i < threads; i++)
		if (i != first)
			prepare(&fibres[i]);
	for (int begun = 1;;) {
		unsigned done = 0;

		for (unsigned i = 0; i < threads; i++) {
			unsigned at = backward ? threads - 1 - i : i;

			if (!begun || at != first) {
				threadIdx.x = at;
				swapcontext(&scheduler, &fibres[at].context);
			}
			done += fibres[at].done;
		}
		begun = 0;
		if (done == threads)
			return 0;
		if (done)
			return -1;
	}
}

enum gn_status gn_emulate_run(const struct gn_cuda_stream *s, dim3 grid, unsigned threads,
			      void (*call)(const void *body), const void *body, const char *name, struct gn_err *err)
{
	/* what a GPU refuses, too */
	if (threads < 1 || threads > THREADS_MAX || grid.x < 1 || grid.x > INT32_MAX || grid.y < 1 || grid.y > 65535)
		return gn_err_set(err, GN_ERR_FAILED, "%s: %u x %u blocks of %u threads", name, grid.x, grid.y,
				  threads);
	gridDim = grid;
	blockDim = dim3(threads);
	body_call = call;
	body_data = body;
	for (unsigned y = 0; y < grid.y; y++) {
		for (unsigned x = 0; x < grid.x; x++) {
			blockIdx = dim3(x, y);
			if (run_block(threads, s->device->info.ordinal))
				return gn_err_set(err, GN_ERR_FAILED, "%s: not every thread came to a barrier", name);
		}
	}
	return GN_OK;
}

enum gn_status gn_cuda_device_count(int *out, struct gn_err *err)
{
	(void)err;
	*out = 2;
	return GN_OK;
}

enum gn_status gn_cuda_device_create(int ordinal, struct gn_cuda_device **out, struct gn_err *err)
{
	struct gn_cuda_device *d = new gn_cuda_device();

	(void)err;
	strcpy(d->info.name, ordinal ? "emulated, threads last to first" : "emulated, threads first to last");
	d->info.ordinal = ordinal;
	d->info.major = 9;
	d->info.memory_bytes = MEMORY_BYTES;
	d->info.multiprocessors = ordinal ? 1 : 5;
	*out = d;
	return GN_OK;
}

void gn_cuda_device_destroy(struct gn_cuda_device *d)
{
	delete d;
	for (unsigned i = 0; i < THREADS_MAX; i++) {
		free(fibres[i].stack);
		fibres[i].stack = NULL;
	}
}

const struct gn_cuda_info *gn_cuda_device_info(const struct gn_cuda_device *d)
{
	return &d->info;
}

enum gn_status gn_cuda_stream_create(const struct gn_cuda_device *d, struct gn_cuda_stream **out, struct gn_err *err)
{
	(void)err;
	*out = new gn_cuda_stream{d};
	return GN_OK;
}

void gn_cuda_stream_destroy(struct gn_cuda_stream *s)
{
	delete s;
}

const struct gn_cuda_device *gn_cuda_stream_device(const struct gn_cuda_stream *s)
{
	return s->device;
}

enum gn_status gn_cuda_stream_wait(struct gn_cuda_stream *s, struct gn_err *err)
{
	return gn_emulate_records(s) ? gn_err_set(err, GN_ERR_FAILED, "a stream is waited for while it is recorded") : GN_OK;
}

enum gn_status gn_cuda_copy(struct gn_cuda_stream *s, void *to, const void *from, size_t bytes, struct gn_err *err)
{
	(void)err;
	if (gn_emulate_records(s))
		gn_emulate_keep([=](struct gn_err *) { return memcpy(to, from, bytes), GN_OK; });
	else
		memcpy(to, from, bytes);
	return GN_OK;
}

enum gn_status gn_cuda_fill(struct gn_cuda_stream *s, void *to, int byte, size_t bytes, struct gn_err *err)
{
	(void)err;
	if (gn_emulate_records(s))
		gn_emulate_keep([=](struct gn_err *) { return memset(to, byte, bytes), GN_OK; });
	else
		memset(to, byte, bytes);
	return GN_OK;
}

enum gn_status gn_cuda_arena_create(const struct gn_cuda_device *d, size_t capacity_bytes, struct gn_cuda_arena **out,
				    struct gn_err *err)
{
	(void)d;
	(void)err;
	*out = new gn_cuda_arena{capacity_bytes, 0, {}};
	return GN_OK;
}

/* Every piece by itself, so that AddressSanitizer sees where it ends. */
void *gn_cuda_arena_take(struct gn_cuda_arena *a, size_t bytes)
{
	size_t whole = (bytes + GN_CUDA_ALIGN_BYTES - 1) / GN_CUDA_ALIGN_BYTES * GN_CUDA_ALIGN_BYTES;
	void *piece = NULL;

	/* as full as an arena of a GPU */
	if (whole > a->capacity - a->used || posix_memalign(&piece, GN_CUDA_ALIGN_BYTES, bytes ? bytes : 1))
		return NULL;
	memset(piece, 0, bytes);
	a->used += whole;
	a->pieces.push_back(piece);
	return piece;
}

void gn_cuda_arena_empty(struct gn_cuda_arena *a)
{
	for (void *piece : a->pieces)
		free(piece);
	a->pieces.clear();
	a->used = 0;
}

void gn_cuda_arena_destroy(struct gn_cuda_arena *a)
{
	if (!a)
		return;
	gn_cuda_arena_empty(a);
	delete a;
}

enum gn_status gn_cuda_device_memory(const struct gn_cuda_device *d, size_t *free_bytes, size_t *total_bytes,
				     struct gn_err *err)
{
	(void)err;
	*free_bytes = *total_bytes = d->info.memory_bytes;
	return GN_OK;
}

enum gn_status gn_cuda_pinned_alloc(const struct gn_cuda_device *d, size_t bytes, void **out, struct gn_err *err)
{
	(void)d;
	*out = malloc(bytes ? bytes : 1);
	return *out ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
}

void gn_cuda_pinned_free(const struct gn_cuda_device *d, void *pinned)
{
	(void)d;
	free(pinned);
}

enum gn_status gn_cuda_register(const struct gn_cuda_device *d, void *memory, size_t bytes, struct gn_err *err)
{
	(void)d;
	(void)memory;
	(void)bytes;
	(void)err;
	return GN_OK;
}

void gn_cuda_unregister(const struct gn_cuda_device *d, void *memory)
{
	(void)d;
	(void)memory;
}

/* Work is done when it is queued, so order is what events ask for. */
enum gn_status gn_cuda_event_create(const struct gn_cuda_device *d, int timed, struct gn_cuda_event **out,
				    struct gn_err *err)
{
	(void)d;
	(void)timed;
	(void)err;
	*out = new gn_cuda_event();
	return GN_OK;
}

void gn_cuda_event_destroy(struct gn_cuda_event *e)
{
	delete e;
}

enum gn_status gn_cuda_event_record(struct gn_cuda_event *e, struct gn_cuda_stream *s, struct gn_err *err)
{
	(void)e;
	(void)s;
	(void)err;
	return GN_OK;
}

/* What is queued is done at once. */
void *gn_cuda_event_native(const struct gn_cuda_event *e)
{
	(void)e;
	return NULL;
}

enum gn_status gn_cuda_event_native_done(const struct gn_cuda_device *d, void *native, int *out, struct gn_err *err)
{
	(void)d;
	(void)native;
	(void)err;
	*out = 1;
	return GN_OK;
}

enum gn_status gn_cuda_event_wait(struct gn_cuda_event *e, struct gn_err *err)
{
	(void)e;
	(void)err;
	return GN_OK;
}

enum gn_status gn_cuda_event_done(const struct gn_cuda_event *e, int *out, struct gn_err *err)
{
	(void)e;
	(void)err;
	*out = 1;
	return GN_OK;
}

/* All work takes as long as any other. */
enum gn_status gn_cuda_event_between(const struct gn_cuda_event *from, const struct gn_cuda_event *to, float *out_ms,
				     struct gn_err *err)
{
	(void)from;
	(void)to;
	(void)err;
	*out_ms = 1;
	return GN_OK;
}

enum gn_status gn_cuda_stream_after(struct gn_cuda_stream *s, const struct gn_cuda_event *event, struct gn_err *err)
{
	(void)s;
	(void)event;
	(void)err;
	return GN_OK;
}
