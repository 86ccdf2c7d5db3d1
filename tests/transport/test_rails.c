/* Which devices become rails: from a made-up /sys, and from what ranks offer each other. */
#include "tests/transport/made_up_sys.h"

#include "src/base/strbuf.h"
#include "transport/ucx/ucx_internal.h"
#include "transport/topology/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gn_rails candidates(const char *const *pairs)
{
	struct gn_rails r = {0};

	for (; *pairs; pairs += 2, r.count++) {
		snprintf(r.items[r.count].network, sizeof r.items[0].network, "%s", pairs[0]);
		snprintf(r.items[r.count].name, sizeof r.items[0].name, "%s", pairs[1]);
	}
	return r;
}

static struct gn_rail_offer offer_of(const struct gn_rails *r, int wanted)
{
	struct gn_rail_offer o = {.wanted = wanted, .count = r->count};

	for (int i = 0; i < r->count; i++)
		memcpy(o.networks[i], r->items[i].network, sizeof o.networks[i]);
	return o;
}

/* names: "eth0 eth1" */
static void expect_names(const struct gn_rails *r, const char *names)
{
	struct gn_strbuf text;

	gn_strbuf_init(&text);
	for (int i = 0; i < r->count; i++)
		gn_strbuf_printf(&text, "%s%s", i ? " " : "", r->items[i].name);
	assert_string_equal(gn_strbuf_text(&text), names);
	gn_strbuf_release(&text);
}

/* What rank `me` gets. */
static void expect_rails(const struct gn_rails *all, const int *wanted, int ranks, int me, const char *names)
{
	struct gn_rail_offer offers[4];
	struct gn_rails got;

	for (int r = 0; r < ranks; r++)
		offers[r] = offer_of(&all[r], wanted ? wanted[r] : 0);
	gn_rails_choose(offers, ranks, &all[me], &got);
	expect_names(&got, names);
}

static void test_choice(void **state)
{
	static const char *const two[] = {"10.1.0.0/16", "eth0", "10.2.0.0/16", "eth1", NULL};
	static const char *const other_names[] = {"10.1.0.0/16", "ens5", "10.2.0.0/16", "ens4", "10.3.0.0/16", "ens6", NULL};
	static const char *const one[] = {"10.2.0.0/16", "eth1", NULL};
	const int two_of[] = {0, 2}, one_of[] = {3, 1}, none[] = {0, 0};
	struct gn_rails both[] = {candidates(two), candidates(other_names)}, less[] = {candidates(two), candidates(one)};

	(void)state;
	expect_rails(both, NULL, 2, 0, "eth0 eth1");
	expect_rails(both, none, 2, 1, "ens5 ens4");
	expect_rails(both, two_of, 2, 1, "ens5 ens4");
	/* of several, the one that is asked for is named, or UCX could take both */
	expect_rails(both, one_of, 2, 0, "eth0");
	expect_rails(both, one_of, 2, 1, "ens5");
	/* the only network in common, or UCX could take one of another network */
	expect_rails(less, NULL, 2, 0, "eth1");
	expect_rails(less, NULL, 2, 1, "eth1");
}

static void test_one_fabric(void **state)
{
	static const char *const four[] = {"InfiniBand fe80", "mlx5_0:1", "InfiniBand fe80", "mlx5_1:1",
					   "InfiniBand fe80", "mlx5_2:1", "InfiniBand fe80", "mlx5_3:1", NULL};
	static const char *const two[] = {"InfiniBand fe80", "mlx5_4:1", "InfiniBand fe80", "mlx5_5:1", NULL};
	static const char *const none[] = {NULL};
	struct gn_rails uneven[] = {candidates(four), candidates(two)}, empty[] = {candidates(four), candidates(none)};

	(void)state;
	expect_rails(uneven, NULL, 2, 0, "mlx5_0:1 mlx5_1:1");
	expect_rails(uneven, NULL, 2, 1, "mlx5_4:1 mlx5_5:1");
	expect_rails(empty, NULL, 2, 0, "");
}

/* Second adapters are not paired with another node's first ones because first ones are down. */
static void test_one_adapter_down(void **state)
{
	static const char *const two[] = {"Ethernet 10.1.0.0-16", "mlx5_0:1", "Ethernet 10.2.0.0-16", "mlx5_1:1", NULL};
	static const char *const second[] = {"Ethernet 10.2.0.0-16", "mlx5_1:1", NULL};
	static const char *const alone[] = {"Ethernet 10.2.0.0-16", "mlx5_7:1", NULL};
	static const char *const routed[] = {"Ethernet 10.3.0.0-31", "mlx5_0:1", "Ethernet 10.4.0.0-31", "mlx5_1:1",
					     "Ethernet 10.5.0.0-31", "mlx5_2:1", NULL};
	struct gn_rails down[] = {candidates(two), candidates(second)}, one_each[] = {candidates(second), candidates(alone)};
	struct gn_rails routers[] = {candidates(two), candidates(routed)};

	(void)state;
	expect_rails(down, NULL, 2, 0, "mlx5_1:1");
	expect_rails(down, NULL, 2, 1, "mlx5_1:1");
	/* UCX finds it */
	expect_rails(one_each, NULL, 2, 0, "");
	/* no network in common: in order */
	expect_rails(routers, NULL, 2, 0, "mlx5_0:1 mlx5_1:1");
	expect_rails(routers, NULL, 2, 1, "mlx5_0:1 mlx5_1:1");
}

/* --- a made-up /sys --- */

static void add_port(const char *root, const char *device, int port, const char *state, const char *rate,
		     const char *link)
{
	const struct {
		const char *file, *text;
	} all[] = {{"state", state}, {"rate", rate}, {"link_layer", link}, {"gids/0", "fe80:0000:0000:0001:0000:0000:0000:0007\n"}};
	char path[256];

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		snprintf(path, sizeof path, "infiniband/%s/ports/%d/%s", device, port, all[i].file);
		put_sys(root, path, all[i].text);
	}
}

static void expect_found(const char *root, const char *tls, const char *allowed, const char *names)
{
	struct gn_rails r;
	struct gn_err err;

	assert_ok(gn_rails_find(root, gn_ucx_tls_rail_kinds(tls), allowed, &r, &err));
	expect_names(&r, names);
}

static void test_find_rdma(void **state)
{
	char root[] = "/tmp/gn-rails.XXXXXX";
	struct gn_rails r;
	struct gn_err err;

	(void)state;
	assert_non_null(mkdtemp(root));
	add_port(root, "mlx5_1", 1, "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n", "InfiniBand\n");
	add_port(root, "mlx5_0", 1, "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n", "InfiniBand\n");
	add_port(root, "mlx5_0", 2, "1: DOWN\n", "200 Gb/sec (4X HDR)\n", "InfiniBand\n");
	add_port(root, "mlx5_2", 1, "4: ACTIVE\n", "100 Gb/sec (4X EDR)\n", "InfiniBand\n");
	expect_found(root, NULL, NULL, "mlx5_0:1 mlx5_1:1");
	expect_found(root, "rc,ud,self", NULL, "mlx5_0:1 mlx5_1:1");
	expect_found(root, "^tcp", NULL, "mlx5_0:1 mlx5_1:1");
	expect_found(root, "sm,self", NULL, "");
	expect_found(root, NULL, "mlx5_2:1,mlx5_1:1,eth9", "mlx5_1:1");
	expect_found(root, NULL, "mlx5_2:1", "mlx5_2:1");
	assert_ok(gn_rails_find(root, GN_RAILS_RDMA | GN_RAILS_TCP, NULL, &r, &err));
	assert_string_equal(r.items[0].network, "InfiniBand fe80:0000:0000:0001");
	/* a faster one makes the others slow */
	add_port(root, "mlx5_3", 1, "4: ACTIVE\n", "400 Gb/sec (4X NDR)\n", "Ethernet\n");
	expect_found(root, NULL, NULL, "mlx5_3:1");
	assert_ok(gn_remove_tree(root, &err));
}

/* The loopback interface's address is one that all machines have. */
static void test_find_ethernet(void **state)
{
	char root[] = "/tmp/gn-rails.XXXXXX";
	struct gn_rails r;
	struct gn_err err;

	(void)state;
	assert_non_null(mkdtemp(root));
	add_port(root, "mlx5_0", 1, "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n", "Ethernet\n");
	add_port(root, "mlx5_1", 1, "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n", "Ethernet\n");
	put_sys(root, "infiniband/mlx5_1/ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	put_sys(root, "infiniband/mlx5_1/ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
	assert_ok(gn_rails_find(root, GN_RAILS_RDMA | GN_RAILS_TCP, NULL, &r, &err));
	expect_names(&r, "mlx5_0:1 mlx5_1:1");
	assert_string_equal(r.items[0].network, "Ethernet");
	assert_string_equal(r.items[1].network, "Ethernet 127.0.0.0-8");
	assert_ok(gn_remove_tree(root, &err));
}

/* SysV memory, which the user's group may attach, is in none of ours; lists of what is kept out are read as UCX reads them. */
static void test_transports(void **state)
{
	static const char *const names[] = {"auto", "net", "tcp", "shm", "rc", "ud"};
	char place[GN_UCX_TLS_MAX];
	const char *tls;
	struct gn_err err;

	(void)state;
	unsetenv("UCX_TLS");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		assert_ok(gn_ucx_tls(names[i], place, &tls, &err));
		assert_true(!strcmp(tls, "^sysv") || !strcmp(tls, "^sm") || (!strstr(tls, "sysv") && !strstr(tls, "sm,")));
		assert_int_equal(gn_ucx_tls_has_shm(tls), !strcmp(names[i], "auto") || !strcmp(names[i], "shm"));
		assert_int_equal(gn_ucx_tls_has_tcp(tls), i < 3);
	}
	assert_int_equal(gn_ucx_tls("pigeon", place, &tls, &err), GN_ERR_USAGE);
	assert_true(gn_ucx_tls_has_shm("^posix") && gn_ucx_tls_has_shm("^rc,sysv") && gn_ucx_tls_has_shm("sysv,self"));
	assert_false(gn_ucx_tls_has_shm("^posix,sysv") || gn_ucx_tls_has_shm("^mm") || gn_ucx_tls_has_shm("tcp,self"));
	setenv("UCX_TLS", "sysv,self", 1);
	assert_ok(gn_ucx_tls("tcp", place, &tls, &err));
	assert_string_equal(tls, "sysv,self");
}

static void test_natural_order(void **state)
{
	char root[] = "/tmp/gn-rails.XXXXXX", name[16];
	struct gn_err err;

	(void)state;
	assert_non_null(mkdtemp(root));
	for (int i = 11; i-- > 0;) {
		snprintf(name, sizeof name, "mlx5_%d", i);
		add_port(root, name, 1, "4: ACTIVE\n", "400 Gb/sec (4X NDR)\n", "InfiniBand\n");
	}
	expect_found(root, NULL, NULL, "mlx5_0:1 mlx5_1:1 mlx5_2:1 mlx5_3:1 mlx5_4:1 mlx5_5:1 mlx5_6:1 mlx5_7:1");
	assert_ok(gn_remove_tree(root, &err));
}

static void expect_groups(const char *reached, const char *groups)
{
	int nodes = (int)strlen(reached), got[2 * 8], count = 0;
	unsigned char bits[8] = {0};

	for (int n = 0; n < nodes; n++)
		bits[n] = reached[n] == '1';
	count = gn_ucx_group(bits, nodes, got, 2);
	for (int n = 0; n < nodes; n++) {
		assert_true(got[2 * n] >= 0 && got[2 * n] < count);
		for (int k = 0; k < nodes; k++)
			assert_int_equal(got[2 * n] == got[2 * k], groups[n] == groups[k]);
	}
}

/* Who reaches whom, from who hears the one before it in a ring. */
static void test_groups(void **state)
{
	(void)state;
	expect_groups("11", "aa");
	expect_groups("00", "ab");
	expect_groups("10", "ab");
	expect_groups("01", "ab");
	expect_groups("1111", "aaaa");
	/* one node's port is on another fabric; two side by side are */
	expect_groups("110011", "aabaaa");
	expect_groups("011110", "aaaaab");
	expect_groups("110101", "aabbaa");
	/* alternating: none are known to */
	expect_groups("0000", "abcd");
	/* of a chain that is closed all but once nobody is relied on */
	expect_groups("1101", "abcd");
}

/* Two sockets with two adapters and two GPUs each, an adapter beside a GPU. */
static void test_nearest(void **state)
{
	struct gn_topology_device nics[4] = {{.name = "mlx5_0", .rdma = 1}, {.name = "mlx5_1", .rdma = 1},
					    {.name = "mlx5_2", .rdma = 1, .numa = 1}, {.name = "mlx5_3", .rdma = 1, .numa = 1}};
	unsigned char nearness[16];
	struct gn_topology m = {.nics = nics, .nic_count = 4, .gpu_count = 4, .nearness = nearness};
	const char *const devices[] = {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1"};
	cpu_set_t all, second;

	(void)state;
	CPU_ZERO(&second);
	CPU_SET(1, &second);
	all = second;
	CPU_SET(0, &all);
	for (int n = 0; n < 4; n++) {
		CPU_ZERO(&nics[n].near);
		CPU_SET((size_t)nics[n].numa, &nics[n].near);
		for (int g = 0; g < 4; g++)
			nearness[g * 4 + n] = (unsigned char)(g == n ? GN_NEAR_SWITCH : g / 2 == n / 2 ? GN_NEAR_NODE : GN_NEAR_FAR);
	}
	/* a GPU for each rank */
	for (int r = 0; r < 4; r++)
		assert_int_equal(gn_rails_nearest(&m, devices, 4, &all, r, 4), r);
	/* none known: processors, and turns */
	assert_int_equal(gn_rails_nearest(&m, devices, 4, &second, 0, 2), 2);
	assert_int_equal(gn_rails_nearest(&m, devices, 4, &second, 1, 2), 3);
	m.gpu_count = m.nic_count = 0;
	for (int r = 0; r < 4; r++)
		assert_int_equal(gn_rails_nearest(&m, devices, 4, &all, r, 8), r);
}

/* What UCX chose, against what was asked for. */
static void test_lanes(void **state)
{
	static const struct {
		const char *lanes, *fit; /* of "rc ud tcp shm" */
	} all[] = {
		{"rc_mlx5/mlx5_0:1", "rc auto net"}, {"dc_mlx5/mlx5_0:1", "rc auto net"}, {"ud_verbs/rxe0:1", "ud auto net"},
		{"rc_verbs/rxe0:1 ud_verbs/rxe0:1", "rc auto net"}, {"rc_mlx5/mlx5_0:1 tcp/eth0", "auto net"},
		{"tcp/eth0", "tcp auto net"}, {"tcp/rc_0 tcp/ud_0", "tcp auto net"}, {"posix/memory cma/memory", "shm auto net"},
		{"posix/memory tcp/eth0", "tcp auto net"}, {"", "rc ud tcp shm auto net"}, {"self/memory", "rc ud tcp shm auto net"},
	};
	static const char *const names[] = {"rc", "ud", "tcp", "shm", "auto", "net", ""};

	(void)state;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		for (size_t k = 0; k < sizeof names / sizeof *names; k++)
			assert_int_equal(gn_ucx_lanes_match(all[i].lanes, names[k]), strstr(all[i].fit, names[k]) != NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_choice),
		cmocka_unit_test(test_one_fabric),
		cmocka_unit_test(test_one_adapter_down),
		cmocka_unit_test(test_find_rdma),
		cmocka_unit_test(test_find_ethernet),
		cmocka_unit_test(test_transports),
		cmocka_unit_test(test_natural_order),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_nearest),
		cmocka_unit_test(test_lanes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
