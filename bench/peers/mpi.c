/* Any MPI: MPI_Allreduce as it comes. */
#include "bench/peers/peer.h"

#include <limits.h>
#include <mpi.h>

void peer_open(int *argc, char ***argv, int ranks, size_t buffer_bytes, struct peer *p)
{
	(void)ranks;
	if (MPI_Init(argc, argv))
		peer_fail("MPI_Init failed");
	MPI_Comm_rank(MPI_COMM_WORLD, &p->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &p->size);
	if (buffer_bytes / sizeof(float) > INT_MAX)
		peer_fail("MPI counts are ints");
	/* by MPI, which may know better memory than malloc does */
	if (MPI_Alloc_mem((MPI_Aint)buffer_bytes, MPI_INFO_NULL, &p->in) ||
	    MPI_Alloc_mem((MPI_Aint)buffer_bytes, MPI_INFO_NULL, &p->out))
		peer_fail("MPI_Alloc_mem failed");
}

void peer_sum(struct peer *p, const float *in, float *out, size_t count)
{
	(void)p;
	MPI_Allreduce(in ? in : MPI_IN_PLACE, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void peer_max(struct peer *p, double *values, size_t count)
{
	(void)p;
	MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

void peer_close(struct peer *p)
{
	MPI_Free_mem(p->in);
	MPI_Free_mem(p->out);
	MPI_Finalize();
}
