/* Runs all ranks' schedules symbolically: a chunk is how often each rank's contribution is in it. */
#include "tests/test.h"

#include "transport/schedule/algo.h"

#include <stdlib.h>
#include <string.h>

#define SIZE_MAX_TESTED 33
#define CHUNKS_MAX (SIZE_MAX_TESTED * 3)

struct message {
	int from, to;
	uint32_t number;
	unsigned char holds[SIZE_MAX_TESTED];
	/* the order in which values were combined, so that the same bits mean the same tree */
	uint64_t tree;
};

struct rank_state {
	struct gn_schedule *schedule;
	const struct gn_step *steps;
	const uint32_t *dependencies;
	size_t count, left;
	unsigned char *done;
	unsigned char holds[CHUNKS_MAX][SIZE_MAX_TESTED];
	uint64_t tree[CHUNKS_MAX];
};

struct simulation {
	int size;
	struct rank_state *ranks;
	struct message *flying;
	size_t flying_count, flying_room;
};

static uint64_t combine(uint64_t left, uint64_t right)
{
	return (left * 0x9e3779b97f4a7c15u ^ (right + 0x7f4a7c15u) * 0xc2b2ae3d27d4eb4fu) + (left >> 29);
}

static void put_in_flight(struct simulation *s, int from, const struct gn_step *step)
{
	struct rank_state *r = &s->ranks[from];
	struct message *m;

	if (s->flying_count == s->flying_room) {
		s->flying_room = s->flying_room * 2 + 256;
		s->flying = realloc(s->flying, s->flying_room * sizeof *s->flying);
		assert_non_null(s->flying);
	}
	for (size_t i = 0; i < s->flying_count; i++)
		assert_false(s->flying[i].from == from && s->flying[i].to == step->peer &&
			     s->flying[i].number == step->message);
	m = &s->flying[s->flying_count++];
	m->from = from;
	m->to = step->peer;
	m->number = step->message;
	m->tree = r->tree[step->chunk];
	memcpy(m->holds, r->holds[step->chunk], sizeof m->holds);
}

/* Takes the message that the step wants; 0 when it is not there. */
static int take(struct simulation *s, int to, const struct gn_step *step, struct message *out)
{
	for (size_t i = 0; i < s->flying_count; i++)
		if (s->flying[i].from == step->peer && s->flying[i].to == to && s->flying[i].number == step->message) {
			*out = s->flying[i];
			s->flying[i] = s->flying[--s->flying_count];
			return 1;
		}
	return 0;
}

static int try_step(struct simulation *s, int rank, size_t index)
{
	struct rank_state *r = &s->ranks[rank];
	const struct gn_step *step = &r->steps[index];
	struct message m;

	for (uint32_t d = 0; d < step->dependency_count; d++) {
		uint32_t on = r->dependencies[step->first_dependency + d];

		assert_true(on < index);
		if (!r->done[on])
			return 0;
	}
	if (step->op == GN_STEP_SEND) {
		put_in_flight(s, rank, step);
	} else if (step->op != GN_STEP_COPY) {
		if (!take(s, rank, step, &m))
			return 0;
		if (step->op == GN_STEP_RECV) {
			memcpy(r->holds[step->chunk], m.holds, sizeof m.holds);
			r->tree[step->chunk] = m.tree;
		} else {
			for (int q = 0; q < s->size; q++)
				r->holds[step->chunk][q] += m.holds[q];
			r->tree[step->chunk] = step->from_left ? combine(m.tree, r->tree[step->chunk])
							       : combine(r->tree[step->chunk], m.tree);
		}
	}
	r->done[index] = 1;
	r->left--;
	return 1;
}

/* Steps in a random order among those that may run: dependencies, not luck, have to keep them right. */
static void simulate(struct simulation *s, unsigned seed)
{
	size_t left = 0, progress = 1;

	srand(seed);
	for (int q = 0; q < s->size; q++)
		left += s->ranks[q].left;
	while (left && progress) {
		progress = 0;
		for (int k = 0; k < s->size; k++) {
			struct rank_state *r = &s->ranks[(k + rand()) % s->size];
			size_t start = r->count ? (size_t)rand() % r->count : 0;

			for (size_t i = 0; i < r->count; i++) {
				size_t index = (start + i) % r->count;

				if (!r->done[index] && try_step(s, (int)(r - s->ranks), index))
					progress++;
			}
		}
		if (!progress) /* the random walk may have missed the one that could go on */
			for (int q = 0; q < s->size; q++)
				for (size_t i = 0; i < s->ranks[q].count; i++)
					if (!s->ranks[q].done[i] && try_step(s, q, i))
						progress++;
		left -= progress;
	}
	assert_int_equal(left, 0); /* else: deadlock */
	assert_int_equal(s->flying_count, 0);
}

typedef enum gn_status (*algorithm)(int rank, int size, uint32_t pieces, int with_copy, struct gn_schedule **out,
				    struct gn_err *err);

static enum gn_status make(enum gn_collective what, const char *name, struct gn_algo_args args, struct gn_schedule **out, struct gn_err *err)
{
	return gn_algorithm_schedule(gn_algorithm_find(what, name), &args, out, err);
}

static enum gn_status make_ring(int rank, int size, uint32_t pieces, int with_copy, struct gn_schedule **out, struct gn_err *err)
{
	return make(GN_COLLECTIVE_ALLREDUCE, "ring", (struct gn_algo_args){.rank = rank, .size = size, .pieces = pieces, .with_copy = with_copy}, out, err);
}

static enum gn_status make_recursive_doubling(int rank, int size, uint32_t pieces, int with_copy, struct gn_schedule **out, struct gn_err *err)
{
	return make(GN_COLLECTIVE_ALLREDUCE, "recursive-doubling",
		    (struct gn_algo_args){.rank = rank, .size = size, .pieces = pieces, .with_copy = with_copy}, out, err);
}

static enum gn_status broadcast_from_two_thirds(int rank, int size, uint32_t pieces, int with_copy,
						struct gn_schedule **out, struct gn_err *err)
{
	(void)with_copy;
	return make(GN_COLLECTIVE_BROADCAST, "binomial", (struct gn_algo_args){.rank = rank, .size = size, .root = size * 2 / 3, .pieces = pieces}, out, err);
}

static void begin(struct simulation *s, algorithm algo, int size, uint32_t pieces, int with_copy)
{
	struct gn_err err;
	size_t unused;

	*s = (struct simulation){.size = size};
	s->ranks = calloc((size_t)size, sizeof *s->ranks);
	assert_non_null(s->ranks);
	for (int q = 0; q < size; q++) {
		struct rank_state *r = &s->ranks[q];

		assert_ok(algo(q, size, pieces, with_copy, &r->schedule, &err));
		r->steps = gn_schedule_steps(r->schedule, &r->count);
		r->dependencies = gn_schedule_dependencies(r->schedule, &unused);
		r->left = r->count;
		r->done = calloc(r->count + 1, 1);
		assert_non_null(r->done);
		assert_true(gn_schedule_chunks(r->schedule) <= CHUNKS_MAX);
		for (uint32_t c = 0; c < gn_schedule_chunks(r->schedule); c++) {
			r->holds[c][q] = 1;
			r->tree[c] = (uint64_t)q + 1;
		}
	}
}

static void end(struct simulation *s)
{
	for (int q = 0; q < s->size; q++) {
		gn_schedule_destroy(s->ranks[q].schedule);
		free(s->ranks[q].done);
	}
	free(s->ranks);
	free(s->flying);
}

/* only: the rank whose contribution alone counts (broadcast), or -1 for everyone's once. */
static void check_result(const struct simulation *s, int only)
{
	for (int q = 0; q < s->size; q++)
		for (uint32_t c = 0; c < gn_schedule_chunks(s->ranks[q].schedule); c++) {
			for (int k = 0; k < s->size; k++)
				if (s->ranks[q].holds[c][k] != (only < 0 || only == k))
					fail_msg("size %d: rank %d, chunk %u holds rank %d's part %d times", s->size, q, c, k,
						 s->ranks[q].holds[c][k]);
			if (s->ranks[q].tree[c] != s->ranks[0].tree[c])
				fail_msg("size %d: ranks 0 and %d combine chunk %u in different orders", s->size, q, c);
		}
}

static void run_all(algorithm algo, int is_broadcast)
{
	struct simulation s;

	for (int size = 1; size <= SIZE_MAX_TESTED; size++)
		for (uint32_t pieces = 1; pieces <= 3; pieces += 2)
			for (int with_copy = 0; with_copy < 2 - is_broadcast; with_copy++) {
				begin(&s, algo, size, pieces, with_copy);
				simulate(&s, (unsigned)size * 10 + pieces);
				check_result(&s, is_broadcast ? size * 2 / 3 : -1);
				end(&s);
			}
}

static void test_ring(void **state)
{
	(void)state;
	run_all(make_ring, 0);
}

static void test_recursive_doubling(void **state)
{
	(void)state;
	run_all(make_recursive_doubling, 0);
}

static void test_broadcast(void **state)
{
	(void)state;
	run_all(broadcast_from_two_thirds, 1);
}

/* The ring's claim: 2 (p - 1) / p of the buffer is sent by each rank. */
static void test_ring_volume(void **state)
{
	struct gn_schedule *s;
	struct gn_err err;
	size_t count, sends = 0;

	(void)state;
	assert_ok(make_ring(3, 7, 5, 0, &s, &err));
	const struct gn_step *steps = gn_schedule_steps(s, &count);
	for (size_t i = 0; i < count; i++)
		sends += steps[i].op == GN_STEP_SEND;
	assert_int_equal(sends, 2 * 6 * 5);
	assert_int_equal(gn_schedule_chunks(s), 35);
	gn_schedule_destroy(s);
}

static void test_dependencies(void **state)
{
	struct gn_schedule *s;
	struct gn_err err;
	size_t count;

	(void)state;
	assert_ok(gn_schedule_create(0, 2, 2, &s, &err));
	gn_schedule_send(s, 1, 0, 0);		/* 0 reads 0 */
	gn_schedule_send(s, 1, 0, 1);		/* 1 reads 0 */
	gn_schedule_recv(s, 1, 0, 0);		/* 2 waits for both readers */
	gn_schedule_recv(s, 1, 1, 1);		/* 3 waits for nobody */
	gn_schedule_recv_reduce(s, 1, 0, 2, 0); /* 4 waits for 2 */
	gn_schedule_send(s, 1, 0, 2);		/* 5 waits for 4 */
	assert_ok(gn_schedule_finish(s, &err));
	const struct gn_step *steps = gn_schedule_steps(s, &count);
	const uint32_t *on = gn_schedule_dependencies(s, &(size_t){0});
	assert_int_equal(count, 6);
	assert_int_equal(steps[1].dependency_count, 0);
	assert_int_equal(steps[2].dependency_count, 2);
	assert_int_equal(on[steps[2].first_dependency] + on[steps[2].first_dependency + 1], 0 + 1);
	assert_int_equal(steps[3].dependency_count, 0);
	assert_int_equal(steps[4].dependency_count, 1);
	assert_int_equal(on[steps[4].first_dependency], 2);
	assert_int_equal(on[steps[5].first_dependency], 4);
	gn_schedule_send(s, 1, 2, 3); /* no such chunk */
	assert_int_not_equal(gn_schedule_finish(s, &err), GN_OK);
	gn_schedule_destroy(s);
}

static void test_ranges(void **state)
{
	(void)state;
	for (size_t count = 0; count < 40; count++)
		for (uint32_t chunks = 1; chunks < 12; chunks++) {
			size_t at = 0, first, len;

			for (uint32_t c = 0; c < chunks; c++) {
				gn_schedule_range(count, chunks, c, &first, &len);
				assert_int_equal(first, at);
				at += len;
			}
			assert_int_equal(at, count);
		}
}

/* Marks the ranks that rank's schedule of one algorithm talks with. */
static void mark_peers(const struct gn_algorithm *a, const struct gn_algo_args *args, unsigned char *peers)
{
	struct gn_schedule *s;
	const struct gn_step *steps;
	struct gn_err err;
	size_t count;

	if (a->what == GN_COLLECTIVE_ALL_TO_ALL || strstr(a->name, "direct"))
		return;
	assert_ok(gn_algorithm_schedule(a, args, &s, &err));
	steps = gn_schedule_steps(s, &count);
	for (size_t i = 0; i < count; i++)
		if (steps[i].op != GN_STEP_COPY)
			peers[steps[i].peer] = 1;
	gn_schedule_destroy(s);
}

static int count_peers(int rank, int size, int per_node)
{
	int node_of[1024], peers = 0;
	unsigned char marks[1024] = {0};
	struct gn_algo_args args = {.rank = rank, .size = size, .pieces = 1};
	struct gn_node_map *map;
	struct gn_err err;
	size_t count;

	for (int r = 0; r < size; r++)
		node_of[r] = r / per_node;
	assert_ok(gn_node_map_create(node_of, size, &map, &err));
	args.map = map;
	for (size_t i = 0; i < (gn_algorithms(&count), count); i++)
		mark_peers(&gn_algorithms(&count)[i], &args, marks);
	for (int r = 0; r < size; r++)
		peers += marks[r];
	gn_node_map_destroy(map);
	return peers;
}

/* What UCX is told to expect: no fewer than are opened, far fewer than there are ranks. */
static void test_peers(void **state)
{
	static const int sizes[] = {1, 2, 3, 5, 8, 9, 16, 17, 33, 100, 139, 257, 473, 1000, 1024};

	(void)state;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int per_node = 1; per_node <= 8; per_node *= 2)
			for (int rank = 0; rank < sizes[i]; rank += sizes[i] > 64 ? 37 : 1)
				assert_true(count_peers(rank, sizes[i], per_node) <= gn_algorithms_peers(sizes[i]));
	assert_int_equal(gn_algorithms_peers(1), 0);
	assert_int_equal(gn_algorithms_peers(4), 3);
	assert_true(gn_algorithms_peers(4096) < 48);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dependencies), cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_ring),	     cmocka_unit_test(test_recursive_doubling),
		cmocka_unit_test(test_broadcast),    cmocka_unit_test(test_ring_volume),
		cmocka_unit_test(test_peers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
