/* What a made-up /sys says of RDMA devices, and how fresh it is. */
#include "tests/transport/made_up_sys.h"

#include "tests/transport/made_up_clock.h"
#include "transport/topology/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[32];

static int make_root(void **state)
{
	(void)state;
	strcpy(root, "/tmp/gn-devices.XXXXXX");
	return !mkdtemp(root);
}

static int remove_root(void **state)
{
	struct gn_err err;

	(void)state;
	return gn_remove_tree(root, &err) != GN_OK;
}

static uint64_t slept_ms;

/* Instead of libc's: time passes at once. */
int nanosleep(const struct timespec *pause, struct timespec *left)
{
	uint64_t ms = (uint64_t)pause->tv_sec * 1000 + (uint64_t)pause->tv_nsec / 1000000;

	(void)left;
	slept_ms += ms;
	pass_ms(ms);
	return 0;
}

/* Also tells for how long it has slept. */
static struct gn_net_device read_one(const char *name, struct gn_devices *all)
{
	struct gn_net_device found = {0};
	struct gn_err err;

	slept_ms = 0;
	assert_ok(gn_devices_read(root, all, &err));
	for (int i = 0; i < all->count; i++)
		if (!strcmp(all->items[i].name, name))
			found = all->items[i];
	assert_string_equal(found.name, name);
	return found;
}

struct sys_file {
	const char *name, *text;
};

static void put_all(const char *device, const struct sys_file *files, size_t count)
{
	char path[256];

	for (size_t i = 0; i < count; i++) {
		snprintf(path, sizeof path, "infiniband/%s/%s", device, files[i].name);
		put_sys(root, path, files[i].text);
	}
}

static void test_hardware(void **state)
{
	static const struct sys_file files[] = {
		{"ports/1/state", "4: ACTIVE\n"}, {"ports/1/rate", "200 Gb/sec (4X HDR)\n"},
		{"ports/1/counters/port_xmit_data", "1000\n"}, {"ports/1/counters/port_rcv_data", "500\n"},
		{"ports/1/hw_counters/lifespan", "5000\n"}, {"ports/2/state", "1: DOWN\n"},
		{"ports/2/counters/port_xmit_data", "10\n"}};
	struct gn_net_device d;
	struct gn_devices all;

	(void)state;
	put_all("mlx5_0", files, sizeof files / sizeof *files);
	d = read_one("mlx5_0", &all);
	assert_int_equal(d.kind, GN_DEVICE_RDMA);
	assert_true(d.up && d.hardware && d.gbit_per_s == 200);
	assert_int_equal(d.sent_bytes, 4 * 1010);
	assert_int_equal(d.received_bytes, 4 * 500);
	/* these counters are not kept */
	assert_int_equal(slept_ms, 0);
	gn_devices_release(&all);
}

/* Asked again within their lifespan, the kernel gives the packets that it had counted before: a short transfer in between would
 * have sent nothing. */
static void test_soft_counters_are_fresh(void **state)
{
	static const struct sys_file files[] = {
		{"parent", "eth7\n"}, {"ports/1/hw_counters/lifespan", "600\n"}, {"ports/1/hw_counters/sent_pkts", "5\n"},
		{"ports/1/hw_counters/rcvd_pkts", "3\n"}, {"ports/2/hw_counters/lifespan", "600\n"},
		{"ports/2/hw_counters/sent_pkts", "1\n"}};
	struct gn_devices before, after;
	uint64_t began;
	struct gn_net_device d;

	(void)state;
	put_sys(root, "net/eth7/mtu", "1500\n");
	put_all("rxe7", files, sizeof files / sizeof *files);
	began = gn_clock_ns();
	d = read_one("rxe7", &before);
	assert_int_equal(d.kind, GN_DEVICE_SOFT_RDMA);
	assert_int_equal(d.sent_bytes, 6 * 1024);
	assert_int_equal(d.received_bytes, 3 * 1024);
	/* of both ports together, and not for each; what it took to come there counts */
	assert_in_range(slept_ms, 1, 700);
	assert_true(gn_clock_ns() - began >= 600000000u);
	put_sys(root, "infiniband/rxe7/ports/1/hw_counters/sent_pkts", "9\n");
	began = gn_clock_ns();
	read_one("rxe7", &after);
	assert_true(gn_clock_ns() - began >= 600000000u);
	assert_int_equal(gn_devices_sent(&before, &after, GN_DEVICE_SOFT_RDMA), 4 * 1024);
	assert_int_equal(gn_devices_sent(&before, &after, GN_DEVICE_RDMA), 0);
	gn_devices_release(&before);
	gn_devices_release(&after);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hardware, make_root, remove_root),
		cmocka_unit_test_setup_teardown(test_soft_counters_are_fresh, make_root, remove_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
