/* New worlds after losses, of real processes: one of them that is lost while the new world is being made costs no time limit. */
#include "tests/test.h"

#include "tests/transport/made_up_clock.h"
#include "transport/bootstrap/regroup_internal.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* No limit of time may be needed: what comes to one hangs, and its alarm ends it. */
enum { SIZE = 4, LIMIT_S = 600, LIMIT_MS = 1000 * LIMIT_S, HANGS_S = 250 };

struct place {
	int rank, port, listener, each;
	struct gn_secret secret;
	int (*run)(const struct place *, struct gn_world *, struct gn_regroup *);
};

static struct gn_world_options how(void)
{
	return (struct gn_world_options){.limits = {.heartbeat_s = LIMIT_S, .join_s = LIMIT_S}};
}

static volatile sig_atomic_t stop;

/* A rank's process; its exit code. */
static int run_rank(const struct place *p)
{
	struct gn_regroup_options ro = {.least = 1, .each = p->each, .stop = &stop};
	struct gn_world_options o = how();
	struct gn_world *w = NULL;
	struct gn_regroup *g = NULL;
	struct gn_log *log = NULL;
	struct gn_err err;
	char rendezvous[64];
	int code;

	gn_log_create(2, GN_LOG_ERROR, &log, NULL);
	ro.log = log;
	snprintf(rendezvous, sizeof rendezvous, GN_NET_LOOPBACK ":%d", p->port);
	o.rendezvous = rendezvous;
	o.rank = p->rank;
	o.size = SIZE;
	o.secret = &p->secret;
	o.keep_going = 1;
	o.listener = p->rank ? 0 : p->listener;
	if (p->rank)
		close(p->listener);
	if (gn_world_create(&o, log, &w, &err) || gn_regroup_open(w, &ro, &g, &err)) {
		fprintf(stderr, "rank %d: %s\n", p->rank, err.text);
		return 1;
	}
	gn_world_wait_for_nobody(w);
	code = p->run(p, w, g);
	gn_regroup_close(g);
	gn_log_destroy(log);
	return code;
}

/* All ranks: the listener that rank 0 hands over is there before any of them. */
static void run_groups(int (*run)(const struct place *, struct gn_world *, struct gn_regroup *), int each, const int codes[SIZE])
{
	struct place p = {.run = run, .each = each};
	struct gn_err err;
	pid_t pid[SIZE];
	int status;

	assert_ok(gn_secret_random(&p.secret, &err));
	assert_ok(gn_net_listen(GN_NET_LOOPBACK, &p.port, &p.listener, &err));
	for (p.rank = 0; p.rank < SIZE; p.rank++) {
		fflush(NULL);
		pid[p.rank] = fork();
		assert_true(pid[p.rank] >= 0);
		if (!pid[p.rank]) {
			alarm(HANGS_S);
			_exit(run_rank(&p));
		}
	}
	close(p.listener);
	for (int r = 0; r < SIZE; r++) {
		assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
		assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), codes[r]);
	}
}

static void run_all(int (*run)(const struct place *, struct gn_world *, struct gn_regroup *), const int codes[SIZE])
{
	run_groups(run, 0, codes);
}

/* Until a rank is lost. ends: takes part in the agreement after that, and ends when it is reached. */
static void await_loss(struct gn_world *w, struct gn_regroup *g, int ends)
{
	int decided = 0;

	while (gn_world_check(w, NULL) == GN_OK)
		gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
	while (ends && !decided) {
		pthread_mutex_lock(&g->lock);
		g->ready = 1;
		decided = g->acceptor.current.epoch == 2;
		pthread_mutex_unlock(&g->lock);
		gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
	}
	if (decided)
		_exit(2);
}

/* Rank 3 is lost, and the others agree on a world, in which one of them is lost before it comes there: rank 0 or rank 2. */
static int lose(const struct place *p, struct gn_world *w, struct gn_regroup *g, int second)
{
	const struct gn_world_options o = how();
	struct gn_err err;

	if (p->rank == 3)
		return 3;
	await_loss(w, g, p->rank == second);
	if (gn_regroup_form(g, &o, LIMIT_MS, &w, &err)) {
		fprintf(stderr, "rank %d: %s\n", p->rank, err.text);
		return 1;
	}
	if (gn_world_size(w) != 2 || gn_regroup_epoch(g) < 3 || gn_world_barrier(w, &err)) {
		fprintf(stderr, "rank %d: %d ranks in world %d\n", p->rank, gn_world_size(w), (int)gn_regroup_epoch(g));
		return 1;
	}
	gn_world_destroy(w);
	return 0;
}

static int lose_first(const struct place *p, struct gn_world *w, struct gn_regroup *g)
{
	return lose(p, w, g, 0);
}

static int lose_last(const struct place *p, struct gn_world *w, struct gn_regroup *g)
{
	return lose(p, w, g, 2);
}

static void test_second_loss(void **state)
{
	(void)state;
	run_all(lose_first, (const int[SIZE]){2, 0, 0, 3});
	run_all(lose_last, (const int[SIZE]){0, 0, 2, 3});
}

/* No other half asks. */
static enum gn_status keep_mine(void *context, const void *mine, size_t len, void *kept, size_t room, size_t *kept_len, struct gn_err *err)
{
	(void)context;
	(void)room;
	(void)err;
	memcpy(kept, mine, len);
	*kept_len = len;
	return GN_OK;
}

/* The other half of world 3 has asked before. */
static enum gn_status keep_later(void *context, const void *mine, size_t len, void *kept, size_t room, size_t *kept_len, struct gn_err *err)
{
	struct gn_roster later = {.epoch = 0};

	memcpy(&later, mine, len);
	later.epoch = 4;
	return keep_mine(context, &later, len, kept, room, kept_len, err);
}

static enum gn_status keep_nothing(void *context, const void *mine, size_t len, void *kept, size_t room, size_t *kept_len, struct gn_err *err)
{
	(void)context;
	(void)mine;
	(void)len;
	(void)kept;
	(void)room;
	(void)kept_len;
	return gn_err_set(err, GN_ERR_EXISTS, "of another world");
}

/* In world 3. */
static int check_fence(struct gn_regroup *g)
{
	struct gn_regroup_witness witness = {keep_later, NULL};
	struct gn_err err;
	int right = gn_regroup_fence(g, &err) == GN_OK;

	gn_regroup_set_witness(g, &witness);
	right &= gn_regroup_fence(g, &err) == GN_ERR_PEER_LOST;
	witness.settle = keep_nothing;
	gn_regroup_set_witness(g, &witness);
	return right && gn_regroup_fence(g, &err) == GN_OK;
}

/* Ranks 2 and 3 are lost, and the others agree on a world of two by a witness; before it stands rank 1 is lost, and rank 0 is half of it. */
static int lose_half(const struct place *p, struct gn_world *w, struct gn_regroup *g)
{
	const struct gn_regroup_witness witness = {keep_mine, NULL};
	const struct gn_world_options o = how();
	struct gn_err err;
	int is_right;

	if (p->rank > 1)
		return 3;
	await_loss(w, g, p->rank);
	gn_regroup_set_witness(g, &witness);
	if (gn_regroup_form(g, &o, LIMIT_MS, &w, &err)) {
		fprintf(stderr, "rank %d: %s\n", p->rank, err.text);
		return 1;
	}
	is_right = gn_world_size(w) == 1 && gn_regroup_epoch(g) == 3 && check_fence(g);
	gn_world_destroy(w);
	return is_right ? 0 : 1;
}

static void test_half_of_a_new_world(void **state)
{
	(void)state;
	run_all(lose_half, (const int[SIZE]){0, 2, 3, 3});
}

/* One that asks to be taken in, and does not answer at the port that it names. step_ms: that the clock is put forward each time. */
static void ask_in_vain(struct gn_regroup *g, uint64_t for_ns, uint64_t step_ms, int *candidates)
{
	struct gn_regroup_request q = {.what = GN_REGROUP_JOIN, .value = 0, .self = g->self};
	const uint64_t until = gn_clock_ns() + for_ns;
	struct gn_regroup_answer *a = calloc(1, sizeof *a);

	q.self.id = UINT64_C(1) << 63;
	q.self.port = 1;
	*candidates = 0;
	while (a && !*candidates && gn_clock_ns() < until) {
		gn_regroup_ask(g, g->self.id, &q, a);
		*candidates = gn_regroup_candidates(g);
		pass_ms(step_ms);
		gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
	}
	free(a);
}

/* The world ends once for it, and not again. */
static int hold_off(const struct place *p, struct gn_world *w, struct gn_regroup *g)
{
	const struct gn_world_options o = how();
	struct gn_err err;
	int asks = 1, again = 0;

	g->most = SIZE + 1;
	if (!p->rank)
		ask_in_vain(g, UINT64_C(1000000000) * LIMIT_S, 0, &asks);
	if (!asks || gn_regroup_form(g, &o, LIMIT_MS, &w, &err))
		return 1;
	if (!p->rank)
		ask_in_vain(g, 2000000000, 20, &again);
	again |= gn_world_size(w) != SIZE || gn_world_barrier(w, &err);
	gn_world_destroy(w);
	return again ? 4 : 0;
}

static void test_unreachable(void **state)
{
	(void)state;
	run_all(hold_off, (const int[SIZE]){0, 0, 0, 0});
}

/* Puts the clock forward once the ranks that are asked to stop have begun to wait. */
static void *pass_the_wait(void *argument)
{
	struct gn_regroup *g = argument;
	int waits = 0;

	while (!waits) {
		gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
		pthread_mutex_lock(&g->lock);
		waits = g->stop_ns != 0;
		pthread_mutex_unlock(&g->lock);
	}
	pass_ms(GN_REGROUP_STOP_NS / 1000000 + 1);
	return NULL;
}

/* Rank 3 is lost, and rank 2 computes for longer than ranks 0 and 1, which are asked to stop, wait for it. */
static int stop_two(const struct place *p, struct gn_world *w, struct gn_regroup *g)
{
	const struct gn_world_options o = how();
	enum gn_status status;
	struct gn_err err;
	pthread_t thread;

	if (p->rank == 3)
		return 3;
	await_loss(w, g, 0);
	while (p->rank == 2 && gn_world_losses(w) < 2)
		gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
	if (p->rank == 2) {
		gn_world_destroy(w);
		return 2;
	}
	stop = 1;
	if (pthread_create(&thread, NULL, pass_the_wait, g))
		return 1;
	status = gn_regroup_form(g, &o, LIMIT_MS, &w, &err);
	pthread_join(thread, NULL);
	return status == GN_ERR_STOPPED && !w ? 5 : 1;
}

static void test_stop(void **state)
{
	(void)state;
	run_all(stop_two, (const int[SIZE]){5, 5, 2, 3});
}

/* Nobody waits that could take the place of rank 1. */
static int keep_slow(const struct place *p, struct gn_world *w, struct gn_regroup *g)
{
	const struct gn_world_options o = how();
	struct gn_err err;
	int is_right;

	gn_regroup_replace(g, 1);
	if (gn_regroup_has_substitute(g) || gn_regroup_form(g, &o, LIMIT_MS, &w, &err))
		return 1;
	is_right = gn_world_size(w) == SIZE && gn_world_rank(w) == (p->rank == 1 ? SIZE - 1 : p->rank - (p->rank > 1)) && !gn_world_barrier(w, &err);
	is_right &= !gn_regroup_confirm(g, w, &err);
	/* as ranks that are stopped, and not for long enough to be lost: two of them do not answer when they are asked first */
	is_right &= !gn_world_barrier(w, &err);
	if (gn_world_rank(w)) {
		pthread_mutex_lock(&g->lock);
		nanosleep(&(const struct timespec){1, 500000000}, NULL);
		pthread_mutex_unlock(&g->lock);
	} else {
		is_right &= !gn_regroup_confirm(g, w, &err);
	}
	is_right &= !gn_world_barrier(w, &err);
	/* as a rank that was stopped when the others formed this world */
	g->epoch = 1;
	is_right &= gn_regroup_confirm(g, w, &err) == GN_ERR_PEER_LOST && !gn_world_barrier(w, &err);
	gn_world_destroy(w);
	return is_right ? 0 : 4;
}

static void test_nobody_waits(void **state)
{
	(void)state;
	run_all(keep_slow, (const int[SIZE]){0, 0, 0, 0});
}

static int count_candidates(struct gn_regroup *g)
{
	int count;

	pthread_mutex_lock(&g->lock);
	count = g->candidate_count;
	pthread_mutex_unlock(&g->lock);
	return count;
}

/* Of two groups of two one loses rank 1: the other one goes on, and rank 0 waits until the end; it makes no group. */
static int lose_of_group(const struct place *p, struct gn_world *w, struct gn_regroup *g, enum gn_status end)
{
	const struct gn_world_options o = how();
	struct gn_strbuf lost;
	struct gn_err err;
	int is_right;

	if (p->rank == 1)
		return 3;
	gn_regroup_set_places(g, (const int[SIZE]){0, 1, 2, 3}, SIZE);
	await_loss(w, g, 0);
	is_right = !gn_regroup_form(g, &o, LIMIT_MS, &w, &err) == (p->rank > 1) && gn_regroup_is_surplus(g) == !p->rank;
	if (!p->rank || !is_right)
		return is_right && gn_regroup_await(g, &o, &stop, LIMIT_MS, &w, &err) == end && !w && !gn_regroup_is_surplus(g) ? 0 : 1;
	while (!count_candidates(g))
		gn_clock_sleep_ns(GN_REGROUP_PAUSE_NS);
	gn_strbuf_init(&lost);
	gn_regroup_losses(g, &lost);
	is_right = gn_world_size(w) == 2 && gn_world_rank(w) == p->rank - 2 && !strncmp(gn_strbuf_text(&lost), "rank 1 on ", 10) &&
		   strstr(gn_strbuf_text(&lost), " is lost") && !gn_regroup_candidates(g) && !gn_world_barrier(w, &err);
	gn_strbuf_release(&lost);
	gn_regroup_end(g, end);
	gn_world_destroy(w);
	return is_right ? 0 : 1;
}

static int lose_and_finish(const struct place *p, struct gn_world *w, struct gn_regroup *g)
{
	return lose_of_group(p, w, g, GN_OK);
}

static int lose_and_stop(const struct place *p, struct gn_world *w, struct gn_regroup *g)
{
	return lose_of_group(p, w, g, GN_ERR_STOPPED);
}

static void test_groups(void **state)
{
	(void)state;
	run_groups(lose_and_finish, 2, (const int[SIZE]){0, 3, 0, 0});
	run_groups(lose_and_stop, 2, (const int[SIZE]){0, 3, 0, 0});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_second_loss), cmocka_unit_test(test_half_of_a_new_world),
		cmocka_unit_test(test_unreachable), cmocka_unit_test(test_stop), cmocka_unit_test(test_nobody_waits),
		cmocka_unit_test(test_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
