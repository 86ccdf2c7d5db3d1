/* Every algorithm is proved for many sizes; the prover is proved by breaking schedules. */
#include "tests/test.h"

#include "transport/schedule/verify.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZE_ALL_TESTED 130
#define SIZE_FULLY_TESTED 20

static void prove(const struct gn_algorithm *a, const struct gn_algo_args *args)
{
	struct gn_err err;

	if (gn_verify_algorithm(a, args, &err))
		fail_msg("%u pieces, root %d, copy %d: %s", args->pieces, args->root, args->with_copy, err.text);
}

/* Nodes of one size with the rest on a last one; of sizes 1, 2, 3, ...; ranks dealt out in turns. */
static struct gn_node_map *map_of(int kind, int size)
{
	int *node_of = calloc((size_t)size, sizeof *node_of), next = 1, node = 0;
	struct gn_node_map *map;
	struct gn_err err;

	assert_non_null(node_of);
	for (int r = 0; r < size; r++) {
		if (kind == 1 && r == next) {
			node++;
			next += node + 1;
		}
		node_of[r] = kind == 0 ? r / 4 : kind == 1 ? node : r % ((size + 2) / 3);
	}
	assert_ok(gn_node_map_create(node_of, size, &map, &err));
	free(node_of);
	return map;
}

static uint32_t draw(uint64_t *state)
{
	return (uint32_t)((*state = *state * 6364136223846793005u + 1442695040888963407u) >> 33);
}

/* The map of a group, as gn_comm_split() makes it: members of a world of uneven nodes, every stride-th or at random, in any
 * order. */
static struct gn_node_map *map_of_group(uint64_t *seed, int size)
{
	int *node_of = calloc((size_t)size, sizeof *node_of), stride = (int)(draw(seed) % 4);
	int nodes = 1 + (int)(draw(seed) % (uint32_t)size);
	struct gn_node_map *map;
	struct gn_err err;

	assert_non_null(node_of);
	for (int r = 0; r < size; r++)
		node_of[r] = stride ? r * stride / 5 % nodes : (int)(draw(seed) % (uint32_t)nodes);
	for (int r = size - 1; r > 0 && draw(seed) % 2; r--) {
		int other = (int)(draw(seed) % (uint32_t)(r + 1)), node = node_of[r];

		node_of[r] = node_of[other];
		node_of[other] = node;
	}
	assert_ok(gn_node_map_create(node_of, size, &map, &err));
	free(node_of);
	return map;
}

/* Every algorithm that looks at nodes, in strided, uneven and shuffled groups. */
static void test_groups(void **state)
{
	uint64_t seed = (uint64_t)time(NULL), first = seed;
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);

	(void)state;
	print_message("seed %llu\n", (unsigned long long)first);
	for (int turn = 0; turn < 60; turn++) {
		int size = 2 + (int)(draw(&seed) % 16);
		struct gn_node_map *map = map_of_group(&seed, size);
		struct gn_algo_args args = {.size = size, .root = size - 1, .pieces = 1 + draw(&seed) % 3,
					    .with_copy = (int)(draw(&seed) % 2), .map = map};

		for (size_t i = 0; i < count; i++) {
			args.with_copy |= all[i].what == GN_COLLECTIVE_ALL_TO_ALL;
			prove(&all[i], &args);
		}
		gn_node_map_destroy(map);
	}
}

static void prove_size(const struct gn_algorithm *a, int size, uint32_t pieces, int with_copy)
{
	struct gn_algo_args args = {.size = size, .root = size * 2 / 3, .pieces = pieces, .with_copy = with_copy};

	prove(a, &args);
	if (!strstr(a->name, "hierarchical"))
		return;
	for (int kind = 0; kind < 3; kind++) {
		struct gn_node_map *map = map_of(kind, size);

		args.map = map;
		prove(a, &args);
		gn_node_map_destroy(map);
	}
}

static void test_all(void **state)
{
	const int is_long = getenv("GN_LONG") != NULL;
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		for (int size = 1; size <= SIZE_ALL_TESTED; size += size < SIZE_FULLY_TESTED || is_long ? 1 : 3)
			prove_size(&all[i], size, 1, 0);
		for (int size = 1; size <= SIZE_FULLY_TESTED; size++)
			for (uint32_t pieces = 1; pieces <= 4; pieces++)
				for (int with_copy = 0; with_copy < 2; with_copy++)
					prove_size(&all[i], size, pieces, with_copy);
	}
}

/* Every algorithm beyond 130 ranks, and in pieces that do not divide, from the first root and the last, below. */
static void test_some_more(void **state)
{
	static const int sizes[] = {31, 64, 97, 130};
	size_t count;
	const struct gn_algorithm *all = gn_algorithms(&count);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		prove_size(&all[i], 131, 1, 0);
		prove_size(&all[i], 256, 1, 1);
		for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
			struct gn_algo_args args = {.size = sizes[k], .pieces = 3};

			prove_size(&all[i], sizes[k], 3, 1);
			prove(&all[i], &args);
			args.root = args.size - 1;
			prove(&all[i], &args);
		}
	}
}

static void test_larger(void **state)
{
	static const char *const names[] = {"recursive-doubling", "halving-doubling", "double-tree", "hierarchical"};

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		const struct gn_algorithm *a = gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, names[i]);

		assert_non_null(a);
		for (int size = 255; size <= 257; size++)
			prove_size(a, size, 2, 0);
		prove_size(a, 600, 1, 1);
	}
	prove_size(gn_algorithm_find(GN_COLLECTIVE_ALLREDUCE, "ring"), 257, 1, 0);
	prove_size(gn_algorithm_find(GN_COLLECTIVE_ALLGATHER, "bruck"), 257, 2, 1);
	for (int size = 255; size <= 257; size++)
		prove_size(gn_algorithm_find(GN_COLLECTIVE_REDUCE_SCATTER, "recursive-halving"), size, 2, 1);
}

/* rotation symmetry: rank r's schedule is rank 0's with all peers r further. */
static void test_turns(void **state)
{
	size_t count, steps, others;
	const struct gn_algorithm *all = gn_algorithms(&count);

	(void)state;
	for (size_t i = 0; i < count; i++) {
		struct gn_algo_args args = {.size = 9, .pieces = 2};
		struct gn_schedule *zero, *five;
		struct gn_err err;

		if (!all[i].rotation_symmetric)
			continue;
		assert_ok(gn_algorithm_schedule(&all[i], &args, &zero, &err));
		args.rank = 5;
		assert_ok(gn_algorithm_schedule(&all[i], &args, &five, &err));
		const struct gn_step *a = gn_schedule_steps(zero, &steps), *b = gn_schedule_steps(five, &others);
		assert_int_equal(steps, others);
		for (size_t k = 0; k < steps; k++) {
			assert_int_equal(a[k].op, b[k].op);
			assert_int_equal((a[k].peer + 5) % 9, b[k].peer);
			assert_int_equal(a[k].message, b[k].message);
			assert_int_equal(a[k].chunk_count, b[k].chunk_count);
			assert_int_equal(a[k].dependency_count, b[k].dependency_count);
		}
		gn_schedule_destroy(zero);
		gn_schedule_destroy(five);
	}
}

/* --- breaking schedules --- */

struct set {
	struct gn_verify_case c;
	struct gn_verify_rank *ranks;
	struct gn_schedule **schedules;
};

static struct set write_set(enum gn_collective what, const char *name, int size, uint32_t pieces, int with_copy)
{
	const struct gn_algorithm *a = gn_algorithm_find(what, name);
	struct gn_algo_args args = {.size = size, .pieces = pieces, .with_copy = with_copy};
	struct set s = {.c = {what, size, 0, 0, with_copy}};
	struct gn_err err;

	assert_non_null(a);
	s.c.chunks = a->chunks(&args);
	s.ranks = calloc((size_t)size, sizeof *s.ranks);
	s.schedules = calloc((size_t)size, sizeof(struct gn_schedule *));
	assert_non_null(s.ranks);
	assert_non_null(s.schedules);
	for (args.rank = 0; args.rank < size; args.rank++) {
		struct gn_verify_rank *r = &s.ranks[args.rank];

		assert_ok(gn_algorithm_schedule(a, &args, &s.schedules[args.rank], &err));
		r->steps = gn_schedule_steps(s.schedules[args.rank], &r->count);
		r->dependencies = gn_schedule_dependencies(s.schedules[args.rank], &r->dependency_count);
	}
	assert_ok(gn_schedule_verify(&s.c, s.ranks, &err));
	return s;
}

static void free_set(struct set *s)
{
	for (int r = 0; r < s->c.size; r++)
		gn_schedule_destroy(s->schedules[r]);
	free(s->schedules);
	free(s->ranks);
}

static enum gn_status verify_with(const struct set *s, int rank, const struct gn_verify_rank *other)
{
	struct gn_verify_rank *ranks = malloc(sizeof *ranks * (size_t)s->c.size);
	enum gn_status status;

	assert_non_null(ranks);
	memcpy(ranks, s->ranks, sizeof *ranks * (size_t)s->c.size);
	ranks[rank] = *other;
	status = gn_schedule_verify(&s->c, ranks, NULL);
	free(ranks);
	return status;
}

/* A rank's steps and dependencies, to be changed, with room for one more of each. */
struct copy {
	struct gn_verify_rank r;
	struct gn_step *steps;
	uint32_t *dependencies;
};

static struct copy copy_rank(const struct gn_verify_rank *r)
{
	struct copy c = {.r = *r};

	c.steps = calloc(r->count + 1, sizeof *c.steps);
	c.dependencies = calloc(r->dependency_count + 1, sizeof *c.dependencies);
	assert_non_null(c.steps);
	assert_non_null(c.dependencies);
	memcpy(c.steps, r->steps, r->count * sizeof *c.steps);
	if (r->dependency_count)
		memcpy(c.dependencies, r->dependencies, r->dependency_count * sizeof *c.dependencies);
	c.r.steps = c.steps;
	c.r.dependencies = c.dependencies;
	return c;
}

static void free_copy(struct copy *c)
{
	free(c->steps);
	free(c->dependencies);
}

/* Dependency d of step i goes; the step's others close up. */
static void remove_dependency(struct copy *c, size_t i, uint32_t d)
{
	struct gn_step *s = &c->steps[i];

	for (uint32_t k = d; k + 1 < s->dependency_count; k++)
		c->dependencies[s->first_dependency + k] = c->dependencies[s->first_dependency + k + 1];
	s->dependency_count--;
}

static void drop_step(struct copy *c, size_t index)
{
	for (size_t i = index + 1; i < c->r.count; i++)
		for (uint32_t d = 0; d < c->steps[i].dependency_count;) {
			uint32_t *on = &c->dependencies[c->steps[i].first_dependency + d];

			if (*on == index) {
				remove_dependency(c, i, d);
				continue;
			}
			*on -= *on > index;
			d++;
		}
	memmove(&c->steps[index], &c->steps[index + 1], (c->r.count - index - 1) * sizeof *c->steps);
	c->r.count--;
}

static int reaches(const struct copy *c, uint32_t from, uint32_t goal)
{
	for (uint32_t d = 0; d < c->steps[from].dependency_count; d++) {
		uint32_t on = c->dependencies[c->steps[from].first_dependency + d];

		if (on == goal || (on > goal && reaches(c, on, goal)))
			return 1;
	}
	return 0;
}

/* Whether the two wait for the same steps: each may then do the other's work. */
static int wait_alike(const struct copy *c, size_t a, size_t b)
{
	const struct gn_step *x = &c->steps[a], *y = &c->steps[b];

	return x->dependency_count == y->dependency_count &&
	       !memcmp(&c->dependencies[x->first_dependency], &c->dependencies[y->first_dependency],
		       x->dependency_count * sizeof *c->dependencies);
}

enum { DROP, REPEAT, OTHER_CHUNK, OTHER_PEER, OTHER_MESSAGE, NOT_REDUCED, REDUCED, SWAPPED, KINDS };

/* Returns 0 where the change is none. */
static int break_step(struct copy *c, const struct set *s, int kind, size_t i)
{
	struct gn_step *step = &c->steps[i], swap;
	size_t k = i + 1;

	switch (kind) {
	case DROP:
		drop_step(c, i);
		return 1;
	case REPEAT:
		c->steps[c->r.count++] = *step;
		return 1;
	case OTHER_CHUNK:
		step->chunk = (step->chunk + 1) % s->c.chunks;
		return s->c.chunks > 1;
	case OTHER_PEER:
		step->peer = (step->peer + 1) % s->c.size;
		return step->op != GN_STEP_COPY;
	case OTHER_MESSAGE:
		step->message += 1;
		return step->op != GN_STEP_COPY;
	case NOT_REDUCED:
		if (step->op != GN_STEP_RECV_REDUCE)
			return 0;
		step->op = GN_STEP_RECV;
		return 1;
	case REDUCED:
		if (step->op != GN_STEP_RECV)
			return 0;
		step->op = GN_STEP_RECV_REDUCE;
		return 1;
	default: /* the next step of the kind, of another chunk, does its work here, under the old dependencies */
		while (k < c->r.count &&
		       (c->steps[k].op != step->op || c->steps[k].chunk == step->chunk || wait_alike(c, i, k)))
			k++;
		if (k == c->r.count || !c->steps[k].dependency_count || step->op == GN_STEP_COPY)
			return 0;
		swap = *step;
		step->chunk = c->steps[k].chunk;
		step->peer = c->steps[k].peer;
		step->message = c->steps[k].message;
		c->steps[k].chunk = swap.chunk;
		c->steps[k].peer = swap.peer;
		c->steps[k].message = swap.message;
		return 1;
	}
}

static void break_all(enum gn_collective what, const char *name, int size, uint32_t pieces, int with_copy)
{
	struct set s = write_set(what, name, size, pieces, with_copy);
	int broken = 0, dependencies = 0;

	for (int r = 0; r < size; r++)
		for (size_t i = 0; i < s.ranks[r].count; i++) {
			for (int kind = 0; kind < KINDS; kind++) {
				struct copy c = copy_rank(&s.ranks[r]);

				if (break_step(&c, &s, kind, i)) {
					broken++;
					if (!verify_with(&s, r, &c.r))
						fail_msg("%s, %d ranks: change %d of rank %d's step %zu goes unnoticed", name,
							 size, kind, r, i);
				}
				free_copy(&c);
			}
			for (uint32_t d = 0; d < s.ranks[r].steps[i].dependency_count; d++) {
				struct copy c = copy_rank(&s.ranks[r]);
				uint32_t on = c.dependencies[c.steps[i].first_dependency + d];

				remove_dependency(&c, i, d);
				/* one that others imply is not missed */
				if ((verify_with(&s, r, &c.r) == GN_OK) != reaches(&c, (uint32_t)i, on))
					fail_msg("%s, %d ranks: rank %d's step %zu without waiting for %u", name, size, r, i, on);
				dependencies += !reaches(&c, (uint32_t)i, on);
				free_copy(&c);
			}
		}
	assert_true(broken > 0);
	assert_true(dependencies > 0 || what == GN_COLLECTIVE_ALL_TO_ALL);
	free_set(&s);
}

static void test_broken(void **state)
{
	(void)state;
	break_all(GN_COLLECTIVE_ALLREDUCE, "ring", 5, 1, 0);
	break_all(GN_COLLECTIVE_ALLREDUCE, "ring", 3, 2, 1);
	break_all(GN_COLLECTIVE_ALLREDUCE, "recursive-doubling", 6, 1, 0);
	break_all(GN_COLLECTIVE_ALLREDUCE, "halving-doubling", 6, 1, 0);
	break_all(GN_COLLECTIVE_ALLREDUCE, "double-tree", 7, 1, 0);
	break_all(GN_COLLECTIVE_ALLREDUCE, "hierarchical", 4, 1, 0);
	break_all(GN_COLLECTIVE_ALLGATHER, "ring", 5, 1, 1);
	break_all(GN_COLLECTIVE_ALLGATHER, "bruck", 6, 2, 1);
	break_all(GN_COLLECTIVE_REDUCE_SCATTER, "recursive-halving", 7, 2, 0);
	break_all(GN_COLLECTIVE_BROADCAST, "binomial", 7, 2, 0);
	break_all(GN_COLLECTIVE_REDUCE, "binomial", 7, 2, 0);
}

/* Both ends of one message take another chunk: only the contributions tell. */
static void test_other_chunk_at_both_ends(void **state)
{
	struct set s = write_set(GN_COLLECTIVE_ALLREDUCE, "recursive-doubling", 4, 2, 0);
	struct copy zero = copy_rank(&s.ranks[0]), one = copy_rank(&s.ranks[1]);

	(void)state;
	/* rank 0 sends chunk 1 instead of 0, and rank 1 adds it there: chunk 1 gets it twice */
	for (size_t i = 0; i < zero.r.count; i++)
		if (zero.steps[i].op == GN_STEP_SEND && zero.steps[i].peer == 1 && zero.steps[i].chunk == 0)
			zero.steps[i].chunk = 1;
	for (size_t i = 0; i < one.r.count; i++)
		if (one.steps[i].op == GN_STEP_RECV_REDUCE && one.steps[i].peer == 0 && one.steps[i].chunk == 0)
			one.steps[i].chunk = 1;
	s.ranks[0] = zero.r;
	assert_int_equal(verify_with(&s, 1, &one.r), GN_ERR_FAILED);
	/* operands the other way around: other bits on one side */
	free_copy(&one);
	s.ranks[0].steps = gn_schedule_steps(s.schedules[0], &s.ranks[0].count);
	s.ranks[0].dependencies = gn_schedule_dependencies(s.schedules[0], &s.ranks[0].dependency_count);
	one = copy_rank(&s.ranks[1]);
	for (size_t i = 0; i < one.r.count; i++)
		one.steps[i].from_left = 0;
	assert_int_equal(verify_with(&s, 1, &one.r), GN_ERR_FAILED);
	free_copy(&zero);
	free_copy(&one);
	free_set(&s);
}

static void expect(enum gn_status wanted, const char *pattern, const struct gn_verify_case *c,
		   const struct gn_verify_rank *ranks)
{
	struct gn_err err = {0};

	assert_int_equal(gn_schedule_verify(c, ranks, &err), wanted);
	if (wanted && !strstr(err.text, pattern))
		fail_msg("'%s' does not say '%s'", err.text, pattern);
}

static void test_deadlock(void **state)
{
	static const uint32_t before[] = {0};
	/* each waits for the other's message before it sends its own */
	struct gn_step zero[] = {{.op = GN_STEP_RECV, .peer = 1, .chunk = 0, .chunk_count = 1},
				 {.op = GN_STEP_SEND, .peer = 1, .chunk = 1, .chunk_count = 1, .dependency_count = 1}};
	struct gn_step one[] = {{.op = GN_STEP_RECV, .peer = 0, .chunk = 1, .chunk_count = 1},
				{.op = GN_STEP_SEND, .peer = 0, .chunk = 0, .chunk_count = 1, .dependency_count = 1}};
	struct gn_verify_rank ranks[] = {{zero, before, 2, 1}, {one, before, 2, 1}};
	struct gn_verify_case c = {GN_COLLECTIVE_REDUCE, 2, 0, 2, 0};

	(void)state;
	expect(GN_ERR_FAILED, "deadlock", &c, ranks);
}

/* Sound with two buffers; with one, rank 0 keeps it for rank 1's message, which waits for what rank 2's is needed for. */
static void test_deadlock_of_buffers(void **state)
{
	static const uint32_t zero_on[] = {1, 0}, one_on[] = {0, 1, 2};
	struct gn_step zero[] = {
		{.op = GN_STEP_RECV_REDUCE, .peer = 1, .chunk = 0, .chunk_count = 1},
		{.op = GN_STEP_RECV_REDUCE, .peer = 2, .chunk = 1, .chunk_count = 1},
		{.op = GN_STEP_SEND, .peer = 1, .chunk = 1, .chunk_count = 1, .dependency_count = 1},
		{.op = GN_STEP_SEND, .peer = 1, .chunk = 0, .chunk_count = 1, .message = 1, .first_dependency = 1,
		 .dependency_count = 1},
	};
	struct gn_step one[] = {
		{.op = GN_STEP_RECV_REDUCE, .peer = 0, .chunk = 1, .chunk_count = 1},
		{.op = GN_STEP_SEND, .peer = 0, .chunk = 0, .chunk_count = 1, .dependency_count = 1},
		{.op = GN_STEP_RECV, .peer = 0, .chunk = 0, .chunk_count = 1, .message = 1, .first_dependency = 1,
		 .dependency_count = 1},
		{.op = GN_STEP_RECV_REDUCE, .peer = 2, .chunk = 0, .chunk_count = 1, .first_dependency = 2,
		 .dependency_count = 1},
	};
	struct gn_step two[] = {{.op = GN_STEP_SEND, .peer = 0, .chunk = 1, .chunk_count = 1},
				{.op = GN_STEP_SEND, .peer = 1, .chunk = 0, .chunk_count = 1}};
	struct gn_verify_rank ranks[] = {{zero, zero_on, 4, 2}, {one, one_on, 4, 3}, {two, NULL, 2, 0}};
	struct gn_verify_case c = {GN_COLLECTIVE_REDUCE, 3, 1, 2, 0};

	(void)state;
	expect(GN_ERR_FAILED, "one receive buffer", &c, ranks);
	/* rank 2's first: sound */
	zero[0] = (struct gn_step){.op = GN_STEP_RECV_REDUCE, .peer = 2, .chunk = 1, .chunk_count = 1};
	zero[1] = (struct gn_step){.op = GN_STEP_RECV_REDUCE, .peer = 1, .chunk = 0, .chunk_count = 1};
	zero[2].first_dependency = 1;
	zero[3].first_dependency = 0;
	expect(GN_OK, "", &c, ranks);
}

static void test_nonsense(void **state)
{
	static const uint32_t forward[] = {1};
	struct gn_step step = {.op = 9, .chunk_count = 1};
	struct gn_verify_rank ranks[] = {{&step, forward, 1, 1}, {NULL, NULL, 0, 0}};
	struct gn_verify_case c = {GN_COLLECTIVE_ALLREDUCE, 2, 0, 1, 0};

	(void)state;
	expect(GN_ERR_FAILED, "unknown operation", &c, ranks);
	step.op = GN_STEP_SEND;
	expect(GN_ERR_FAILED, "peer", &c, ranks);
	step.peer = 7;
	expect(GN_ERR_FAILED, "peer", &c, ranks);
	step.peer = 1;
	expect(GN_ERR_FAILED, "never received", &c, ranks);
	step.chunk_count = 2;
	expect(GN_ERR_FAILED, "chunks", &c, ranks);
	step.chunk_count = 1;
	step.dependency_count = 1;
	expect(GN_ERR_FAILED, "later", &c, ranks);
	step.first_dependency = UINT32_MAX;
	expect(GN_ERR_FAILED, "outside", &c, ranks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_deadlock),
		cmocka_unit_test(test_deadlock_of_buffers),
		cmocka_unit_test(test_other_chunk_at_both_ends),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_some_more), cmocka_unit_test(test_larger),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
