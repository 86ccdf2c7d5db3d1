/* The environment bootstrap: the meeting point with someone who stands still, or lies; what an exchange costs; the packs and
 * addresses that come over the network. */
#include "tests/test.h"

#include "transport/bootstrap/boot_tree.h"
#include "transport/bootstrap/bootstrap.h"
#include "transport/auth/handshake.h"
#include "transport/auth/net.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* That is to be reached, and that none reaches. */
#define TIMEOUT_MS 1000
#define HANGS_MS 300000

static struct gn_secret secret;
static char secret_file[] = "/tmp/gn-test-bootstrap.XXXXXX";

/* What the ranks of this process have sent: in place of the C library's. */
static _Thread_local int this_rank = -1;
static atomic_llong sent_messages, sent_bytes, sent_by_root, sent_bytes_by_root;

ssize_t send(int fd, const void *data, size_t len_bytes, int flags)
{
	ssize_t n = sendto(fd, data, len_bytes, flags, NULL, 0);

	if (n > 0 && this_rank >= 0) {
		sent_messages++;
		sent_bytes += n;
	}
	if (n > 0 && this_rank == 0) {
		sent_by_root++;
		sent_bytes_by_root += n;
	}
	return n;
}

static struct gn_launcher place_of(int rank, int size, int port)
{
	struct gn_launcher d = {.source = GN_LAUNCHER_ENVIRONMENT, .rank = rank, .size = size, .port = port};

	snprintf(d.address, sizeof d.address, "127.0.0.1");
	return d;
}

static struct gn_launcher place(int rank, int port)
{
	return place_of(rank, 2, port);
}

static int free_port(void)
{
	int port = 0, fd;
	struct gn_err err;

	assert_ok(gn_net_listen(NULL, &port, &fd, &err));
	close(fd);
	return port;
}

struct guest {
	int port, fd;
};

/* Rank 1 comes, says that it has no children, sends an empty message to the first exchange, and then reads nothing. */
static void *come_and_stand_still(void *argument)
{
	struct guest *g = argument;
	const struct timespec pause = {0, 10000000};
	const uint64_t none = 0, pack[2] = {8, 0};
	struct gn_channel c;
	struct gn_err err;

	while (gn_net_connect("127.0.0.1", g->port, HANGS_MS, &g->fd, &err))
		nanosleep(&pause, NULL);
	c.fd = g->fd;
	if (gn_handshake_join(&c, &secret, GN_HANDSHAKE_RENDEZVOUS, 1, 2, HANGS_MS, &err) || gn_channel_send(&c, &none, sizeof none, HANGS_MS) ||
	    gn_channel_send(&c, &pack[0], sizeof pack[0], HANGS_MS) || gn_channel_send(&c, &pack[1], sizeof pack[1], HANGS_MS))
		return "rank 1 could not join";
	return NULL;
}

/* More than the kernel takes for someone who does not read. */
static void test_exchange_with_the_silent(void **state)
{
	const size_t len_bytes = (size_t)48 << 20;
	struct guest guest = {.port = free_port(), .fd = -1};
	struct gn_launcher d = place(0, guest.port);
	struct gn_gathered out = {0};
	void *failure;
	char *mine = calloc(1, len_bytes);
	struct gn_bootstrap *b = NULL;
	struct gn_err err;
	pthread_t thread;

	(void)state;
	assert_non_null(mine);
	assert_int_equal(pthread_create(&thread, NULL, come_and_stand_still, &guest), 0);
	assert_ok(gn_bootstrap_env(&d, NULL, NULL, &b, &err));
	gn_bootstrap_set_timeout(b, HANGS_MS);
	assert_ok(b->ops->root_info(b, "word", 4, NULL, NULL, &err));
	gn_bootstrap_set_timeout(b, TIMEOUT_MS);
	assert_int_equal(b->ops->exchange(b, mine, len_bytes, &out, &err), GN_ERR_STALL);
	assert_non_null(strstr(err.text, "timed out"));
	assert_null(out.items);
	pthread_join(thread, &failure);
	assert_null(failure);
	close(guest.fd);
	b->ops->destroy(b, 0);
	free(mine);
}

/* What listens there takes connections and says nothing. */
static void test_meeting_point_stands_still(void **state)
{
	struct gn_bootstrap *b = NULL;
	struct gn_launcher d;
	struct gn_err err;
	int fd, port = 0;
	void *word = NULL;
	size_t len;

	(void)state;
	assert_ok(gn_net_listen(NULL, &port, &fd, &err));
	d = place(1, port);
	assert_ok(gn_bootstrap_env(&d, NULL, NULL, &b, &err));
	gn_bootstrap_set_timeout(b, TIMEOUT_MS);
	assert_int_equal(b->ops->root_info(b, NULL, 0, &word, &len, &err), GN_ERR_STALL);
	assert_non_null(strstr(err.text, "does not answer"));
	assert_null(word);
	close(fd);
	b->ops->destroy(b, 0);
}

/* --- a forged refusal --- */

/* Says to the first that comes that its secret is wrong, without knowing the secret; then rank 0 is there. */
static void *lie_then_host(void *argument)
{
	static const char challenge_magic[8] = "GNdoor3", verdict_magic[8] = "GNopen3";
	struct gn_handshake_reply forged = {.result = GN_HANDSHAKE_WRONG_PROOF};
	struct gn_handshake_challenge challenge = {.magic = {0}};
	struct gn_handshake_claim claim;
	struct gn_launcher d = *(struct gn_launcher *)argument;
	struct gn_bootstrap *b = NULL;
	int listener, port = d.port, fd;
	const char *failure = NULL;
	struct gn_err err;

	memcpy(challenge.magic, challenge_magic, sizeof challenge.magic);
	memcpy(forged.magic, verdict_magic, sizeof forged.magic);
	if (gn_net_listen(NULL, &port, &listener, &err) || gn_net_readable(listener, HANGS_MS) != 1)
		return "nobody came";
	fd = gn_net_accept(listener);
	close(listener);
	if (gn_net_send_all(fd, &challenge, sizeof challenge, HANGS_MS) || gn_net_receive_all(fd, &claim, sizeof claim, HANGS_MS) ||
	    gn_net_send_all(fd, &forged, sizeof forged, HANGS_MS))
		failure = "rank 1 does not shake hands";
	close(fd);
	if (!gn_bootstrap_env(&d, NULL, NULL, &b, &err))
		gn_bootstrap_set_timeout(b, HANGS_MS);
	if (!b || b->ops->root_info(b, "word", 4, NULL, NULL, &err))
		failure = "rank 1 did not come again";
	if (b)
		b->ops->destroy(b, 0);
	return (void *)failure;
}

static void test_forged_refusal(void **state)
{
	struct gn_launcher root = place(0, free_port()), d = place(1, root.port);
	struct gn_bootstrap *b = NULL;
	void *word = NULL, *failure;
	struct gn_err err;
	pthread_t thread;
	size_t len = 0;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, lie_then_host, &root), 0);
	assert_ok(gn_bootstrap_env(&d, NULL, NULL, &b, &err));
	gn_bootstrap_set_timeout(b, HANGS_MS);
	assert_ok(b->ops->root_info(b, NULL, 0, &word, &len, &err));
	assert_int_equal(len, 4);
	assert_memory_equal(word, "word", 4);
	free(word);
	b->ops->destroy(b, 0);
	pthread_join(thread, &failure);
	assert_null(failure);
}

/* --- what an exchange costs --- */

struct member {
	struct gn_launcher place;
	pthread_barrier_t *barrier;
	int rounds;
	const struct gn_secret *secret; /* NULL: from the file */
	const char *failure;
};

/* Of another length on each rank, nothing on some. */
static size_t message_of(int rank, char *text)
{
	return rank % 5 ? (size_t)sprintf(text, "%*d", 3 + rank % 7, rank) : 0;
}

static int is_right(const struct gn_gathered *told, int size)
{
	char text[64];
	size_t len;

	if (told->size != (size_t)size)
		return 0;
	for (int r = 0; r < size; r++) {
		len = message_of(r, text);
		if (told->lens[r] != len || (len && memcmp(told->items[r], text, len)))
			return 0;
	}
	return 1;
}

static const char *take_part(struct member *m, struct gn_bootstrap *b)
{
	int rank = m->place.rank;
	struct gn_gathered told;
	struct gn_err err;
	void *word = NULL;
	char text[64];
	size_t len;

	if (b->ops->root_info(b, "word", rank ? 0 : 4, &word, &len, &err))
		return "no word";
	free(word);
	for (int i = 0; i < m->rounds; i++) {
		/* the first exchange makes connections */
		pthread_barrier_wait(m->barrier);
		if (rank == 0 && i < 2)
			sent_messages = sent_bytes = sent_by_root = sent_bytes_by_root = 0;
		pthread_barrier_wait(m->barrier);
		len = message_of(rank, text);
		if (b->ops->exchange(b, text, len, &told, &err))
			return "no exchange";
		if (!is_right(&told, m->place.size))
			return "not what everyone gave";
		gn_gathered_release(&told);
	}
	pthread_barrier_wait(m->barrier);
	return NULL;
}

static void *member_main(void *argument)
{
	struct member *m = argument;
	struct gn_bootstrap *b = NULL;
	struct gn_err err;

	this_rank = m->place.rank;
	if (gn_bootstrap_env(&m->place, m->secret, NULL, &b, &err)) {
		m->failure = "no bootstrap";
		return NULL;
	}
	gn_bootstrap_set_timeout(b, 60000);
	m->failure = take_part(m, b);
	b->ops->destroy(b, !m->failure);
	if (m->failure)
		fprintf(stderr, "rank %d: %s: %s\n", m->place.rank, m->failure, err.text);
	return NULL;
}

/* address and secret: NULL: loopback, and the file's. */
static void run_ranks_at(int size, int rounds, const char *address, const struct gn_secret *given)
{
	struct member *all = calloc((size_t)size, sizeof *all);
	pthread_t *threads = calloc((size_t)size, sizeof *threads);
	int port = free_port();
	pthread_barrier_t barrier;
	pthread_attr_t attr;

	assert_non_null(all);
	assert_non_null(threads);
	pthread_barrier_init(&barrier, NULL, (unsigned)size);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	for (int r = 0; r < size; r++) {
		all[r] = (struct member){place_of(r, size, port), &barrier, rounds, given, NULL};
		if (address)
			snprintf(all[r].place.address, sizeof all[r].place.address, "%s", address);
		assert_int_equal(pthread_create(&threads[r], &attr, member_main, &all[r]), 0);
	}
	for (int r = 0; r < size; r++)
		pthread_join(threads[r], NULL);
	for (int r = 0; r < size; r++)
		assert_null(all[r].failure);
	pthread_attr_destroy(&attr);
	pthread_barrier_destroy(&barrier);
	free(threads);
	free(all);
}

static void run_ranks(int size, int rounds)
{
	run_ranks_at(size, rounds, NULL, NULL);
}

/* Ranks that know each other from before: no file, and rank 0 has several addresses, the first of which nobody reaches. */
static void test_own_secret_and_addresses(void **state)
{
	struct gn_secret own;
	struct gn_err err;

	(void)state;
	assert_ok(gn_secret_random(&own, &err));
	unsetenv(GN_BOOTSTRAP_SECRET);
	setenv("HOME", "/nonexistent", 1);
	run_ranks_at(3, 2, "255.255.255.255,127.0.0.1", &own);
	setenv(GN_BOOTSTRAP_SECRET, secret_file, 1);
}

static int log2_up(int size)
{
	int steps = 0;

	while (1 << steps < size)
		steps++;
	return steps;
}

/* GN_TEST_RANKS: of so many alone. */
static void test_cost(void **state)
{
	const char *wanted = getenv("GN_TEST_RANKS");
	int sizes[] = {1, 2, 3, 7, 64, 200, 0};
	struct rlimit files;

	(void)state;
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (wanted) {
		sizes[0] = atoi(wanted);
		sizes[1] = 0;
	}
	for (int i = 0; sizes[i]; i++) {
		int p = sizes[i];

		run_ranks(p, 1);
		print_message("%d ranks, first exchange: %lld messages of %lld bytes, %lld of %lld by rank 0\n", p, (long long)sent_messages,
			      (long long)sent_bytes, (long long)sent_by_root, (long long)sent_bytes_by_root);
		run_ranks(p, 2);
		print_message("%d ranks, one exchange: %lld messages of %lld bytes, %lld of %lld by rank 0\n", p, (long long)sent_messages,
			      (long long)sent_bytes, (long long)sent_by_root, (long long)sent_bytes_by_root);
		assert_int_equal(sent_messages, 2 * (p - 1));
		assert_int_equal(sent_by_root, log2_up(p));
	}
}

/* --- what comes over the network --- */

static void test_packs(void **state)
{
	_Alignas(8) char pack[64];
	const uint64_t lies[] = {17, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
	struct gn_gathered told;
	struct gn_err err;
	void *copy;

	(void)state;
	gn_gathered_write(pack, "nine byte", 9);
	gn_gathered_write(pack + 24, "", 0);
	assert_int_equal(gn_gathered_record_bytes(9), 24);
	assert_true(gn_gathered_is_pack(pack, 32, 2));
	for (size_t len = 0; len < 32; len++)
		assert_false(gn_gathered_is_pack(pack, len, 2));
	assert_false(gn_gathered_is_pack(pack, 32, 1));
	assert_false(gn_gathered_is_pack(pack, 32, 3));
	copy = malloc(32);
	assert_non_null(copy);
	memcpy(copy, pack, 32);
	assert_ok(gn_gathered_take(copy, 32, 2, &told, &err));
	assert_int_equal(told.lens[0], 9);
	assert_memory_equal(told.items[0], "nine byte", 9);
	assert_int_equal(told.lens[1], 0);
	assert_non_null(told.items[1]);
	gn_gathered_release(&told);
	assert_int_equal(gn_gathered_take(calloc(1, 32), 32, 5, &told, &err), GN_ERR_MISMATCH);
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
		memcpy(pack, &lies[i], sizeof lies[i]);
		assert_false(gn_gathered_is_pack(pack, 24, 1));
	}
}

/* Ranks listen where they are asked to. */
static void test_interfaces(void **state)
{
	struct gn_bootstrap b = {.rank = 2, .size = 4, .ifnames = "=lo"};
	struct gn_contact_info contact;
	struct gn_boot_tree *tree = NULL;
	struct gn_err err;
	int fd;

	(void)state;
	assert_ok(gn_boot_tree_create(&b, 1, NULL, &tree, &contact, &err));
	assert_int_equal(contact.addresses.count, 1);
	assert_string_equal(contact.addresses.text[0], "127.0.0.1");
	assert_ok(gn_net_connect("127.0.0.1", contact.port, HANGS_MS, &fd, &err));
	close(fd);
	gn_boot_tree_destroy(tree);
	tree = NULL;
	b.ifnames = "=none9";
	assert_int_equal(gn_boot_tree_create(&b, 1, NULL, &tree, &contact, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "none9"));
	assert_null(tree);
}

static void test_contacts(void **state)
{
	struct gn_contact_info c = {.drawn = {{1, 0, 2}}, .port = 40000, .addresses = {1, {"10.0.0.1"}}}, got;
	const size_t fixed = 8 + GN_SECRET_BYTES;
	struct gn_strbuf text;
	struct gn_err err;

	(void)state;
	gn_strbuf_init(&text);
	gn_contact_info_prefer(&c, "fd77::1");
	gn_contact_info_write(&c, &text);
	assert_ok(gn_contact_info_read(text.text, text.len, &got, &err));
	assert_int_equal(got.port, 40000);
	assert_int_equal(got.addresses.count, 2);
	assert_string_equal(got.addresses.text[0], "fd77::1");
	assert_string_equal(got.addresses.text[1], "10.0.0.1");
	assert_memory_equal(got.drawn.bytes, c.drawn.bytes, sizeof c.drawn.bytes);
	for (size_t len = 0; len <= fixed + 6; len++)
		assert_int_equal(gn_contact_info_read(text.text, len, &got, &err), GN_ERR_MISMATCH);
	for (int i = 0; i < 20; i++)
		gn_strbuf_puts(&text, " 10.0.0.1");
	assert_int_equal(gn_contact_info_read(text.text, text.len, &got, &err), GN_ERR_MISMATCH);
	gn_strbuf_clear(&text);
	c.port = 70000;
	gn_contact_info_write(&c, &text);
	assert_int_equal(gn_contact_info_read(text.text, text.len, &got, &err), GN_ERR_MISMATCH);
	for (int i = 0; i < 20; i++)
		gn_contact_info_prefer(&c, "10.9.9.9");
	assert_int_equal(c.addresses.count, GN_NET_ADDRESSES_MAX);
	gn_strbuf_release(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exchange_with_the_silent),
		cmocka_unit_test(test_meeting_point_stands_still),
		cmocka_unit_test(test_forged_refusal),
		cmocka_unit_test(test_own_secret_and_addresses),
		cmocka_unit_test(test_cost),
		cmocka_unit_test(test_packs),
		cmocka_unit_test(test_contacts),
		cmocka_unit_test(test_interfaces),
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
