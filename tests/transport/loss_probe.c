/* Groups that go on when ranks are lost: every rank is in two or three groups and runs one operation of each at a time; faults
 * happen at random operations. Results are checked; whoever fails must name a lost rank of its group.
 * usage: loss_probe TRANSPORT kill VICTIM MORE   groups by rank % 3 and by rank / 3. Rank VICTIM kills itself in the middle. Groups
 *                                                without it run MORE operations after the loss.
 *        loss_probe TRANSPORT stall VICTIM MORE  the same, and after the loss the last rank comes to no operation any more
 *        loss_probe TRANSPORT asleep VICTIM MORE the same, but rank 0 kills it, and is asleep when the others see its connections close;
 *                                                the last rank lets its row send messages after that
 *        loss_probe TRANSPORT random SEED        random groups and faults: ranks that kill or stop themselves, or are late
 *        loss_probe TRANSPORT given-up 3         rank 3 kills itself while rank 1 sends to rank 2, which computes: rank 1 gives the message up
 * Each rank that is not lost prints "rank R: C operations after the loss, G groups lost, K kept"; exit code 1 when
 * something is wrong, a stall among it. PROBE_PROGRESS=thread: progress by a thread. */
#include "src/base/clock.h"
#include "src/base/log.h"
#include "transport/coll/comm.h"
#include "transport/coll/p2p.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GROUPS = 3, ROUNDS = 60, LONG = 70000, FAULTS = 3 };

enum fault_kind { FAULT_KILL, FAULT_STOP, FAULT_BREAK, FAULT_LATE, FAULT_ASLEEP, FAULT_AFTER };

struct fault {
	int rank, round;
	enum fault_kind kind; /* stop: longer than the heartbeat's limit; break: shorter */
};

struct group {
	struct gn_comm *comm;
	uint64_t seed; /* the same on all its ranks */
	struct gn_coll *coll;
	int64_t *in, *out;
	int64_t *shared; /* room for both in memory that ranks of a node share: half of the operations use it */
	size_t count;
	int is_shared;
	int over; /* all ranks have had enough */
	uint64_t after; /* operations since the loss */
};

struct probe {
	struct gn_world *world;
	struct gn_comm *comm;
	int rank, size, wrong, lost_groups, stays_away, has_lost, is_killed;
	uint64_t common, more, rounds;
	int64_t victim_pid;
	struct group groups[GROUPS];
	struct fault faults[FAULTS];
	int fault_count;
};

static uint32_t draw(uint64_t *state)
{
	return (uint32_t)((*state = *state * 6364136223846793005u + 1442695040888963407u) >> 33);
}

static void complain(struct probe *p, const char *what, const char *text)
{
	fprintf(stderr, "rank %d: %s: %s\n", p->rank, what, text);
	p->wrong = 1;
}

/* --- faults --- */

static void sleep_ms(int ms)
{
	struct timespec pause = {ms / 1000, ms % 1000 * 1000000l};

	while (nanosleep(&pause, &pause) && errno == EINTR)
		;
}

static int is_stopped(pid_t pid)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (f && fscanf(f, "%*d (%*[^)]) %c", &state) < 1)
		state = 0;
	if (f)
		fclose(f);
	return state == 'T';
}

/* Stops this process; a child continues it, and first kills another one, if there is one. The child does not hold the standard streams
 * open. */
static void stop_for(int ms, pid_t killed)
{
	pid_t self = getpid();

	if (fork() == 0) {
		for (int fd = 0; fd < 1024; fd++)
			close(fd);
		while (killed && !is_stopped(self))
			sleep_ms(1);
		/* meanwhile all come to wait for the victim or the last rank */
		sleep_ms(killed ? 300 : 0);
		if (killed)
			kill(killed, SIGKILL);
		sleep_ms(ms);
		kill(self, SIGCONT);
		_exit(0);
	}
	raise(SIGSTOP);
}

/* Goes on when another process has ended, and others may have seen it. */
static void wait_for_end(pid_t pid)
{
	while (!kill(pid, 0))
		sleep_ms(10);
	sleep_ms(100);
}

static void happen(const struct probe *p, const struct fault *f)
{
	if (f->kind == FAULT_KILL)
		kill(getpid(), SIGKILL);
	else if (f->kind == FAULT_STOP)
		stop_for(4000, 0);
	else if (f->kind == FAULT_BREAK)
		stop_for(700, 0);
	else if (f->kind == FAULT_ASLEEP)
		stop_for(700, (pid_t)p->victim_pid);
	else if (f->kind == FAULT_AFTER)
		wait_for_end((pid_t)p->victim_pid);
	else
		sleep_ms(1000);
}

static void faults_of(const struct probe *p, uint64_t round)
{
	for (int i = 0; i < p->fault_count; i++)
		if (p->faults[i].rank == p->rank && (uint64_t)p->faults[i].round == round)
			happen(p, &p->faults[i]);
}

/* --- operations --- */

static int64_t given(int world_rank, size_t i, uint64_t seed)
{
	return (int64_t)(i * 3 + (size_t)world_rank * 1000 + seed % 1000);
}

/* The first element counts the ranks that have had enough. */
static enum gn_status start(struct probe *p, struct group *g, struct gn_err *err)
{
	int enough = p->more ? p->has_lost && g->after >= p->more : p->rounds >= ROUNDS;
	struct gn_coll_args args = {.what = GN_COLLECTIVE_ALLREDUCE, .type = GN_I64};
	enum gn_status status;

	g->count = draw(&g->seed) % 16 ? draw(&g->seed) % 40 + 2 : draw(&g->seed) % LONG + 2;
	/* in several parts */
	if (p->victim_pid && g == &p->groups[1])
		g->count = LONG;
	g->is_shared = draw(&g->seed) % 2;
	g->in = g->is_shared ? g->shared : malloc(g->count * sizeof *g->in);
	g->out = g->is_shared ? g->shared + LONG + 2 : malloc(g->count * sizeof *g->out);
	for (size_t i = 0; i < g->count; i++)
		g->in[i] = given(p->rank, i, g->seed);
	g->in[0] = enough;
	args.in = g->in;
	args.out = g->out;
	args.count = g->count;
	status = gn_coll_prepare(g->comm, &args, &g->coll, err);
	return status ? status : gn_coll_start(g->coll, NULL, err);
}

static void check(struct probe *p, const struct group *g)
{
	char text[160];

	for (size_t i = 1; i < g->count; i++) {
		int64_t wanted = 0;

		for (int r = 0; r < gn_comm_size(g->comm); r++)
			wanted += given(gn_comm_world_rank(g->comm, r), i, g->seed);
		if (g->out[i] == wanted)
			continue;
		snprintf(text, sizeof text, "element %zu of %zu is %" PRId64 ", expected %" PRId64, i, g->count, g->out[i], wanted);
		complain(p, gn_comm_name(g->comm), text);
		return;
	}
}

static void free_op(struct group *g)
{
	gn_coll_free(g->coll);
	if (!g->is_shared) {
		free(g->in);
		free(g->out);
	}
	g->coll = NULL;
	g->in = g->out = NULL;
}

/* A failure has to be of this group, and to name the group, and rank and host of one that is lost. */
static void group_lost(struct probe *p, struct group *g, const struct gn_err *err)
{
	char wanted[512];
	int named = 0;

	for (int r = 0; r < gn_comm_size(g->comm); r++) {
		int rank = gn_comm_world_rank(g->comm, r);

		snprintf(wanted, sizeof wanted, "group %s: rank %d on %s is lost: ", gn_comm_name(g->comm), rank,
			 gn_world_host_of(p->world, rank));
		/* the transport may tell a rank that hears no heartbeats */
		named |= strstr(err->text, wanted) && (gn_world_is_lost(p->world, rank) || strstr(err->text, "the connection to it"));
	}
	if (err->status != GN_ERR_PEER_LOST || !named)
		complain(p, gn_comm_name(g->comm), err->text);
	p->lost_groups++;
	free_op(g);
	gn_comm_destroy(g->comm);
	g->comm = NULL;
}

static void finish(struct probe *p, struct group *g)
{
	check(p, g);
	g->after += p->has_lost;
	g->over = g->out[0] == gn_comm_size(g->comm);
	free_op(g);
}

/* One operation of each group. Returns how many groups are left; -1: this rank itself is lost, or rank 0 is. */
static int run_round(struct probe *p)
{
	struct gn_err err = {.text = ""};
	int left = 0;

	while (p->is_killed && p->rounds == 20)
		pause();
	for (int g = 0; g < GROUPS; g++)
		if (p->groups[g].comm && !p->groups[g].over && start(p, &p->groups[g], &err)) {
			if (gn_world_is_lost(p->world, 0))
				return -1;
			group_lost(p, &p->groups[g], &err);
		}
	faults_of(p, p->rounds);
	for (int k = 0; k < GROUPS; k++) {
		struct group *g = &p->groups[(k + p->rank) % GROUPS];

		if (!g->coll)
			continue;
		if (!gn_coll_wait(g->coll, &err))
			finish(p, g);
		else if (gn_world_is_lost(p->world, 0))
			return -1;
		else
			group_lost(p, g, &err);
		left += g->comm && !g->over;
	}
	p->has_lost |= gn_world_losses(p->world) != 0;
	p->rounds++;
	return left;
}

static enum gn_status make_groups(struct probe *p, int is_random, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	void *memory = NULL;

	for (int g = 0; g < GROUPS && !status; g++) {
		int color = g == 0 ? p->rank % 3 : g == 1 ? p->rank / 3 : -1;

		for (int r = 0; is_random && r < p->size; r++) {
			int drawn = (int)(draw(&p->common) % 4) - 1;

			color = r == p->rank ? drawn : color;
		}
		status = gn_comm_split(p->comm, color, 0, g == 0 ? "column" : g == 1 ? "row" : "third", &p->groups[g].comm, err);
		p->groups[g].seed = (uint64_t)(g * 100 + color + 1);
		if (!status)
			status = gn_comm_alloc(p->comm, 2 * (LONG + 2) * sizeof(int64_t), &memory, err);
		p->groups[g].shared = status ? NULL : memory;
	}
	return status;
}

/* Never of rank 0, which coordinates. */
static void draw_faults(struct probe *p)
{
	p->fault_count = 1 + (int)(draw(&p->common) % FAULTS);
	for (int i = 0; i < p->fault_count; i++) {
		struct fault *f = &p->faults[i];
		uint32_t kind = draw(&p->common) % 8;

		f->rank = 1 + (int)(draw(&p->common) % (uint32_t)(p->size - 1));
		f->round = (int)(draw(&p->common) % (ROUNDS - 10)) + 1;
		f->kind = kind < 4 ? FAULT_KILL : kind < 5 ? FAULT_STOP : kind < 6 ? FAULT_BREAK : FAULT_LATE;
	}
}

/* --- a message that its sender gives up --- */

/* Of all but rank 0. Those that are left may end the group, but not the job. */
static enum gn_status give_up(struct probe *p, struct gn_err *err)
{
	struct gn_p2p_args args = {.peer = p->rank == 1, .tag = 7, .len_bytes = (size_t)256 << 20};
	struct gn_p2p *message = NULL;
	struct gn_comm *group;
	struct gn_err why;
	enum gn_status waited;
	uint64_t began = gn_clock_ns();
	int done = 0;
	enum gn_status status = gn_comm_split(p->comm, p->rank ? 0 : -1, 0, "left", &group, err);

	if (!status)
		status = gn_comm_barrier(p->comm, err);
	if (status || !p->rank)
		return status;
	p->groups[0].comm = group;
	args.data = calloc(1, args.len_bytes);
	if (p->rank < 3)
		status = p->rank == 1 ? gn_p2p_prepare_send(group, &args, &message, err) : gn_p2p_prepare_receive(group, &args, &message, err);
	if (!status && message)
		status = gn_p2p_start(message, NULL, err);
	while (!status && p->rank == 2 && gn_clock_ns() - began < 60000000)
		status = gn_p2p_test(message, &done, err);
	if (p->rank == 3)
		sleep_ms(200);
	if (p->rank == 3)
		kill(getpid(), SIGKILL);
	while (p->rank == 2 && !gn_world_is_lost(p->world, 3))
		sleep_ms(10);
	if (p->rank == 2)
		sleep_ms(600);
	waited = status || done ? GN_OK : gn_p2p_wait(message, &why);
	if (waited && waited != GN_ERR_PEER_LOST)
		complain(p, "the message", why.text);
	gn_p2p_free(message);
	if (gn_world_aborted(p->world))
		complain(p, "the job", "was ended");
	free(args.data);
	printf("rank %d: %s\n", p->rank, waited ? "gave up" : "the message was through before");
	return status;
}

static enum gn_status run(struct probe *p, char **argv, struct gn_err *err)
{
	int is_random = !strcmp(argv[2], "random"), sleeps = !strcmp(argv[2], "asleep"), left = 1, kept = 0;
	enum gn_status status;
	uint64_t after = 0;

	p->rank = gn_comm_rank(p->comm);
	p->size = gn_comm_size(p->comm);
	p->common = strtoull(argv[3], NULL, 10);
	if (!strcmp(argv[2], "given-up"))
		return give_up(p, err);
	if (is_random)
		draw_faults(p);
	p->is_killed = sleeps && p->rank == (int)p->common;
	p->victim_pid = sleeps ? getpid() : 0;
	status = sleeps ? gn_comm_broadcast(p->comm, &p->victim_pid, sizeof p->victim_pid, (int)p->common, err) : GN_OK;
	if (!status)
		status = make_groups(p, is_random, err);
	/* all have their groups when one comes out of the first barrier; faults of those that do may disturb the second */
	if (!status)
		status = gn_comm_barrier(p->comm, err);
	if (status)
		return status;
	gn_comm_barrier(p->comm, NULL);
	if (!is_random) {
		p->faults[p->fault_count++] = sleeps ? (struct fault){0, 20, FAULT_ASLEEP} : (struct fault){(int)p->common, 20, FAULT_KILL};
		p->faults[p->fault_count++] = (struct fault){sleeps ? p->size - 1 : -1, 20, FAULT_AFTER};
		p->more = strtoull(argv[4], NULL, 10);
		p->stays_away = !strcmp(argv[2], "stall") && p->rank == p->size - 1;
	}
	while (left > 0) {
		left = run_round(p);
		/* until the job has failed */
		while (left > 0 && p->stays_away && p->has_lost && !gn_world_check_ranks(p->world, &p->rank, 1, 0, err))
			sleep_ms(10);
	}
	for (int g = 0; g < GROUPS; g++) {
		after = p->groups[g].after > after ? p->groups[g].after : after;
		kept += p->groups[g].comm != NULL;
	}
	if (left < 0) {
		printf("rank %d: is lost itself, or rank 0 is\n", p->rank);
		for (int g = 0; g < GROUPS; g++)
			free_op(&p->groups[g]);
	} else {
		printf("rank %d: %" PRIu64 " operations after the loss, %d groups lost, %d kept\n", p->rank, after,
		       p->lost_groups, kept);
	}
	return GN_OK;
}

int main(int argc, char **argv)
{
	const struct gn_world_options how = {.keep_going = 1};
	struct gn_comm_options options = {.transport = argc > 1 ? argv[1] : "auto", .progress = getenv("PROBE_PROGRESS")};
	struct probe p = {0};
	struct gn_log *log = NULL;
	struct gn_err err = {.text = ""};
	enum gn_status status = argc < 4 ? gn_err_set(&err, GN_ERR_USAGE, "see the source") : gn_log_create(2, GN_LOG_WARN, &log, &err);

	if (!status)
		status = gn_world_create(&how, log, &p.world, &err);
	if (!status)
		status = gn_comm_create(p.world, &options, log, &p.comm, &err);
	if (!status)
		status = run(&p, argv, &err);
	if (status)
		fprintf(stderr, "%s\n", err.text);
	fflush(stdout);
	for (int g = 0; g < GROUPS; g++) {
		gn_comm_destroy(p.groups[g].comm);
		if (p.groups[g].shared)
			gn_comm_free(p.comm, p.groups[g].shared);
	}
	gn_comm_destroy(p.comm);
	gn_world_destroy(p.world);
	gn_log_destroy(log);
	return status || p.wrong ? 1 : 0;
}
