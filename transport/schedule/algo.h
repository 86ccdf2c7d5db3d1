/* The algorithms of collectives: functions that write a rank's schedule, one file each, and the table of them that the selection by
 * size, --algo, the verifier and the simulator read.
 *
 * All are defined for every size >= 1 and every number of pieces >= 1. All ranks must pass the same arguments except rank. `pieces`
 * cuts what is sent at once, for overlap: the caller chooses it by message size. Where a collective works on blocks, one per rank,
 * chunks are blocks cut into pieces: the element count has to be a multiple of the number of chunks, or blocks would differ in size
 * (the executor accepts blocks of other sizes).
 *
 * Results: reduce-scatter leaves block r of the sum on rank r and overwrites the rest of the buffer; allgather takes block r from
 * rank r; reduce leaves the sum on root and overwrites the buffers of other ranks; all-to-all moves block q of rank r's input to
 * block r of rank q's output and is never in place.
 *
 * Thread safety: any thread, no shared state.
 */
#ifndef GN_TRANSPORT_SCHEDULE_ALGO_H
#define GN_TRANSPORT_SCHEDULE_ALGO_H

#include "transport/schedule/schedule.h"
#include "transport/schedule/types.h"

/* The ranks of each node; nodes may differ in size and are numbered by their lowest rank. Read-only. */
struct gn_node_map {
	int size, nodes, smallest; /* ranks; nodes; ranks on the smallest node */
	int *node, *local;	   /* [rank]: its node, and its index among that node's ranks */
	int *first, *members;	   /* node n's ranks in ascending order: members[first[n]] .. members[first[n + 1] - 1] */
};

/* node_of[r] >= 0: rank r's node, any number below size. */
enum gn_status gn_node_map_create(const int *node_of, int size, struct gn_node_map **out, struct gn_err *err);
void gn_node_map_destroy(struct gn_node_map *m);

struct gn_algo_args {
	int rank, size, root;
	uint32_t pieces;
	int with_copy;			/* out of place: copies the input to the output first */
	const struct gn_node_map *map;	/* for hierarchical algorithms; NULL: one node */
};

struct gn_algorithm {
	const char *name; /* unique within the collective */
	enum gn_collective what;
	uint32_t (*chunks)(const struct gn_algo_args *args);
	void (*write)(struct gn_schedule *s, const struct gn_algo_args *args);
	/* Rank r + k's schedule is rank r's with k added to all peers, modulo size: the simulator may simulate some ranks only
	 * (sim.h). */
	int rotation_symmetric;
	const struct gn_part_algorithm *part; /* of all ranks and chunks, where write is NULL */
};

/* All algorithms, allreduce first. Static. */
const struct gn_algorithm *gn_algorithms(size_t *count);
/* The largest number of peers of a rank over all algorithms but the pairwise ones ("direct"), which connect all ranks: about three
 * times log2(size). */
int gn_algorithms_peers(int size);
/* NULL when there is none of that name. */
const struct gn_algorithm *gn_algorithm_find(enum gn_collective what, const char *name);
/* Writes the schedule of args->rank; GN_ERR_USAGE when the arguments are invalid. */
enum gn_status gn_algorithm_schedule(const struct gn_algorithm *a, const struct gn_algo_args *args,
				     struct gn_schedule **out, struct gn_err *err);

/* *out = the size of the buffer in units of the largest message when pieces is 1. args->rank and args->pieces are ignored. */
enum gn_status gn_algorithm_parts(const struct gn_algorithm *a, const struct gn_algo_args *args, double *out,
				  struct gn_err *err);
/* The number of pieces (1 to 64) with which that message is about piece_bytes long, not less, for a buffer of `bytes`. */
uint32_t gn_algorithm_pieces(double parts, size_t bytes, size_t piece_bytes);

#endif
