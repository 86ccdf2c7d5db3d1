/* Rank 0's side of the heartbeat against members that are bare connections: how much it says to each, and what stops it. */
#include "tests/test.h"

#include "src/base/process.h"
#include "tests/transport/made_up_clock.h"
#include "transport/auth/handshake.h"
#include "transport/auth/net.h"
#include "transport/health/heartbeat.h"
#include "transport/health/heartbeat_internal.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RANKS 4
#define SECRET {"the secret of this test, 32 byte"}

/* Instead of libc's: counted. */
static atomic_int accepts;

int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
	atomic_fetch_add(&accepts, 1);
	return (int)syscall(SYS_accept4, fd, address, len, flags);
}

/* Instead of libc's: the heartbeat's thread looks up every 5 ms, not every 250, since its clock is put forward. */
int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	int ms = timeout_ms == 250 ? 5 : timeout_ms;

	return ppoll(fds, count, ms < 0 ? NULL : &(struct timespec){ms / 1000, ms % 1000 * 1000000l}, NULL);
}

struct hub {
	struct gn_heartbeat *watch;
	struct gn_heartbeat_options options;
	struct gn_heartbeat_contact invitation;
	struct gn_channel members[RANKS]; /* [0] is none */
};

static int connect_to(const struct hub *h)
{
	struct gn_err err;
	int fd;

	assert_ok(gn_net_connect("127.0.0.1", h->invitation.port, 2000, &fd, &err));
	return fd;
}

static void setup(struct hub *h)
{
	struct gn_err err;

	h->options.size = RANKS;
	h->options.silent_after_ms = 60000;
	h->options.timeout_ms = 60000;
	h->options.secret = (struct gn_secret)SECRET;
	assert_ok(gn_heartbeat_host(&h->options, &h->watch, &h->invitation, &err));
	for (int r = 1; r < RANKS; r++) {
		h->members[r].fd = connect_to(h);
		assert_ok(gn_handshake_join(&h->members[r], &h->options.secret, GN_HANDSHAKE_HEARTBEAT, (uint32_t)r, RANKS, 5000, &err));
	}
}

static void teardown(struct hub *h)
{
	for (int r = 1; r < RANKS; r++)
		close(h->members[r].fd);
	gn_heartbeat_destroy(h->watch, 0);
}

static void say(struct gn_channel *c, const struct gn_heartbeat_message *m)
{
	assert_int_equal(gn_channel_send(c, m, sizeof *m, 3000), 0);
}

static void goodbye(struct hub *h, int rank)
{
	struct gn_heartbeat_message m = gn_heartbeat_text_message(GN_HEARTBEAT_LEAVE, rank, NULL);

	say(&h->members[rank], &m);
}

/* The next message that is no heartbeat. */
static struct gn_heartbeat_message hear(struct gn_channel *c)
{
	struct gn_heartbeat_message m;

	do
		assert_int_equal(gn_channel_receive(c, &m, sizeof m, 10000), 0);
	while (m.type == GN_HEARTBEAT_BEAT);
	return m;
}

/* The same, and time passes until it comes. */
static struct gn_heartbeat_message hear_later(struct gn_channel *c)
{
	struct gn_heartbeat_message m;

	do {
		while (!gn_net_readable(c->fd, 1))
			pass_ms(10);
		assert_int_equal(gn_channel_receive(c, &m, sizeof m, 10000), 0);
	} while (m.type == GN_HEARTBEAT_BEAT);
	return m;
}

static void *leave(void *watch)
{
	gn_heartbeat_destroy(watch, 1);
	return NULL;
}

/* When all leave, each is told of the first, not of each: that would be size messages to size ranks. */
static void test_goodbyes_are_told_once(void **state)
{
	struct gn_heartbeat_message m;
	struct hub h = {0};
	pthread_t thread;

	(void)state;
	setup(&h);
	goodbye(&h, 2);
	m = hear(&h.members[3]);
	assert_int_equal(m.type, GN_HEARTBEAT_LEFT);
	assert_int_equal(m.rank, 2);
	goodbye(&h, 1);
	assert_int_equal(pthread_create(&thread, NULL, leave, h.watch), 0);
	goodbye(&h, 3);
	m = hear(&h.members[3]);
	assert_int_equal(m.type, GN_HEARTBEAT_ALL_LEFT);
	for (int r = 1; r < RANKS; r++)
		close(h.members[r].fd);
	pthread_join(thread, NULL);
}

/* Once rank 0 has refused two strangers, one after the other, it has looked at everything that came before the second. */
static void await_turn(const struct hub *h)
{
	const struct gn_secret wrong = {"not the secret of this test, 32"};
	struct gn_err err;

	for (int i = 0; i < 2; i++) {
		struct gn_channel c = {.fd = connect_to(h)};

		assert_int_equal(gn_handshake_join(&c, &wrong, GN_HANDSHAKE_HEARTBEAT, 1, RANKS, 5000, &err), GN_ERR_USAGE);
		close(c.fd);
	}
}

/* Each loss is reported, once, in order. */
static void test_each_loss_is_told_once(void **state)
{
	struct gn_heartbeat_message m;
	struct hub h = {0};

	(void)state;
	setup(&h);
	shutdown(h.members[1].fd, SHUT_RDWR);
	m = hear(&h.members[3]);
	assert_int_equal(m.type, GN_HEARTBEAT_LOST);
	assert_int_equal(m.rank, 1);
	shutdown(h.members[2].fd, SHUT_RDWR);
	m = hear(&h.members[3]);
	assert_int_equal(m.type, GN_HEARTBEAT_LOST);
	assert_int_equal(m.rank, 2);
	await_turn(&h);
	gn_heartbeat_abort(h.watch, GN_OK, "enough");
	m = hear(&h.members[3]);
	assert_int_equal(m.type, GN_HEARTBEAT_LOST);
	assert_int_equal(m.rank, 0);
	teardown(&h);
}

/* Ranks lost together, as with their node: the others are queried once, and then told of each, the first first. */
static void test_losses_during_a_query(void **state)
{
	struct gn_heartbeat_message m;
	struct hub h = {0};
	struct gn_err err;
	int told[2], queries = 0;

	(void)state;
	assert_ok(gn_recorder_create(60000, &h.options.recorder, &err));
	setup(&h);
	shutdown(h.members[1].fd, SHUT_RDWR);
	/* rank 3 answers nothing, so that the query is under way */
	for (m = hear(&h.members[3]); m.type != GN_HEARTBEAT_QUERY; m = hear(&h.members[3]))
		;
	shutdown(h.members[2].fd, SHUT_RDWR);
	for (int i = 0; i < 2;) {
		m = hear(&h.members[3]);
		queries += m.type == GN_HEARTBEAT_QUERY;
		if (m.type == GN_HEARTBEAT_LOST)
			told[i++] = (int)m.rank;
	}
	assert_int_equal(told[0], 1);
	assert_int_equal(told[1], 2);
	assert_int_equal(queries, 0);
	teardown(&h);
	gn_recorder_destroy(h.options.recorder);
}

/* Rank 0 waits for the others in a collective, who are busy and say so: it asks less and less often. */
static void test_suspicions_back_off(void **state)
{
	static const struct gn_recorder_op op = {"allreduce", "ring", "f32", "sum", 1024, 4096, -1};
	struct gn_record record = {.limit_ms = 600000, .waits_rank = -1, .phase = "writing a checkpoint"};
	struct gn_heartbeat_message m;
	struct hub h = {0};
	uint64_t first = 0;
	struct gn_err err;

	(void)state;
	assert_ok(gn_recorder_create(60000, &h.options.recorder, &err));
	gn_recorder_start(h.options.recorder, gn_recorder_kind(h.options.recorder, &op));
	setup(&h);
	for (int asked = 0; asked < 7; asked++) {
		first = asked == 1 ? gn_clock_ns() : first;
		for (int r = 1; r < RANKS; r++) {
			m = hear_later(&h.members[r]);
			assert_int_equal(m.type, GN_HEARTBEAT_QUERY);
			memcpy(&record.number, m.text, sizeof record.number);
			m = gn_heartbeat_data_message(GN_HEARTBEAT_RECORD, r, &record, sizeof record);
			say(&h.members[r], &m);
		}
	}
	/* 0.3 s apart six times are 1.8 s; doubled up to 1.2 s they are more */
	assert_true(gn_clock_ns() - first > 3500000000u);
	teardown(&h);
	gn_recorder_destroy(h.options.recorder);
}

/* Whoever does not read costs a send until its time is over, and no next one. */
static void test_someone_does_not_read(void **state)
{
	struct gn_heartbeat_message m = gn_heartbeat_text_message(GN_HEARTBEAT_BEAT, 0, NULL);
	struct gn_heartbeat_stream s = {0};
	int pair[2];
	uint64_t until;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	s.fd = pair[0];
	until = gn_heartbeat_send_deadline_ns();
	while (gn_heartbeat_read(&s) == GN_HEARTBEAT_NOTHING)
		gn_heartbeat_send(&s, &m, until);
	assert_true(gn_clock_ns() >= until);
	assert_int_equal(gn_heartbeat_read(&s), GN_HEARTBEAT_CLOSED);
	close(pair[0]);
	close(pair[1]);
}

/* No descriptor is left for who comes: rank 0 does not spin, says why, and takes the connection once there is one. */
static void test_no_descriptor_left(void **state)
{
	struct rlimit limit, none;
	char text[1000] = "";
	struct gn_channel c;
	int fd, log[2];
	struct hub h = {0};
	struct gn_err err;
	int before;

	(void)state;
	assert_int_equal(pipe(log), 0);
	assert_ok(gn_log_create(log[1], GN_LOG_WARN, &h.options.log, &err));
	setup(&h);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	fd = dup(0);
	assert_true(fd >= 0);
	close(fd);
	none = limit;
	none.rlim_cur = (rlim_t)fd + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	fd = connect_to(&h);
	/* the log's line shows that the connection came */
	assert_true(read(log[0], text, sizeof text - 1) > 0);
	assert_non_null(strstr(text, "raise the limit of open files (ulimit -n)"));
	before = atomic_load(&accepts);
	assert_int_equal(gn_net_readable(fd, 500), 0);
	/* it tries again ten times a second; without a pause it would tens of thousands of times */
	assert_in_range(atomic_load(&accepts) - before, 1, 200);
	assert_ok(gn_descriptors_want(fd + 1, "this test", &err));
	c.fd = fd;
	assert_int_equal(gn_handshake_join(&c, &h.options.secret, GN_HANDSHAKE_HEARTBEAT, 1, RANKS, 5000, &err), GN_OK);
	close(fd);
	teardown(&h);
	gn_log_destroy(h.options.log);
	close(log[0]);
	close(log[1]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void test_too_few_descriptors(void **state)
{
	struct rlimit limit, low;
	struct gn_err err;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = 100;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_ok(gn_descriptors_want(101, "rank 0 of 40", &err));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &low), 0);
	assert_true(low.rlim_cur == limit.rlim_max);
	if (limit.rlim_max != RLIM_INFINITY) {
		assert_int_equal(gn_descriptors_want((size_t)limit.rlim_max + 1, "rank 0 of 4096", &err), GN_ERR_FAILED);
		assert_non_null(strstr(err.text, "rank 0 of 4096 needs"));
		assert_non_null(strstr(err.text, "ulimit -n"));
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goodbyes_are_told_once), cmocka_unit_test(test_each_loss_is_told_once),
		cmocka_unit_test(test_losses_during_a_query),
		cmocka_unit_test(test_suspicions_back_off),    cmocka_unit_test(test_someone_does_not_read),
		cmocka_unit_test(test_no_descriptor_left),     cmocka_unit_test(test_too_few_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
