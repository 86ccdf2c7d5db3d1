#include "transport/shm/shm_internal.h"

#include "transport/shm/multi_reduce.h"

#include <stdlib.h>
#include <string.h>

/* How a buffer travels: in the letter itself; not at all, the neighbours reach it; piece by piece through the stage. */
enum way { BY_LETTER, SHARED, STAGED };
enum phase { IDLE, ARRIVED, REDUCED };

struct gn_shm_op {
	struct gn_shm *node;
	struct gn_shm_side *mine;
	struct gn_shm_side **sides; /* of each local rank */
	char **parts, **results;     /* of each local rank: what is reduced, and where it goes; the same in place */
	const void *in;
	char *out;
	size_t count, element_bytes;
	uint64_t offset, in_offset, check;
	const struct gn_shm_allocation *inputs; /* NULL: the neighbours do not reach the input */
	int knows_parts;
	gn_reduce_fn reduce;
	uint64_t run;
	enum way way;
	enum phase phase;
	int slot;
	int met; /* local ranks below this one have been seen in this phase */
	struct gn_stage_run stage;
};

static size_t bytes_of(const struct gn_shm_op *op)
{
	return op->count * op->element_bytes;
}

static void take_slot(struct gn_shm_op *op)
{
	struct gn_shm *n = op->node;
	uint64_t runs[2];

	for (int i = 0; i < n->local_size; i++)
		op->sides[i] = &gn_shm_control_of(n, i)->side[op->slot];
	op->mine = op->sides[n->local_rank];
	n->used[op->slot] = 1;
	/* A slot that served before goes on counting where it was. */
	for (int i = 0; i < 2; i++)
		runs[i] = atomic_load(&op->mine->letter[i].arrived);
	op->run = runs[0] > runs[1] ? runs[0] : runs[1];
	op->check = (op->count * 0x9e3779b97f4a7c15u ^ op->element_bytes) * 0xc2b2ae3d27d4eb4fu ^ op->offset ^
		    (uint64_t)op->way << 62;
}

/* The lowest, whose memory has most likely been committed for an operation before: the same on all ranks, who make and free
 * operations in the same order. */
static int free_slot(const struct gn_shm *n)
{
	const unsigned char *found = memchr(n->used, 0, sizeof n->used);

	return found ? (int)(found - n->used) : -1;
}

/* Where a letter's values lie: in itself, or beside. */
static char *values_of(const struct gn_shm_op *op, int local, unsigned turn)
{
	if (bytes_of(op) <= GN_EAGER_SLOT_BYTES)
		return op->sides[local]->letter[turn].values;
	return gn_shm_control_of(op->node, local)->enclosure[op->slot][turn].values;
}

/* This rank's own enclosures, where letters are too short. */
static enum gn_status enclose(const struct gn_shm_op *op, struct gn_err *err)
{
	struct gn_shm *n = op->node;
	size_t bytes = bytes_of(op);
	enum gn_status status = GN_OK;

	if (op->way != BY_LETTER || bytes <= GN_EAGER_SLOT_BYTES || bytes <= n->enclosed[op->slot])
		return GN_OK;
	for (int i = 0; i < 2 && !status; i++)
		status = gn_segment_commit(n->control, offsetof(struct gn_shm_control, enclosure) +
					   sizeof(struct gn_enclosure) * (2 * (size_t)op->slot + (size_t)i), bytes, err);
	if (!status)
		n->enclosed[op->slot] = (uint16_t)bytes;
	return status;
}

static enum gn_status choose_way(struct gn_shm_op *op, struct gn_err *err)
{
	struct gn_shm *n = op->node;
	const struct gn_shm_allocation *outputs = gn_shm_find(n, op->out, bytes_of(op), &op->offset);
	size_t shared_bytes = n->crowded ? GN_MAIL_CROWDED_BYTES : GN_MAIL_SHARED_BYTES;

	if (bytes_of(op) <= (outputs ? shared_bytes : gn_shm_mail_bytes(n))) {
		op->offset = 0;
		op->way = BY_LETTER;
		return GN_OK;
	}
	if (!outputs && n->local_size > GN_STAGE_RANKS)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the buffer is not shared within the node");
	op->way = outputs ? SHARED : STAGED;
	if (outputs && op->in)
		op->inputs = gn_shm_find(n, op->in, bytes_of(op), &op->in_offset);
	for (int i = 0; outputs && i < n->local_size; i++)
		op->results[i] = (char *)gn_segment_part(outputs->segment, i) + op->offset;
	return GN_OK;
}

enum gn_status gn_shm_allreduce(struct gn_shm *n, const void *in, void *out_buffer, size_t count, size_t element_bytes,
				 gn_reduce_fn reduce, struct gn_shm_op **out, struct gn_err *err)
{
	struct gn_shm_op *op;
	enum gn_status status;
	int slot = free_slot(n);

	if (slot < 0)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "more than %d collectives at once within a node", GN_SHM_SLOTS);
	op = calloc(1, sizeof *op);
	if (op) {
		op->sides = calloc((size_t)n->local_size, sizeof *op->sides);
		op->parts = calloc((size_t)n->local_size, sizeof *op->parts);
		op->results = calloc((size_t)n->local_size, sizeof *op->results);
	}
	if (!op || !op->sides || !op->parts || !op->results) {
		gn_shm_op_free(op);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a collective");
	}
	op->node = n;
	op->in = in;
	op->out = out_buffer;
	op->count = count;
	op->element_bytes = element_bytes;
	op->reduce = reduce;
	op->slot = slot;
	status = choose_way(op, err);
	if (!status)
		status = enclose(op, err);
	if (status) {
		gn_shm_op_free(op);
		return status;
	}
	take_slot(op);
	*out = op;
	return GN_OK;
}

void gn_shm_sign(struct gn_shm_op *op, uint64_t signature)
{
	op->check ^= signature;
}

void gn_shm_op_free(struct gn_shm_op *op)
{
	if (!op)
		return;
	if (op->mine)
		op->node->used[op->slot] = 0;
	free(op->sides);
	free(op->parts);
	free(op->results);
	free(op);
}

void gn_shm_start(struct gn_shm_op *op)
{
	unsigned turn = ++op->run & 1;
	struct gn_eager_slot *letter = &op->mine->letter[turn];

	letter->check = op->check;
	letter->offset = op->offset;
	letter->count = op->count;
	letter->element_bytes = op->element_bytes;
	letter->in_allocation = op->inputs ? op->inputs->number : 0;
	letter->in_offset = op->in_offset;
	if (op->way == BY_LETTER) {
		memcpy(values_of(op, op->node->local_rank, turn), op->in ? op->in : op->out, bytes_of(op));
	} else if (op->way == SHARED && op->in && !op->inputs) {
		memcpy(op->out, op->in, bytes_of(op));
	} else if (op->way == STAGED) {
		op->stage = (struct gn_stage_run){.in = op->in ? op->in : op->out, .out = op->out, .bytes = bytes_of(op),
						  .element_bytes = op->element_bytes, .reduce = op->reduce};
		gn_stage_begin(op->node, &op->stage);
	}
	atomic_store_explicit(&letter->arrived, op->run, memory_order_release);
	gn_shm_tell(op->node, -1);
	op->phase = ARRIVED;
	op->met = 0;
}

static int rank_of(const struct gn_world *w, int index)
{
	int local = 0;

	for (int r = 0; r < gn_world_size(w); r++)
		if (gn_world_node_of(w, r) == gn_world_node_of(w, gn_world_rank(w)) && local++ == index)
			return r;
	return 0;
}

static enum gn_status explain(const struct gn_shm_op *op, int index, struct gn_err *err)
{
	const struct gn_eager_slot *theirs = &op->sides[index]->letter[op->run & 1];
	const struct gn_world *w = op->node->world;
	int rank = rank_of(w, index);

	return gn_err_set(err, GN_ERR_MISMATCH,
			  "allreduce: the ranks disagree about the size, the type or the reduction: rank %d on %s gave %llu "
			  "elements of %llu bytes at offset %llu, this rank %zu of %zu at %llu", rank, gn_world_host_of(w, rank), (unsigned long long)theirs->count,
			  (unsigned long long)theirs->element_bytes, (unsigned long long)theirs->offset, op->count,
			  op->element_bytes, (unsigned long long)op->offset);
}

/* In the order of ranks, each as soon as it is there: what there is to do for the first is done when the last arrives. */
static void take_letter(struct gn_shm_op *op, const char *values)
{
	if (op->met)
		op->reduce(op->out, values, op->count);
	else
		memcpy(op->out, values, bytes_of(op));
}

/* Whether all have arrived for this run; those seen once need not be looked at again. */
static enum gn_status all_arrived(struct gn_shm_op *op, int *yes, struct gn_err *err)
{
	unsigned turn = op->run & 1;

	for (; op->met < op->node->local_size; op->met++) {
		const struct gn_eager_slot *letter = &op->sides[op->met]->letter[turn];

		if (atomic_load_explicit(&letter->arrived, memory_order_acquire) < op->run)
			return GN_OK;
		if (letter->check != op->check)
			return explain(op, op->met, err);
		if (op->way == BY_LETTER)
			take_letter(op, values_of(op, op->met, turn));
	}
	*yes = 1;
	return GN_OK;
}

static int all_finished(struct gn_shm_op *op)
{
	for (; op->met < op->node->local_size; op->met++)
		if (atomic_load_explicit(&op->sides[op->met]->finished, memory_order_acquire) < op->run)
			return 0;
	return 1;
}

/* Each rank says for itself where its input is: some may reduce in place, or give memory that nobody else reaches, which
 * they have copied to the output then. */
static void find_parts(struct gn_shm_op *op)
{
	for (int i = 0; i < op->node->local_size; i++) {
		const struct gn_shm_allocation *a = op->node->allocations;
		const struct gn_eager_slot *letter = &op->sides[i]->letter[op->run & 1];

		while (a && a->number != letter->in_allocation)
			a = a->next;
		op->parts[i] = a ? (char *)gn_segment_part(a->segment, i) + letter->in_offset : op->results[i];
	}
	op->knows_parts = 1;
}

/* This rank's share of the elements, cut at cache lines so that no line is written by two. */
static void reduce_share(struct gn_shm_op *op)
{
	size_t line = GN_ALIGN_BYTES / op->element_bytes, lines = (op->count + line - 1) / line;
	size_t ranks = (size_t)op->node->local_size, rank = (size_t)op->node->local_rank;
	size_t first = lines * rank / ranks * line, end = lines * (rank + 1) / ranks * line;

	if (!op->knows_parts)
		find_parts(op);
	if (end > op->count)
		end = op->count;
	if (first < end)
		gn_multi_reduce(op->parts, op->results, op->node->local_size, first * op->element_bytes, (end - first),
				 op->element_bytes, op->reduce);
}

enum gn_status gn_shm_test(struct gn_shm_op *op, int *done, struct gn_err *err)
{
	int yes = 0;
	enum gn_status status;

	*done = 0;
	if (op->phase == ARRIVED) {
		status = all_arrived(op, &yes, err);
		if (status || !yes)
			return status;
		if (op->way == BY_LETTER) {
			op->phase = IDLE;
		} else if (op->way == STAGED) {
			op->phase = gn_stage_advance(op->node, &op->stage) ? IDLE : ARRIVED;
		} else {
			reduce_share(op);
			atomic_store_explicit(&op->mine->finished, op->run, memory_order_release);
			gn_shm_tell(op->node, -1);
			op->phase = REDUCED;
			op->met = 0;
		}
	}
	if (op->phase == REDUCED && all_finished(op))
		op->phase = IDLE;
	*done = op->phase == IDLE;
	return GN_OK;
}

void gn_shm_waits_for(const struct gn_shm_op *op, int *rank)
{
	int local = op->met;

	if (local == op->node->local_size)
		local = op->way == STAGED && op->phase == ARRIVED ? op->stage.late : -1;
	*rank = local < 0 ? -1 : rank_of(op->node->world, local);
}
