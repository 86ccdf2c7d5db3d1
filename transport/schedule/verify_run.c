#include "transport/schedule/verify_internal.h"

#include <stdlib.h>
#include <string.h>

/* The symbolic value of a chunk: the ranks that contributed (a bit each), the chunk of the input it comes from, and a hash of the
 * order in which contributions were combined: equal hashes mean equal bits. */
struct value {
	uint64_t *set;
	uint32_t *origin;
	uint64_t *tree;
};

enum { READY = 1, RECEIVED = 2, DONE = 4 };

/* The buffer of a rank for one message that is received early, while values are tracked. */
struct early_buffer {
	uint64_t *sets, *trees;
	uint32_t *origins;
	uint32_t room;
};

struct run {
	const struct gn_verify_job *j;
	int values;
	uint32_t slots;
	size_t total, set_words, done_count;
	uint32_t *missing, *first_dependent, *dependents, *queue;
	size_t head, tail;
	uint8_t *state;
	uint32_t *next_reduction, *free_slots; /* [rank] */
	uint64_t *sets, *trees;		       /* [rank][chunk] */
	uint32_t *origins;
	struct early_buffer *early_buffer; /* [rank] */
};

static enum gn_status fault(const struct run *x, size_t global, const char *text, struct gn_err *err)
{
	static const char *const ops[] = {"copy", "send", "receive", "receive and reduce"};
	const struct gn_step *s = gn_verify_step(x->j, global);
	int r = x->j->rank_of[global];

	return gn_err_set(err, GN_ERR_FAILED, "rank %d: step %zu (%s chunks %u+%u, peer %d, message %u) %s", r,
			  global - x->j->first[r], ops[s->op], s->chunk, s->chunk_count, s->peer, s->message, text);
}

/* --- values --- */

static struct value at(const struct run *x, int rank, uint32_t chunk)
{
	size_t i = (size_t)rank * x->j->c->chunks + chunk;

	return (struct value){x->sets + i * x->set_words, x->origins + i, x->trees + i};
}

static int is_empty(const struct run *x, const uint64_t *set)
{
	for (size_t w = 0; w < x->set_words; w++)
		if (set[w])
			return 0;
	return 1;
}

static uint64_t combine(uint64_t left, uint64_t right)
{
	return (left * 0x9e3779b97f4a7c15u ^ (right + 0x7f4a7c15u) * 0xc2b2ae3d27d4eb4fu) + (left >> 29);
}

static enum gn_status reduce(const struct run *x, size_t recv, struct value in, struct value v, struct gn_err *err)
{
	if (is_empty(x, in.set) || is_empty(x, v.set))
		return fault(x, recv, "combines a chunk that was never written", err);
	if (*in.origin != *v.origin)
		return fault(x, recv, "combines different chunks of the input", err);
	for (size_t w = 0; w < x->set_words; w++) {
		if (in.set[w] & v.set[w])
			return fault(x, recv, "adds a contribution twice", err);
		v.set[w] |= in.set[w];
	}
	*v.tree = gn_verify_step(x->j, recv)->from_left ? combine(*in.tree, *v.tree) : combine(*v.tree, *in.tree);
	return GN_OK;
}

static enum gn_status reserve(const struct run *x, struct early_buffer *l, uint32_t count, struct gn_err *err)
{
	if (count <= l->room)
		return GN_OK;
	free(l->sets);
	free(l->trees);
	free(l->origins);
	l->sets = calloc(count * x->set_words, sizeof *l->sets);
	l->trees = calloc(count, sizeof *l->trees);
	l->origins = calloc(count, sizeof *l->origins);
	l->room = l->sets && l->trees && l->origins ? count : 0;
	return l->room ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a message of %u chunks", count);
}

static struct value early_value(const struct run *x, const struct early_buffer *l, uint32_t k)
{
	return (struct value){l->sets + k * x->set_words, l->origins + k, l->trees + k};
}

static void set_contribution(const struct run *x, struct value v, int rank, uint32_t chunk)
{
	memset(v.set, 0, x->set_words * sizeof *v.set);
	v.set[rank / 64] = (uint64_t)1 << rank % 64;
	*v.origin = chunk;
	*v.tree = (uint64_t)rank + 1;
}

/* Copies a message into place, or into the receiver's early buffer if it is to be reduced. */
static enum gn_status transfer(const struct run *x, size_t send, size_t recv, struct gn_err *err)
{
	const struct gn_step *from = gn_verify_step(x->j, send), *to = gn_verify_step(x->j, recv);
	int sender = x->j->rank_of[send], receiver = x->j->rank_of[recv], early = to->op == GN_STEP_RECV_REDUCE;
	enum gn_status status = early ? reserve(x, &x->early_buffer[receiver], to->chunk_count, err) : GN_OK;

	for (uint32_t k = 0; k < to->chunk_count && !status; k++) {
		struct value in = at(x, sender, from->chunk + k);
		struct value v = early ? early_value(x, &x->early_buffer[receiver], k) : at(x, receiver, to->chunk + k);

		if (from->from_input) {
			set_contribution(x, v, sender, from->chunk + k);
			continue;
		}
		memcpy(v.set, in.set, x->set_words * sizeof *v.set);
		*v.origin = *in.origin;
		*v.tree = *in.tree;
	}
	return status;
}

static enum gn_status reduce_early(const struct run *x, size_t recv, struct gn_err *err)
{
	const struct gn_step *s = gn_verify_step(x->j, recv);
	int rank = x->j->rank_of[recv];
	enum gn_status status = GN_OK;

	for (uint32_t k = 0; k < s->chunk_count && !status; k++)
		status = reduce(x, recv, early_value(x, &x->early_buffer[rank], k), at(x, rank, s->chunk + k), err);
	return status;
}

/* Sets the initial contents of all buffers: a rank's own contribution, or nothing. */
static void init_values(const struct run *x)
{
	const struct gn_verify_case *c = x->j->c;
	uint32_t block = c->chunks / (uint32_t)c->size;

	for (int r = 0; r < c->size && !c->with_copy; r++)
		for (uint32_t k = 0; k < c->chunks; k++)
			if (c->what != GN_COLLECTIVE_ALL_TO_ALL &&
			    (c->what != GN_COLLECTIVE_ALLGATHER || k / block == (uint32_t)r))
				set_contribution(x, at(x, r, k), r, k);
}

/* The rank whose contribution alone the chunk must hold; -1: those of all ranks; -2: not specified. */
static int expected(const struct gn_verify_case *c, int rank, uint32_t chunk, uint32_t *origin)
{
	uint32_t block = c->chunks / (uint32_t)c->size;

	*origin = chunk;
	switch (c->what) {
	case GN_COLLECTIVE_BROADCAST:
		return c->root;
	case GN_COLLECTIVE_REDUCE:
		return rank == c->root ? -1 : -2;
	case GN_COLLECTIVE_REDUCE_SCATTER:
		return chunk / block == (uint32_t)rank ? -1 : -2;
	case GN_COLLECTIVE_ALLGATHER:
		return (int)(chunk / block);
	case GN_COLLECTIVE_ALL_TO_ALL:
		*origin = (uint32_t)rank * block + chunk % block;
		return (int)(chunk / block);
	default:
		return -1;
	}
}

static enum gn_status check_result(const struct run *x, int rank, uint32_t chunk, struct gn_err *err)
{
	const struct gn_verify_case *c = x->j->c;
	struct value v = at(x, rank, chunk);
	uint32_t origin;
	int expected_rank = expected(c, rank, chunk, &origin);

	if (expected_rank == -2)
		return GN_OK;
	for (int q = 0; q < c->size; q++)
		if ((v.set[q / 64] >> q % 64 & 1) != (expected_rank == -1 || expected_rank == q))
			return gn_err_set(err, GN_ERR_FAILED, "rank %d: chunk %u of the result %s rank %d's contribution", rank,
					  chunk, v.set[q / 64] >> q % 64 & 1 ? "holds" : "lacks", q);
	if (*v.origin != origin)
		return gn_err_set(err, GN_ERR_FAILED, "rank %d: chunk %u of the result holds chunk %u of the input, not %u", rank,
				  chunk, *v.origin, origin);
	if (c->what == GN_COLLECTIVE_ALLREDUCE && *v.tree != *at(x, 0, chunk).tree)
		return gn_err_set(err, GN_ERR_FAILED, "ranks 0 and %d combine chunk %u in different orders", rank, chunk);
	return GN_OK;
}

/* --- order --- */

static void finish_step(struct run *x, size_t global)
{
	x->state[global] |= DONE;
	x->done_count++;
	for (uint32_t d = x->first_dependent[global]; d < x->first_dependent[global + 1]; d++)
		if (--x->missing[x->dependents[d]] == 0)
			x->queue[x->tail++] = x->dependents[d];
}

static enum gn_status end_ready(struct run *x, size_t global, struct gn_err *err);

/* Makes receives that reduce ready, in the schedule's order, while the rank has free slots. */
static enum gn_status post_early(struct run *x, int rank, struct gn_err *err)
{
	const struct gn_verify_rank *r = &x->j->ranks[rank];
	enum gn_status status = GN_OK;

	while (x->free_slots[rank] && !status) {
		uint32_t *i = &x->next_reduction[rank];

		while (*i < r->count && r->steps[*i].op != GN_STEP_RECV_REDUCE)
			++*i;
		if (*i == r->count)
			break;
		x->free_slots[rank]--;
		status = end_ready(x, x->j->first[rank] + (*i)++, err);
	}
	return status;
}

static enum gn_status received(struct run *x, size_t recv, struct gn_err *err)
{
	int rank = x->j->rank_of[recv], reduces = gn_verify_step(x->j, recv)->op == GN_STEP_RECV_REDUCE;
	enum gn_status status = GN_OK;

	x->state[recv] |= RECEIVED;
	if (x->missing[recv])
		return GN_OK;
	if (reduces && x->values)
		status = reduce_early(x, recv, err);
	if (status)
		return status;
	finish_step(x, recv);
	if (!reduces)
		return GN_OK;
	x->free_slots[rank]++;
	return post_early(x, rank, err);
}

/* One end of a message is ready; transfers it once both are. */
static enum gn_status end_ready(struct run *x, size_t global, struct gn_err *err)
{
	size_t other = x->j->partner[global];
	int sends = gn_verify_step(x->j, global)->op == GN_STEP_SEND;
	enum gn_status status = GN_OK;

	x->state[global] |= READY;
	if (!(x->state[other] & READY))
		return GN_OK;
	if (x->values)
		status = transfer(x, sends ? global : other, sends ? other : global, err);
	if (status)
		return status;
	finish_step(x, sends ? global : other);
	return received(x, sends ? other : global, err);
}

/* A step's dependencies are met. */
static enum gn_status step_ready(struct run *x, size_t global, struct gn_err *err)
{
	const struct gn_step *s = gn_verify_step(x->j, global);

	if (s->op == GN_STEP_COPY) {
		for (uint32_t k = s->chunk; k < s->chunk + s->chunk_count && x->values; k++)
			set_contribution(x, at(x, x->j->rank_of[global], k), x->j->rank_of[global], k);
		finish_step(x, global);
		return GN_OK;
	}
	if (s->op != GN_STEP_RECV_REDUCE)
		return end_ready(x, global, err);
	return x->state[global] & RECEIVED && !(x->state[global] & DONE) ? received(x, global, err) : GN_OK;
}

static void build_dependents(struct run *x)
{
	uint32_t *start_of = x->first_dependent;

	for (int pass = 0; pass < 2; pass++) {
		for (size_t g = 0; g < x->total; g++) {
			const struct gn_verify_rank *r = &x->j->ranks[x->j->rank_of[g]];
			const struct gn_step *s = gn_verify_step(x->j, g);
			size_t base = x->j->first[x->j->rank_of[g]];

			x->missing[g] = s->dependency_count;
			for (uint32_t d = 0; d < s->dependency_count; d++) {
				size_t on = base + r->dependencies[s->first_dependency + d];

				if (pass)
					x->dependents[start_of[on]++] = (uint32_t)g;
				else
					start_of[on + 1]++;
			}
		}
		for (size_t g = 0; g < x->total && !pass; g++)
			start_of[g + 1] += start_of[g];
	}
	/* filling has moved each start to the next step's start: shift back */
	memmove(start_of + 1, start_of, sizeof *start_of * x->total);
	start_of[0] = 0;
}

static enum gn_status allocate(struct run *x, struct gn_err *err)
{
	size_t dependencies = 1, ranks = (size_t)x->j->c->size, values = ranks * x->j->c->chunks + 1;

	for (size_t r = 0; r < ranks; r++)
		for (size_t i = 0; i < x->j->ranks[r].count; i++)
			dependencies += x->j->ranks[r].steps[i].dependency_count;
	x->missing = calloc(x->total + 1, sizeof *x->missing);
	x->first_dependent = calloc(x->total + 2, sizeof *x->first_dependent);
	x->dependents = calloc(dependencies, sizeof *x->dependents);
	x->queue = calloc(x->total + 1, sizeof *x->queue);
	x->state = calloc(x->total + 1, 1);
	x->next_reduction = calloc(ranks, sizeof *x->next_reduction);
	x->free_slots = calloc(ranks, sizeof *x->free_slots);
	if (!x->missing || !x->first_dependent || !x->dependents || !x->queue || !x->state || !x->next_reduction ||
	    !x->free_slots)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to run %zu steps", x->total);
	if (!x->values)
		return GN_OK;
	x->sets = calloc(values * x->set_words, sizeof *x->sets);
	x->trees = calloc(values, sizeof *x->trees);
	x->origins = calloc(values, sizeof *x->origins);
	x->early_buffer = calloc(ranks, sizeof *x->early_buffer);
	return x->sets && x->trees && x->origins && x->early_buffer
		       ? GN_OK
		       : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu chunks of %zu ranks", values / ranks, ranks);
}

static enum gn_status run(struct run *x, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t g = 0; g < x->total; g++)
		if (!x->missing[g])
			x->queue[x->tail++] = (uint32_t)g;
	for (int r = 0; r < x->j->c->size && !status; r++) {
		x->free_slots[r] = x->slots;
		status = post_early(x, r, err);
	}
	while (x->head < x->tail && !status)
		status = step_ready(x, x->queue[x->head++], err);
	for (size_t g = 0; g < x->total && x->done_count < x->total && !status; g++)
		if (!(x->state[g] & DONE) && !x->missing[g])
			status = fault(x, g, x->slots == 1 ? "never ends: deadlock with one receive buffer"
							   : "never ends: deadlock with few receive buffers", err);
	for (int r = 0; r < x->j->c->size && x->values && !status; r++)
		for (uint32_t k = 0; k < x->j->c->chunks && !status; k++)
			status = check_result(x, r, k, err);
	return status;
}

enum gn_status gn_verify_run(const struct gn_verify_job *j, uint32_t slots, struct gn_err *err)
{
	struct run x = {.j = j, .slots = slots, .values = slots == 1, .total = j->first[j->c->size],
			.set_words = ((size_t)j->c->size + 63) / 64};
	enum gn_status status = allocate(&x, err);

	if (!status) {
		build_dependents(&x);
		if (x.values)
			init_values(&x);
		status = run(&x, err);
	}
	for (int r = 0; x.early_buffer && r < j->c->size; r++) {
		free(x.early_buffer[r].sets);
		free(x.early_buffer[r].trees);
		free(x.early_buffer[r].origins);
	}
	free(x.early_buffer);
	free(x.missing);
	free(x.first_dependent);
	free(x.dependents);
	free(x.queue);
	free(x.state);
	free(x.next_reduction);
	free(x.free_slots);
	free(x.sets);
	free(x.trees);
	free(x.origins);
	return status;
}
