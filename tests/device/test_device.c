/* A device does what device.h says, whichever it is: the host, or with GN_TEST_DEVICE another. */
#include "tests/test.h"

#include "src/device/device.h"

#include <stdlib.h>
#include <string.h>

#ifndef GN_TEST_DEVICE
#define GN_TEST_DEVICE "host"
#endif

enum { COUNT = 1000, BYTES = COUNT * sizeof(float) };

static const float zeros[COUNT];

struct bench {
	struct gn_device *device;
	struct gn_stream *streams[2];
	struct gn_buffer from, to;
	float *pinned;
};

static int set_up(void **state)
{
	struct bench *b = calloc(1, sizeof *b);
	void *pinned;
	struct gn_err err;

	assert_non_null(b);
	assert_ok(gn_device_open(GN_TEST_DEVICE, &b->device, &err));
	for (int i = 0; i < 2; i++)
		assert_ok(gn_stream_create(b->device, &b->streams[i], &err));
	assert_ok(gn_buffer_alloc(b->device, BYTES, &b->from, &err));
	assert_ok(gn_buffer_alloc(b->device, BYTES, &b->to, &err));
	assert_ok(gn_pinned_alloc(b->device, BYTES, &pinned, &err));
	b->pinned = pinned;
	*state = b;
	return 0;
}

static int tear_down(void **state)
{
	struct bench *b = *state;

	for (int i = 0; i < 2; i++)
		gn_stream_destroy(b->streams[i]);
	gn_buffer_free(&b->from);
	gn_buffer_free(&b->to);
	assert_null(b->to.address);
	gn_buffer_free(&b->to); /* an unused one */
	gn_pinned_free(b->device, b->pinned);
	gn_device_close(b->device);
	free(b);
	return 0;
}

static void test_names(void **state)
{
	struct bench *b = *state;
	static const char *const wrong[] = {"", "hosts", "gpu", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda1"};
	struct gn_device *d;
	struct gn_err err;

	assert_string_equal(gn_device_name(b->device), GN_TEST_DEVICE);
	assert_int_equal(gn_device_ordinal(b->device), 0);
	assert_int_equal(gn_device_is_queued(b->device), strcmp(GN_TEST_DEVICE, "host") != 0);
	assert_int_equal(gn_device_model(b->device)[0] != 0, strcmp(GN_TEST_DEVICE, "host") != 0);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(gn_device_open(wrong[i], &d, &err), GN_ERR_USAGE);
	assert_int_not_equal(gn_device_open("cuda:4095", &d, &err), GN_OK);
}

static void test_memory(void **state)
{
	struct bench *b = *state;
	size_t unused, total;
	struct gn_buffer none;
	struct gn_err err;

	assert_ok(gn_device_memory(b->device, &unused, &total, &err));
	assert_true(unused > 0 && unused <= total);
	assert_int_equal((uintptr_t)b->from.address % GN_DEVICE_ALIGN_BYTES, 0);
	memset(b->pinned, 1, BYTES);
	assert_ok(gn_stream_copy(b->streams[0], b->pinned, b->from.address, BYTES, &err));
	assert_ok(gn_stream_wait(b->streams[0], &err));
	for (int i = 0; i < COUNT; i++)
		assert_true(b->pinned[i] == 0);
	assert_int_equal(gn_buffer_alloc(b->device, SIZE_MAX / 4, &none, &err), GN_ERR_NO_MEMORY);
	assert_null(none.device);
	assert_ok(gn_buffer_alloc(b->device, 0, &none, &err));
	gn_buffer_free(&none);
}

/* What one stream copies, another takes after an event. */
static void test_order(void **state)
{
	struct bench *b = *state;
	struct gn_event *event;
	struct gn_err err;
	int done = 0;

	assert_ok(gn_event_create(b->device, &event, &err));
	assert_ok(gn_event_done(event, &done, &err));
	assert_int_equal(done, 1);
	for (int i = 0; i < COUNT; i++)
		b->pinned[i] = (float)i;
	assert_ok(gn_stream_copy(b->streams[0], b->from.address, b->pinned, BYTES, &err));
	assert_ok(gn_event_record(event, b->streams[0], &err));
	assert_ok(gn_stream_after(b->streams[1], event, &err));
	assert_ok(gn_stream_copy(b->streams[1], b->to.address, b->from.address, BYTES, &err));
	assert_ok(gn_stream_copy(b->streams[1], b->to.address, zeros, 3 * sizeof(float), &err));
	assert_ok(gn_event_record(event, b->streams[1], &err));
	assert_ok(gn_event_wait(event, &err));
	assert_ok(gn_event_done(event, &done, &err));
	assert_int_equal(done, 1);
	assert_int_equal(gn_event_native(event) != NULL, gn_device_is_queued(b->device));
	memset(b->pinned, 0, BYTES);
	assert_ok(gn_stream_copy(b->streams[1], b->pinned, b->to.address, BYTES, &err));
	assert_ok(gn_stream_wait(b->streams[1], &err));
	for (int i = 0; i < COUNT; i++)
		assert_true(b->pinned[i] == (i < 3 ? 0 : (float)i));
	gn_event_destroy(event);
}

/* What lies between two events takes time of the device's clock. */
static void test_timed(void **state)
{
	struct bench *b = *state;
	struct gn_event *from, *to;
	struct gn_err err;
	double ms = -1;

	assert_ok(gn_event_create_timed(b->device, &from, &err));
	assert_ok(gn_event_create_timed(b->device, &to, &err));
	assert_ok(gn_event_record(from, b->streams[0], &err));
	assert_ok(gn_stream_copy(b->streams[0], b->to.address, b->from.address, BYTES, &err));
	assert_ok(gn_event_record(to, b->streams[0], &err));
	assert_ok(gn_event_wait(to, &err));
	assert_ok(gn_event_between(from, to, &ms, &err));
	assert_true(ms >= 0);
	assert_ok(gn_event_between(to, from, &ms, &err));
	assert_true(ms <= 0 || gn_device_is_queued(b->device));
	gn_event_destroy(from);
	gn_event_destroy(to);
}

struct work {
	struct bench *b;
	int calls, bytes, fails;
};

static enum gn_status queue(void *context, struct gn_err *err)
{
	struct work *w = context;

	w->calls++;
	if (w->fails)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "no work today");
	return gn_stream_copy(w->b->streams[0], w->b->to.address, w->b->from.address, (size_t)w->bytes, err);
}

/* to becomes value, as far as the work copies it. */
static void run(struct work *w, struct gn_replay *r, uint64_t key, float value)
{
	struct bench *b = w->b;
	struct gn_err err;

	for (int i = 0; i < COUNT; i++)
		b->pinned[i] = value;
	assert_ok(gn_stream_copy(b->streams[0], b->from.address, b->pinned, BYTES, &err));
	assert_ok(gn_stream_copy(b->streams[0], b->to.address, zeros, BYTES, &err));
	assert_ok(gn_replay_run(r, b->streams[0], key, queue, w, &err));
	assert_ok(gn_stream_copy(b->streams[0], b->pinned, b->to.address, BYTES, &err));
	assert_ok(gn_stream_wait(b->streams[0], &err));
	for (int i = 0; i < COUNT; i++)
		assert_true(b->pinned[i] == (i * (int)sizeof(float) < w->bytes ? value : 0));
}

static void test_replay(void **state)
{
	struct work w = {.b = *state, .bytes = BYTES};
	int records = gn_device_is_queued(w.b->device);
	struct gn_replay *r = gn_replay_create();

	assert_non_null(r);
	for (int i = 1; i <= 5; i++)
		run(&w, r, 7, (float)i);
	/* once to load what it needs, once to be recorded */
	assert_int_equal(w.calls, records ? 2 : 5);
	assert_int_equal(gn_replay_nodes(r), records);
	w.bytes = BYTES / 2;
	run(&w, r, 8, 6);
	run(&w, r, 8, 7);
	assert_int_equal(w.calls, records ? 3 : 7);
	gn_replay_destroy(r);
}

/* A failure is reported, and what cannot be recorded is called. */
static void test_failure(void **state)
{
	struct work w = {.b = *state, .bytes = BYTES};
	struct gn_replay *r = gn_replay_create();
	struct gn_err err;

	assert_non_null(r);
	run(&w, r, 1, 1);
	w.fails = 1;
	assert_int_equal(gn_replay_run(r, w.b->streams[0], 1, queue, &w, &err), GN_ERR_UNSUPPORTED);
	assert_string_equal(err.text, "no work today");
	w.fails = 0;
	run(&w, r, 1, 2);
	run(&w, r, 1, 3);
	if (gn_device_is_queued(w.b->device))
		assert_string_equal(gn_replay_obstacle(r), "no work today");
	gn_replay_destroy(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_memory, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_timed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_replay, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_failure, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("device/" GN_TEST_DEVICE, tests, NULL, NULL);
}
