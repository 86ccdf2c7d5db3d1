/* Heat in a rod that the ranks share: each rank has a stretch of it and sends its end points to its neighbours by prepared messages; every
 * 100 steps all ranks sum up the heat, which stays the same. The stretches are in memory that ranks of a node reach directly. */
#include <gannet.h>

#include <math.h>
#include <stdio.h>

#define POINTS 1000
#define STEPS 1000

static int fail(void)
{
	fprintf(stderr, "%s\n", gannet_error());
	return 1;
}

/* The messages of both neighbours, which are their last or first points, go to the points beyond the own ones. */
static int prepare(gannet_group *world, double *points, gannet_op *ops[4], int *count)
{
	int rank = gannet_rank(world), last = gannet_size(world) - 1;
	size_t len = sizeof *points;

	if (rank > 0 && (gannet_prepare_send(world, rank - 1, 0, points + 1, len, &ops[(*count)++]) ||
			 gannet_prepare_receive(world, rank - 1, 1, points, len, &ops[(*count)++])))
		return 1;
	return rank < last && (gannet_prepare_send(world, rank + 1, 1, points + POINTS, len, &ops[(*count)++]) ||
			       gannet_prepare_receive(world, rank + 1, 0, points + POINTS + 1, len, &ops[(*count)++]));
}

static void step(gannet_group *world, double *points)
{
	double before = points[0];

	/* nothing flows out at the ends of the rod */
	if (gannet_rank(world) == 0)
		before = points[1];
	if (gannet_rank(world) == gannet_size(world) - 1)
		points[POINTS + 1] = points[POINTS];
	for (int i = 1; i <= POINTS; i++) {
		double here = points[i];

		points[i] += 0.25 * (before - 2 * here + points[i + 1]);
		before = here;
	}
}

static int run(gannet_group *world, double *points)
{
	gannet_op *ops[4];
	int count = 0;

	if (prepare(world, points, ops, &count))
		return fail();
	for (int n = 1; n <= STEPS; n++) {
		double heat = 0;

		for (int i = 0; i < count; i++)
			if (gannet_start(ops[i]))
				return fail();
		for (int i = 0; i < count; i++)
			if (gannet_wait(ops[i]))
				return fail();
		step(world, points);
		if (n % 100)
			continue;
		for (int i = 1; i <= POINTS; i++)
			heat += points[i];
		if (gannet_allreduce(world, NULL, &heat, 1, GANNET_F64, GANNET_SUM))
			return fail();
		if (fabs(heat - 100) > 1e-9)
			return printf("step %d: heat %.12g, not 100\n", n, heat), 1;
	}
	return 0;
}

int main(void)
{
	gannet_group *world;
	void *points;
	int code;

	if (gannet_init(NULL, &world))
		return fail();
	if (gannet_alloc(world, (POINTS + 2) * sizeof(double), &points))
		return fail();
	if (gannet_rank(world) == 0)
		((double *)points)[POINTS] = 100;
	code = run(world, points);
	if (!code && gannet_rank(world) == 0)
		printf("%d ranks, %d steps: heat 100\n", gannet_size(world), STEPS);
	gannet_finalize();
	return code;
}
