#include "transport/coll/coll_device_internal.h"
#include "transport/coll/comm_internal.h"

#include "src/base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* An operation under construction. */
struct plan {
	struct gn_comm *comm;
	struct gn_coll *coll;
	const struct gn_algorithm *algorithm;
	struct gn_algo_args args;
	struct gn_exec_buffers buffers;
	size_t in_bytes; /* of this rank's input */
};

static const char *name_of(const struct gn_coll_args *a)
{
	return gn_collective_name(a->what);
}

static int is_in_blocks(enum gn_collective what)
{
	return what == GN_COLLECTIVE_REDUCE_SCATTER || what == GN_COLLECTIVE_ALLGATHER || what == GN_COLLECTIVE_ALL_TO_ALL;
}

static int reduces(enum gn_collective what)
{
	return what == GN_COLLECTIVE_ALLREDUCE || what == GN_COLLECTIVE_BARRIER || what == GN_COLLECTIVE_REDUCE ||
	       what == GN_COLLECTIVE_REDUCE_SCATTER;
}

static int is_rooted(enum gn_collective what)
{
	return what == GN_COLLECTIVE_BROADCAST || what == GN_COLLECTIVE_REDUCE;
}

static enum gn_status check_memory(const struct gn_comm *c, const struct gn_coll_args *a, struct gn_err *err)
{
	const struct gn_coll_device *d = c->device;

	if (a->memory == GN_MEMORY_HOST)
		return GN_OK;
	if (!d)
		return gn_err_set(err, GN_ERR_USAGE, "%s of device memory: the communicator has no device", name_of(a));
	if (a->what != GN_COLLECTIVE_ALLREDUCE || (a->in && a->in != a->out) || a->reduce)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "%s: device memory supports only allreduce in place with a built-in reduction",
				  name_of(a));
	if (d->selected != &gn_coll_direct)
		return GN_OK;
	if (a->reduction == GN_AVERAGE)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "%s: messages in device memory have no average", name_of(a));
	return d->options.reduce(d->work, a->type, a->reduction, NULL, NULL, 0, err);
}

static enum gn_status check_counts(const struct gn_comm *c, const struct gn_coll_args *a, const size_t *counts, size_t most,
				   struct gn_err *err)
{
	if (a->what == GN_COLLECTIVE_ALL_TO_ALL && !a->counts != !a->counts_from)
		return gn_err_set(err, GN_ERR_USAGE, "%s needs counts both to and from each rank, or neither", name_of(a));
	if (counts && a->what != GN_COLLECTIVE_ALL_TO_ALL && (a->what != GN_COLLECTIVE_ALLGATHER || counts == a->counts_from))
		return gn_err_set(err, GN_ERR_USAGE, "%s does not support a count for each rank", name_of(a));
	for (int r = 0; counts && r < gn_comm_size(c); r++)
		if (counts[r] > most)
			return gn_err_set(err, GN_ERR_USAGE, "%s: %zu elements of rank %d do not fit into memory", name_of(a),
					  counts[r], r);
	if (a->counts && a->counts_from && a->counts[gn_comm_rank(c)] != a->counts_from[gn_comm_rank(c)])
		return gn_err_set(err, GN_ERR_USAGE, "%s: rank %d sends %zu elements to itself and expects %zu", name_of(a),
				  gn_comm_rank(c), a->counts[gn_comm_rank(c)], a->counts_from[gn_comm_rank(c)]);
	return GN_OK;
}

static enum gn_status check(const struct gn_comm *c, const struct gn_coll_args *a, struct gn_err *err)
{
	size_t bytes, most;

	if ((unsigned)a->what >= GN_COLLECTIVE_COUNT || (unsigned)a->type >= GN_DTYPE_COUNT ||
	    (unsigned)a->reduction >= GN_REDUCTION_COUNT)
		return gn_err_set(err, GN_ERR_USAGE, "invalid collective %d, type %d or reduction %d", (int)a->what,
				  (int)a->type, (int)a->reduction);
	bytes = gn_dtype_bytes(a->type);
	most = SIZE_MAX / 4 / bytes / (size_t)gn_comm_size(c);
	if (a->count > most)
		return gn_err_set(err, GN_ERR_USAGE, "%s: %zu elements do not fit into memory", name_of(a), a->count);
	if (check_counts(c, a, a->counts, most, err) || check_counts(c, a, a->counts_from, most, err))
		return GN_ERR_USAGE;
	if (reduces(a->what) && !a->reduce && !gn_reduce_of(a->type, a->reduction))
		return gn_err_set(err, GN_ERR_USAGE, "%s: type bytes has no sum; pass a reduction function", name_of(a));
	if (a->what == GN_COLLECTIVE_ALL_TO_ALL && (!a->in || a->in == a->out))
		return gn_err_set(err, GN_ERR_USAGE, "%s cannot be done in place", name_of(a));
	if (is_rooted(a->what) && (a->root < 0 || a->root >= gn_comm_size(c)))
		return gn_err_set(err, GN_ERR_USAGE, "%s: rank %d does not exist", name_of(a), a->root);
	return check_memory(c, a, err);
}

/* --- buffers --- */

static size_t *block_boundaries(const size_t *counts, size_t count, int size)
{
	size_t *first = calloc((size_t)size + 1, sizeof *first);

	for (int r = 0; first && r < size; r++)
		first[r + 1] = first[r] + (counts ? counts[r] : count);
	return first;
}

/* Sets block boundaries, for blocks of equal size, too, because slices need not divide them. */
static enum gn_status set_blocks(struct plan *p, struct gn_err *err)
{
	int size = p->args.size;
	const struct gn_coll_args *a = &p->coll->args;
	const size_t *out_counts = a->counts_from ? a->counts_from : a->counts;

	p->buffers.block_first = p->coll->block_first = block_boundaries(out_counts, a->count, size);
	p->buffers.in_first = p->coll->in_first = a->counts_from ? block_boundaries(a->counts, 0, size) : NULL;
	if (!p->coll->block_first || (a->counts_from && !p->coll->in_first))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d blocks", size);
	p->buffers.blocks = (uint32_t)size;
	p->buffers.count = p->coll->block_first[size];
	p->buffers.in_shift_bytes = p->coll->block_first[p->args.rank];
	return GN_OK;
}

/* Work memory for ranks that get a part of the result or none: the reduction of a schedule overwrites the whole buffer. */
static enum gn_status alloc_work(struct plan *p, struct gn_err *err)
{
	struct gn_coll *c = p->coll;
	int scatters = c->args.what == GN_COLLECTIVE_REDUCE_SCATTER;
	size_t result_first = scatters ? c->args.count * (size_t)p->args.rank : 0, result_count = scatters ? c->args.count : 0;

	if (!c->args.in || (!scatters && (c->args.what != GN_COLLECTIVE_REDUCE || p->args.rank == c->args.root)))
		return GN_OK;
	c->work = gn_alloc_aligned(p->buffers.count * p->buffers.element_bytes + 1);
	if (!c->work)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "%s: no memory for %zu elements", name_of(&c->args), p->buffers.count);
	p->buffers.out = c->work;
	c->result_from = result_count ? (char *)c->work + result_first * p->buffers.element_bytes : NULL;
	c->result = c->args.out;
	c->result_count = result_count;
	return GN_OK;
}

static enum gn_status set_buffers(struct plan *p, struct gn_err *err)
{
	struct gn_coll *c = p->coll;
	const struct gn_coll_args *a = &c->args;
	size_t block = a->count * (size_t)p->args.rank, element = gn_dtype_bytes(a->type);
	int in_place = !a->in;
	enum gn_status status = GN_OK;

	p->buffers = (struct gn_exec_buffers){.in = a->in, .out = a->out, .count = a->count, .element_bytes = element};
	p->buffers.device = a->memory == GN_MEMORY_DEVICE ? p->comm->device : NULL;
	p->buffers.type = a->type;
	p->buffers.reduction = a->reduction;
	if (reduces(a->what))
		p->buffers.reduce = a->reduce ? a->reduce : gn_reduce_of(a->type, a->reduction);
	c->result = a->out;
	c->result_count = a->count;
	if (is_in_blocks(a->what))
		status = set_blocks(p, err);
	p->buffers.in_shift_bytes *= a->what == GN_COLLECTIVE_ALLGATHER ? element : 0;
	if (a->what == GN_COLLECTIVE_REDUCE_SCATTER && in_place)
		c->result = (char *)a->out + block * element;
	if (reduces(a->what) && a->reduction == GN_AVERAGE && !a->reduce && !p->buffers.device &&
	    (a->what != GN_COLLECTIVE_REDUCE || p->args.rank == a->root))
		c->divide = p->args.size;
	p->in_bytes = p->buffers.count * element;
	return status;
}

/* --- algorithm --- */

/* A bound on message numbers between ranks of this node, the same on all of them: the maximum over the schedules of all of them. */
static enum gn_status count_messages(const struct plan *p, uint32_t *out, struct gn_err *err)
{
	const int *node = p->comm->map->node;
	int here = node[p->args.rank];
	struct gn_algo_args args = p->args;
	enum gn_status status = GN_OK;

	*out = 0;
	for (args.rank = 0; args.rank < args.size && !status; args.rank++) {
		struct gn_schedule *s;
		const struct gn_step *steps;
		size_t count;

		if (node[args.rank] != here)
			continue;
		status = gn_algorithm_schedule(p->algorithm, &args, &s, err);
		if (status)
			break;
		steps = gn_schedule_steps(s, &count);
		for (size_t i = 0; i < count; i++)
			if (steps[i].op == GN_STEP_SEND && steps[i].message >= *out && node[steps[i].peer] == here)
				*out = steps[i].message + 1;
		gn_schedule_destroy(s);
	}
	return status;
}

/* Creates flags with which the ranks of a node read each other's buffers in place, if those are in shared memory. All ranks have to
 * decide alike, so messages sent from the input, or from work memory on some ranks, use UCX. */
static enum gn_status create_flags(const struct plan *p, struct gn_shm_flags **out, struct gn_err *err)
{
	size_t bytes = p->buffers.count * p->buffers.element_bytes;
	uint32_t messages;
	enum gn_status status;

	*out = NULL;
	if (!p->comm->shm || p->buffers.device || p->algorithm->what == GN_COLLECTIVE_ALL_TO_ALL || !bytes ||
	    (p->algorithm->what == GN_COLLECTIVE_REDUCE && p->args.with_copy) ||
	    !gn_shm_owns(p->comm->shm, p->buffers.out, bytes))
		return GN_OK;
	status = count_messages(p, &messages, err);
	if (!status && messages)
		status = gn_shm_flags_create(p->comm->shm, p->buffers.out, bytes, messages, out, err);
	return status == GN_ERR_UNSUPPORTED ? GN_OK : status;
}

static const char *reduction_of(const struct gn_coll_args *a)
{
	if (!reduces(a->what) || a->what == GN_COLLECTIVE_BARRIER)
		return NULL;
	if (!a->reduce)
		return gn_reduction_name(a->reduction);
	for (enum gn_reduction r = 0; r < GN_AVERAGE; r++)
		if (a->reduce == gn_reduce_of(a->type, r))
			return gn_reduction_name(r);
	return "custom reduction";
}

/* Sets the signature that all ranks have to start alike, for the flight recorder. All-to-all with counts may have different sizes
 * on each rank. */
static void set_signature(const struct plan *p, const char *algorithm)
{
	const struct gn_coll_args *a = &p->coll->args;
	struct gn_recorder_op *op = &p->coll->op;

	*op = (struct gn_recorder_op){.name = name_of(a), .algorithm = algorithm, .reduction = reduction_of(a),
				      .root = is_rooted(a->what) ? a->root : -1};
	if (a->what != GN_COLLECTIVE_BARRIER && !a->counts_from) {
		op->type = gn_dtype_name(a->type);
		op->count = p->buffers.count;
		op->bytes = p->buffers.count * p->buffers.element_bytes;
	}
	p->coll->kind = gn_recorder_kind(p->comm->recorder, op);
}

static enum gn_status create_exec(struct plan *p, struct gn_schedule *s, struct gn_shm_flags *flags, struct gn_err *err)
{
	struct gn_exec_where where = {.world = p->comm->world, .ucx = p->comm->ucx, .flags = flags,
				      .name = name_of(&p->coll->args), .group = p->comm->group ? p->comm->group->number : 0,
				      .ranks = p->comm->group ? p->comm->group->ranks : NULL};

	set_signature(p, p->coll->info.algorithm);
	where.signature = gn_recorder_op_signature(&p->coll->op);
	p->coll->info.direct = flags != NULL;
	p->coll->ops = p->buffers.device ? &gn_coll_direct : &gn_coll_by_schedule;
	return gn_exec_create(&where, s, &p->buffers, &p->coll->exec, err);
}

static enum gn_status use_algorithm(struct plan *p, struct gn_err *err)
{
	struct gn_shm_flags *flags = NULL;
	struct gn_schedule *s;
	enum gn_status status = alloc_work(p, err);

	p->algorithm = gn_algorithm_find(p->coll->args.what, p->coll->args.algorithm);
	if (!status)
		status = create_flags(p, &flags, err);
	if (!status)
		status = gn_algorithm_schedule(p->algorithm, &p->args, &s, err);
	if (status) {
		gn_shm_flags_destroy(flags);
		return status;
	}
	p->coll->info.algorithm = p->algorithm->name;
	p->coll->info.pieces = p->args.pieces;
	p->coll->info.chunks = p->algorithm->chunks(&p->args);
	return create_exec(p, s, flags, err);
}

static enum gn_status use_shared_memory(struct plan *p, struct gn_err *err)
{
	const struct gn_coll_args *a = &p->coll->args;
	enum gn_status status;

	if (!gn_comm_all_share(p->comm) || !gn_coll_has_shared(a))
		return gn_err_set(err, GN_ERR_USAGE,
				  "algorithm shared is for allreduce, barrier, allgather without counts and reduce-scatter that is not in place, "
				  "with all ranks on one node and sharing memory");
	if (a->what == GN_COLLECTIVE_ALLREDUCE || a->what == GN_COLLECTIVE_BARRIER)
		status = gn_shm_allreduce(p->comm->shm, a->in, a->out, a->count, p->buffers.element_bytes, p->buffers.reduce,
					  &p->coll->shared, err);
	else
		status = gn_shm_blocks(p->comm->shm, a->what == GN_COLLECTIVE_ALLGATHER ? GN_SHM_ALLGATHER : GN_SHM_REDUCE_SCATTER, a->in,
				       a->out, a->count, p->buffers.element_bytes, p->buffers.reduce, &p->coll->shared, err);
	if (status)
		return status;
	p->coll->ops = &gn_coll_by_shm;
	set_signature(p, "shared");
	gn_shm_sign(p->coll->shared, gn_recorder_op_signature(&p->coll->op));
	p->coll->info = (struct gn_coll_info){"shared", 1, 1, gn_shm_owns(p->comm->shm, a->out, p->in_bytes)};
	return GN_OK;
}

/* Device memory, but for schedules in it. */
static enum gn_status use_device(struct plan *p, struct gn_err *err)
{
	struct gn_coll *c = p->coll;
	struct gn_coll_device *d = p->comm->device;
	enum gn_status status;

	if (d->selected == &gn_coll_by_library) {
		status = d->library->ops->prepare(d->library, &c->args, &c->library, err);
		c->ops = status ? NULL : &gn_coll_by_library;
	} else {
		status = gn_staged_prepare(c, err);
	}
	c->info = (struct gn_coll_info){.algorithm = gn_comm_device_backend(p->comm), .pieces = 1, .chunks = 1};
	set_signature(p, c->info.algorithm);
	return status;
}

static enum gn_status select_and_create(struct plan *p, struct gn_err *err)
{
	struct gn_coll_args *a = &p->coll->args;
	struct gn_coll_selection selection = {.algorithm = "shared"};
	enum gn_status status = GN_OK;

	if (p->buffers.device)
		status = gn_event_create(p->comm->device->options.device, &p->coll->ready, err);
	if (status || (p->buffers.device && p->comm->device->selected != &gn_coll_direct))
		return status ? status : use_device(p, err);
	if (!a->algorithm || p->buffers.device || strcmp(a->algorithm, "shared"))
		status = gn_coll_select(p->comm, a, a->counts_from ? 0 : p->in_bytes, &selection, err);
	if (status)
		return status;
	a->algorithm = selection.algorithm;
	p->args.pieces = selection.pieces;
	return strcmp(a->algorithm, "shared") ? use_algorithm(p, err) : use_shared_memory(p, err);
}

/* Normalises the arguments. A barrier is an allreduce of one word, whose sum needs all ranks. */
static struct gn_coll_args with_defaults(struct gn_comm *c, const struct gn_coll_args *args)
{
	struct gn_coll_args a = *args;

	if (a.in == a.out)
		a.in = NULL;
	if (a.what == GN_COLLECTIVE_BROADCAST && gn_comm_rank(c) != a.root)
		a.in = NULL;
	if (a.what == GN_COLLECTIVE_BARRIER) {
		a.in = NULL;
		a.out = &c->barrier_word;
		a.count = 1;
		a.type = GN_I32;
		a.reduce = gn_reduce_sum(GN_I32);
	}
	return a;
}

enum gn_status gn_coll_prepare_inside(struct gn_comm *comm, const struct gn_coll_args *args, struct gn_coll **out, struct gn_err *err)
{
	struct plan p = {.comm = comm};
	enum gn_status status = check(comm, args, err);

	if (status)
		return status;
	p.coll = calloc(1, sizeof *p.coll);
	if (!p.coll)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a collective");
	p.coll->comm = comm;
	p.coll->args = with_defaults(comm, args);
	p.coll->info.algorithm = "none";
	p.coll->numbers = 1;
	p.args = (struct gn_algo_args){.rank = gn_comm_rank(comm), .size = gn_comm_size(comm), .root = args->root,
				       .with_copy = p.coll->args.in != NULL, .map = comm->map};
	status = set_buffers(&p, err);
	if (!status)
		status = select_and_create(&p, err);
	if (status) {
		gn_coll_free_inside(p.coll);
		return status;
	}
	p.coll->args.algorithm = p.coll->info.algorithm;
	*out = p.coll;
	return GN_OK;
}

enum gn_status gn_coll_prepare(struct gn_comm *comm, const struct gn_coll_args *args, struct gn_coll **out,
			       struct gn_err *err)
{
	enum gn_status status;

	if (gn_world_losses(comm->world) && (status = gn_comm_check(comm, 0, err)))
		return status;
	gn_comm_enter(comm);
	status = gn_coll_prepare_inside(comm, args, out, err);
	gn_comm_leave(comm);
	return status;
}
