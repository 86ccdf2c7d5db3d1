/* The emulated machine itself: that what is not waited for is not there, and that what a GPU refuses is refused. */
#include "tests/gpu/emulate_queue.h"

#include "kernels/cuda/autotune.h"
#include "src/device/cuda_native.h"
#include "tests/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct machine {
	struct gn_cuda_device *device;
	struct gn_cuda_stream *streams[2];
	float *memory, *pinned;
};

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

static int set_up(void **state)
{
	struct machine *m = calloc(1, sizeof *m);
	struct gn_err err;

	assert_non_null(m);
	assert_ok(gn_cuda_device_create(0, &m->device, &err));
	for (int i = 0; i < 2; i++)
		assert_ok(gn_cuda_stream_create(m->device, &m->streams[i], &err));
	assert_int_equal(cudaMalloc((void **)&m->memory, BYTES), cudaSuccess);
	assert_ok(gn_pinned_alloc((struct gn_device *)m->device, BYTES, (void **)&m->pinned, &err));
	*state = m;
	return 0;
}

static int tear_down(void **state)
{
	struct machine *m = *state;

	for (int i = 0; i < 2; i++)
		gn_cuda_stream_destroy(m->streams[i]);
	gn_pinned_free((struct gn_device *)m->device, m->pinned);
	assert_int_equal(cudaFree(m->memory), cudaSuccess);
	gn_cuda_device_destroy(m->device);
	free(m);
	return 0;
}

/* --- a stream that is held up --- */

static void hold(const void *args)
{
	atomic_int *released = *(atomic_int *const *)args;

	while (!atomic_load(released))
		usleep(100);
}

/* Nothing of the machine goes on before *released is set. */
static void hold_up(struct gn_cuda_stream *s, atomic_int *released)
{
	struct gn_err err;

	assert_ok(gn_emulate_call(s, hold, &released, sizeof released, "hold", &err));
}

static void test_later(void **state)
{
	struct machine *m = *state;
	atomic_int released = 0;
	struct gn_event *event;
	struct gn_err err;
	int done = 1;

	assert_ok(gn_event_create((struct gn_device *)m->device, &event, &err));
	assert_ok(gn_cuda_fill(m->streams[0], m->memory, 0, BYTES, &err));
	assert_ok(gn_cuda_stream_wait(m->streams[0], &err));
	m->pinned[0] = 1;
	hold_up(m->streams[0], &released);
	assert_ok(gn_cuda_copy(m->streams[0], m->pinned, m->memory, BYTES, &err));
	assert_ok(gn_event_record(event, gn_cuda_stream_base(m->streams[0]), &err));
	assert_ok(gn_event_done(event, &done, &err));
	assert_false(done);
	assert_true(m->pinned[0] == 1);
	atomic_store(&released, 1);
	assert_ok(gn_event_wait(event, &err));
	assert_true(m->pinned[0] == 0);
	gn_event_destroy(event);
}

static void add_one(const void *args)
{
	float *x = *(float *const *)args;

	*x = *x * 2 + 1;
}

/* Two streams in turns; without the events they would go each for itself. */
static void test_order_between_streams(void **state)
{
	struct machine *m = *state;
	struct gn_event *event;
	struct gn_err err;
	float expected = 0;

	assert_ok(gn_event_create((struct gn_device *)m->device, &event, &err));
	assert_ok(gn_cuda_fill(m->streams[0], m->memory, 0, BYTES, &err));
	for (int i = 0; i < 20; i++) {
		assert_ok(gn_emulate_call(m->streams[i % 2], add_one, &m->memory, sizeof m->memory, "add", &err));
		expected = expected * 2 + 1;
		assert_ok(gn_event_record(event, gn_cuda_stream_base(m->streams[i % 2]), &err));
		assert_ok(gn_stream_after(gn_cuda_stream_base(m->streams[(i + 1) % 2]), event, &err));
	}
	assert_ok(gn_cuda_copy(m->streams[0], m->pinned, m->memory, BYTES, &err));
	assert_ok(gn_cuda_stream_wait(m->streams[0], &err));
	assert_true(m->pinned[0] == expected);
	gn_event_destroy(event);
}

/* When the call has returned, what was copied to it may be used, and what is copied from it not yet be changed. */
static void test_memory_that_is_not_pinned(void **state)
{
	struct machine *m = *state;
	atomic_int released = 0;
	struct gn_err err;
	float given = 7, got = 0;

	hold_up(m->streams[0], &released);
	assert_ok(gn_cuda_copy(m->streams[0], m->memory, &given, sizeof given, &err));
	given = 8;
	atomic_store(&released, 1);
	assert_ok(gn_cuda_copy(m->streams[0], &got, m->memory, sizeof got, &err));
	assert_true(got == 8);
}

/* --- refused --- */

/* What a recording must not do, in four ways. */
static enum gn_status forbidden(struct machine *m, int way, struct gn_event *event)
{
	struct gn_err err;
	void *more;
	float local = 3;

	switch (way) {
	case 0:
		return gn_cuda_stream_wait(m->streams[0], &err);
	case 1:
		return gn_event_record(event, gn_cuda_stream_base(m->streams[0]), &err);
	case 2:
		return gn_cuda_copy(m->streams[0], m->memory, &local, sizeof local, &err);
	default:
		return cudaMalloc(&more, 1) == cudaErrorStreamCaptureUnsupported ? GN_ERR_FAILED : GN_OK;
	}
}

static void test_recording(void **state)
{
	struct machine *m = *state;
	struct gn_cuda_graph *graph;
	struct gn_event *event;
	struct gn_err err;
	size_t nodes;

	assert_ok(gn_event_create((struct gn_device *)m->device, &event, &err));
	assert_ok(gn_cuda_fill(m->streams[0], m->memory, 0, BYTES, &err));
	/* any of these spoils it */
	for (int i = 0; i < 4; i++) {
		assert_ok(gn_cuda_graph_begin(m->streams[0], &err));
		assert_int_equal(forbidden(m, i, event), GN_ERR_FAILED);
		assert_int_equal(gn_cuda_graph_end(m->streams[0], &graph, &nodes, &err), GN_ERR_FAILED);
	}
	assert_ok(gn_cuda_graph_begin(m->streams[0], &err));
	assert_ok(gn_emulate_call(m->streams[0], add_one, &m->memory, sizeof m->memory, "add", &err));
	assert_ok(gn_cuda_graph_end(m->streams[0], &graph, &nodes, &err));
	assert_int_equal(nodes, 1);
	for (int i = 0; i < 3; i++)
		assert_ok(gn_cuda_graph_launch(graph, m->streams[0], &err));
	assert_ok(gn_cuda_copy(m->streams[0], m->pinned, m->memory, BYTES, &err));
	assert_ok(gn_cuda_stream_wait(m->streams[0], &err));
	assert_true(m->pinned[0] == 7);
	gn_cuda_graph_destroy(graph);
	gn_event_destroy(event);
}

struct other {
	struct machine *m;
	int waits_for_device;
	enum gn_status status;
};

/* What another thread does while this one records. */
static void *beside(void *context)
{
	struct other *o = context;
	struct gn_cuda_arena *arena;
	struct gn_err err;

	if (o->waits_for_device) {
		o->status = cudaSetDevice(0) || cudaDeviceSynchronize() ? GN_ERR_FAILED : GN_OK;
		return NULL;
	}
	o->status = gn_cuda_arena_create(o->m->device, BYTES, &arena, &err);
	if (!o->status)
		gn_cuda_arena_destroy(arena);
	return NULL;
}

/* Memory comes and goes; to wait for the whole device spoils the recording of another thread. */
static void test_recording_beside_another_thread(void **state)
{
	struct machine *m = *state;
	struct gn_cuda_graph *graph;
	struct gn_err err;
	size_t nodes;

	for (int waits = 0; waits < 2; waits++) {
		const enum gn_status wanted = waits ? GN_ERR_FAILED : GN_OK;
		struct other other = {m, waits, GN_OK};
		pthread_t thread;

		assert_ok(gn_cuda_graph_begin(m->streams[0], &err));
		assert_int_equal(pthread_create(&thread, NULL, beside, &other), 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(other.status, wanted);
		assert_int_equal(gn_cuda_graph_end(m->streams[0], &graph, &nodes, &err), wanted);
		if (!waits)
			gn_cuda_graph_destroy(graph);
	}
}

static void test_what_is_no_copy(void **state)
{
	struct machine *m = *state;
	struct gn_cuda_device *other;
	struct gn_event *event;
	struct gn_err err;
	void *more;

	assert_int_equal(gn_cuda_copy(m->streams[0], m->pinned, m->memory + 1, BYTES, &err), GN_ERR_FAILED);
	assert_int_equal(gn_cuda_fill(m->streams[0], m->pinned, 0, 4, &err), GN_ERR_FAILED);
	assert_int_equal(cudaMemcpyAsync(m->pinned, m->memory, 4, cudaMemcpyHostToDevice, m->streams[0]->native),
			 cudaErrorInvalidValue);
	assert_int_equal(cudaMalloc(&more, (size_t)1 << 40), cudaErrorMemoryAllocation);
	assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
	assert_int_equal(cudaGetLastError(), cudaSuccess);
	/* an event of another GPU */
	assert_ok(gn_cuda_device_create(1, &other, &err));
	assert_ok(gn_event_create((struct gn_device *)other, &event, &err));
	assert_int_equal(gn_event_record(event, gn_cuda_stream_base(m->streams[0]), &err), GN_ERR_FAILED);
	gn_event_destroy(event);
	gn_cuda_device_destroy(other);
}

/* --- the host, where it should not be; processes of their own, before this one has a machine --- */

/* How a process ends that looks at what cudaMalloc gave it, or writes behind that. */
static int end_of(const char *seed, int behind)
{
	pid_t child = fork();
	int status = 0;
	char *at;

	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		setenv("GANNET_EMULATED_SEED", seed, 1);
		if (cudaMalloc((void **)&at, 512) == cudaSuccess)
			at[behind ? 512 : 0] = 1;
		_exit(0);
	}
	assert_true(waitpid(child, &status, 0) == child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_host_in_the_devices_memory(void **state)
{
	(void)state;
#ifdef __SANITIZE_ADDRESS__
	skip();
#endif
	assert_int_equal(end_of("1", 0), 0);
	assert_int_equal(end_of("1", 1), SIGSEGV);
	assert_int_equal(end_of("0", 0), SIGSEGV);
}

enum { BLOCK_BYTES = 128 << 20, NUMBERS = 64 << 20 };

/* Within a block, what cannot be taken for a number beside padding. */
static float *seen(char *block)
{
	return (float *)(void *)(((uintptr_t)block & 0xffffffff) < NUMBERS ? block + NUMBERS : block);
}

static void test_what_a_kernel_is_given(void **state)
{
	struct machine *m = *state;
	struct gn_err err;
	char *host = malloc(BLOCK_BYTES), *elsewhere;
	struct {
		int count;
		const float *from, *to;
		double factor;
	} given = {3, m->memory, m->memory + COUNT - 1, 0.5};

	assert_non_null(host);
	assert_int_equal(cudaSetDevice(1), cudaSuccess);
	assert_int_equal(cudaMalloc((void **)&elsewhere, BLOCK_BYTES), cudaSuccess);
	assert_ok(gn_emulate_look(m->streams[0], &given, sizeof given, "k", &err));
	given.to = m->pinned;
	assert_ok(gn_emulate_look(m->streams[0], &given, sizeof given, "k", &err));
	given.to = NULL;
	assert_ok(gn_emulate_look(m->streams[0], &given, sizeof given, "k", &err));
	given.to = seen(host);
	assert_int_equal(gn_emulate_look(m->streams[0], &given, sizeof given, "k", &err), GN_ERR_FAILED);
	given.to = seen(elsewhere);
	assert_int_equal(gn_emulate_look(m->streams[0], &given, sizeof given, "k", &err), GN_ERR_FAILED);
	assert_int_equal(cudaFree(elsewhere), cudaSuccess);
	free(host);
}

/* --- autotuning --- */

struct tries {
	struct machine *m;
	int calls[3];
};

/* The first cannot. */
static enum gn_status try_way(void *context, int way, struct gn_err *err)
{
	struct tries *t = context;

	t->calls[way]++;
	return way == 0 ? gn_err_set(err, GN_ERR_UNSUPPORTED, "not this way")
			: gn_cuda_fill(t->m->streams[0], t->m->memory, way, BYTES, err);
}

/* Each is called to load, to be looked at, and to be recorded; what is timed is launched without it. */
static void test_fastest_is_timed_in_graphs(void **state)
{
	struct tries t = {.m = *state};
	struct gn_cuda_candidates list = {3, try_way, &t, 0};
	struct gn_err err;
	int way = -1;

	setenv("GANNET_EMULATED_TIMES", "0", 1);
	assert_ok(gn_cuda_autotune(t.m->streams[0], &list, &way, &err));
	assert_int_equal(way, 1);
	assert_int_equal(t.calls[0], 1);
	for (int i = 1; i < 3; i++)
		assert_int_equal(t.calls[i], 2 + 2);
	list.count = 1;
	assert_int_equal(gn_cuda_autotune(t.m->streams[0], &list, &way, &err), GN_ERR_UNSUPPORTED);
	assert_non_null(strstr(err.text, "not this way"));
	unsetenv("GANNET_EMULATED_TIMES");
}

static void test_times_vary(void **state)
{
	struct tries t = {.m = *state};
	struct gn_cuda_candidates list = {3, try_way, &t, 0};
	struct gn_err err;
	int chosen[3] = {0};

	for (int i = 0; i < 20; i++) {
		int way = 0;

		assert_ok(gn_cuda_autotune(t.m->streams[0], &list, &way, &err));
		chosen[way]++;
	}
	assert_int_equal(chosen[0], 0);
	assert_true(chosen[1] > 0 && chosen[2] > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* first, for it is about processes that have no machine yet */
		cmocka_unit_test(test_host_in_the_devices_memory),
		cmocka_unit_test_setup_teardown(test_later, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_order_between_streams, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_memory_that_is_not_pinned, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_recording, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_recording_beside_another_thread, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_is_no_copy, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_fastest_is_timed_in_graphs, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_times_vary, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_a_kernel_is_given, set_up, tear_down),
	};

	unsetenv("GANNET_EMULATED_SEED");
	unsetenv("GANNET_EMULATED_TIMES");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
