/* Building blocks of algorithms: an allreduce among some of the ranks over some of the chunks, appended to a schedule.
 *
 * The members are all ranks, or with a map the ranks with the same local index on each node: hierarchical algorithms use the flat
 * ones between nodes. Private to algo*.c.
 */
#ifndef GN_TRANSPORT_SCHEDULE_ALGO_PART_H
#define GN_TRANSPORT_SCHEDULE_ALGO_PART_H

#include "transport/schedule/algo.h"

struct gn_part {
	struct gn_schedule *schedule;
	int size, place;	       /* the number of members; the index of this rank among them */
	const struct gn_node_map *map; /* NULL: the index is the rank */
	int local;		       /* with a map: the members' local index on their nodes */
	uint32_t first_chunk, pieces, first_message;
};

/* Writes the allreduce; the number of chunks it covers from first_chunk on; the number of messages from first_message on. */
struct gn_part_algorithm {
	void (*write)(const struct gn_part *p);
	uint32_t (*chunks)(int size, uint32_t pieces);
	uint32_t (*messages)(int size); /* of one piece */
};

extern const struct gn_part_algorithm gn_part_ring, gn_part_halving_doubling;

/* The rank of a member. */
static inline int gn_part_rank(const struct gn_part *p, int place)
{
	return p->map ? p->map->members[p->map->first[place] + p->local] : place;
}

/* All ranks, all chunks. */
static inline struct gn_part gn_part_all(struct gn_schedule *s, const struct gn_algo_args *a)
{
	return (struct gn_part){.schedule = s, .size = a->size, .place = a->rank, .pieces = a->pieces};
}

/* Folding of sizes that are not a power of two: with 2^k the largest power not above size, the first 2 (size - 2^k) members form
 * pairs. The even member of a pair sends its value to the odd one, is passive, and receives the result at the end. The active
 * members have numbers 0 .. 2^k - 1. */
struct gn_fold {
	int power, rounds, extra, number; /* power = 2^rounds; extra: the number of pairs; number: -1 for a passive member */
};

static inline struct gn_fold gn_fold_of(const struct gn_part *p)
{
	struct gn_fold f = {.power = 1};

	for (; f.power * 2 <= p->size; f.power *= 2)
		f.rounds++;
	f.extra = p->size - f.power;
	if (p->place < 2 * f.extra)
		f.number = p->place % 2 ? p->place / 2 : -1;
	else
		f.number = p->place - f.extra;
	return f;
}

/* The member of an active number. */
static inline int gn_fold_place(const struct gn_fold *f, int number)
{
	return number < f->extra ? 2 * number + 1 : number + f->extra;
}

/* Functions that write whole schedules, for the table in algo.c. */
void gn_write_recursive_doubling(struct gn_schedule *s, const struct gn_algo_args *a);
void gn_write_double_tree(struct gn_schedule *s, const struct gn_algo_args *a);
void gn_write_hierarchical(struct gn_schedule *s, const struct gn_algo_args *a);
void gn_write_hierarchical_ring(struct gn_schedule *s, const struct gn_algo_args *a);
uint32_t gn_chunks_hierarchical(const struct gn_algo_args *a);
uint32_t gn_chunks_hierarchical_ring(const struct gn_algo_args *a);
void gn_write_ring_reduce_scatter(struct gn_schedule *s, const struct gn_algo_args *a);
void gn_write_recursive_halving_reduce_scatter(struct gn_schedule *s, const struct gn_algo_args *a);
void gn_write_ring_allgather(struct gn_schedule *s, const struct gn_algo_args *a);
void gn_write_bruck_allgather(struct gn_schedule *s, const struct gn_algo_args *a);
void gn_write_pairwise_reduce_scatter(struct gn_schedule *s, const struct gn_algo_args *a);
void gn_write_pairwise_allgather(struct gn_schedule *s, const struct gn_algo_args *a);
void gn_write_pairwise_all_to_all(struct gn_schedule *s, const struct gn_algo_args *a);
/* k-nomial trees. */
void gn_write_broadcast_tree(struct gn_schedule *s, const struct gn_algo_args *a, int radix);
void gn_write_reduce_tree(struct gn_schedule *s, const struct gn_algo_args *a, int radix);

#endif
