#include "tests/test.h"

#include "src/base/file.h"
#include "src/train/checkpoint/owner.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds by which this process's own clock is moved on at each look at it, instead of the library's clock_gettime(). */
static atomic_int each_look_s, skipped_s;

int clock_gettime(clockid_t id, struct timespec *t)
{
	int code = (int)syscall(SYS_clock_gettime, id, t);

	if (!code && id == CLOCK_MONOTONIC)
		t->tv_sec += atomic_fetch_add(&skipped_s, each_look_s) + each_look_s;
	return code;
}

static char root[64], path[128];
static const volatile sig_atomic_t stopped = 1;

static int make_root(void **state)
{
	(void)state;
	memcpy(root, "/tmp/gannet-owner.XXXXXX", 25);
	if (!mkdtemp(root))
		return -1;
	snprintf(path, sizeof path, "%s/owner", root);
	unsetenv("SLURM_JOB_ID");
	unsetenv("SLURM_CLUSTER_NAME");
	unsetenv("SLURM_RESTART_COUNT");
	return 0;
}

static int drop_root(void **state)
{
	(void)state;
	return gn_remove_tree(root, NULL) ? -1 : 0;
}

static int is_there(void)
{
	return access(path, F_OK) == 0;
}

/* The file of a run as this one is, but for one field that begins with find, and a heartbeat age_s ago. */
static void leave_file(const char *find, const char *put, int age_s)
{
	struct timespec times[2];
	struct gn_owner *o;
	struct gn_err err;
	char *text, *at, bent[2048];
	int n;

	unlink(path);
	assert_ok(gn_owner_claim(root, NULL, NULL, NULL, &o, &err));
	assert_ok(gn_file_load(path, 2000, &text, NULL, &err));
	gn_owner_release(o);
	at = strstr(text, find);
	assert_non_null(at);
	n = snprintf(bent, sizeof bent, "%.*s%s%s", (int)(at - text), text, put, at + strlen(find));
	assert_ok(gn_file_replace(path, bent, (size_t)n, &err));
	free(text);
	clock_gettime(CLOCK_REALTIME, &times[0]);
	times[0].tv_sec -= age_s;
	times[1] = times[0];
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Without waiting for a heartbeat. */
static enum gn_status claim_at_once(struct gn_err *err)
{
	struct gn_owner *o;
	enum gn_status status = gn_owner_claim(root, NULL, &stopped, NULL, &o, err);

	if (!status) {
		assert_int_equal(gn_owner_check(o, err), GN_OK);
		gn_owner_release(o);
		assert_false(is_there());
	}
	return status;
}

/* A file server's clock was set back, or the folder was copied: the time says nothing, and silence counts by one's own clock. */
static void test_a_heartbeat_in_the_future(void **state)
{
	struct gn_owner *o;
	struct gn_err err;

	(void)state;
	leave_file("\"host\": \"", "\"host\": \"not-", -86400);
	assert_int_equal(claim_at_once(&err), GN_ERR_STOPPED);
	leave_file("\"host\": \"", "\"host\": \"not-", -86400);
	each_look_s = GN_OWNER_DEAD_S / 2;
	assert_ok(gn_owner_claim(root, NULL, NULL, NULL, &o, &err));
	each_look_s = 0;
	gn_owner_release(o);
}

static void test_one_at_a_time(void **state)
{
	struct gn_owner *first;
	struct gn_err err;
	char me[32];

	(void)state;
	snprintf(me, sizeof me, "process %d on ", getpid());
	assert_ok(gn_owner_claim(root, NULL, NULL, NULL, &first, &err));
	assert_int_equal(strlen(gn_owner_nonce(first)), 16);
	assert_int_equal(claim_at_once(&err), GN_ERR_EXISTS);
	assert_non_null(strstr(err.text, me));
	assert_non_null(strstr(strstr(err.text, me) + 1, me));
	assert_ok(gn_owner_check(first, &err));
	gn_owner_release(first);
	assert_ok(claim_at_once(&err));
}

static void test_dead_on_this_host(void **state)
{
	struct gn_err err;

	(void)state;
	leave_file("\"pid_start\": ", "\"pid_start\": 1", 0);
	assert_ok(claim_at_once(&err));
	leave_file("\"pid\": ", "\"pid\": 99999", 0);
	assert_ok(claim_at_once(&err));
	/* in another container the number says nothing */
	leave_file("\"pid_namespace\": ", "\"pid_namespace\": 1", 0);
	assert_int_equal(claim_at_once(&err), GN_ERR_STOPPED);
}

static void test_another_host(void **state)
{
	struct gn_owner *o;
	struct gn_err err;

	(void)state;
	leave_file("\"host\": \"", "\"host\": \"not-", 10);
	assert_int_equal(claim_at_once(&err), GN_ERR_STOPPED);
	leave_file("\"host\": \"", "\"host\": \"not-", GN_OWNER_DEAD_S + 1);
	assert_ok(claim_at_once(&err));
	/* as soon as it is too old */
	leave_file("\"host\": \"", "\"host\": \"not-", GN_OWNER_DEAD_S - 1);
	assert_ok(gn_owner_claim(root, NULL, NULL, NULL, &o, &err));
	gn_owner_release(o);
	/* what nobody can read is somebody's, too */
	assert_ok(gn_file_replace(path, "{", 1, &err));
	assert_int_equal(claim_at_once(&err), GN_ERR_STOPPED);
}

/* What one of several askers is told. */
struct asker {
	pthread_t thread;
	pthread_barrier_t *start;
	const char *nonce;
	int mine, kept;
	enum gn_status status;
};

static void *ask(void *argument)
{
	struct asker *a = argument;
	size_t len = 0;
	struct gn_err err;

	pthread_barrier_wait(a->start);
	a->status = gn_owner_settle(root, a->nonce, &a->mine, sizeof a->mine, &a->kept, sizeof a->kept, &len, &err);
	if (!a->status && len != sizeof a->kept)
		a->status = GN_ERR_DATA;
	return NULL;
}

/* All are told the same, one's own, whoever was first; and later ones, too. */
static void ask_at_once(const char *nonce)
{
	enum { ASKERS = 8 };
	struct asker all[ASKERS];
	pthread_barrier_t start;

	pthread_barrier_init(&start, NULL, ASKERS);
	for (int i = 0; i < ASKERS; i++) {
		all[i] = (struct asker){.start = &start, .nonce = nonce, .mine = 100 + i, .status = GN_ERR_FAILED};
		assert_int_equal(pthread_create(&all[i].thread, NULL, ask, &all[i]), 0);
	}
	for (int i = 0; i < ASKERS; i++)
		pthread_join(all[i].thread, NULL);
	pthread_barrier_destroy(&start);
	for (int i = 0; i < ASKERS; i++) {
		assert_int_equal(all[i].status, GN_OK);
		assert_in_range(all[i].kept, 100, 100 + ASKERS - 1);
		assert_int_equal(all[i].kept, all[0].kept);
	}
}

static void test_one_successor(void **state)
{
	char nonce[GN_OWNER_NONCE], next[256];
	struct gn_owner *owner, *heir;
	int mine = 7, kept = 0;
	size_t len = 0;
	struct gn_err err;

	(void)state;
	for (int i = 0; i < 20; i++) {
		assert_ok(gn_owner_claim(root, NULL, NULL, NULL, &owner, &err));
		memcpy(nonce, gn_owner_nonce(owner), sizeof nonce);
		gn_owner_leave(owner);
		assert_true(is_there());
		ask_at_once(nonce);
		/* the first claim after that ends it: who comes late is told so */
		assert_ok(gn_owner_claim(root, &(struct gn_owner_heir){.predecessor = nonce}, NULL, NULL, &heir, &err));
		snprintf(next, sizeof next, "%s.%s.next", path, nonce);
		assert_int_equal(access(next, F_OK), -1);
		assert_int_equal(gn_owner_settle(root, nonce, &mine, sizeof mine, &kept, sizeof kept, &len, &err), GN_ERR_EXISTS);
		assert_non_null(strstr(err.text, "does not belong to this run any more: it is of process"));
		assert_int_equal(access(next, F_OK), -1);
		assert_int_equal(kept == mine, 0);
		/* nor is it this run's when it has ended, or in a folder that is not shared */
		gn_owner_remove(root, nonce);
		assert_true(is_there());
		gn_owner_remove(root, gn_owner_nonce(heir));
		assert_false(is_there());
		assert_int_equal(gn_owner_settle(root, gn_owner_nonce(heir), &mine, sizeof mine, &kept, sizeof kept, &len, &err), GN_ERR_EXISTS);
		gn_owner_release(heir);
	}
	/* one that wakes up after all that does not make itself the owner again */
	assert_ok(gn_owner_claim(root, &(struct gn_owner_heir){.predecessor = ""}, NULL, NULL, &owner, &err));
	assert_ok(gn_owner_check(owner, &err));
	unlink(path);
	assert_int_equal(gn_owner_check(owner, &err), GN_ERR_EXISTS);
	assert_false(is_there());
	gn_owner_release(owner);
	assert_int_equal(gn_owner_settle(root, "/../abcdef012345", &mine, sizeof mine, &kept, sizeof kept, &len, &err), GN_ERR_USAGE);
	assert_int_equal(gn_owner_settle(root, "", &mine, sizeof mine, &kept, sizeof kept, &len, &err), GN_ERR_USAGE);
}

/* Rank 0 of an earlier world was stopped when it was about to claim the folder, and does so late. */
static void test_worlds_of_one_run(void **state)
{
	const struct gn_owner_heir second = {"", 7, 2}, third = {"", 7, 3}, other = {"", 8, 4};
	struct gn_owner *late, *present, *none;
	struct gn_err err;

	(void)state;
	assert_ok(gn_owner_claim(root, &second, NULL, NULL, &late, &err));
	assert_ok(gn_owner_claim(root, &third, NULL, NULL, &present, &err));
	assert_int_equal(gn_owner_check(late, &err), GN_ERR_PEER_LOST);
	assert_non_null(strstr(err.text, "gone on without this one, in world 3"));
	assert_int_equal(gn_owner_claim(root, &second, NULL, NULL, &none, &err), GN_ERR_PEER_LOST);
	assert_int_equal(gn_owner_claim(root, &other, NULL, NULL, &none, &err), GN_ERR_EXISTS);
	assert_ok(gn_owner_check(present, &err));
	gn_owner_release(late);
	assert_true(is_there());
	gn_owner_release(present);
	assert_false(is_there());
}

static atomic_int over;

static void *touch(void *unused)
{
	const struct timespec pause = {0, 20000000};

	while (!atomic_load(&over)) {
		utimensat(AT_FDCWD, path, NULL, 0);
		nanosleep(&pause, NULL);
	}
	return unused;
}

static void test_a_heartbeat_is_seen(void **state)
{
	struct gn_owner *o;
	pthread_t other;
	struct gn_err err;

	(void)state;
	leave_file("\"host\": \"", "\"host\": \"not-", 10);
	assert_int_equal(pthread_create(&other, NULL, touch, NULL), 0);
	assert_int_equal(gn_owner_claim(root, NULL, NULL, NULL, &o, &err), GN_ERR_EXISTS);
	atomic_store(&over, 1);
	pthread_join(other, NULL);
	assert_non_null(strstr(err.text, " on not-"));
	assert_true(is_there());
	unlink(path);
}

static void test_requeued_job(void **state)
{
	struct gn_err err;

	(void)state;
	setenv("SLURM_JOB_ID", "7", 1);
	leave_file("\"host\": \"", "\"host\": \"not-", 0);
	assert_int_equal(claim_at_once(&err), GN_ERR_STOPPED);
	assert_non_null(strstr(err.text, "job 7"));
	setenv("SLURM_RESTART_COUNT", "1", 1);
	assert_ok(claim_at_once(&err));
	setenv("SLURM_RESTART_COUNT", "0", 1);
	leave_file("\"host\": \"", "\"host\": \"not-", 0);
	setenv("SLURM_RESTART_COUNT", "1", 1);
	setenv("SLURM_JOB_ID", "8", 1);
	assert_int_equal(claim_at_once(&err), GN_ERR_STOPPED);
	unsetenv("SLURM_JOB_ID");
	unsetenv("SLURM_RESTART_COUNT");
	unlink(path);
}

/* A child: 'w' when the folder is its own, 'l' when it is another's; then it keeps it until the gate closes. */
static void contend(int result, int gate)
{
	struct gn_owner *o = NULL;
	enum gn_status status = gn_owner_claim(root, NULL, NULL, NULL, &o, NULL);
	char answer = status ? 'l' : 'w', end;
	int failed = write(result, &answer, 1) != 1 || (status && status != GN_ERR_EXISTS) || read(gate, &end, 1) != 0;

	if (!status)
		failed |= gn_owner_check(o, NULL) != GN_OK;
	gn_owner_release(o);
	_exit(failed);
}

static void test_one_heir(void **state)
{
	enum { HEIRS = 8, ROUNDS = 8 };

	(void)state;
	for (int round = 0; round < ROUNDS; round++) {
		int result[2], gate[2], winners = 0, code;
		char answer;

		leave_file("\"pid_start\": ", "\"pid_start\": 1", 0);
		assert_int_equal(pipe(result) | pipe(gate), 0);
		for (int i = 0; i < HEIRS; i++)
			if (fork() == 0) {
				close(gate[1]);
				contend(result[1], gate[0]);
			}
		for (int i = 0; i < HEIRS; i++) {
			assert_int_equal(read(result[0], &answer, 1), 1);
			winners += answer == 'w';
		}
		close(gate[1]);
		for (int i = 0; i < HEIRS; i++) {
			assert_true(wait(&code) > 0);
			assert_int_equal(code, 0);
		}
		close(gate[0]);
		close(result[0]);
		close(result[1]);
		assert_int_equal(winners, 1);
		assert_false(is_there());
	}
}

static void test_taken_over(void **state)
{
	struct gn_owner *o;
	struct gn_err err;
	char *text;
	size_t len;

	(void)state;
	assert_ok(gn_owner_claim(root, NULL, NULL, NULL, &o, &err));
	unlink(path);
	assert_ok(gn_owner_check(o, &err));
	assert_true(is_there());
	assert_ok(gn_file_load(path, 2000, &text, &len, &err));
	memcpy(strstr(text, "\"nonce\": \"") + 10, "another_", 8);
	assert_ok(gn_file_replace(path, text, len, &err));
	free(text);
	assert_int_equal(gn_owner_check(o, &err), GN_ERR_EXISTS);
	assert_non_null(strstr(err.text, "taken over by another run: process "));
	gn_owner_release(o);
	assert_true(is_there());
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_successor), cmocka_unit_test(test_one_at_a_time),
		cmocka_unit_test(test_worlds_of_one_run),
		cmocka_unit_test(test_dead_on_this_host),
		cmocka_unit_test(test_another_host),
		cmocka_unit_test(test_a_heartbeat_is_seen),
		cmocka_unit_test(test_a_heartbeat_in_the_future),
		cmocka_unit_test(test_requeued_job),
		cmocka_unit_test(test_one_heir),
		cmocka_unit_test(test_taken_over),
	};

	return cmocka_run_group_tests_name("train/owner", tests, make_root, drop_root);
}
