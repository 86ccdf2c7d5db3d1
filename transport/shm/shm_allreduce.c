#include "transport/shm/shm_internal.h"

#include <stdlib.h>
#include <string.h>

/* How other ranks read the input: copied to an eager slot; in place; in slices through bounce buffers. */
enum path { EAGER, SHARED, BOUNCED };
enum phase { IDLE, ARRIVED, REDUCED };

struct gn_shm_op {
	struct gn_shm *node;
	struct gn_shm_side *mine;
	struct gn_shm_side **sides; /* of each local rank */
	char **parts, **results;     /* of each local rank: input and output, equal in place */
	const void *in;
	char *out;
	size_t count, element_bytes;
	uint64_t offset, in_offset, check;
	const struct gn_shm_allocation *inputs; /* NULL: the input is not in shared memory */
	int parts_known;
	gn_reduce_fn reduce;
	uint64_t run;
	enum path path;
	enum phase phase;
	enum gn_bounce_way way; /* of BOUNCED */
	int slot;
	int seen; /* local ranks below this one have completed this phase */
	struct gn_bounce_op bounce;
};

static size_t bytes_of(const struct gn_shm_op *op)
{
	return op->count * op->element_bytes;
}

static void use_slot(struct gn_shm_op *op)
{
	struct gn_shm *n = op->node;
	uint64_t runs[2];

	for (int i = 0; i < n->local_size; i++)
		op->sides[i] = &gn_shm_control_of(n, i)->side[op->slot];
	op->mine = op->sides[n->local_rank];
	n->used[op->slot] = 1;
	/* the slot's run numbers continue from its previous operation */
	for (int i = 0; i < 2; i++)
		runs[i] = atomic_load(&op->mine->eager[i].arrived);
	op->run = runs[0] > runs[1] ? runs[0] : runs[1];
	op->check ^= (op->count * 0x9e3779b97f4a7c15u ^ op->element_bytes) * 0xc2b2ae3d27d4eb4fu ^ op->offset ^
		    (uint64_t)op->path << 62;
}

/* The lowest free slot, whose memory is most likely committed already; the same on all ranks, because they create and free
 * operations in the same order. */
static int find_free_slot(const struct gn_shm *n)
{
	const unsigned char *found = memchr(n->used, 0, sizeof n->used);

	return found ? (int)(found - n->used) : -1;
}

int gn_shm_has_slot(const struct gn_shm *n)
{
	return find_free_slot(n) >= 0;
}

/* The values of a rank: in its eager slot, or in the eager buffer. */
static char *eager_values(const struct gn_shm_op *op, int local, unsigned parity)
{
	if (bytes_of(op) <= GN_EAGER_SLOT_BYTES)
		return op->sides[local]->eager[parity].values;
	return gn_shm_control_of(op->node, local)->eager_buffers[op->slot][parity].values;
}

/* Commits this rank's eager buffers if the values do not fit the eager slots. */
static enum gn_status commit_eager_buffers(const struct gn_shm_op *op, struct gn_err *err)
{
	struct gn_shm *n = op->node;
	size_t bytes = bytes_of(op);
	enum gn_status status = GN_OK;

	if (op->path != EAGER || bytes <= GN_EAGER_SLOT_BYTES || bytes <= n->eager_committed[op->slot])
		return GN_OK;
	for (int i = 0; i < 2 && !status; i++)
		status = gn_segment_commit(n->control, offsetof(struct gn_shm_control, eager_buffers) +
					   sizeof(struct gn_eager_buffer) * (2 * (size_t)op->slot + (size_t)i), bytes, err);
	if (!status)
		n->eager_committed[op->slot] = (uint16_t)bytes;
	return status;
}

static enum gn_status select_path(struct gn_shm_op *op, struct gn_err *err)
{
	struct gn_shm *n = op->node;
	const struct gn_shm_allocation *outputs = gn_shm_find(n, op->out, bytes_of(op), &op->offset);
	size_t shared_bytes = n->oversubscribed ? GN_EAGER_OVERSUBSCRIBED_BYTES : GN_EAGER_SHARED_BYTES;

	if (bytes_of(op) <= (outputs ? shared_bytes : gn_shm_eager_bytes(n))) {
		op->offset = 0;
		op->path = EAGER;
		return GN_OK;
	}
	if (!outputs && n->local_size > GN_BOUNCE_RANKS)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the buffer is not in memory shared by the node");
	op->path = outputs ? SHARED : BOUNCED;
	if (!outputs)
		return gn_bounce_commit(n, err);
	if (op->in)
		op->inputs = gn_shm_find(n, op->in, bytes_of(op), &op->in_offset);
	for (int i = 0; i < n->local_size; i++)
		op->results[i] = (char *)gn_segment_part_of(outputs->segment, n->ranks[i]) + op->offset;
	op->check = gn_segment_id(outputs->segment);
	return GN_OK;
}

static enum gn_status select_blocks(struct gn_shm_op *op, struct gn_err *err)
{
	if (!gn_shm_has_bounce_buffers(op->node))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the node has too many ranks for blocks through bounce buffers");
	op->path = BOUNCED;
	return gn_bounce_commit(op->node, err);
}

/* Of what the arguments say, whose arrays it gets. */
static enum gn_status create(const struct gn_shm_op *args, struct gn_shm_op **out, struct gn_err *err)
{
	struct gn_shm *n = args->node;
	struct gn_shm_op *op;
	enum gn_status status;
	int slot = find_free_slot(n);

	if (slot < 0)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "more than %d shared-memory collectives exist at once", GN_SHM_SLOTS);
	op = calloc(1, sizeof *op);
	if (op) {
		*op = *args;
		op->sides = calloc((size_t)n->local_size, sizeof *op->sides);
		op->parts = calloc((size_t)n->local_size, sizeof *op->parts);
		op->results = calloc((size_t)n->local_size, sizeof *op->results);
	}
	if (!op || !op->sides || !op->parts || !op->results) {
		gn_shm_op_free(op);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a collective");
	}
	op->slot = slot;
	status = op->way == GN_BOUNCE_WHOLE ? select_path(op, err) : select_blocks(op, err);
	if (!status)
		status = commit_eager_buffers(op, err);
	if (status) {
		gn_shm_op_free(op);
		return status;
	}
	use_slot(op);
	*out = op;
	return GN_OK;
}

enum gn_status gn_shm_allreduce(struct gn_shm *n, const void *in, void *out_buffer, size_t count, size_t element_bytes,
				 gn_reduce_fn reduce, struct gn_shm_op **out, struct gn_err *err)
{
	return create(&(struct gn_shm_op){.node = n, .in = in, .out = out_buffer, .count = count, .element_bytes = element_bytes,
					  .reduce = reduce, .way = GN_BOUNCE_WHOLE}, out, err);
}

enum gn_status gn_shm_blocks(struct gn_shm *n, enum gn_shm_blocks what, const void *in, void *out_buffer, size_t count,
			     size_t element_bytes, gn_reduce_fn reduce, struct gn_shm_op **out, struct gn_err *err)
{
	enum gn_bounce_way way = what == GN_SHM_ALLGATHER ? GN_BOUNCE_GATHER : GN_BOUNCE_SCATTER;

	if (!in)
		in = (char *)out_buffer + (size_t)n->local_rank * count * element_bytes;
	return create(&(struct gn_shm_op){.node = n, .in = in, .out = out_buffer, .count = count, .element_bytes = element_bytes,
					  .reduce = reduce, .way = way}, out, err);
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
	unsigned parity = ++op->run & 1;
	struct gn_eager_slot *eager = &op->mine->eager[parity];

	eager->check = op->check;
	eager->offset = op->offset;
	eager->count = op->count;
	eager->element_bytes = op->element_bytes;
	eager->in_allocation = op->inputs ? gn_segment_id(op->inputs->segment) : 0;
	eager->in_offset = op->in_offset;
	if (op->path == EAGER) {
		memcpy(eager_values(op, op->node->local_rank, parity), op->in ? op->in : op->out, bytes_of(op));
	} else if (op->path == SHARED && op->in && !op->inputs) {
		memcpy(op->out, op->in, bytes_of(op));
	} else if (op->path == BOUNCED) {
		op->bounce = (struct gn_bounce_op){.in = op->in ? op->in : op->out, .out = op->out, .bytes = bytes_of(op),
						  .element_bytes = op->element_bytes, .reduce = op->reduce, .way = op->way};
		gn_bounce_begin(op->node, &op->bounce);
	}
	atomic_store_explicit(&eager->arrived, op->run, memory_order_release);
	gn_shm_notify(op->node, -1);
	op->phase = ARRIVED;
	op->seen = 0;
}

static enum gn_status mismatch_error(const struct gn_shm_op *op, int index, struct gn_err *err)
{
	static const char *const names[] = {[GN_BOUNCE_WHOLE] = "allreduce", [GN_BOUNCE_SCATTER] = "reduce-scatter", [GN_BOUNCE_GATHER] = "allgather"};
	const struct gn_eager_slot *theirs = &op->sides[index]->eager[op->run & 1];
	const struct gn_world *w = op->node->members.world;
	int rank = op->node->ranks[index];

	return gn_err_set(err, GN_ERR_MISMATCH,
			  "%s: the ranks disagree about the operation, the size, the type or the reduction: rank %d on %s gave %llu "
			  "elements of %llu bytes at offset %llu, this rank %zu of %zu at %llu", names[op->way], rank, gn_world_host_of(w, rank),
			  (unsigned long long)theirs->count, (unsigned long long)theirs->element_bytes,
			  (unsigned long long)theirs->offset, op->count, op->element_bytes, (unsigned long long)op->offset);
}

/* Reduces the values of the next rank, in the order of ranks, as soon as they have arrived. */
static void reduce_eager(struct gn_shm_op *op, const char *values)
{
	if (op->seen)
		op->reduce(op->out, values, op->count);
	else
		memcpy(op->out, values, bytes_of(op));
}

/* Whether all ranks have arrived for this run; resumes after the ranks that were seen before. */
static enum gn_status all_arrived(struct gn_shm_op *op, int *yes, struct gn_err *err)
{
	unsigned parity = op->run & 1;

	for (; op->seen < op->node->local_size; op->seen++) {
		const struct gn_eager_slot *eager = &op->sides[op->seen]->eager[parity];

		if (atomic_load_explicit(&eager->arrived, memory_order_acquire) < op->run)
			return GN_OK;
		if (eager->check != op->check)
			return mismatch_error(op, op->seen, err);
		if (op->path == EAGER)
			reduce_eager(op, eager_values(op, op->seen, parity));
	}
	*yes = 1;
	return GN_OK;
}

static int all_finished(struct gn_shm_op *op)
{
	for (; op->seen < op->node->local_size; op->seen++)
		if (atomic_load_explicit(&op->sides[op->seen]->finished, memory_order_acquire) < op->run)
			return 0;
	return 1;
}

/* The inputs, as each rank has published them: a rank may reduce in place, or have copied an input that is not in shared memory to
 * its output. */
static void find_parts(struct gn_shm_op *op)
{
	for (int i = 0; i < op->node->local_size; i++) {
		const struct gn_eager_slot *eager = &op->sides[i]->eager[op->run & 1];
		const struct gn_shm_allocation *a = eager->in_allocation ? gn_shm_find_id(op->node, eager->in_allocation) : NULL;

		op->parts[i] = a ? (char *)gn_segment_part_of(a->segment, op->node->ranks[i]) + eager->in_offset : op->results[i];
	}
	op->parts_known = 1;
}

/* Reduces this rank's share of the elements: whole cache lines, so that no line is written by two ranks. */
static void reduce_share(struct gn_shm_op *op)
{
	size_t line = GN_ALIGN_BYTES / op->element_bytes, lines = (op->count + line - 1) / line;
	size_t ranks = (size_t)op->node->local_size, rank = (size_t)op->node->local_rank;
	size_t first = lines * rank / ranks * line, end = lines * (rank + 1) / ranks * line;

	if (!op->parts_known)
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
		if (op->path == EAGER) {
			op->phase = IDLE;
		} else if (op->path == BOUNCED) {
			op->phase = gn_bounce_advance(op->node, &op->bounce) ? IDLE : ARRIVED;
		} else {
			reduce_share(op);
			atomic_store_explicit(&op->mine->finished, op->run, memory_order_release);
			gn_shm_notify(op->node, -1);
			op->phase = REDUCED;
			op->seen = 0;
		}
	}
	if (op->phase == REDUCED && all_finished(op))
		op->phase = IDLE;
	*done = op->phase == IDLE;
	return GN_OK;
}

void gn_shm_waits_for(const struct gn_shm_op *op, int *rank)
{
	int local = op->seen;

	if (local == op->node->local_size)
		local = op->path == BOUNCED && op->phase == ARRIVED ? op->bounce.waiting_for : -1;
	*rank = local < 0 ? -1 : op->node->ranks[local];
}
