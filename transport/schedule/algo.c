#include "transport/schedule/algo.h"

#include "transport/schedule/algo_part.h"

#include <stdlib.h>
#include <string.h>

#define WIDE_RADIX 4
/* More pieces do not increase the overlap. */
#define PIECES_MAX 64

static uint32_t chunks_pieces(const struct gn_algo_args *a)
{
	return a->pieces;
}

static uint32_t chunks_twice(const struct gn_algo_args *a)
{
	return 2 * a->pieces;
}

static uint32_t chunks_blocks(const struct gn_algo_args *a)
{
	return (uint32_t)a->size * a->pieces;
}

static uint32_t chunks_halving(const struct gn_algo_args *a)
{
	return gn_part_halving_doubling.chunks(a->size, a->pieces);
}

static void write_binomial_broadcast(struct gn_schedule *s, const struct gn_algo_args *a)
{
	gn_write_broadcast_tree(s, a, 2);
}

static void write_wide_broadcast(struct gn_schedule *s, const struct gn_algo_args *a)
{
	gn_write_broadcast_tree(s, a, WIDE_RADIX);
}

static void write_binomial_reduce(struct gn_schedule *s, const struct gn_algo_args *a)
{
	gn_write_reduce_tree(s, a, 2);
}

static void write_wide_reduce(struct gn_schedule *s, const struct gn_algo_args *a)
{
	gn_write_reduce_tree(s, a, WIDE_RADIX);
}

static const struct gn_algorithm table[] = {
	{"ring", GN_COLLECTIVE_ALLREDUCE, chunks_blocks, NULL, 1, &gn_part_ring},
	{"recursive-doubling", GN_COLLECTIVE_ALLREDUCE, chunks_pieces, gn_write_recursive_doubling, 0, NULL},
	{"halving-doubling", GN_COLLECTIVE_ALLREDUCE, chunks_halving, NULL, 0, &gn_part_halving_doubling},
	{"double-tree", GN_COLLECTIVE_ALLREDUCE, chunks_twice, gn_write_double_tree, 0, NULL},
	{"hierarchical", GN_COLLECTIVE_ALLREDUCE, gn_chunks_hierarchical, gn_write_hierarchical, 0, NULL},
	{"hierarchical-ring", GN_COLLECTIVE_ALLREDUCE, gn_chunks_hierarchical_ring, gn_write_hierarchical_ring, 0, NULL},
	{"ring", GN_COLLECTIVE_REDUCE_SCATTER, chunks_blocks, gn_write_ring_reduce_scatter, 1, NULL},
	{"direct", GN_COLLECTIVE_REDUCE_SCATTER, chunks_blocks, gn_write_pairwise_reduce_scatter, 1, NULL},
	{"recursive-halving", GN_COLLECTIVE_REDUCE_SCATTER, chunks_blocks, gn_write_recursive_halving_reduce_scatter, 0, NULL},
	{"ring", GN_COLLECTIVE_ALLGATHER, chunks_blocks, gn_write_ring_allgather, 1, NULL},
	{"direct", GN_COLLECTIVE_ALLGATHER, chunks_blocks, gn_write_pairwise_allgather, 1, NULL},
	{"bruck", GN_COLLECTIVE_ALLGATHER, chunks_blocks, gn_write_bruck_allgather, 0, NULL},
	{"binomial", GN_COLLECTIVE_BROADCAST, chunks_pieces, write_binomial_broadcast, 0, NULL},
	{"4-nomial", GN_COLLECTIVE_BROADCAST, chunks_pieces, write_wide_broadcast, 0, NULL},
	{"binomial", GN_COLLECTIVE_REDUCE, chunks_pieces, write_binomial_reduce, 0, NULL},
	{"4-nomial", GN_COLLECTIVE_REDUCE, chunks_pieces, write_wide_reduce, 0, NULL},
	/* an allreduce completes on no rank before all have contributed: it is a barrier */
	{"recursive-doubling", GN_COLLECTIVE_BARRIER, chunks_pieces, gn_write_recursive_doubling, 0, NULL},
	{"direct", GN_COLLECTIVE_ALL_TO_ALL, chunks_blocks, gn_write_pairwise_all_to_all, 1, NULL},
};

const struct gn_algorithm *gn_algorithms(size_t *count)
{
	*count = sizeof table / sizeof *table;
	return table;
}

/* Most peers are at distances of powers of two to either side, among all ranks and among those that are active after folding; the
 * others are those of the trees. tests/transport/test_schedule counts them for sizes up to 1024. */
int gn_algorithms_peers(int size)
{
	int bits = 0;

	while (bits < 30 && 1 << bits < size)
		bits++;
	return size - 1 < 3 * bits + 4 ? size - 1 : 3 * bits + 4;
}

const struct gn_algorithm *gn_algorithm_find(enum gn_collective what, const char *name)
{
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (table[i].what == what && !strcmp(table[i].name, name))
			return &table[i];
	return NULL;
}

static enum gn_status check(const struct gn_algo_args *a, struct gn_err *err)
{
	if (a->size < 1 || a->rank < 0 || a->rank >= a->size || a->root < 0 || a->root >= a->size || !a->pieces)
		return gn_err_set(err, GN_ERR_USAGE, "invalid arguments of a schedule: rank %d of %d, root %d, %u pieces", a->rank,
				  a->size, a->root, a->pieces);
	if (a->map && a->map->size != a->size)
		return gn_err_set(err, GN_ERR_USAGE, "a node map of %d ranks for a group of %d", a->map->size, a->size);
	return GN_OK;
}

static void write_copies(struct gn_schedule *s, const struct gn_algorithm *a, const struct gn_algo_args *args)
{
	uint32_t first = 0, end = gn_schedule_chunks(s);

	/* all-to-all copies by itself; allgather's input is one block; only root has an input to broadcast */
	if (!args->with_copy || a->what == GN_COLLECTIVE_ALL_TO_ALL ||
	    (a->what == GN_COLLECTIVE_BROADCAST && args->rank != args->root))
		return;
	if (a->what == GN_COLLECTIVE_ALLGATHER) {
		first = (uint32_t)args->rank * args->pieces;
		end = first + args->pieces;
	}
	for (uint32_t c = first; c < end; c++)
		gn_schedule_copy(s, c);
}

enum gn_status gn_algorithm_schedule(const struct gn_algorithm *a, const struct gn_algo_args *args,
				     struct gn_schedule **out, struct gn_err *err)
{
	struct gn_schedule *s;
	struct gn_part all;
	enum gn_status status = check(args, err);

	if (!status)
		status = gn_schedule_create(args->rank, args->size, a->chunks(args), &s, err);
	if (status)
		return status;
	write_copies(s, a, args);
	all = gn_part_all(s, args);
	if (a->write)
		a->write(s, args);
	else
		a->part->write(&all);
	status = gn_schedule_finish(s, err);
	if (status)
		gn_schedule_destroy(s);
	else
		*out = s;
	return status;
}

enum gn_status gn_algorithm_parts(const struct gn_algorithm *a, const struct gn_algo_args *args, double *out,
				  struct gn_err *err)
{
	struct gn_algo_args unsliced = *args;
	struct gn_schedule *s;
	enum gn_status status;
	const struct gn_step *steps;
	size_t count, largest = 1;

	unsliced.rank = 0;
	unsliced.pieces = 1;
	status = gn_algorithm_schedule(a, &unsliced, &s, err);
	if (status)
		return status;
	steps = gn_schedule_steps(s, &count);
	for (size_t i = 0; i < count; i++)
		if (steps[i].op != GN_STEP_COPY && steps[i].chunk_count > largest)
			largest = steps[i].chunk_count;
	*out = (double)gn_schedule_chunks(s) / (double)largest;
	gn_schedule_destroy(s);
	return GN_OK;
}

uint32_t gn_algorithm_pieces(double parts, size_t bytes, size_t piece_bytes)
{
	double pieces = (double)bytes / parts / (double)piece_bytes;

	return pieces < 1 ? 1 : pieces > PIECES_MAX ? PIECES_MAX : (uint32_t)pieces;
}

static enum gn_status fill(struct gn_node_map *m, const int *node_of, int *numbers, struct gn_err *err)
{
	for (int n = 0; n < m->size; n++)
		numbers[n] = -1;
	for (int r = 0; r < m->size; r++) {
		if (node_of[r] < 0 || node_of[r] >= m->size)
			return gn_err_set(err, GN_ERR_USAGE, "rank %d is on node %d, but there are at most %d nodes", r, node_of[r],
					  m->size);
		if (numbers[node_of[r]] < 0)
			numbers[node_of[r]] = m->nodes++;
		m->node[r] = numbers[node_of[r]];
		m->local[r] = m->first[m->node[r] + 1]++;
	}
	m->smallest = m->size;
	for (int n = 0; n < m->nodes; n++) {
		if (m->first[n + 1] < m->smallest)
			m->smallest = m->first[n + 1];
		m->first[n + 1] += m->first[n];
	}
	for (int r = 0; r < m->size; r++)
		m->members[m->first[m->node[r]] + m->local[r]] = r;
	return GN_OK;
}

enum gn_status gn_node_map_create(const int *node_of, int size, struct gn_node_map **out, struct gn_err *err)
{
	struct gn_node_map *m = calloc(1, sizeof *m);
	int *numbers = malloc(sizeof *numbers * ((size_t)size + 1));
	enum gn_status status = GN_ERR_NO_MEMORY;

	if (m) {
		m->size = size;
		m->node = calloc((size_t)size + 1, sizeof *m->node);
		m->local = calloc((size_t)size + 1, sizeof *m->local);
		m->first = calloc((size_t)size + 2, sizeof *m->first);
		m->members = calloc((size_t)size + 1, sizeof *m->members);
	}
	if (!numbers || !m || !m->node || !m->local || !m->first || !m->members)
		gn_err_set(err, status, "no memory for a map of %d ranks", size);
	else
		status = fill(m, node_of, numbers, err);
	free(numbers);
	if (status)
		gn_node_map_destroy(m);
	else
		*out = m;
	return status;
}

void gn_node_map_destroy(struct gn_node_map *m)
{
	if (!m)
		return;
	free(m->node);
	free(m->local);
	free(m->first);
	free(m->members);
	free(m);
}
