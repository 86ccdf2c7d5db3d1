/* What ranks tell of their way to other nodes, from described devices, and the sentence that is made of it. */
#include "tests/test.h"

#include "transport/coll/comm_internal.h"

#include <string.h>

static const struct gn_net_device ib = {.kind = GN_DEVICE_RDMA, .name = "mlx5_0", .up = 1, .hardware = 1, .gbit_per_s = 100};
static const struct gn_net_device ib_down = {.kind = GN_DEVICE_RDMA, .name = "mlx5_0", .hardware = 1, .gbit_per_s = 100};
static const struct gn_net_device faster = {.kind = GN_DEVICE_RDMA, .name = "mlx5_10", .up = 1, .hardware = 1, .gbit_per_s = 400};
static const struct gn_net_device eth = {.kind = GN_DEVICE_NET, .name = "eth0", .up = 1, .hardware = 1, .gbit_per_s = 25};
static const struct gn_net_device fast_eth = {.kind = GN_DEVICE_NET, .name = "eth1", .up = 1, .hardware = 1, .gbit_per_s = 200};
static const struct gn_net_device bridge = {.kind = GN_DEVICE_NET, .name = "docker0", .up = 1, .gbit_per_s = 1000};

static void test_classes(void **state)
{
	(void)state;
	assert_int_equal(gn_lanes_class("rc_mlx5/mlx5_0:1"), GN_LANES_RC);
	assert_int_equal(gn_lanes_class("dc_mlx5/mlx5_0:1"), GN_LANES_RC);
	assert_int_equal(gn_lanes_class("rc_mlx5/mlx5_0:1 tcp/eth0"), GN_LANES_RC);
	assert_int_equal(gn_lanes_class("ud_verbs/rxe0:1"), GN_LANES_UD);
	assert_int_equal(gn_lanes_class("tcp/eth0"), GN_LANES_TCP);
	assert_int_equal(gn_lanes_class("posix/memory cma/memory"), 0);
	assert_int_equal(gn_lanes_class(""), 0);
}

static void expect_card(const struct gn_net_device *a, const struct gn_net_device *b, const char *lanes, int free_choice,
			int any_device, int suspect, const char *detail)
{
	struct gn_net_device items[2] = {*a, *b};
	struct gn_devices devices = {items, 2};
	struct gn_lanes_record card = {.classes = gn_lanes_class(lanes)};

	gn_lanes_judge(&devices, lanes, free_choice, any_device, &card);
	assert_int_equal(!(card.classes & GN_LANES_SUSPECT), !suspect);
	assert_string_equal(card.detail, detail);
}

static void test_judgement(void **state)
{
	(void)state;
	expect_card(&eth, &ib, "tcp/eth0", 1, 1, 1, "mlx5_0 at 100 Gb/s is up and unused");
	/* not where tcp, or devices, were asked for */
	expect_card(&eth, &ib, "tcp/eth0", 0, 1, 0, "");
	expect_card(&eth, &ib, "tcp/eth0", 1, 0, 0, "");
	expect_card(&eth, &ib_down, "tcp/eth0", 1, 1, 0, "mlx5_0 is down");
	expect_card(&eth, &ib, "rc_mlx5/mlx5_0:1", 1, 1, 0, "");
	/* a network device is no way for RDMA, whatever its rate */
	expect_card(&fast_eth, &ib, "rc_mlx5/mlx5_0:1", 1, 1, 0, "");
	expect_card(&faster, &ib, "rc_mlx5/mlx5_0:1", 0, 1, 1, "mlx5_10 at 400 Gb/s is up and unused");
	expect_card(&faster, &ib, "rc_mlx5/mlx5_10:1", 0, 1, 0, "");
	expect_card(&eth, &fast_eth, "tcp/eth0", 0, 1, 1, "eth1 at 200 Gb/s is up and unused");
	expect_card(&eth, &bridge, "tcp/eth0", 1, 1, 0, "");
	/* no message to another node yet */
	expect_card(&eth, &ib, "", 1, 1, 0, "");
}

static void expect_text(const struct gn_lanes_record *cards, int ranks, int per_node, const char *text)
{
	static const char *const names[] = {"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11", "n12"};
	const char *hosts[12];
	struct gn_strbuf got;
	struct gn_err err;
	int nodes[12];

	for (int r = 0; r < ranks; r++) {
		nodes[r] = r / per_node;
		hosts[r] = names[nodes[r]];
	}
	gn_strbuf_init(&got);
	assert_ok(gn_lanes_describe(cards, nodes, hosts, ranks, &got, &err));
	assert_string_equal(gn_strbuf_text(&got), text);
	gn_strbuf_release(&got);
}

static void test_sentence(void **state)
{
	const struct gn_lanes_record mixed[] = {
		{GN_LANES_RC, ""}, {GN_LANES_RC | GN_LANES_TCP, ""}, {GN_LANES_RC, ""},
		{GN_LANES_RC, ""}, {GN_LANES_TCP, "mlx5_0 is down"}, {GN_LANES_TCP, "mlx5_0 is down"}};
	const struct gn_lanes_record unused[] = {{GN_LANES_TCP, "mlx5_0 is down"},
					       {GN_LANES_TCP | GN_LANES_SUSPECT, "mlx5_0 at 100 Gb/s is up and unused"}};
	struct gn_lanes_record many[12];

	(void)state;
	expect_text(mixed, 6, 2, "rc on n2; tcp on n3; rc and tcp on n1; n3: mlx5_0 is down");
	expect_text(unused, 2, 1, "tcp on n1, n2; n2: mlx5_0 at 100 Gb/s is up and unused; n1: mlx5_0 is down");
	for (int i = 0; i < 12; i++)
		many[i] = (struct gn_lanes_record){GN_LANES_UD, ""};
	expect_text(many, 12, 1, "ud on n1, n2, n3, n4, n5, n6, n7, n8 and 4 more");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_classes),
		cmocka_unit_test(test_judgement),
		cmocka_unit_test(test_sentence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
