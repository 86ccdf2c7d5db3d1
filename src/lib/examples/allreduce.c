/* The sum of a number over all ranks:
 *
 *     cc allreduce.c $(pkg-config --cflags --libs libgannet) -o allreduce
 *     srun --mpi=pmix -n 4 ./allreduce          (or: gannet launch -n 4 ./allreduce)
 */
#include <gannet.h>

#include <stdio.h>

int main(void)
{
	gannet_group *world;
	double sum, largest;
	int code = 0;

	if (gannet_init(NULL, &world)) {
		fprintf(stderr, "%s\n", gannet_error());
		return 1;
	}
	sum = largest = gannet_rank(world) + 1;
	/* in place; and a second one with another reduction */
	if (gannet_allreduce(world, NULL, &sum, 1, GANNET_F64, GANNET_SUM) || gannet_allreduce(world, NULL, &largest, 1, GANNET_F64, GANNET_MAX)) {
		fprintf(stderr, "%s\n", gannet_error());
		code = 1;
	} else if (gannet_rank(world) == 0) {
		printf("%d ranks, rank 0 on %s: sum %g, largest %g\n", gannet_size(world), gannet_host(world, 0), sum, largest);
	}
	gannet_finalize();
	return code;
}
