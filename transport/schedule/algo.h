/* The algorithms: functions that write a rank's schedule, one file each, and the one table of them that the choice by size,
 * --algo, the verifier and the simulator read.
 *
 * All are defined for every size >= 1 and every piece count >= 1, and every rank must ask with the same arguments but rank.
 * pieces cuts what moves at once, for overlap: the caller picks it by message size. Where a collective deals in blocks, one
 * for each rank, chunks are blocks cut into pieces: the element count has to be a multiple of the chunks, or blocks would
 * differ in size (the executor can be given blocks of other sizes, exec.h).
 *
 * What a schedule leaves where: reduce-scatter, block r of the sum at rank r, the rest of the buffer is used up; allgather,
 * rank r gives block r; reduce, the sum at root, other ranks' buffers are used up; all-to-all, block q of rank r's input
 * becomes block r of rank q's output, never in place.
 */
#ifndef GN_TRANSPORT_SCHEDULE_ALGO_H
#define GN_TRANSPORT_SCHEDULE_ALGO_H

#include "transport/schedule/schedule.h"
#include "transport/schedule/types.h"

/* Which rank is where: nodes of any sizes, numbered by their first rank. Read-only once made. */
struct gn_shm_map {
	int size, nodes, smallest; /* ranks; nodes; ranks on the smallest node */
	int *node, *local;	   /* of each rank: its node, and its place among that node's ranks */
	int *first, *members;	   /* node n's ranks, ascending: members[first[n]] .. members[first[n + 1] - 1] */
};

/* node_of[r] >= 0 names rank r's node, by any number below size. */
enum gn_status gn_shm_map_create(const int *node_of, int size, struct gn_shm_map **out, struct gn_err *err);
void gn_shm_map_destroy(struct gn_shm_map *m);

struct gn_algo_args {
	int rank, size, root;
	uint32_t pieces;
	int with_copy;			/* take the input from another buffer first */
	const struct gn_shm_map *map;	/* hierarchical ones need it; NULL: one node */
};

struct gn_algorithm {
	const char *name; /* unique within the collective */
	enum gn_collective what;
	uint32_t (*chunks)(const struct gn_algo_args *args);
	void (*write)(struct gn_schedule *s, const struct gn_algo_args *args);
	/* rank r + k's schedule is rank r's with all peers k further: one rank stands for all (sim.h) */
	int turns;
};

/* All of them, allreduce first. */
const struct gn_algorithm *gn_algorithms(size_t *count);
/* To how many ranks one of `size` connects at most when it runs every algorithm but the direct ones, which connect all with all:
 * about three times log2(size). */
int gn_algorithms_peers(int size);
/* NULL when there is none of that name. */
const struct gn_algorithm *gn_algorithm_find(enum gn_collective what, const char *name);
/* args->rank's schedule; GN_ERR_USAGE when the arguments make no sense. */
enum gn_status gn_algorithm_schedule(const struct gn_algorithm *a, const struct gn_algo_args *args,
				     struct gn_schedule **out, struct gn_err *err);

/* *out = of how many equal parts of the buffer, uncut, one is the largest message. args->rank and args->pieces do not matter. */
enum gn_status gn_algorithm_parts(const struct gn_algorithm *a, const struct gn_algo_args *args, double *out,
				  struct gn_err *err);
/* How many pieces (1 to 64) make that message piece_bytes long or little more, for a buffer of bytes. */
uint32_t gn_algorithm_pieces(double parts, size_t bytes, size_t piece_bytes);

/* Three by name. */
enum gn_status gn_algo_ring(int rank, int size, uint32_t pieces, int with_copy, struct gn_schedule **out,
			    struct gn_err *err);
enum gn_status gn_algo_recursive_doubling(int rank, int size, uint32_t pieces, int with_copy, struct gn_schedule **out,
					  struct gn_err *err);
/* A binomial tree from root, pieces chunks. */
enum gn_status gn_algo_broadcast(int rank, int size, int root, uint32_t pieces, struct gn_schedule **out,
				 struct gn_err *err);

#endif
