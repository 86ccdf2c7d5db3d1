#include "transport/node.h"

#include "src/base/arena.h"
#include "src/base/pool.h"
#include "transport/direct.h"
#include "transport/segment.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Operations that may exist at once; a slot each. */
#define SLOTS 512
/* Up to here one meeting and p reads beat two meetings and shares: measured with bench/node. */
#define MAIL_BYTES 2048

/* One rank's side of one operation's slot, on cache lines of its own. The counters only rise: n means "for the n-th run". */
struct side {
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t arrived;
	/* what this rank started, valid once arrived says so */
	uint64_t offset, count, element_bytes;
	_Alignas(GN_ALIGN_BYTES) atomic_uint_fast64_t finished;
	/* Two, used in turn: who runs n + 1 while a neighbour still reads n must not overwrite it. */
	_Alignas(GN_ALIGN_BYTES) char mail[2][MAIL_BYTES];
};

struct allocation {
	struct gn_segment *segment;
	struct allocation *next;
};

struct gn_node {
	struct gn_world *world;
	struct gn_segment *control; /* of each rank: struct side[SLOTS] */
	struct allocation *allocations;
	int local_rank, local_size;
	int crowded;
	unsigned next_slot;
	unsigned char used[SLOTS];
};

enum phase { IDLE, ARRIVED, REDUCED };

struct gn_node_op {
	struct gn_node *node;
	struct side *mine;
	struct side **sides; /* of each local rank */
	char **parts;	     /* the buffer, in each local rank's memory; NULL for mail */
	const void *in;
	char *out;
	size_t count, element_bytes;
	uint64_t offset;
	gn_reduce_fn reduce;
	uint64_t run;
	enum phase phase;
	int slot, mail;
	int met; /* local ranks below this one have been seen in this phase */
};

enum gn_status gn_node_create(struct gn_world *world, struct gn_node **out, struct gn_err *err)
{
	struct gn_node *n = calloc(1, sizeof *n);
	enum gn_status status;

	if (!n)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a node");
	n->world = world;
	n->local_rank = gn_world_local_rank(world);
	n->local_size = gn_world_local_size(world);
	n->crowded = n->local_size > gn_cpu_count();
	status = gn_segment_create(world, SLOTS * sizeof(struct side), &n->control, err);
	if (status) {
		free(n);
		return status;
	}
	*out = n;
	return GN_OK;
}

void gn_node_destroy(struct gn_node *n)
{
	if (!n)
		return;
	while (n->allocations)
		gn_node_free(n, gn_segment_part(n->allocations->segment, n->local_rank));
	gn_segment_destroy(n->control);
	free(n);
}

int gn_node_crowded(const struct gn_node *n)
{
	return n->crowded;
}

size_t gn_node_mail_bytes(const struct gn_node *n)
{
	(void)n;
	return MAIL_BYTES;
}

enum gn_status gn_node_alloc(struct gn_node *n, size_t len_bytes, void **out, struct gn_err *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len = (len_bytes + page - 1) / page * page;
	struct allocation *a = calloc(1, sizeof *a);
	enum gn_status status;

	if (!a)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an allocation");
	status = gn_segment_create(n->world, len ? len : page, &a->segment, err);
	if (status) {
		free(a);
		return status;
	}
	a->next = n->allocations;
	n->allocations = a;
	*out = gn_segment_part(a->segment, n->local_rank);
	return GN_OK;
}

void gn_node_free(struct gn_node *n, void *memory)
{
	for (struct allocation **at = &n->allocations; *at; at = &(*at)->next) {
		struct allocation *a = *at;

		if (gn_segment_part(a->segment, n->local_rank) == memory) {
			*at = a->next;
			gn_segment_destroy(a->segment);
			free(a);
			return;
		}
	}
}

static const struct gn_segment *find(const struct gn_node *n, const void *memory, size_t len, uint64_t *offset)
{
	for (const struct allocation *a = n->allocations; a; a = a->next) {
		uintptr_t base = (uintptr_t)gn_segment_part(a->segment, n->local_rank), at = (uintptr_t)memory;
		size_t size = gn_segment_len(a->segment);

		if (at >= base && at - base <= size && len <= size - (at - base)) {
			*offset = at - base;
			return a->segment;
		}
	}
	return NULL;
}

int gn_node_owns(const struct gn_node *n, const void *memory, size_t len_bytes)
{
	uint64_t offset;

	return find(n, memory, len_bytes, &offset) != NULL;
}

static void take_slot(struct gn_node_op *op)
{
	struct gn_node *n = op->node;

	for (int i = 0; i < n->local_size; i++)
		op->sides[i] = (struct side *)gn_segment_part(n->control, i) + op->slot;
	op->mine = op->sides[n->local_rank];
	n->used[op->slot] = 1;
	/* A slot that served before goes on counting where it was. */
	op->run = atomic_load(&op->mine->arrived);
}

/* In turn, not the lowest: a slow neighbour may still be reading what was in the one freed last. The same on all ranks, who
 * make and free operations in the same order. */
static int free_slot(struct gn_node *n)
{
	for (unsigned tried = 0; tried < SLOTS; tried++) {
		unsigned slot = n->next_slot++ % SLOTS;

		if (!n->used[slot])
			return (int)slot;
	}
	return -1;
}

enum gn_status gn_node_allreduce(struct gn_node *n, const void *in, void *out_buffer, size_t count, size_t element_bytes,
				 gn_reduce_fn reduce, struct gn_node_op **out, struct gn_err *err)
{
	size_t len = count * element_bytes;
	uint64_t offset = 0;
	const struct gn_segment *segment = NULL;
	struct gn_node_op *op;
	int slot = free_slot(n);

	if (slot < 0)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "more than %d collectives at once within a node", SLOTS);
	if (len > MAIL_BYTES && !(segment = find(n, out_buffer, len, &offset)))
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "the buffer is not shared within the node");
	op = calloc(1, sizeof *op);
	if (op) {
		op->sides = calloc((size_t)n->local_size, sizeof *op->sides);
		op->parts = calloc((size_t)n->local_size, sizeof *op->parts);
	}
	if (!op || !op->sides || !op->parts) {
		gn_node_op_free(op);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a collective");
	}
	op->node = n;
	op->in = in;
	op->out = out_buffer;
	op->count = count;
	op->element_bytes = element_bytes;
	op->offset = offset;
	op->reduce = reduce;
	op->mail = segment == NULL;
	op->slot = slot;
	for (int i = 0; segment && i < n->local_size; i++)
		op->parts[i] = (char *)gn_segment_part(segment, i) + offset;
	take_slot(op);
	*out = op;
	return GN_OK;
}

void gn_node_op_free(struct gn_node_op *op)
{
	if (!op)
		return;
	if (op->mine)
		op->node->used[op->slot] = 0;
	free(op->sides);
	free(op->parts);
	free(op);
}

void gn_node_start(struct gn_node_op *op)
{
	size_t len = op->count * op->element_bytes;

	op->run++;
	op->mine->offset = op->offset;
	op->mine->count = op->count;
	op->mine->element_bytes = op->element_bytes;
	if (op->mail)
		memcpy(op->mine->mail[op->run & 1], op->in ? op->in : op->out, len);
	else if (op->in)
		memcpy(op->out, op->in, len);
	atomic_store_explicit(&op->mine->arrived, op->run, memory_order_release);
	op->phase = ARRIVED;
	op->met = 0;
}

static enum gn_status check_same(const struct gn_node_op *op, int index, struct gn_err *err)
{
	const struct side *theirs = op->sides[index];
	const struct gn_world *w = op->node->world;
	int rank = 0, local = 0;

	if (theirs->count == op->count && theirs->element_bytes == op->element_bytes && theirs->offset == op->offset)
		return GN_OK;
	for (int r = 0; r < gn_world_size(w); r++) {
		if (gn_world_node_of(w, r) == gn_world_node_of(w, gn_world_rank(w)) && local++ == index)
			rank = r;
	}
	return gn_err_set(err, GN_ERR_MISMATCH,
			  "allreduce: the ranks disagree about the size: rank %d on %s gave %llu elements of %llu bytes at offset %llu, this rank %zu of %zu at "
			  "%llu", rank, gn_world_host_of(w, rank), (unsigned long long)theirs->count,
			  (unsigned long long)theirs->element_bytes, (unsigned long long)theirs->offset, op->count,
			  op->element_bytes, (unsigned long long)op->offset);
}

/* Whether all have arrived for this run; those seen once need not be looked at again. A rank may be a run ahead in the mail
 * case: then its description is of the next run, but of the same operation, and says the same. */
static enum gn_status all_arrived(struct gn_node_op *op, int *yes, struct gn_err *err)
{
	*yes = 0;
	for (; op->met < op->node->local_size; op->met++) {
		enum gn_status status;

		if (atomic_load_explicit(&op->sides[op->met]->arrived, memory_order_acquire) < op->run)
			return GN_OK;
		status = check_same(op, op->met, err);
		if (status)
			return status;
	}
	*yes = 1;
	return GN_OK;
}

static int all_finished(struct gn_node_op *op)
{
	for (; op->met < op->node->local_size; op->met++)
		if (atomic_load_explicit(&op->sides[op->met]->finished, memory_order_acquire) < op->run)
			return 0;
	return 1;
}

static void reduce_mail(struct gn_node_op *op)
{
	size_t len = op->count * op->element_bytes;
	int turn = (int)(op->run & 1);

	memcpy(op->out, op->sides[0]->mail[turn], len);
	for (int i = 1; i < op->node->local_size; i++)
		op->reduce(op->out, op->sides[i]->mail[turn], op->count);
}

/* This rank's share of the elements, cut at cache lines so that no line is written by two. */
static void reduce_share(struct gn_node_op *op)
{
	size_t line = GN_ALIGN_BYTES / op->element_bytes, lines = (op->count + line - 1) / line;
	size_t ranks = (size_t)op->node->local_size, rank = (size_t)op->node->local_rank;
	size_t first = lines * rank / ranks * line, end = lines * (rank + 1) / ranks * line;

	if (end > op->count)
		end = op->count;
	if (first < end)
		gn_direct_reduce(op->parts, op->node->local_size, first * op->element_bytes,
				 (end - first), op->element_bytes, op->reduce);
}

enum gn_status gn_node_test(struct gn_node_op *op, int *done, struct gn_err *err)
{
	int yes = 0;
	enum gn_status status;

	*done = 0;
	if (op->phase == ARRIVED) {
		status = all_arrived(op, &yes, err);
		if (status || !yes)
			return status;
		if (op->mail) {
			reduce_mail(op);
			op->phase = IDLE;
		} else {
			reduce_share(op);
			atomic_store_explicit(&op->mine->finished, op->run, memory_order_release);
			op->phase = REDUCED;
			op->met = 0;
		}
	}
	if (op->phase == REDUCED && all_finished(op))
		op->phase = IDLE;
	*done = op->phase == IDLE;
	return GN_OK;
}
