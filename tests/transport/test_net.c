#include "tests/test.h"

#include "transport/auth/net.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_lists(void **state)
{
	static const struct {
		const char *list, *yes, *no;
	} cases[] = {
		{"eth", "eth0", "ib0"},		 {"eth,ib", "ib1", "bond0"},	 {"=eth1", "eth1", "eth10"},
		{"=eth0,ib0", "ib0", "ib00"},	 {"eth,=ib0", "eth7", "ib01"},	 {"^docker", "eth0", "docker0"},
		{"^docker,lo", "eth0", "lo"},	 {"^=docker0", "docker01", "docker0"}, {"^=docker0,eth0", "eth01", "eth0"},
		{"eth0,", "eth0", "ib0"},	 {",eth0", "eth0", "ib0"},	 {"=eth0.100", "eth0.100", "eth0"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		assert_int_equal(gn_net_ifname_matches(cases[i].list, cases[i].yes), 1);
		assert_int_equal(gn_net_ifname_matches(cases[i].list, cases[i].no), 0);
	}
	assert_int_equal(gn_net_ifname_matches(NULL, "eth0"), 1);
	assert_int_equal(gn_net_ifname_matches("", "eth0"), 1);
	assert_int_equal(gn_net_ifname_matches("^", "eth0"), 1);
	assert_int_equal(gn_net_ifname_matches("=", "eth0"), 0);
	assert_int_equal(gn_net_ifname_matches(",", "eth0"), 0);
}

static void test_choice(void **state)
{
	struct gn_net_addresses chosen;
	struct gn_err err;

	(void)state;
	assert_ok(gn_net_choose("=lo", &chosen, &err));
	assert_int_equal(chosen.count, 1);
	assert_string_equal(chosen.text[0], GN_NET_LOOPBACK);
	assert_int_equal(gn_net_choose("=gn-none", &chosen, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "'=gn-none'"));
	assert_non_null(strstr(err.text, "lo (127.0.0.1)"));
}

/* Whether one can connect to either of two addresses of loopback. */
static void test_listens_there(void **state)
{
	static const char *const addresses[] = {GN_NET_LOOPBACK, "::1"};
	struct gn_err err;
	int listener, fd;

	(void)state;
	for (int at = 0; at < 2; at++) {
		int port = 0;

		/* a host without IPv6 */
		if (gn_net_listen(addresses[at], &port, &listener, &err)) {
			assert_int_equal(at, 1);
			continue;
		}
		for (int to = 0; to < 2; to++) {
			enum gn_status status = gn_net_connect(addresses[to], port, 1000, &fd, &err);

			assert_int_equal(status == GN_OK, at == to);
			if (!status)
				close(fd);
		}
		close(listener);
	}
}

static int gives_up_after_ms(int fd)
{
	int ms = 0;
	socklen_t len = sizeof ms;

	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &len), 0);
	return ms;
}

/* Repeating within a second, Linux would give up after 15 s without an answer, however long the limits of silence are. */
static void test_survives_a_long_cut(void **state)
{
	int port = 0, listener, fd, accepted;
	struct gn_err err;

	(void)state;
	assert_ok(gn_net_listen(GN_NET_LOOPBACK, &port, &listener, &err));
	assert_ok(gn_net_connect(GN_NET_LOOPBACK, port, 1000, &fd, &err));
	accepted = gn_net_accept(listener);
	assert_true(accepted >= 0);
	assert_in_range(gives_up_after_ms(fd), 900000, 86400000);
	assert_in_range(gives_up_after_ms(accepted), 900000, 86400000);
	close(accepted);
	close(fd);
	close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_choice),
		cmocka_unit_test(test_listens_there),
		cmocka_unit_test(test_survives_a_long_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
