/* The meeting point of the environment bootstrap, the other side of which is a bare socket that stands still. */
#include "tests/test.h"

#include "src/base/clock.h"
#include "transport/bootstrap.h"
#include "transport/handshake.h"
#include "transport/net.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 2000
#define SOON_NS 4000000000u

static struct gn_secret secret;
static char secret_file[] = "/tmp/gn-test-bootstrap.XXXXXX";

static struct gn_detect place(int rank, int port)
{
	struct gn_detect d = {.source = GN_DETECT_ENVIRONMENT, .rank = rank, .size = 2, .port = port};

	snprintf(d.address, sizeof d.address, "127.0.0.1");
	return d;
}

static int free_port(void)
{
	int port = 0, fd;
	struct gn_err err;

	assert_ok(gn_net_listen(&port, &fd, &err));
	close(fd);
	return port;
}

struct guest {
	int port, fd;
};

/* Rank 1 comes, sends an empty message to the first exchange, and then reads nothing. */
static void *come_and_stand_still(void *argument)
{
	struct guest *g = argument;
	const struct timespec pause = {0, 10000000};
	uint64_t until = gn_clock_ns() + SOON_NS, none = 0;
	struct gn_err err;

	while (gn_net_connect("127.0.0.1", g->port, 1000, &g->fd, &err) && gn_clock_ns() < until)
		nanosleep(&pause, NULL);
	if (gn_handshake_join(g->fd, &secret, GN_HANDSHAKE_MEETING, 1, 2, 3000, &err) ||
	    gn_net_send_all(g->fd, &none, sizeof none, 1000))
		return "rank 1 could not join";
	return NULL;
}

/* More than the kernel takes for someone who does not read. */
static void test_exchange_with_the_silent(void **state)
{
	const size_t len_bytes = (size_t)48 << 20;
	struct guest guest = {.port = free_port(), .fd = -1};
	struct gn_detect d = place(0, guest.port);
	uint64_t started = gn_clock_ns();
	void *out[2] = {NULL, NULL}, *failure;
	char *mine = calloc(1, len_bytes);
	struct gn_bootstrap *b = NULL;
	struct gn_err err;
	pthread_t thread;
	size_t lens[2];

	(void)state;
	assert_non_null(mine);
	assert_int_equal(pthread_create(&thread, NULL, come_and_stand_still, &guest), 0);
	assert_ok(gn_bootstrap_env(&d, TIMEOUT_MS, NULL, &b, &err));
	assert_ok(b->ops->word(b, "word", 4, NULL, NULL, &err));
	assert_int_equal(b->ops->exchange(b, mine, len_bytes, out, lens, &err), GN_ERR_STALL);
	assert_non_null(strstr(err.text, "in time"));
	assert_null(out[0]);
	assert_null(out[1]);
	assert_true(gn_clock_ns() - started < SOON_NS);
	pthread_join(thread, &failure);
	assert_null(failure);
	close(guest.fd);
	b->ops->destroy(b, 0);
	free(mine);
}

/* What listens there takes connections and says nothing. */
static void test_meeting_point_stands_still(void **state)
{
	uint64_t started = gn_clock_ns();
	struct gn_bootstrap *b = NULL;
	struct gn_detect d;
	struct gn_err err;
	int fd, port = 0;
	void *word = NULL;
	size_t len;

	(void)state;
	assert_ok(gn_net_listen(&port, &fd, &err));
	d = place(1, port);
	assert_ok(gn_bootstrap_env(&d, TIMEOUT_MS, NULL, &b, &err));
	assert_int_equal(b->ops->word(b, NULL, 0, &word, &len, &err), GN_ERR_STALL);
	assert_non_null(strstr(err.text, "says nothing"));
	assert_true(gn_clock_ns() - started < SOON_NS);
	assert_null(word);
	close(fd);
	b->ops->destroy(b, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exchange_with_the_silent),
		cmocka_unit_test(test_meeting_point_stands_still),
	};
	int fd = mkstemp(secret_file), failed;

	if (fd < 0 || write(fd, "the secret of this test, 32 byte", 32) != 32 || gn_secret_read(secret_file, &secret, NULL))
		return 1;
	close(fd);
	setenv(GN_BOOTSTRAP_SECRET, secret_file, 1);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(secret_file);
	return failed;
}
