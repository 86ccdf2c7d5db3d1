/* The secret's file, the handshake's messages, and the door: strangers of every kind, over real sockets. */
#include "tests/test.h"

#include "tests/transport/made_up_clock.h"
#include "transport/auth/auth_listener.h"
#include "transport/auth/net.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct gn_secret ours = {"0123456789abcdef0123456789abcdef"}, theirs = {"another secret, of another job. "};

enum { LONG_MS = 300000 }; /* against hangs */

/* --- the file --- */

static char directory[] = "/tmp/gn-secret.XXXXXX";

static const char *file(const char *name, const char *text, mode_t mode)
{
	static char path[128];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", directory, name);
	unlink(path);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	chmod(path, mode);
	return path;
}

static void assert_no_secret(const char *path, const char *why)
{
	struct gn_secret s = {{7}};
	struct gn_err err;

	assert_int_not_equal(gn_secret_read(path, &s, &err), GN_OK);
	if (!strstr(err.text, why) || !strstr(err.text, path))
		fail_msg("'%s' does not say '%s'", err.text, why);
	assert_int_equal(s.bytes[0], 7);
}

static void test_secret_file(void **state)
{
	static const char long_enough[] = "thirty-two bytes are the least..";
	struct gn_secret a, b;
	struct gn_err err;
	const char *path;

	(void)state;
	assert_no_secret(file("short", "only thirty-one bytes are here.", 0600), "31 bytes");
	assert_no_secret(file("group", long_enough, 0640), "0640");
	assert_no_secret(file("write", long_enough, 0602), "0602");
	assert_no_secret("/tmp", "not a regular file");
	assert_no_secret("/nonexistent", "/nonexistent");
	if (!geteuid()) {
		path = file("foreign", long_enough, 0600);
		assert_int_equal(chown(path, 65534, 65534), 0);
		assert_no_secret(path, "belongs to user 65534");
	}
	path = file("pipe", "", 0600);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_no_secret(path, "not a regular file");
	assert_ok(gn_secret_read(file("good", long_enough, 0600), &a, &err));
	assert_ok(gn_secret_read(file("good", long_enough, 0400), &b, &err));
	assert_memory_equal(&a, &b, sizeof a);
	assert_ok(gn_secret_read(file("other", "thirty-two bytes are the least,,", 0600), &b, &err));
	assert_memory_not_equal(&a, &b, sizeof a);
}

static void *make(void *path)
{
	struct gn_secret *s = calloc(1, sizeof *s);

	if (!s || gn_secret_make(path, NULL) || gn_secret_read(path, s, NULL))
		return NULL;
	return s;
}

/* Many at once: one file, whole for all. */
static void test_secret_is_made_once(void **state)
{
	char path[128];
	pthread_t threads[8];
	void *secret[8];
	struct stat s;

	(void)state;
	snprintf(path, sizeof path, "%s/made", directory);
	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, make, path), 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], &secret[i]);
	for (int i = 0; i < 8; i++) {
		assert_non_null(secret[i]);
		assert_memory_equal(secret[i], secret[0], sizeof(struct gn_secret));
	}
	for (int i = 0; i < 8; i++)
		free(secret[i]);
	assert_int_equal(stat(path, &s), 0);
	assert_int_equal(s.st_mode & 0777, 0600);
}

/* Python: hmac.new(b"0123456789abcdef0123456789abcdef", b"use\0data", "sha256") */
static void test_derived_key(void **state)
{
	static const uint8_t wanted[] = {
		0x8f, 0xbd, 0x0b, 0xeb, 0x64, 0x0d, 0xc3, 0x67, 0x11, 0xb3, 0xcf, 0x33, 0x4a, 0x15, 0xd1, 0xe1,
		0x0e, 0x3c, 0xf0, 0xd5, 0x39, 0xd8, 0xb5, 0x23, 0x19, 0x1f, 0x2a, 0xe2, 0x56, 0x35, 0xf4, 0xed,
	};
	struct gn_secret made;
	struct gn_err err;

	(void)state;
	assert_ok(gn_secret_derive(&ours, "use", "data", 4, &made, &err));
	assert_memory_equal(made.bytes, wanted, 32);
	assert_int_not_equal(gn_secret_derive(&ours, "use", "data", 4096, &made, &err), GN_OK);
}

/* --- the door --- */

struct visit {
	pthread_t thread;
	int port;
	const struct gn_secret *secret;
	enum gn_handshake_purpose purpose;
	int fd;
	struct gn_stream_keys keys;
	struct gn_err err;
	atomic_int over;
};

static void *visit(void *argument)
{
	struct visit *v = argument;

	struct gn_channel c;

	if (!gn_net_connect("127.0.0.1", v->port, LONG_MS, &v->fd, &v->err)) {
		c.fd = v->fd;
		if (gn_handshake_join(&c, v->secret, v->purpose, 3, 4, LONG_MS, &v->err)) {
			close(v->fd);
			v->fd = -1;
		}
		v->keys = c.keys;
	}
	atomic_store(&v->over, 1);
	return NULL;
}

static void send_visitor(struct visit *v, int port, const struct gn_secret *secret, enum gn_handshake_purpose purpose)
{
	*v = (struct visit){.port = port, .secret = secret, .purpose = purpose, .fd = -1};
	assert_int_equal(pthread_create(&v->thread, NULL, visit, v), 0);
}

/* Until a guest is there. */
static void await_guest(struct gn_auth_listener *d, struct gn_pending_peer *guest)
{
	struct pollfd p[GN_AUTH_LISTENER_POLL_MAX];

	do
		poll(p, (nfds_t)gn_auth_listener_poll(d, p), 20);
	while (!gn_auth_listener_progress(d, guest));
}

/* Until the visitor has gone; it does not become a guest. */
static void refuse(struct gn_auth_listener *d, struct visit *v)
{
	struct gn_pending_peer guest;
	struct pollfd p[GN_AUTH_LISTENER_POLL_MAX];

	while (!atomic_load(&v->over)) {
		poll(p, (nfds_t)gn_auth_listener_poll(d, p), 20);
		assert_false(gn_auth_listener_progress(d, &guest));
	}
	pthread_join(v->thread, NULL);
}

/* The door does what there is to do, until a descriptor has something to read or its other end is closed. */
static void attend_until_readable(struct gn_auth_listener *d, int fd)
{
	struct gn_pending_peer guest;
	struct pollfd p[GN_AUTH_LISTENER_POLL_MAX];

	while (!gn_net_readable(fd, 0)) {
		poll(p, (nfds_t)gn_auth_listener_poll(d, p), 20);
		assert_false(gn_auth_listener_progress(d, &guest));
	}
}

static struct gn_auth_listener *open_door(int *port)
{
	struct gn_auth_listener *d = NULL;
	struct gn_err err;

	*port = 0;
	assert_ok(gn_auth_listener_open(NULL, port, GN_HANDSHAKE_RENDEZVOUS, &ours, NULL, &d, &err));
	return d;
}

/* Both have the same keys, and what was changed, left out or sent again is noticed. */
static void talk(struct gn_channel *a, struct gn_channel *b)
{
	static const char text[] = "planted words that nobody else can read";
	unsigned char wire[sizeof text + GN_RECORD_TAG_BYTES];
	char heard[sizeof text];

	assert_int_equal(gn_channel_send(a, text, sizeof text, LONG_MS), 0);
	assert_int_equal(gn_channel_receive(b, heard, sizeof heard, LONG_MS), 0);
	assert_memory_equal(heard, text, sizeof text);
	assert_int_equal(gn_channel_send(b, text, sizeof text, LONG_MS), 0);
	assert_int_equal(gn_net_receive_all(a->fd, wire, sizeof wire, LONG_MS), 0);
	assert_memory_not_equal(wire, text, 8);
	for (size_t bit = 0; bit < 8 * sizeof wire; bit++) {
		struct gn_stream_keys keys = a->keys;
		unsigned char changed[sizeof wire];

		memcpy(changed, wire, sizeof wire);
		changed[bit / 8] ^= (unsigned char)(1 << bit % 8);
		assert_int_equal(gn_stream_open(&keys, changed, sizeof text), -1);
	}
	assert_int_equal(gn_net_send_all(b->fd, wire, sizeof wire, LONG_MS), 0);
	assert_int_equal(gn_net_send_all(b->fd, wire, sizeof wire, LONG_MS), 0);
	assert_int_equal(gn_channel_receive(a, heard, sizeof heard, LONG_MS), 0);
	assert_int_equal(gn_channel_receive(a, heard, sizeof heard, LONG_MS), -1);
	assert_int_equal(errno, EBADMSG);
}

static void let_one_in(struct gn_auth_listener *d, int port)
{
	struct gn_pending_peer guest = {.channel.fd = -1};
	struct visit v;

	send_visitor(&v, port, &ours, GN_HANDSHAKE_RENDEZVOUS);
	await_guest(d, &guest);
	pthread_join(v.thread, NULL);
	assert_true(v.fd >= 0);
	assert_int_equal(guest.rank, 3);
	assert_int_equal(guest.size, 4);
	talk(&(struct gn_channel){v.fd, v.keys}, &guest.channel);
	close(v.fd);
	close(guest.channel.fd);
}

static void test_who_is_let_in(void **state)
{
	struct visit v;
	int port;
	struct gn_auth_listener *d = open_door(&port);

	(void)state;
	let_one_in(d, port);
	send_visitor(&v, port, &theirs, GN_HANDSHAKE_RENDEZVOUS);
	refuse(d, &v);
	assert_int_equal(v.fd, -1);
	assert_int_equal(v.err.status, GN_ERR_USAGE);
	assert_non_null(strstr(v.err.text, "GANNET_SECRET_FILE"));
	send_visitor(&v, port, &ours, GN_HANDSHAKE_HEARTBEAT);
	refuse(d, &v);
	assert_int_equal(v.fd, -1);
	assert_non_null(strstr(v.err.text, "another purpose"));
	let_one_in(d, port);
	gn_auth_listener_close(d);
}

/* The log says what for, whatever the listener is for. */
static void test_refusals_name_the_purpose(void **state)
{
	static const char *const names[] = {[GN_HANDSHAKE_RENDEZVOUS] = "rendezvous", [GN_HANDSHAKE_HEARTBEAT] = "heartbeat",
					    [GN_HANDSHAKE_TREE] = "exchange between ranks", [GN_HANDSHAKE_REGROUP] = "agreement after losses"};
	struct gn_auth_listener *d;
	struct gn_log *log;
	struct visit v;
	struct gn_err err;
	char text[512];
	int fd[2];

	(void)state;
	assert_int_equal(pipe(fd), 0);
	assert_ok(gn_log_create(fd[1], GN_LOG_WARN, &log, &err));
	for (int purpose = GN_HANDSHAKE_RENDEZVOUS; purpose <= GN_HANDSHAKE_REGROUP; purpose++) {
		int port = 0;
		ssize_t len;

		assert_ok(gn_auth_listener_open(NULL, &port, (enum gn_handshake_purpose)purpose, &ours, log, &d, &err));
		send_visitor(&v, port, &theirs, (enum gn_handshake_purpose)purpose);
		refuse(d, &v);
		gn_auth_listener_close(d);
		len = read(fd[0], text, sizeof text - 1);
		assert_true(len > 0);
		text[len] = 0;
		assert_non_null(strstr(text, names[purpose]));
	}
	gn_log_destroy(log);
	close(fd[0]);
	close(fd[1]);
}

static int call(int port)
{
	struct gn_err err;
	int fd;

	assert_ok(gn_net_connect("127.0.0.1", port, LONG_MS, &fd, &err));
	return fd;
}

/* Everybody is here before the rank comes, and stays. */
static void test_a_crowd(void **state)
{
	enum { CROWD = 400 };
	unsigned char junk[400];
	int port, fd[CROWD];
	struct gn_auth_listener *d = open_door(&port);
	struct gn_pending_peer guest;

	(void)state;
	srand(5);
	for (int i = 0; i < CROWD; i++) {
		fd[i] = call(port);
		for (size_t k = 0; k < sizeof junk; k++)
			junk[k] = (unsigned char)rand();
		if (i % 4 == 1) /* garbage */
			send(fd[i], junk, 1 + (size_t)rand() % sizeof junk, MSG_NOSIGNAL);
		if (i % 4 == 2) /* a handshake that breaks off */
			send(fd[i], "GNrank2\0", 1 + (size_t)rand() % 8, MSG_NOSIGNAL);
		if (i % 4 == 3) { /* a proof out of thin air */
			memcpy(junk, "GNrank2\0", 8);
			send(fd[i], junk, sizeof(struct gn_handshake_claim), MSG_NOSIGNAL);
		}
	}
	let_one_in(d, port);
	for (int i = 0; i < 10; i++)
		assert_false(gn_auth_listener_progress(d, &guest));
	let_one_in(d, port);
	for (int i = 0; i < CROWD; i++)
		close(fd[i]);
	gn_auth_listener_close(d);
}

static void test_silence_ends(void **state)
{
	struct gn_pending_peer guest;
	int port, fd;
	struct gn_auth_listener *d = open_door(&port);
	struct gn_handshake_challenge challenge;
	char byte;

	(void)state;
	fd = call(port);
	attend_until_readable(d, fd);
	assert_int_equal(gn_net_receive_all(fd, &challenge, sizeof challenge, LONG_MS), 0);
	pass_ms(2900);
	assert_false(gn_auth_listener_progress(d, &guest));
	assert_int_equal(gn_net_readable(fd, 0), 0);
	pass_ms(200);
	assert_false(gn_auth_listener_progress(d, &guest));
	assert_int_equal(recv(fd, &byte, 1, 0), 0);
	close(fd);
	gn_auth_listener_close(d);
}

/* A wire between a real guest and the door, which keeps what the guest said. */
static void test_replay(void **state)
{
	struct gn_handshake_challenge challenge;
	struct gn_handshake_reply verdict;
	struct gn_handshake_claim claim;
	struct gn_pending_peer guest;
	struct gn_err err;
	struct visit v;
	int port, wire = 0, tap, inner, outer;
	struct gn_auth_listener *d = open_door(&port);

	(void)state;
	assert_ok(gn_net_listen(NULL, &wire, &tap, &err));
	send_visitor(&v, wire, &ours, GN_HANDSHAKE_RENDEZVOUS);
	assert_int_equal(gn_net_readable(tap, LONG_MS), 1);
	outer = gn_net_accept(tap);
	inner = call(port);
	attend_until_readable(d, inner);
	assert_int_equal(gn_net_receive_all(inner, &challenge, sizeof challenge, LONG_MS), 0);
	gn_net_send_all(outer, &challenge, sizeof challenge, LONG_MS);
	assert_int_equal(gn_net_receive_all(outer, &claim, sizeof claim, LONG_MS), 0);
	gn_net_send_all(inner, &claim, sizeof claim, LONG_MS);
	await_guest(d, &guest);
	assert_int_equal(gn_net_receive_all(inner, &verdict, sizeof verdict, LONG_MS), 0);
	gn_net_send_all(outer, &verdict, sizeof verdict, LONG_MS);
	pthread_join(v.thread, NULL);
	assert_true(v.fd >= 0);
	close(guest.channel.fd);
	close(inner);
	close(v.fd);
	close(outer);
	/* the same words again, to the door */
	inner = call(port);
	gn_net_send_all(inner, &claim, sizeof claim, LONG_MS);
	attend_until_readable(d, inner);
	assert_int_equal(gn_net_receive_all(inner, &challenge, sizeof challenge, LONG_MS), 0);
	attend_until_readable(d, inner);
	assert_int_equal(gn_net_receive_all(inner, &verdict, sizeof verdict, LONG_MS), 0);
	assert_int_equal(verdict.result, GN_HANDSHAKE_WRONG_PROOF);
	close(inner);
	/* and the door's words to a guest */
	send_visitor(&v, wire, &ours, GN_HANDSHAKE_RENDEZVOUS);
	assert_int_equal(gn_net_readable(tap, LONG_MS), 1);
	outer = gn_net_accept(tap);
	verdict.result = 0;
	gn_net_send_all(outer, &challenge, sizeof challenge, LONG_MS);
	gn_net_send_all(outer, &verdict, sizeof verdict, LONG_MS);
	pthread_join(v.thread, NULL);
	assert_int_equal(v.fd, -1);
	assert_non_null(strstr(v.err.text, "does not know this job's secret"));
	close(outer);
	close(tap);
	gn_auth_listener_close(d);
}

/* Every bit counts, and every length but the right one is garbage. */
static void test_judge(void **state)
{
	struct gn_stream_keys keys;
	struct gn_handshake_challenge challenge;
	struct gn_handshake_reply answer;
	struct gn_handshake_claim claim;
	unsigned char bytes[sizeof claim + 1] = {0};
	uint32_t rank = 77, size = 77;
	struct gn_err err;
	struct visit v;
	int port = 0, tap, fd;

	(void)state;
	assert_ok(gn_net_listen(NULL, &port, &tap, &err));
	assert_ok(gn_handshake_challenge(&challenge, &err));
	send_visitor(&v, port, &ours, GN_HANDSHAKE_HEARTBEAT);
	assert_int_equal(gn_net_readable(tap, LONG_MS), 1);
	fd = gn_net_accept(tap);
	gn_net_send_all(fd, &challenge, sizeof challenge, LONG_MS);
	assert_int_equal(gn_net_receive_all(fd, bytes, sizeof claim, LONG_MS), 0);
	for (size_t len = 0; len <= sizeof bytes; len++) {
		enum gn_handshake_result r = gn_handshake_verify(&ours, GN_HANDSHAKE_HEARTBEAT, &challenge, bytes, len, &rank, &size, &keys,
								&answer);

		assert_int_equal(r, len == sizeof claim ? GN_HANDSHAKE_ACCEPTED : GN_HANDSHAKE_MALFORMED);
		assert_int_equal(rank, len < sizeof claim ? 77 : 3);
	}
	for (size_t bit = 0; bit < 8 * sizeof claim; bit++) {
		bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
		assert_int_not_equal(gn_handshake_verify(&ours, GN_HANDSHAKE_HEARTBEAT, &challenge, bytes, sizeof claim, &rank, &size, &keys,
							&answer), GN_HANDSHAKE_ACCEPTED);
		for (size_t i = 0; i < sizeof answer.proof; i++)
			assert_int_equal(answer.proof[i], 0);
		bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
	}
	/* a listener's proof is no guest's: whoever reflects gets nowhere */
	gn_handshake_verify(&ours, GN_HANDSHAKE_HEARTBEAT, &challenge, bytes, sizeof claim, &rank, &size, &keys, &answer);
	memcpy(&claim, bytes, sizeof claim);
	memcpy(claim.proof, answer.proof, sizeof claim.proof);
	assert_int_equal(gn_handshake_verify(&ours, GN_HANDSHAKE_HEARTBEAT, &challenge, &claim, sizeof claim, &rank, &size, &keys, &answer),
			 GN_HANDSHAKE_WRONG_PROOF);
	close(fd);
	close(tap);
	pthread_join(v.thread, NULL);
	assert_int_equal(v.fd, -1);
}

/* Every version can read these: GN_HANDSHAKE_PROTOCOL is for all others. */
static void test_layout(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct gn_handshake_version), 160);
	assert_int_equal(sizeof(struct gn_handshake_challenge), 200);
	assert_int_equal(sizeof(struct gn_handshake_claim), 248);
	assert_int_equal(sizeof(struct gn_handshake_reply), 48);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_secret_file),   cmocka_unit_test(test_secret_is_made_once),
		cmocka_unit_test(test_derived_key),   cmocka_unit_test(test_who_is_let_in),
		cmocka_unit_test(test_refusals_name_the_purpose),
		cmocka_unit_test(test_a_crowd),	      cmocka_unit_test(test_silence_ends),
		cmocka_unit_test(test_replay),	      cmocka_unit_test(test_judge),
	};
	char command[64];
	int failed;

	if (!mkdtemp(directory))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(command, sizeof command, "rm -rf %s", directory);
	return system(command) || failed;
}
