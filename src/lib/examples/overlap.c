/* Two groups at once: ranks of the same parity sum up a vector while all ranks gather their rank numbers; both operations are prepared once,
 * started together, and polled while the program computes. */
#include <gannet.h>

#include <stdio.h>
#include <stdlib.h>

#define COUNT 100000
#define ROUNDS 20

static int fail(void)
{
	fprintf(stderr, "%s\n", gannet_error());
	return 1;
}

static int both(gannet_op *a, gannet_op *b, unsigned long *computed)
{
	int done_a = 0, done_b = 0;

	if (gannet_start(a) || gannet_start(b))
		return fail();
	while (!done_a || !done_b) {
		++*computed;
		if ((!done_a && gannet_test(a, &done_a)) || (!done_b && gannet_test(b, &done_b)))
			return fail();
	}
	return 0;
}

static int run(gannet_group *world, gannet_group *half, float *vector, int *ranks)
{
	gannet_args sum = {.size_bytes = sizeof sum, .what = GANNET_ALLREDUCE, .out = vector, .count = COUNT, .type = GANNET_F32};
	gannet_args gather = {.size_bytes = sizeof gather, .what = GANNET_ALLGATHER, .out = ranks, .count = 1, .type = GANNET_I32};
	gannet_op *a, *b;
	unsigned long computed = 0;
	int size = gannet_size(world), rank = gannet_rank(world);

	if (gannet_prepare(half, &sum, &a) || gannet_prepare(world, &gather, &b))
		return fail();
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < COUNT; i++)
			vector[i] = (float)(i % 7);
		ranks[rank] = rank + round;
		if (both(a, b, &computed))
			return 1;
		for (int i = 0; i < COUNT; i++)
			if (vector[i] != (float)(i % 7 * gannet_size(half)))
				return printf("element %d is %g\n", i, (double)vector[i]), 1;
		for (int r = 0; r < size; r++)
			if (ranks[r] != r + round)
				return printf("rank %d's number is %d\n", r, ranks[r]), 1;
	}
	if (rank == 0)
		printf("%d ranks, %d rounds in two groups: right\n", size, ROUNDS);
	return 0;
}

int main(void)
{
	gannet_group *world, *half;
	float *vector = malloc(COUNT * sizeof *vector);
	int *ranks, code;

	if (!vector || gannet_init(NULL, &world) || gannet_split(world, gannet_rank(world) % 2, 0, "parity", &half))
		return fail();
	ranks = calloc((size_t)gannet_size(world), sizeof *ranks);
	code = ranks ? run(world, half, vector, ranks) : 1;
	gannet_finalize();
	free(vector);
	free(ranks);
	return code;
}
