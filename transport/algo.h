/* The algorithms: functions that write a rank's schedule. One file each.
 *
 * All are defined for every size >= 1 and every piece count >= 1, and every rank must call with the same arguments but rank.
 * pieces cuts what moves at once, for overlap: the caller picks it by message size. with_copy makes the schedule begin by
 * taking its input from another buffer.
 */
#ifndef GN_TRANSPORT_ALGO_H
#define GN_TRANSPORT_ALGO_H

#include "transport/schedule.h"

/* Reduce-scatter then allgather around a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters
 * of workstations", 2009): size * pieces chunks, 2 (size - 1) rounds, 2 (size - 1) / size of the buffer sent by each
 * rank. Each chunk is summed in one order, so all ranks get the same bits. */
enum gn_status gn_algo_ring(int rank, int size, uint32_t pieces, int with_copy, struct gn_schedule **out,
			    struct gn_err *err);
/* Pairs exchange all they have, at distances 1, 2, 4, ... (Thakur, Rabenseifner and Gropp, "Optimization of collective
 * communication operations in MPICH", 2005): pieces chunks, log2(size) rounds. Sizes that are no power of two fold the
 * extra ranks into neighbours first. The lower rank's value is the left operand on both sides: the same bits. */
enum gn_status gn_algo_recursive_doubling(int rank, int size, uint32_t pieces, int with_copy, struct gn_schedule **out,
					  struct gn_err *err);
/* A binomial tree from root, pieces chunks. */
enum gn_status gn_algo_broadcast(int rank, int size, int root, uint32_t pieces, struct gn_schedule **out,
				 struct gn_err *err);

#endif
