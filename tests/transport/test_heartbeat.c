/* Several watches in one process, over loopback. Strangers, garbage and losses are real sockets. */
#include "tests/test.h"

#include "tests/transport/made_up_clock.h"
#include "transport/auth/handshake.h"
#include "transport/auth/net.h"
#include "transport/bootstrap/world_internal.h"
#include "transport/health/heartbeat.h"
#include "transport/health/heartbeat_internal.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RANKS 4
/* Silence and missing ranks that no test waits for: only what closed, or what a message says, can be the cause. */
#define NEVER_MS 600000
#define SECRET {"the secret of this test, 32 byte"}

/* Instead of libc's: a heartbeat's thread that looks up from time to time does so only when it is woken, while this is set. */
static atomic_int only_when_woken;
static _Thread_local int polled_in_vain_ms; /* by this thread: the sum of the limits that polls came to */

int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	const struct timespec slice = {0, 5000000};
	int ready = 0, waits = timeout_ms >= 100;

	if (!waits)
		return ppoll(fds, count, timeout_ms < 0 ? NULL : &(struct timespec){0, timeout_ms * 1000000l}, NULL);
	for (int ms = 0; !ready && (ms < timeout_ms || only_when_woken); ms += 5)
		ready = ppoll(fds, count, &slice, NULL);
	polled_in_vain_ms += ready ? 0 : timeout_ms;
	return ready;
}

struct group {
	struct gn_heartbeat *watch[RANKS];
	struct gn_heartbeat_contact invitation;
};

/* recorders: of each rank, or NULL */
static void setup_recorded(struct group *g, int silent_after_ms, struct gn_recorder *const *recorders)
{
	struct gn_heartbeat_options o = {.size = RANKS, .silent_after_ms = silent_after_ms, .timeout_ms = NEVER_MS, .secret = SECRET,
				     .recorder = recorders ? recorders[0] : NULL};
	const char *hosts[RANKS] = {"h0", "h1", "h2", "h3"};
	struct gn_err err;

	assert_ok(gn_heartbeat_host(&o, &g->watch[0], &g->invitation, &err));
	for (int r = 1; r < RANKS; r++) {
		o.rank = r;
		o.recorder = recorders ? recorders[r] : NULL;
		assert_ok(gn_heartbeat_join(&o, &g->invitation, &g->watch[r], &err));
	}
	for (int r = 0; r < RANKS; r++)
		assert_ok(gn_heartbeat_name_hosts(g->watch[r], hosts, &err));
}

static void setup(struct group *g, int silent_after_ms)
{
	setup_recorded(g, silent_after_ms, NULL);
}

static void rest(void)
{
	nanosleep(&(const struct timespec){0, 2000000}, NULL);
}

/* Until the watch reports a loss. */
static void await_loss(const struct gn_heartbeat *w, struct gn_err *err)
{
	while (gn_heartbeat_check(w, err) == GN_OK)
		rest();
}

static void *leave(void *watch)
{
	gn_heartbeat_destroy(watch, 1);
	return NULL;
}

/* All but those that have crashed. */
static void leave_all(struct group *g)
{
	pthread_t threads[RANKS];

	for (int r = 0; r < RANKS; r++)
		assert_int_equal(pthread_create(&threads[r], NULL, leave, g->watch[r]), 0);
	for (int r = 0; r < RANKS; r++)
		pthread_join(threads[r], NULL);
}

static void crash(struct group *g, int rank)
{
	gn_heartbeat_destroy(g->watch[rank], GN_HEARTBEAT_EXIT_SILENT);
	g->watch[rank] = NULL;
}

static void test_all_leave(void **state)
{
	struct group g;

	(void)state;
	setup(&g, NEVER_MS);
	for (int r = 0; r < RANKS; r++)
		assert_int_equal(gn_heartbeat_check(g.watch[r], NULL), GN_OK);
	leave_all(&g);
}

/* Rank 0's own goodbye ends it, and it need not look up by itself. */
static void test_rank_0_leaves_last(void **state)
{
	pthread_t threads[RANKS];
	struct group g;

	(void)state;
	setup(&g, NEVER_MS);
	for (int r = 1; r < RANKS; r++)
		assert_int_equal(pthread_create(&threads[r], NULL, leave, g.watch[r]), 0);
	while (!gn_heartbeat_anyone_left(g.watch[0]))
		rest();
	only_when_woken = 1;
	gn_heartbeat_destroy(g.watch[0], 1);
	for (int r = 1; r < RANKS; r++)
		pthread_join(threads[r], NULL);
	only_when_woken = 0;
}

static void test_vanishing_rank_is_named(void **state)
{
	struct gn_err err;
	struct group g;

	(void)state;
	setup(&g, NEVER_MS);
	crash(&g, 2);
	for (int r = 0; r < RANKS; r++)
		if (r != 2) {
			await_loss(g.watch[r], &err);
			assert_int_equal(err.status, GN_ERR_PEER_LOST);
			assert_non_null(strstr(err.text, "rank 2 on h2"));
		}
	/* the others leave together, without it */
	leave_all(&g);
}

/* Until rank `rank` is known to be lost on watch w. */
static void await_loss_of(const struct gn_heartbeat *w, int rank)
{
	while (!gn_heartbeat_is_lost(w, rank))
		rest();
}

/* The second loss is reported like the first; who depends on neither goes on. */
static void test_each_loss_is_kept(void **state)
{
	const int with_3[] = {1, 3}, with_2[] = {2, 0}, with_both[] = {3, 2}, with_none[] = {1, 0};
	struct gn_err err;
	struct group g;

	(void)state;
	setup(&g, NEVER_MS);
	for (int r = 0; r < RANKS; r++)
		assert_int_equal(gn_heartbeat_losses(g.watch[r]), 0);
	crash(&g, 2);
	for (int r = 0; r < 2; r++) {
		await_loss_of(g.watch[r], 2);
		assert_int_equal(gn_heartbeat_check_ranks(g.watch[r], with_3, 2, 0, NULL), GN_OK);
	}
	crash(&g, 3);
	for (int r = 0; r < 2; r++) {
		await_loss_of(g.watch[r], 3);
		assert_int_equal(gn_heartbeat_losses(g.watch[r]), 2);
		assert_int_equal(gn_heartbeat_check_ranks(g.watch[r], with_3, 2, 0, &err), GN_ERR_PEER_LOST);
		assert_non_null(strstr(err.text, "rank 3 on h3 is lost: its connection closed unexpectedly"));
		assert_int_equal(gn_heartbeat_check_ranks(g.watch[r], with_2, 2, 1, &err), GN_ERR_PEER_LOST);
		assert_non_null(strstr(err.text, "rank 2 on h2 is lost"));
		/* that was lost first */
		assert_int_equal(gn_heartbeat_check_ranks(g.watch[r], with_both, 2, 0, &err), GN_ERR_PEER_LOST);
		assert_non_null(strstr(err.text, "rank 2 on h2 is lost"));
		assert_int_equal(gn_heartbeat_check_ranks(g.watch[r], with_none, 2, 1, NULL), GN_OK);
		assert_int_equal(gn_heartbeat_check_ranks(g.watch[r], NULL, RANKS, 0, NULL), GN_ERR_PEER_LOST);
		assert_int_equal(gn_heartbeat_check(g.watch[r], &err), GN_ERR_PEER_LOST);
		assert_non_null(strstr(err.text, "rank 2 on h2 is lost"));
	}
	/* rank 0 coordinates: without it nothing goes on */
	crash(&g, 0);
	await_loss_of(g.watch[1], 0);
	assert_int_equal(gn_heartbeat_check_ranks(g.watch[1], with_none, 1, 0, &err), GN_ERR_PEER_LOST);
	assert_non_null(strstr(err.text, "rank 0 on h0 is lost"));
	gn_heartbeat_destroy(g.watch[1], GN_HEARTBEAT_EXIT_TOGETHER);
}

/* Rank 0 stays for those that are not lost. */
static void test_survivors_are_waited_for(void **state)
{
	pthread_t thread;
	struct group g;

	(void)state;
	setup(&g, NEVER_MS);
	crash(&g, 2);
	await_loss_of(g.watch[3], 2);
	assert_int_equal(pthread_create(&thread, NULL, leave, g.watch[0]), 0);
	gn_heartbeat_destroy(g.watch[1], GN_HEARTBEAT_EXIT_ALONE);
	/* that rank 0 knows of a third loss shows that it is still there */
	crash(&g, 3);
	pthread_join(thread, NULL);
}

/* Of several that have left, those that nobody waits for do no harm. */
static void test_whoever_left_is_known(void **state)
{
	const int with_1[] = {3, 1}, with_2[] = {3, 2}, others[] = {3, 0};
	uint64_t started = gn_clock_ns();
	pthread_t threads[2];
	struct gn_err err;
	struct group g;

	(void)state;
	setup(&g, NEVER_MS);
	for (int r = 1; r < 3; r++)
		assert_int_equal(pthread_create(&threads[r - 1], NULL, leave, g.watch[r]), 0);
	while ((gn_heartbeat_check_ranks(g.watch[3], with_1, 2, started, NULL) == GN_OK ||
		gn_heartbeat_check_ranks(g.watch[3], with_2, 2, started, NULL) == GN_OK)) {
		pass_ms(20);
		rest();
	}
	assert_int_equal(gn_heartbeat_check_ranks(g.watch[3], with_1, 2, started, &err), GN_ERR_PEER_LOST);
	assert_non_null(strstr(err.text, "rank 1 on h1 is lost: it has left"));
	assert_int_equal(gn_heartbeat_check_ranks(g.watch[3], with_2, 2, started, &err), GN_ERR_PEER_LOST);
	assert_non_null(strstr(err.text, "rank 2 on h2 is lost: it has left"));
	assert_int_equal(gn_heartbeat_check_ranks(g.watch[3], others, 2, started, NULL), GN_OK);
	assert_int_equal(gn_heartbeat_check_ranks(g.watch[3], with_1, 2, 0, NULL), GN_OK);
	g.watch[1] = g.watch[2] = NULL;
	leave_all(&g);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

static int knock(const struct group *g)
{
	struct gn_err err;
	int fd;

	assert_ok(gn_net_connect("127.0.0.1", g->invitation.port, 2000, &fd, &err));
	return fd;
}

/* Proves to know the secret, as rank. Its descriptor is -1 where that fails. */
static struct gn_channel come(const struct group *g, uint32_t rank, uint32_t size, const struct gn_secret *secret, struct gn_err *err)
{
	struct gn_channel c = {.fd = knock(g)};

	if (gn_handshake_join(&c, secret, GN_HANDSHAKE_HEARTBEAT, rank, size, 3000, err))
		gn_channel_close(&c);
	return c;
}

/* Ranks 0 and 1 wait in an allreduce, 3 writes: all are told so of each other when 2 is lost, and 3 is when 1 is, too. */
static void test_loss_tells_of_all(void **state)
{
	static const struct gn_recorder_op op = {"allreduce", "ring", "f32", "sum", 16777216, 64 << 20, -1};
	static const char others[] = "rank 2 on h2 is lost: its connection closed unexpectedly; ranks 0-1 were in operation number 1, "
				     "allreduce of 64 MiB (16777216 f32, sum, ring), 1 of them waiting for it; "
				     "rank 3 on h3 was before the first collective, writing a checkpoint";
	struct gn_recorder *recorders[RANKS];
	struct gn_err err;
	struct group g;

	(void)state;
	for (int r = 0; r < RANKS; r++)
		assert_ok(gn_recorder_create(60000, &recorders[r], &err));
	for (int r = 0; r < 2; r++)
		gn_recorder_start(recorders[r], gn_recorder_kind(recorders[r], &op));
	gn_recorder_waits_for(recorders[0], 1, 2, 0, -1);
	gn_recorder_waits_for(recorders[1], 1, 3, 0, -1);
	gn_recorder_set_phase(recorders[3], "writing a checkpoint", 60000);
	setup_recorded(&g, NEVER_MS, recorders);
	crash(&g, 2);
	for (int r = 0; r < RANKS; r++)
		if (r != 2) {
			await_loss(g.watch[r], &err);
			/* none repeats its own state, be it told of it alone or with others */
			if (strcmp(err.text, others))
				fail_msg("rank %d is told '%s'", r, err.text);
		}
	crash(&g, 1);
	leave_all(&g);
	for (int r = 0; r < RANKS; r++)
		gn_recorder_destroy(recorders[r]);
}

/* Three ranks, of which rank 1 only has a connection, which is returned, and answers nothing. The recorder is o's to destroy. */
static struct gn_channel begin_with_a_mute(struct gn_heartbeat_options *o, struct gn_heartbeat **rank_0, struct gn_heartbeat **rank_2)
{
	struct group g;
	struct gn_err err;
	struct gn_channel mute;

	assert_ok(gn_recorder_create(60000, &o->recorder, &err));
	assert_ok(gn_heartbeat_host(o, rank_0, &g.invitation, &err));
	mute = come(&g, 1, 3, &o->secret, &err);
	assert_true(mute.fd >= 0);
	o->rank = 2;
	assert_ok(gn_heartbeat_join(o, &g.invitation, rank_2, &err));
	return mute;
}

/* Two are lost, and one of them cannot be asked: whoever is left is told of the first all the same. */
static void test_loss_while_one_is_mute(void **state)
{
	struct gn_heartbeat_options o = {.size = 3, .silent_after_ms = NEVER_MS, .timeout_ms = NEVER_MS, .secret = SECRET};
	struct gn_heartbeat *w = NULL, *dies = NULL;
	struct gn_err err;
	struct gn_channel mute;

	(void)state;
	mute = begin_with_a_mute(&o, &w, &dies);
	gn_heartbeat_destroy(dies, 0);
	await_loss(w, &err);
	assert_non_null(strstr(err.text, "rank 2 is lost: its connection closed unexpectedly"));
	assert_non_null(strstr(err.text, "; rank 0 was before the first collective"));
	close(mute.fd);
	gn_heartbeat_destroy(w, 1);
	gn_recorder_destroy(o.recorder);
}

/* The next message of that kind that comes by a connection. */
static struct gn_heartbeat_message next_of(struct gn_channel *c, enum gn_heartbeat_type type)
{
	struct gn_heartbeat_message m;

	do
		assert_int_equal(gn_channel_receive(c, &m, sizeof m, 3000), 0);
	while (m.type != type);
	return m;
}

/* Rank 0 gives up while it still asks the others about a loss, which may be why: they are told of that first. */
static void test_giving_up_over_a_loss(void **state)
{
	struct gn_heartbeat_options o = {.size = 3, .silent_after_ms = NEVER_MS, .timeout_ms = NEVER_MS, .secret = SECRET};
	struct gn_heartbeat *w = NULL, *dies = NULL;
	struct gn_heartbeat_message m;
	struct gn_channel mute;

	(void)state;
	mute = begin_with_a_mute(&o, &w, &dies);
	gn_heartbeat_destroy(dies, 0);
	next_of(&mute, GN_HEARTBEAT_QUERY);
	gn_heartbeat_abort(w, GN_OK, "a connection broke");
	m = next_of(&mute, GN_HEARTBEAT_LOST);
	assert_int_equal(m.rank, 2);
	m = next_of(&mute, GN_HEARTBEAT_LOST);
	assert_int_equal(m.rank, 0);
	close(mute.fd);
	gn_heartbeat_destroy(w, 1);
	gn_recorder_destroy(o.recorder);
}

static void test_loss_of_rank_0(void **state)
{
	struct gn_err err;
	struct group g;

	(void)state;
	setup(&g, NEVER_MS);
	gn_heartbeat_destroy(g.watch[0], 0);
	for (int r = 1; r < RANKS; r++) {
		await_loss(g.watch[r], &err);
		assert_non_null(strstr(err.text, "rank 0 on h0"));
		gn_heartbeat_destroy(g.watch[r], 1);
	}
}

/* Rank 0 refuses a rank and ends: the others, which lose it, keep its reason. */
static void test_a_refusal_is_no_loss(void **state)
{
	static const enum gn_status reasons[] = {GN_ERR_MISMATCH, GN_ERR_USAGE};
	struct gn_world w = {.heartbeat = NULL};
	struct gn_err err;
	struct group g;

	(void)state;
	setup(&g, NEVER_MS);
	gn_heartbeat_destroy(g.watch[0], 0);
	for (int r = 1; r < RANKS; r++)
		await_loss(g.watch[r], &err);
	w.heartbeat = g.watch[1];
	for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
		gn_err_set(&err, reasons[i], "rank 3 refused");
		assert_int_equal(gn_world_find_reason(&w, 0, reasons[i], &err), reasons[i]);
		assert_string_equal(err.text, "rank 3 refused");
	}
	gn_err_set(&err, GN_ERR_PEER_LOST, "closed");
	assert_int_equal(gn_world_find_reason(&w, 0, GN_ERR_PEER_LOST, &err), GN_ERR_PEER_LOST);
	assert_non_null(strstr(err.text, "rank 0 on h0"));
	for (int r = 1; r < RANKS; r++)
		gn_heartbeat_destroy(g.watch[r], 1);
}

static void test_reason_travels(void **state)
{
	struct gn_err err;
	struct group g;

	(void)state;
	setup(&g, NEVER_MS);
	gn_heartbeat_abort(g.watch[3], GN_ERR_DATA, "shard 7 is broken");
	await_loss(g.watch[1], &err);
	assert_string_equal(err.text, "rank 3 on h3 failed: shard 7 is broken");
	assert_int_equal(err.cause, GN_ERR_DATA);
	assert_int_equal(err.told, 1);
	await_loss(g.watch[0], &err);
	assert_int_equal(err.told, 0);
	for (int r = 0; r < RANKS; r++)
		gn_heartbeat_destroy(g.watch[r], 0);
}

/* A rank that ends since another one is lost says so, and the others repeat that, not that it ended. */
static void test_first_loss_travels(void **state)
{
	struct gn_err err;
	struct group g;

	(void)state;
	setup(&g, NEVER_MS);
	gn_heartbeat_abort(g.watch[2], GN_ERR_PEER_LOST, "rank 3 on h3 is lost: the connection to it broke");
	await_loss(g.watch[1], &err);
	assert_string_equal(err.text, "rank 3 on h3 is lost: the connection to it broke");
	for (int r = 0; r < RANKS; r++)
		gn_heartbeat_destroy(g.watch[r], 0);
}

/* Of one that joins when others are lost: the first of them is the cause, whatever their ranks. */
static void test_late_rank_hears_the_first(void **state)
{
	struct gn_heartbeat_options o = {.size = RANKS, .silent_after_ms = NEVER_MS, .timeout_ms = NEVER_MS, .secret = SECRET};
	struct gn_err err;
	struct group g;

	(void)state;
	assert_ok(gn_heartbeat_host(&o, &g.watch[0], &g.invitation, &err));
	for (o.rank = 2; o.rank < RANKS; o.rank++)
		assert_ok(gn_heartbeat_join(&o, &g.invitation, &g.watch[o.rank], &err));
	gn_heartbeat_abort(g.watch[3], GN_ERR_DATA, "shard 7 is broken");
	await_loss(g.watch[0], &err);
	crash(&g, 2);
	while (gn_heartbeat_losses(g.watch[0]) < 2)
		rest();
	o.rank = 1;
	assert_ok(gn_heartbeat_join(&o, &g.invitation, &g.watch[1], &err));
	await_loss(g.watch[1], &err);
	assert_int_equal(err.cause, GN_ERR_DATA);
	assert_non_null(strstr(err.text, "rank 3 failed: shard 7 is broken"));
	gn_heartbeat_destroy(g.watch[3], 0);
	gn_heartbeat_destroy(g.watch[1], 0);
	gn_heartbeat_destroy(g.watch[0], 0);
}

/* Refused means: closed without a byte. */
static void assert_refused(int fd)
{
	char byte;

	assert_true(fd >= 0);
	assert_int_not_equal(gn_net_receive_all(fd, &byte, 1, 4000), 0);
	close(fd);
}

static void test_strangers(void **state)
{
	struct gn_heartbeat_options o = {.rank = 1, .size = RANKS, .silent_after_ms = NEVER_MS, .timeout_ms = 1000};
	const struct gn_secret secret = SECRET;
	struct gn_heartbeat *none = NULL;
	uint8_t garbage[4096];
	struct gn_err err;
	struct group g;
	int fd, silent[300];

	(void)state;
	setup(&g, NEVER_MS);
	for (int i = 0; i < 300; i++)
		silent[i] = knock(&g);
	srand(3);
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < sizeof garbage; i++)
			garbage[i] = (uint8_t)rand();
		fd = knock(&g);
		send(fd, garbage, (size_t)rand() % sizeof garbage + 4, MSG_NOSIGNAL);
		close(fd);
	}
	/* a secret that was never given */
	assert_int_equal(come(&g, 1, RANKS, &o.secret, &err).fd, -1);
	assert_int_equal(err.status, GN_ERR_USAGE);
	/* the right secret, but a rank that is here already, is none, or is of another job */
	assert_refused(come(&g, 1, RANKS, &secret, &err).fd);
	assert_refused(come(&g, 0, RANKS, &secret, &err).fd);
	assert_refused(come(&g, RANKS, RANKS, &secret, &err).fd);
	assert_refused(come(&g, UINT32_MAX, RANKS, &secret, &err).fd);
	assert_refused(come(&g, 2, RANKS + 1, &secret, &err).fd);
	for (int i = 0; i < 300; i++)
		close(silent[i]);
	assert_int_equal(gn_heartbeat_join(&o, &g.invitation, &none, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "rank 0 refuses rank 1"));
	for (int r = 0; r < RANKS; r++)
		assert_int_equal(gn_heartbeat_check(g.watch[r], NULL), GN_OK);
	leave_all(&g);
}

/* A rank that is connected but says nothing more: what a stopped process or a cut link looks like. */
static void test_silence(void **state)
{
	struct gn_heartbeat_options o = {.size = 2, .silent_after_ms = 1200, .timeout_ms = NEVER_MS, .secret = SECRET};
	struct group g;
	struct gn_heartbeat *w = NULL;
	struct gn_err err;
	uint64_t start;
	int fd;

	(void)state;
	assert_ok(gn_heartbeat_host(&o, &w, &g.invitation, &err));
	fd = come(&g, 1, 2, &o.secret, &err).fd;
	assert_true(fd >= 0);
	start = gn_clock_ns();
	await_loss(w, &err);
	assert_true(gn_clock_ns() - start > 1000000000u);
	assert_non_null(strstr(err.text, "rank 1"));
	assert_non_null(strstr(err.text, "no heartbeat from it"));
	close(fd);
	gn_heartbeat_destroy(w, 1);
}

static void test_some_do_not_come(void **state)
{
	struct gn_heartbeat_options o = {.size = RANKS, .silent_after_ms = NEVER_MS, .timeout_ms = 60000, .secret = SECRET};
	struct gn_heartbeat *w[2] = {NULL, NULL};
	struct gn_heartbeat_contact invitation;
	struct gn_err err;

	(void)state;
	assert_ok(gn_heartbeat_host(&o, &w[0], &invitation, &err));
	o.rank = 1;
	assert_ok(gn_heartbeat_join(&o, &invitation, &w[1], &err));
	pass_ms(59000);
	assert_ok(gn_heartbeat_check(w[0], &err));
	for (int r = 0; r < 2; r++) {
		while (gn_heartbeat_check(w[r], &err) == GN_OK) {
			pass_ms(20);
			rest();
		}
		assert_int_equal(err.status, GN_ERR_PEER_LOST);
		assert_non_null(strstr(err.text, "rank 2 is lost: it did not join within "));
		assert_non_null(strstr(err.text, " s; neither did 3: are all 4 ranks started"));
	}
	gn_heartbeat_destroy(w[1], GN_HEARTBEAT_EXIT_ALONE);
	gn_heartbeat_destroy(w[0], GN_HEARTBEAT_EXIT_TOGETHER);
	/* when all are there, it is silence that counts */
	o.rank = 0;
	o.silent_after_ms = 300;
	o.timeout_ms = NEVER_MS;
	assert_ok(gn_heartbeat_host(&o, &w[0], &invitation, &err));
	gn_heartbeat_expect_all(w[0]);
	await_loss(w[0], &err);
	assert_non_null(strstr(err.text, "rank 1 is lost: it did not join within"));
	gn_heartbeat_destroy(w[0], 1);
}

/* One has left in good order: no loss, but no endless wait for it either. */
static void test_early_leaver(void **state)
{
	struct gn_err err;
	struct group g;
	pthread_t thread;
	uint64_t started = gn_clock_ns();

	(void)state;
	setup(&g, NEVER_MS);
	pthread_create(&thread, NULL, leave, g.watch[1]);
	while (gn_heartbeat_check_wait(g.watch[2], started, &err) == GN_OK) {
		pass_ms(20);
		rest();
	}
	assert_int_equal(gn_heartbeat_check_wait(g.watch[2], started, &err), GN_ERR_PEER_LOST);
	assert_non_null(strstr(err.text, "rank 1 on h1"));
	assert_int_equal(gn_heartbeat_check(g.watch[2], NULL), GN_OK);
	/* someone whose wait has just begun is not bothered yet */
	assert_int_equal(gn_heartbeat_check_wait(g.watch[3], gn_clock_ns(), &err), GN_OK);
	pthread_t others[RANKS];
	for (int r = 0; r < RANKS; r++)
		if (r != 1)
			pthread_create(&others[r], NULL, leave, g.watch[r]);
	for (int r = 0; r < RANKS; r++)
		pthread_join(r == 1 ? thread : others[r], NULL);
}

/* Rank 0 stands still: the kernel takes connections for it, and nobody answers. All its addresses together get the time that one has. */
static void test_rank_0_stands_still(void **state)
{
	struct gn_heartbeat_options o = {.rank = 1, .size = 2, .silent_after_ms = 800, .timeout_ms = NEVER_MS, .secret = SECRET};
	struct gn_heartbeat_contact invitation = {.addresses.count = 4};
	struct gn_heartbeat *none = NULL;
	struct gn_err err;
	int fd, port = 0;

	(void)state;
	assert_ok(gn_net_listen(NULL, &port, &fd, &err));
	invitation.port = port;
	for (uint32_t i = 0; i < invitation.addresses.count; i++)
		strcpy(invitation.addresses.text[i], "127.0.0.1");
	polled_in_vain_ms = 0;
	assert_int_equal(gn_heartbeat_join(&o, &invitation, &none, &err), GN_ERR_PEER_LOST);
	assert_non_null(strstr(err.text, "rank 0 is lost"));
	assert_non_null(strstr(err.text, "does not answer"));
	/* rounded up at each address */
	assert_in_range(polled_in_vain_ms, 100, o.silent_after_ms + 10);
	close(fd);
}

/* Rank 0 has died since it invited: that is known, however long silence may last. */
static void test_rank_0_is_gone(void **state)
{
	struct gn_heartbeat_options o = {.rank = 1, .size = 2, .silent_after_ms = NEVER_MS, .timeout_ms = NEVER_MS, .secret = SECRET};
	struct gn_heartbeat_contact invitation = {.addresses = {2, {"127.0.0.1", "127.0.0.2"}}};
	struct gn_heartbeat *none = NULL;
	struct gn_err err;
	int fd, port = 0;

	(void)state;
	assert_ok(gn_net_listen(NULL, &port, &fd, &err));
	close(fd);
	invitation.port = port;
	assert_int_equal(gn_heartbeat_join(&o, &invitation, &none, &err), GN_ERR_PEER_LOST);
	assert_non_null(strstr(err.text, "rank 0 is lost"));
	assert_non_null(strstr(err.text, "refused"));
}

/* Takes one connection and hands on what comes, both ways, until both ends are gone. */
struct relay {
	int listener, port;
	int spoils; /* a bit of each message to rank 0, which are longer than those of the handshake */
};

static void *hand_on(void *argument)
{
	const struct relay *relay = argument;
	int in = accept(relay->listener, NULL, NULL), out = -1, fds[2];
	char block[4096];
	struct gn_err err;
	ssize_t n = 1;

	if (in < 0 || gn_net_connect("127.0.0.1", relay->port, 2000, &out, &err))
		return NULL;
	fds[0] = in;
	fds[1] = out;
	while (n > 0) {
		struct pollfd p[2] = {{.fd = in, .events = POLLIN}, {.fd = out, .events = POLLIN}};

		if (poll(p, 2, 5000) <= 0)
			break;
		for (int i = 0; i < 2 && n > 0; i++)
			if (p[i].revents && (n = recv(fds[i], block, sizeof block, 0)) > 0) {
				if (i == 0 && relay->spoils && n >= (ssize_t)sizeof(struct gn_heartbeat_message))
					block[9] ^= 1; /* of its rank */
				n = send(fds[!i], block, (size_t)n, MSG_NOSIGNAL);
			}
	}
	close(in);
	close(out);
	return NULL;
}

static int listen_at(const char *address, int *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	inet_pton(AF_INET, address, &a.sin_addr);
	assert_true(fd >= 0 && !bind(fd, (struct sockaddr *)&a, len) && !listen(fd, 8));
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

/* At rank 0's first address somebody else listens, who says nothing: that takes its share of the time, and the second one is tried. */
static void test_someone_mute_comes_first(void **state)
{
	struct gn_heartbeat_options o = {.size = 2, .silent_after_ms = 10000, .timeout_ms = 60000, .secret = SECRET};
	struct gn_heartbeat_contact real, told = {.addresses = {.count = 2, .text = {"127.0.0.2", "127.0.0.1"}}};
	struct gn_heartbeat *watches[2] = {NULL, NULL};
	struct relay relay = {-1, 0, 0};
	pthread_t thread, leaving;
	struct gn_err err;
	int mute, port = 0;

	(void)state;
	mute = listen_at("127.0.0.2", &port);
	relay.listener = listen_at("127.0.0.1", &port);
	told.port = port;
	assert_ok(gn_heartbeat_host(&o, &watches[0], &real, &err));
	relay.port = real.port;
	assert_int_equal(pthread_create(&thread, NULL, hand_on, &relay), 0);
	o.rank = 1;
	assert_ok(gn_heartbeat_join(&o, &told, &watches[1], &err));
	assert_int_equal(pthread_create(&leaving, NULL, leave, watches[1]), 0);
	gn_heartbeat_destroy(watches[0], 1);
	pthread_join(leaving, NULL);
	pthread_join(thread, NULL);
	close(mute);
	close(relay.listener);
}

/* Somebody between them changes what rank 1 says: it is not taken for rank 1's. */
static void test_changed_on_its_way(void **state)
{
	struct gn_heartbeat_options o = {.size = 2, .silent_after_ms = NEVER_MS, .timeout_ms = NEVER_MS, .secret = SECRET};
	struct gn_heartbeat_contact real, told = {.addresses = {.count = 1, .text = {"127.0.0.1"}}};
	struct gn_heartbeat *watches[2] = {NULL, NULL};
	struct relay relay = {-1, 0, 1};
	pthread_t thread;
	struct gn_err err;

	(void)state;
	relay.listener = listen_at("127.0.0.1", &told.port);
	assert_ok(gn_heartbeat_host(&o, &watches[0], &real, &err));
	relay.port = real.port;
	assert_int_equal(pthread_create(&thread, NULL, hand_on, &relay), 0);
	o.rank = 1;
	assert_ok(gn_heartbeat_join(&o, &told, &watches[1], &err));
	await_loss(watches[0], &err);
	assert_non_null(strstr(err.text, "rank 1 is lost: a heartbeat that claims to be its own is not authentic"));
	gn_heartbeat_destroy(watches[1], 0);
	gn_heartbeat_destroy(watches[0], 0);
	pthread_join(thread, NULL);
	close(relay.listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_leave),
		cmocka_unit_test(test_rank_0_leaves_last),	cmocka_unit_test(test_vanishing_rank_is_named),
		cmocka_unit_test(test_loss_tells_of_all),	cmocka_unit_test(test_loss_while_one_is_mute),
		cmocka_unit_test(test_giving_up_over_a_loss),
		cmocka_unit_test(test_loss_of_rank_0), cmocka_unit_test(test_a_refusal_is_no_loss),	cmocka_unit_test(test_reason_travels), cmocka_unit_test(test_first_loss_travels), cmocka_unit_test(test_late_rank_hears_the_first),
		cmocka_unit_test(test_each_loss_is_kept),	cmocka_unit_test(test_survivors_are_waited_for),
		cmocka_unit_test(test_whoever_left_is_known),
		cmocka_unit_test(test_strangers),	cmocka_unit_test(test_silence),
		cmocka_unit_test(test_some_do_not_come),	cmocka_unit_test(test_early_leaver),
		cmocka_unit_test(test_rank_0_stands_still),	cmocka_unit_test(test_rank_0_is_gone),
		cmocka_unit_test(test_someone_mute_comes_first), cmocka_unit_test(test_changed_on_its_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
