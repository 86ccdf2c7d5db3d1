#include "transport/coll/p2p.h"

#include "src/base/clock.h"
#include "transport/coll/coll_device_internal.h"
#include "transport/coll/comm_internal.h"

#include <sched.h>
#include <stdlib.h>

/* For a message that no rank waits for any more and that UCX cannot cancel, see comm_progress.c. */
#define UNMATCHED_NS 300000000u

/* What is next to happen. Messages with one peer, tag and direction are posted in the order of their starts. */
enum phase {
	WAITS,	/* for what it was started after */
	DOWN,	/* a copy to pinned memory */
	READY,	/* its turn to be posted */
	POSTED, /* the message */
	UP	/* a copy to the device */
};

struct gn_p2p {
	struct gn_coll op; /* first member: the engine of collectives runs it */
	struct gn_ucx_request *request; /* NULL: UCX has kept it, see gn_ucx_keep() */
	struct gn_p2p_args args;
	struct gn_p2p *next; /* started and not posted yet, of one communicator, in the order of their starts */
	enum phase phase;
	int sends, peer; /* peer: world rank, or GN_P2P_ANY */
	void *pinned;	 /* where the message is, if UCX cannot send device memory */
	struct gn_event *copied;
};

static struct gn_p2p *of(struct gn_coll *c)
{
	return (struct gn_p2p *)c;
}

/* --- progress --- */

static int overlap(const struct gn_p2p *p, const struct gn_p2p *q)
{
	return p->args.tag == q->args.tag && p->sends == q->sends && (p->peer == q->peer || p->peer == GN_P2P_ANY || q->peer == GN_P2P_ANY);
}

static int goes_first(const struct gn_p2p *p)
{
	const struct gn_p2p *q = p->op.comm->unposted;

	while (q != p && !overlap(p, q))
		q = q->next;
	return q == p;
}

/* Of a receive from any rank: the sender of a message that has arrived. UCX matches by tags, and the rails depend on the sender, so that
 * such a receive is posted only when its message is there. */
static int find_peer(struct gn_p2p *p)
{
	const struct gn_comm *c = p->op.comm;
	uint64_t tag = gn_p2p_tag(0, c->group ? c->group->number : 0, p->args.tag), found;

	if (p->peer == GN_P2P_ANY && gn_ucx_find_arrived(c->ucx, tag, GN_SENDER_BITS, &found))
		p->peer = gn_p2p_sender(found);
	return p->peer != GN_P2P_ANY;
}

static void leave_unposted(struct gn_p2p *p)
{
	struct gn_p2p **at = &p->op.comm->unposted;

	while (*at && *at != p)
		at = &(*at)->next;
	if (*at)
		*at = p->next;
}

static enum gn_status message_error(const struct gn_p2p *p, struct gn_err *err)
{
	const struct gn_comm *c = p->op.comm;
	const char *host = gn_world_host_of(c->world, p->peer), *in = c->group ? ", group " : "";
	enum gn_status status = p->request->status;

	if (status == GN_ERR_MISMATCH)
		return gn_err_set(err, status, "the message of rank %d on %s, tag %u%s%s, has another length than the receive, %zu bytes",
				  p->peer, host, p->args.tag, in, gn_comm_name(c), p->args.len_bytes);
	if (status == GN_ERR_DATA)
		return gn_err_set(err, GN_ERR_FAILED, "the message of rank %d on %s, tag %u%s%s, fails its authentication: it was changed, or sent "
				  "again, between the nodes", p->peer, host, p->args.tag, in, gn_comm_name(c));
	return gn_err_set(err, status, "a message %s rank %d on %s, tag %u%s%s, failed: %s", p->sends ? "to" : "of", p->peer, host,
			  p->args.tag, in, gn_comm_name(c), gn_status_text(status));
}

/* Queues the copy between pinned memory and the device. */
static enum gn_status copy(struct gn_p2p *p, struct gn_err *err)
{
	struct gn_stream *s = p->op.comm->device->work;
	void *to = p->sends ? p->pinned : p->args.data, *from = p->sends ? p->args.data : p->pinned;
	enum gn_status status = gn_stream_copy(s, to, from, p->args.len_bytes, err);

	if (!status)
		status = gn_event_record(p->copied, s, err);
	p->op.failed_alone |= status != GN_OK;
	return status;
}

static enum gn_status is_event_done(struct gn_p2p *p, const struct gn_event *event, int *yes, struct gn_err *err)
{
	enum gn_status status;

	*yes = !event;
	status = event ? gn_event_done(event, yes, err) : GN_OK;
	p->op.failed_alone |= status != GN_OK;
	return status;
}

static enum gn_status post(struct gn_p2p *p, struct gn_err *err)
{
	const struct gn_comm *c = p->op.comm;
	int sender = p->sends ? gn_world_rank(c->world) : p->peer;
	uint64_t tag = gn_p2p_tag(sender, c->group ? c->group->number : 0, p->args.tag);
	void *data = p->pinned ? p->pinned : p->args.data;

	leave_unposted(p);
	return p->sends ? gn_ucx_send(c->ucx, p->peer, tag, data, p->args.len_bytes, p->request, err)
			: gn_ucx_receive(c->ucx, p->peer, tag, data, p->args.len_bytes, p->request, err);
}

/* One transition, if it is possible now: *moved. */
static enum gn_status step(struct gn_p2p *p, int *moved, int *done, struct gn_err *err)
{
	const struct gn_event *event = p->phase == WAITS ? p->op.before : p->copied;
	enum gn_status status = GN_OK;

	*moved = 0;
	if (p->phase != READY && p->phase != POSTED) {
		status = is_event_done(p, event, moved, err);
		if (status || !*moved)
			return status;
	}
	switch (p->phase) {
	case WAITS:
		p->phase = p->sends && p->pinned ? DOWN : READY;
		return p->phase == DOWN ? copy(p, err) : GN_OK;
	case DOWN:
		p->phase = READY;
		return GN_OK;
	case READY:
		*moved = goes_first(p) && find_peer(p);
		p->phase = *moved ? POSTED : READY;
		return *moved ? post(p, err) : GN_OK;
	case POSTED:
		*moved = !p->request->active;
		if (*moved && p->request->status)
			return message_error(p, err);
		p->phase = *moved && p->pinned && !p->sends ? UP : POSTED;
		*done = *moved && p->phase == POSTED;
		return p->phase == UP ? copy(p, err) : GN_OK;
	default:
		*done = 1;
		return GN_OK;
	}
}

static enum gn_status p2p_advance(struct gn_coll *c, int *moved, int *done, struct gn_err *err)
{
	int again = of(c)->phase != POSTED || !of(c)->request->active;
	enum gn_status status = GN_OK;

	for (; !status && again && !*done; *moved |= again)
		status = step(of(c), &again, done, err);
	return status;
}

static enum gn_status p2p_begin(struct gn_coll *c, struct gn_err *err)
{
	struct gn_p2p *p = of(c), **at = &c->comm->unposted;

	p->request->status = GN_OK;
	p->next = NULL;
	p->phase = POSTED;
	p->peer = p->args.peer == GN_P2P_ANY ? GN_P2P_ANY : p->peer;
	/* the common case */
	if (!c->before && !p->pinned && !*at && p->peer != GN_P2P_ANY)
		return post(p, err);
	while (*at)
		at = &(*at)->next;
	*at = p;
	p->phase = WAITS;
	return GN_OK;
}

static void p2p_waits_for(const struct gn_coll *c, struct gn_exec_wait *out)
{
	const struct gn_p2p *p = (const struct gn_p2p *)c;

	out->peer = p->peer;
	out->message = p->args.tag;
	out->rail = p->peer == GN_P2P_ANY ? -1 : gn_ucx_blocking_rail(c->comm->ucx, p->peer, p->request);
}

static void p2p_transports(const struct gn_coll *c, int *by_memory, int *by_message)
{
	const struct gn_p2p *p = (const struct gn_p2p *)c;

	*by_message = 1;
	*by_memory = c->before || p->pinned;
}

/* After a loss: returns 0 if UCX may still use the buffer, or the peer still waits for this rank. */
static int release_message(struct gn_p2p *p)
{
	const struct gn_comm *c = p->op.comm;
	uint64_t until = gn_clock_ns() + UNMATCHED_NS;

	if (!gn_comm_goes_on(c) || !gn_comm_check(c, 1, NULL))
		return 0;
	if (!p->sends)
		gn_ucx_cancel(c->ucx, p->request);
	while (p->request->active && gn_clock_ns() < until)
		if (!gn_ucx_progress(c->ucx))
			sched_yield();
	if (!p->request->active)
		return 1;
	/* one that is partly through: UCX reads the data, unless it encrypts them and can be told not to */
	if (p->sends && !p->request->sealed && gn_ucx_sends_eagerly(c->ucx, p->peer) && !gn_world_is_lost(c->world, p->peer))
		return 0;
	gn_ucx_disown(c->ucx, p->request);
	if (!p->sends || !gn_ucx_keep(c->ucx, p->request))
		return 0;
	p->request = NULL;
	return 1;
}

static void p2p_release(struct gn_coll *c)
{
	struct gn_p2p *p = of(c);

	leave_unposted(p);
	/* a message may still arrive in the buffer */
	if (p->request && p->request->active && !release_message(p))
		gn_comm_break(c->comm);
	if (c->in_flight && p->pinned)
		(void)gn_stream_wait(c->comm->device->work, NULL);
	if (p->pinned)
		gn_pinned_free(c->comm->device->options.device, p->pinned);
	gn_event_destroy(p->copied);
	free(p->request);
}

static void message_done(struct gn_ucx_request *r)
{
	(void)r;
}

/* --- operations --- */

static enum gn_status check(const struct gn_comm *c, const struct gn_p2p_args *a, int sends, struct gn_err *err)
{
	int any = !sends && a->peer == GN_P2P_ANY;

	if ((a->peer < 0 && !any) || a->peer >= c->size || a->peer == c->rank)
		return gn_err_set(err, GN_ERR_USAGE, "a message between rank %d and rank %d of %d", c->rank, a->peer, c->size);
	if (a->tag >= GN_P2P_TAGS)
		return gn_err_set(err, GN_ERR_USAGE, "tag %u of a message: tags are below %u", a->tag, GN_P2P_TAGS);
	if (a->memory == GN_MEMORY_DEVICE && !c->device)
		return gn_err_set(err, GN_ERR_USAGE, "a message of device memory: the communicator has no device");
	return GN_OK;
}

static enum gn_status use_device(struct gn_p2p *p, struct gn_err *err)
{
	const struct gn_coll_device *d = p->op.comm->device;
	enum gn_status status = gn_event_create(d->options.device, &p->op.ready, err);

	if (status || d->selected == &gn_coll_direct || gn_ucx_takes_gpu_memory(p->op.comm->ucx) || !p->args.len_bytes)
		return status;
	status = gn_event_create(d->options.device, &p->copied, err);
	return status ? status : gn_pinned_alloc(d->options.device, p->args.len_bytes, &p->pinned, err);
}

static enum gn_status prepare(struct gn_comm *c, const struct gn_p2p_args *args, int sends, struct gn_p2p **out, struct gn_err *err)
{
	static const struct gn_coll_ops ops = {.start = p2p_begin, .advance = p2p_advance, .waits_for = p2p_waits_for,
					       .transports = p2p_transports, .free = p2p_release};
	struct gn_p2p *p = calloc(1, sizeof *p);
	enum gn_status status;

	if (p)
		p->request = calloc(1, sizeof *p->request);
	if (!p || !p->request) {
		free(p);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a message");
	}
	p->op.comm = c;
	p->op.ops = &ops;
	p->op.op = (struct gn_recorder_op){.name = sends ? "send" : "receive", .bytes = args->len_bytes, .root = -1};
	p->op.kind = gn_recorder_kind(c->recorder, &p->op.op);
	p->request->complete = message_done;
	p->args = *args;
	p->sends = sends;
	p->peer = args->peer == GN_P2P_ANY ? GN_P2P_ANY : gn_comm_world_rank_of(c, args->peer);
	status = args->memory == GN_MEMORY_DEVICE ? use_device(p, err) : GN_OK;
	if (!status && sends)
		status = gn_ucx_connect(c->ucx, p->peer, err);
	if (status)
		gn_coll_free_inside(&p->op);
	else
		*out = p;
	return status;
}

static enum gn_status prepare_outside(struct gn_comm *c, const struct gn_p2p_args *args, int sends, struct gn_p2p **out,
				      struct gn_err *err)
{
	enum gn_status status;

	if (gn_world_losses(c->world) && (status = gn_comm_check(c, 0, err)))
		return status;
	gn_comm_enter(c);
	status = check(c, args, sends, err);
	if (!status)
		status = prepare(c, args, sends, out, err);
	gn_comm_leave(c);
	return status;
}

enum gn_status gn_p2p_prepare_send(struct gn_comm *c, const struct gn_p2p_args *args, struct gn_p2p **out, struct gn_err *err)
{
	return prepare_outside(c, args, 1, out, err);
}

enum gn_status gn_p2p_prepare_receive(struct gn_comm *c, const struct gn_p2p_args *args, struct gn_p2p **out, struct gn_err *err)
{
	return prepare_outside(c, args, 0, out, err);
}

enum gn_status gn_p2p_start(struct gn_p2p *p, const struct gn_event *after, struct gn_err *err)
{
	enum gn_status status;

	gn_comm_enter(p->op.comm);
	status = gn_coll_start_outside_order(&p->op, after, err);
	gn_comm_leave(p->op.comm);
	return status;
}

enum gn_status gn_p2p_test(struct gn_p2p *p, int *done, struct gn_err *err)
{
	return gn_coll_test(&p->op, done, err);
}

enum gn_status gn_p2p_wait(struct gn_p2p *p, struct gn_err *err)
{
	return gn_coll_wait(&p->op, err);
}

int gn_p2p_peer(const struct gn_p2p *p)
{
	const struct gn_comm *c = p->op.comm;
	int rank = p->args.peer;

	for (int r = 0; rank == GN_P2P_ANY && p->peer != GN_P2P_ANY && r < c->size; r++)
		if (gn_comm_world_rank_of(c, r) == p->peer)
			rank = r;
	return rank;
}

void gn_p2p_free(struct gn_p2p *p)
{
	if (p)
		gn_coll_free(&p->op);
}

static enum gn_status run(struct gn_comm *c, const struct gn_p2p_args *args, int sends, struct gn_err *err)
{
	struct gn_p2p *p;
	enum gn_status status = prepare_outside(c, args, sends, &p, err);

	if (status)
		return status;
	status = gn_p2p_start(p, NULL, err);
	if (!status)
		status = gn_p2p_wait(p, err);
	gn_p2p_free(p);
	return status;
}

enum gn_status gn_p2p_send(struct gn_comm *c, int peer, uint32_t tag, const void *data, size_t len_bytes, struct gn_err *err)
{
	return run(c, &(struct gn_p2p_args){.peer = peer, .tag = tag, .data = (void *)data, .len_bytes = len_bytes}, 1, err);
}

enum gn_status gn_p2p_receive(struct gn_comm *c, int peer, uint32_t tag, void *data, size_t len_bytes, struct gn_err *err)
{
	return run(c, &(struct gn_p2p_args){.peer = peer, .tag = tag, .data = data, .len_bytes = len_bytes}, 0, err);
}
