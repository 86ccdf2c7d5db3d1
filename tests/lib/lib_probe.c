/* libgannet from outside: lib_probe CASE. Includes and links nothing but libgannet. Exit codes: 0, 1 with what was wrong, 2 usage. */
#include <gannet.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what)                                                                                                                   \
	do {                                                                                                                          \
		if (!(what))                                                                                                          \
			return printf("rank %d, line %d: %s (%s)\n", world ? gannet_rank(world) : -1, __LINE__, #what, gannet_error()), 1; \
	} while (0)

static gannet_group *world;

static int usage_case(void)
{
	gannet_group *other;
	gannet_options newer = {.size_bytes = sizeof newer + 8};
	gannet_args args = {.size_bytes = sizeof args + 8};
	double x = 1;
	int ranks[2] = {0, 0};

	CHECK(!strcmp(gannet_error(), ""));
	CHECK(gannet_allreduce(NULL, NULL, &x, 1, GANNET_F64, GANNET_SUM) == GANNET_USAGE && strstr(gannet_error(), "gannet_init"));
	CHECK(gannet_init(&newer, &world) == GANNET_USAGE && strstr(gannet_error(), "another version"));
	newer = (gannet_options){.size_bytes = sizeof newer, .log_level = "loud"};
	CHECK(gannet_init(&newer, &world) == GANNET_USAGE && strstr(gannet_error(), "loud"));
	newer = (gannet_options){.size_bytes = sizeof newer, .rendezvous = "nowhere", .size = 2};
	CHECK(gannet_init(&newer, &world) == GANNET_USAGE && strstr(gannet_error(), "HOST:PORT"));
	CHECK(!gannet_init(NULL, &world));
	CHECK(gannet_init(NULL, &other) == GANNET_USAGE && strstr(gannet_error(), "before"));
	CHECK(gannet_run(world, &args) == GANNET_USAGE && strstr(gannet_error(), "another version"));
	CHECK(gannet_allreduce(world, NULL, &x, 1, (gannet_type)99, GANNET_SUM) == GANNET_USAGE);
	CHECK(gannet_allreduce(world, NULL, &x, 1, GANNET_BYTES, GANNET_SUM) == GANNET_USAGE);
	CHECK(gannet_send(world, 5, 0, &x, 8) == GANNET_USAGE && gannet_send(world, 0, GANNET_TAGS, &x, 8) == GANNET_USAGE);
	CHECK(gannet_group_of(world, ranks, 2, "twice", &other) == GANNET_USAGE && strstr(gannet_error(), "twice"));
	CHECK(!gannet_host(world, 1) && gannet_host(world, 0));
	gannet_finalize();
	world = NULL;
	CHECK(gannet_init(NULL, &world) == GANNET_USAGE);
	return 0;
}

static void product(void *acc, const void *in, size_t count)
{
	for (size_t i = 0; i < count; i++)
		((double *)acc)[i] *= ((const double *)in)[i];
}

/* More prepared operations than shared memory has places for: short sums, and blocks of more than 64 KiB. */
static int many(int size, int rank)
{
	enum { OPS = 700, BLOCK = 1 << 15 };
	static int32_t values[OPS], blocks[4 * BLOCK], mine[BLOCK];
	static gannet_op *ops[OPS];
	gannet_args a = {.size_bytes = sizeof a, .count = 1, .type = GANNET_I32, .reduction = GANNET_SUM};
	gannet_args gather = {.size_bytes = sizeof a, .what = GANNET_ALLGATHER, .in = mine, .out = blocks, .count = BLOCK, .type = GANNET_I32};
	gannet_args scatter = {.size_bytes = sizeof a, .what = GANNET_REDUCE_SCATTER, .in = blocks, .out = mine, .count = BLOCK, .type = GANNET_I32};

	CHECK(size <= 4);
	for (int i = 0; i < OPS; i++) {
		a.out = &values[i];
		CHECK(!gannet_prepare(world, i == OPS - 2 ? &gather : i == OPS - 1 ? &scatter : &a, &ops[i]));
	}
	for (int run = 0; run < 2; run++) {
		for (int i = 0; i < OPS - 2; i++)
			values[i] = i + rank;
		for (int i = 0; i < BLOCK; i++)
			mine[i] = i + rank;
		for (int i = 0; i < OPS; i++)
			CHECK(!gannet_start(ops[i]) && ((i % 7 && i < OPS - 2) || !gannet_wait(ops[i])));
		for (int i = 0; i < OPS; i++)
			CHECK(!gannet_wait(ops[i]) && (i >= OPS - 2 || values[i] == size * i + size * (size - 1) / 2));
		CHECK(mine[5] == size * (5 + rank));
		CHECK(!gannet_barrier(world));
	}
	for (int i = 0; i < OPS; i++)
		gannet_op_free(ops[i]);
	return 0;
}

/* Every collective, with sums that can be told; needs 2 ranks or more. */
static int collectives_case(void)
{
	CHECK(!gannet_init(NULL, &world));
	int size = gannet_size(world), rank = gannet_rank(world), sum = size * (size - 1) / 2;
	int32_t *all = calloc((size_t)size * 3, sizeof *all), *other = calloc((size_t)size * 3, sizeof *all);
	size_t *counts = calloc((size_t)size, sizeof *counts), *from = calloc((size_t)size, sizeof *from);
	gannet_args a = {.size_bytes = sizeof a, .what = GANNET_ALLREDUCE, .count = 1, .type = GANNET_F64, .reduce = product};
	double wanted = 1, got;

	for (int r = 0; r < size; r++)
		wanted *= r + 1;
	got = rank + 1;
	a.out = &got;
	CHECK(!gannet_run(world, &a) && got == wanted);
	all[0] = rank;
	CHECK(!gannet_allreduce(world, all, other, 1, GANNET_I32, GANNET_SUM) && other[0] == sum && all[0] == rank);
	CHECK(!gannet_allreduce(world, all, other, 1, GANNET_I32, GANNET_MAX) && other[0] == size - 1);
	CHECK(!gannet_broadcast(world, all, 1, GANNET_I32, size - 1) && all[0] == size - 1);
	all[0] = all[1] = all[2] = rank;
	CHECK(!gannet_allgather(world, all, other, 3, GANNET_I32) && other[0] == 0 && other[3 * size - 1] == size - 1);
	for (int r = 0; r < size; r++)
		other[r] = r;
	CHECK(!gannet_reduce_scatter(world, other, all, 1, GANNET_I32, GANNET_SUM) && all[0] == rank * size);
	/* rank r sends r + 1 numbers to each */
	for (int r = 0; r < size; r++) {
		counts[r] = (size_t)rank + 1;
		from[r] = (size_t)r + 1;
	}
	free(all);
	free(other);
	all = calloc((size_t)size * (size_t)(rank + 1), sizeof *all);
	other = calloc((size_t)size * (size_t)(size + 1) / 2, sizeof *other);
	for (int i = 0; i < size * (rank + 1); i++)
		all[i] = rank;
	a = (gannet_args){.size_bytes = sizeof a, .what = GANNET_ALL_TO_ALL, .in = all, .out = other, .counts = counts, .counts_from = from,
			  .type = GANNET_I32};
	CHECK(!gannet_run(world, &a));
	for (int r = 0, i = 0; r < size; r++)
		for (int n = 0; n <= r; n++)
			CHECK(other[i++] == r);
	CHECK(!gannet_barrier(world));
	free(all);
	free(other);
	free(counts);
	free(from);
	CHECK(!many(size, rank));
	gannet_finalize();
	return 0;
}

/* Overlapping groups, made by their members alone while the others wait for a message; in shared memory, too. */
static int groups_case(void)
{
	gannet_group *low, *high = NULL, *same = NULL;
	void *shared;
	int32_t x;

	CHECK(!gannet_init(NULL, &world));
	int size = gannet_size(world), rank = gannet_rank(world), go = 1, *ranks = calloc((size_t)size, sizeof *ranks);

	for (int round = 0; round < 5; round++) {
		/* all but the last, backwards; then all but the first */
		for (int r = 0; r < size - 1; r++)
			ranks[r] = size - 2 - r;
		if (rank < size - 1) {
			CHECK(!gannet_group_of(world, ranks, size - 1, "low", &low));
			CHECK(gannet_rank(low) == size - 2 - rank && gannet_size(low) == size - 1);
			x = 1;
			CHECK(!gannet_allreduce(low, NULL, &x, 1, GANNET_I32, GANNET_SUM) && x == size - 1);
			CHECK(!gannet_alloc(low, 4096, &shared));
			*(int32_t *)shared = 2;
			CHECK(!gannet_allreduce(low, NULL, shared, 1, GANNET_I32, GANNET_SUM) && *(int32_t *)shared == 2 * (size - 1));
			if (rank == 0)
				CHECK(!gannet_send(world, size - 1, 7, &go, sizeof go));
		} else {
			CHECK(!gannet_receive(world, 0, 7, &go, sizeof go));
		}
		for (int r = 0; r < size - 1; r++)
			ranks[r] = r + 1;
		if (rank > 0) {
			CHECK(!gannet_group_of(world, ranks, size - 1, "high", &high));
			x = 1;
			CHECK(!gannet_allreduce(high, NULL, &x, 1, GANNET_I32, GANNET_SUM) && x == size - 1);
		}
		CHECK(!gannet_split(world, 0, -rank, "all", &same) && gannet_rank(same) == size - 1 - rank);
		x = 1;
		CHECK(!gannet_allreduce(same, NULL, &x, 1, GANNET_I32, GANNET_SUM) && x == size);
		gannet_group_free(same);
		if (rank < size - 1)
			gannet_group_free(low);
		/* the last rank leaves the freeing of one to the end */
		if (rank > 0 && (rank < size - 1 || round < 4))
			gannet_group_free(high);
	}
	free(ranks);
	gannet_finalize();
	return 0;
}

/* Rank 0 receives from whoever was first; a receive from rank 1 started before takes its first message, and one started after its last. */
static int any_case(void)
{
	enum { EACH = 20, TAG = 9 };
	static char data[1 << 20], big[1 << 20];
	gannet_op *one, *any, *after;
	int done = 0, seen[64] = {0};

	CHECK(!gannet_init(NULL, &world));
	int size = gannet_size(world), rank = gannet_rank(world), left = (size - 1) * EACH - 1;

	CHECK(gannet_prepare_send(world, GANNET_ANY_SOURCE, TAG, data, 1, &one) == GANNET_USAGE);
	for (int i = 0; rank && i < EACH; i++) {
		int second = i >= EACH / 2;

		memset(big, rank, sizeof big);
		big[0] = (char)i;
		CHECK(!gannet_send(world, 0, (uint32_t)(TAG + second), big, second ? sizeof big : 100));
	}
	if (!rank) {
		CHECK(!gannet_prepare_receive(world, 1, TAG, big, 100, &one) && gannet_op_peer(one) == 1);
		CHECK(!gannet_start(one) && !gannet_wait(one) && big[0] == 0 && big[99] == 1);
		/* both tags, many times by one operation each */
		for (int tag = TAG; tag <= TAG + 1; tag++) {
			CHECK(!gannet_prepare_receive(world, GANNET_ANY_SOURCE, (uint32_t)tag, data, tag == TAG ? 100 : sizeof data, &any));
			CHECK(gannet_op_peer(any) == GANNET_ANY_SOURCE);
			for (int i = tag == TAG; i < (size - 1) * EACH / 2 - (tag == TAG); i++, left--) {
				CHECK(!gannet_start(any) && !gannet_wait(any));
				int from = gannet_op_peer(any);

				CHECK(from > 0 && from < size && data[1] == from && data[99] == from);
				seen[from]++;
			}
			gannet_op_free(any);
		}
		/* one message is left: the receive that was started first takes it, if it is of rank 1 or not */
		CHECK(left == 1 && !gannet_prepare_receive(world, GANNET_ANY_SOURCE, TAG, data, 100, &any) && !gannet_start(any));
		CHECK(!gannet_prepare_receive(world, 1, TAG, big, 100, &after) && !gannet_start(after));
		CHECK(!gannet_wait(any) && ++seen[gannet_op_peer(any)] && !gannet_test(after, &done) && !done);
		for (int r = 1; r < size; r++)
			CHECK(seen[r] == EACH - (r == 1));
		CHECK(!gannet_barrier(world));
		CHECK(!gannet_wait(after) && big[0] == 77);
	} else {
		CHECK(!gannet_barrier(world));
		big[0] = 77;
		CHECK(rank != 1 || !gannet_send(world, 0, TAG, big, 100));
	}
	gannet_finalize();
	return 0;
}

static atomic_int begun, posted;

static void *wake_later(void *nothing)
{
	while (!atomic_load(&begun))
		sched_yield();
	atomic_store(&posted, 1);
	gannet_wake();
	(void)nothing;
	return NULL;
}

/* A rank that drives its operations by tests waits between them: for the other's part of a sum or a message, and for gannet_wake(). */
static int idle_case(void)
{
	static float data[100000];
	int done = 0, count = 0;
	pthread_t thread;
	gannet_op *op;

	CHECK(gannet_idle(1000) == 0);
	CHECK(!gannet_init(NULL, &world));
	CHECK(!pthread_create(&thread, NULL, wake_later, NULL));
	atomic_store(&begun, 1);
	/* the limits are longer than the test's */
	while (!atomic_load(&posted))
		(void)gannet_idle(1000000);
	CHECK(!pthread_join(thread, NULL));
	gannet_args a = {.size_bytes = sizeof a, .what = GANNET_ALLREDUCE, .out = data, .count = 100000, .type = GANNET_F32};
	CHECK(!gannet_prepare(world, &a, &op));
	for (int i = 0; i < 50; i++) {
		data[99999] = 1;
		CHECK(!gannet_start(op));
		for (done = 0; !done;) {
			CHECK(!gannet_test(op, &done));
			if (!done)
				(void)gannet_idle(1000000);
		}
		CHECK(data[99999] == (float)gannet_size(world));
	}
	/* nobody writes to memory meanwhile, as when a wakeup is missed: the wait ends all the same */
	if (gannet_rank(world) == 0) {
		CHECK(!gannet_start(op));
		for (int i = 0; i < 20; i++)
			(void)gannet_idle(1000000);
	}
	for (int r = 1; r < gannet_size(world); r++)
		if (gannet_rank(world) == 0)
			CHECK(!gannet_send(world, r, 2, &count, sizeof count));
		else if (gannet_rank(world) == r)
			CHECK(!gannet_receive(world, 0, 2, &count, sizeof count) && !gannet_start(op));
	CHECK(!gannet_wait(op));
	gannet_op_free(op);
	int from = gannet_rank(world) ? gannet_rank(world) - 1 : gannet_size(world) - 1, to = (gannet_rank(world) + 1) % gannet_size(world);
	gannet_op *send;

	CHECK(!gannet_prepare_receive(world, from, 1, &count, sizeof count, &op) && !gannet_start(op));
	CHECK(!gannet_prepare_send(world, to, 1, &to, sizeof to, &send) && !gannet_start(send) && !gannet_wait(send));
	for (done = 0; !done;) {
		CHECK(!gannet_test(op, &done));
		if (!done)
			(void)gannet_idle(1000000);
	}
	CHECK(count == gannet_rank(world));
	gannet_finalize();
	gannet_wake();
	return 0;
}

static int disagree_case(void)
{
	int ranks[2] = {0, 1};
	gannet_group *g;

	CHECK(!gannet_init(NULL, &world));
	CHECK(gannet_group_of(world, ranks, 2, gannet_rank(world) ? "a" : "b", &g) == GANNET_MISMATCH);
	CHECK(strstr(gannet_error(), "disagree"));
	gannet_finalize();
	return 0;
}

/* The last rank is killed in the middle; every other rank learns which, and its host. */
static int killed_case(void)
{
	float *data = calloc(1 << 20, sizeof *data);
	gannet_status status = GANNET_OK;
	char text[64];

	CHECK(!gannet_init(NULL, &world));
	for (int i = 0; !status; i++) {
		if (i == 10 && gannet_rank(world) == gannet_size(world) - 1)
			raise(SIGKILL);
		status = gannet_allreduce(world, NULL, data, 1 << 20, GANNET_F32, GANNET_SUM);
	}
	CHECK(status == GANNET_PEER_LOST);
	snprintf(text, sizeof text, "rank %d", gannet_size(world) - 1);
	CHECK(strstr(gannet_error(), text) && strstr(gannet_error(), gannet_host(world, 0)));
	printf("rank %d: %s\n", gannet_rank(world), gannet_error());
	gannet_finalize();
	free(data);
	return 0;
}

/* lib_probe rendezvous HOST:PORT RANK SIZE */
static int rendezvous_case(char **argv)
{
	gannet_options o = {.size_bytes = sizeof o, .rendezvous = argv[0], .rank = atoi(argv[1]), .size = atoi(argv[2])};
	int32_t x = 1;

	CHECK(!gannet_init(&o, &world));
	CHECK(gannet_rank(world) == o.rank && gannet_size(world) == o.size);
	CHECK(!gannet_allreduce(world, NULL, &x, 1, GANNET_I32, GANNET_SUM) && x == o.size);
	gannet_finalize();
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} cases[] = {{"usage", usage_case}, {"collectives", collectives_case}, {"groups", groups_case}, {"any", any_case}, {"idle", idle_case},
		     {"disagree", disagree_case}, {"killed", killed_case}};

	alarm(280);
	if (argc == 5 && !strcmp(argv[1], "rendezvous"))
		return rendezvous_case(argv + 2);
	for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; i++)
		if (!strcmp(argv[1], cases[i].name))
			return cases[i].run();
	fprintf(stderr, "usage: lib_probe usage|collectives|groups|any|idle|disagree|killed, or rendezvous HOST:PORT RANK SIZE\n");
	return 2;
}
