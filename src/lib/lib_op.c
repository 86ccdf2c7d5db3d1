#include "src/lib/lib_internal.h"

#include <stdlib.h>
#include <string.h>

/* Makes an operation of coll or p2p, which it frees on failure. */
static gannet_status make_op(gannet_group *group, struct gn_coll *coll, struct gn_p2p *p2p, gannet_op **out)
{
	gannet_op *op = calloc(1, sizeof *op);
	struct gn_err err;

	if (!op) {
		gn_coll_free(coll);
		gn_p2p_free(p2p);
		return gn_lib_result(gn_err_set(&err, GN_ERR_NO_MEMORY, "out of memory for an operation"), &err);
	}
	*op = (gannet_op){coll, p2p, group, group->ops, NULL};
	if (op->next)
		op->next->before = op;
	*out = group->ops = op;
	return GANNET_OK;
}

static gannet_status checked(const gannet_group *group, const gannet_args *args, struct gn_coll_args *out)
{
	gannet_args a = {0};

	if (!gn_lib_has(group))
		return GANNET_USAGE;
	if (gn_lib_check_size("gannet_args", args->size_bytes, sizeof a))
		return GANNET_USAGE;
	memcpy(&a, args, args->size_bytes);
	if ((unsigned)a.what > GANNET_ALL_TO_ALL || (unsigned)a.type > GANNET_BF16 || (unsigned)a.reduction > GANNET_AVERAGE)
		return gn_lib_usage("no such collective (%d), type (%d) or reduction (%d)", (int)a.what, (int)a.type, (int)a.reduction);
	static const enum gn_collective what[] = {
		[GANNET_ALLREDUCE] = GN_COLLECTIVE_ALLREDUCE, [GANNET_REDUCE_SCATTER] = GN_COLLECTIVE_REDUCE_SCATTER,
		[GANNET_ALLGATHER] = GN_COLLECTIVE_ALLGATHER, [GANNET_BROADCAST] = GN_COLLECTIVE_BROADCAST,
		[GANNET_REDUCE] = GN_COLLECTIVE_REDUCE,	      [GANNET_BARRIER] = GN_COLLECTIVE_BARRIER,
		[GANNET_ALL_TO_ALL] = GN_COLLECTIVE_ALL_TO_ALL};
	static const enum gn_dtype type[] = {[GANNET_F32] = GN_F32,	[GANNET_F64] = GN_F64, [GANNET_I32] = GN_I32, [GANNET_I64] = GN_I64,
					     [GANNET_BYTES] = GN_BYTES, [GANNET_F16] = GN_F16, [GANNET_BF16] = GN_BF16};
	static const enum gn_reduction reduction[] = {
		[GANNET_SUM] = GN_SUM, [GANNET_MAX] = GN_MAX, [GANNET_MIN] = GN_MIN, [GANNET_AVERAGE] = GN_AVERAGE};
	*out = (struct gn_coll_args){.what = what[a.what], .in = a.in, .out = a.out, .count = a.count, .counts = a.counts,
				     .counts_from = a.counts_from, .type = type[a.type], .reduction = reduction[a.reduction],
				     .reduce = a.reduce, .root = a.root, .priority = a.priority};
	return GANNET_OK;
}

gannet_status gannet_run(gannet_group *group, const gannet_args *args)
{
	struct gn_coll_args a;
	struct gn_err err = {0};
	gannet_status status = checked(group, args, &a);

	return status ? status : gn_lib_result(gn_comm_run(group->comm, &a, &err), &err);
}

gannet_status gannet_prepare(gannet_group *group, const gannet_args *args, gannet_op **op)
{
	struct gn_coll_args a;
	struct gn_coll *coll;
	struct gn_err err = {0};
	gannet_status status = checked(group, args, &a);

	if (!status)
		status = gn_lib_result(gn_coll_prepare(group->comm, &a, &coll, &err), &err);
	return status ? status : make_op(group, coll, NULL, op);
}

gannet_status gannet_start(gannet_op *op)
{
	struct gn_err err = {0};

	return gn_lib_result(op->coll ? gn_coll_start(op->coll, NULL, &err) : gn_p2p_start(op->p2p, NULL, &err), &err);
}

gannet_status gannet_test(gannet_op *op, int *done)
{
	struct gn_err err = {0};

	return gn_lib_result(op->coll ? gn_coll_test(op->coll, done, &err) : gn_p2p_test(op->p2p, done, &err), &err);
}

gannet_status gannet_wait(gannet_op *op)
{
	struct gn_err err = {0};

	return gn_lib_result(op->coll ? gn_coll_wait(op->coll, &err) : gn_p2p_wait(op->p2p, &err), &err);
}

void gannet_op_free(gannet_op *op)
{
	if (!op)
		return;
	gn_coll_free(op->coll);
	gn_p2p_free(op->p2p);
	if (op->next)
		op->next->before = op->before;
	if (op->before)
		op->before->next = op->next;
	else
		op->group->ops = op->next;
	free(op);
}

gannet_status gannet_allreduce(gannet_group *group, const void *in, void *out, size_t count, gannet_type type, gannet_reduction reduction)
{
	return gannet_run(group, &(gannet_args){.size_bytes = sizeof(gannet_args), .what = GANNET_ALLREDUCE, .in = in, .out = out,
						.count = count, .type = type, .reduction = reduction});
}

gannet_status gannet_broadcast(gannet_group *group, void *data, size_t count, gannet_type type, int root)
{
	return gannet_run(group, &(gannet_args){.size_bytes = sizeof(gannet_args), .what = GANNET_BROADCAST, .out = data, .count = count,
						.type = type, .root = root});
}

gannet_status gannet_allgather(gannet_group *group, const void *in, void *out, size_t count, gannet_type type)
{
	return gannet_run(group, &(gannet_args){.size_bytes = sizeof(gannet_args), .what = GANNET_ALLGATHER, .in = in, .out = out,
						.count = count, .type = type});
}

gannet_status gannet_reduce_scatter(gannet_group *group, const void *in, void *out, size_t count, gannet_type type,
				    gannet_reduction reduction)
{
	return gannet_run(group, &(gannet_args){.size_bytes = sizeof(gannet_args), .what = GANNET_REDUCE_SCATTER, .in = in, .out = out,
						.count = count, .type = type, .reduction = reduction});
}

gannet_status gannet_barrier(gannet_group *group)
{
	return gannet_run(group, &(gannet_args){.size_bytes = sizeof(gannet_args), .what = GANNET_BARRIER});
}

static gannet_status prepare_message(gannet_group *group, const struct gn_p2p_args *args, int sends, gannet_op **op)
{
	struct gn_p2p *p2p;
	struct gn_err err = {0};
	enum gn_status status;

	if (!gn_lib_has(group))
		return GANNET_USAGE;
	if (args->tag >= GANNET_TAGS)
		return gn_lib_usage("tag %u of a message: tags are below %u", args->tag, GANNET_TAGS);
	status = sends ? gn_p2p_prepare_send(group->comm, args, &p2p, &err) : gn_p2p_prepare_receive(group->comm, args, &p2p, &err);
	return status ? gn_lib_result(status, &err) : make_op(group, NULL, p2p, op);
}

gannet_status gannet_prepare_send(gannet_group *group, int peer, uint32_t tag, const void *data, size_t len_bytes, gannet_op **op)
{
	/* read only, as p2p.h says */
	return prepare_message(group, &(struct gn_p2p_args){.peer = peer, .tag = tag, .data = (void *)data, .len_bytes = len_bytes}, 1, op);
}

gannet_status gannet_prepare_receive(gannet_group *group, int peer, uint32_t tag, void *data, size_t len_bytes, gannet_op **op)
{
	return prepare_message(group, &(struct gn_p2p_args){.peer = peer, .tag = tag, .data = data, .len_bytes = len_bytes}, 0, op);
}

int gannet_op_peer(const gannet_op *op)
{
	return op->p2p ? gn_p2p_peer(op->p2p) : GANNET_ANY_SOURCE;
}

static gannet_status message(gannet_status status, gannet_op *op)
{
	if (!status)
		status = gannet_start(op);
	if (!status)
		status = gannet_wait(op);
	gannet_op_free(op);
	return status;
}

gannet_status gannet_send(gannet_group *group, int peer, uint32_t tag, const void *data, size_t len_bytes)
{
	gannet_op *op = NULL;
	gannet_status status = gannet_prepare_send(group, peer, tag, data, len_bytes, &op);

	return message(status, op);
}

gannet_status gannet_receive(gannet_group *group, int peer, uint32_t tag, void *data, size_t len_bytes)
{
	gannet_op *op = NULL;
	gannet_status status = gannet_prepare_receive(group, peer, tag, data, len_bytes, &op);

	return message(status, op);
}
