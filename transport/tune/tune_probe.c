#include "transport/tune/tune_internal.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "src/base/sort.h"
#include "transport/topology/affinity.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define FLOOD 16
/* The time in which a flood of small messages arrives in the receiver's kernel. */
#define FLOOD_ARRIVES_S 5e-3
#define CHECK_NS 2000000u

enum { TAG_COMMAND = 1, TAG_DATA, TAG_REPLY, TAG_GO, TAG_NOTIFY };
enum { OP_END, OP_EAGER, OP_STREAM, OP_ONE_WAY, OP_FLOOD };

struct command {
	uint64_t op, count, bytes;
};

static uint64_t tag_of(int sender, int what)
{
	return (uint64_t)sender << 8 | (uint64_t)what;
}

static void on_complete(struct gn_ucx_request *r)
{
	(void)r;
}

enum gn_status gn_probe_create(struct gn_world *world, struct gn_ucx *ucx, int oversubscribed, size_t max_bytes,
			       struct gn_probe *out, struct gn_err *err)
{
	size_t stream = (size_t)GN_PROBE_CHUNKS * sizeof(double);
	struct gn_probe p = {.world = world, .ucx = ucx, .me = gn_world_rank(world), .peer = -1,
			     .oversubscribed = oversubscribed};

	p.max_bytes = max_bytes > stream ? max_bytes : stream;
	if (p.max_bytes < FLOOD * GN_FRAGMENT_BYTES * (size_t)gn_ucx_rails(ucx))
		p.max_bytes = FLOOD * GN_FRAGMENT_BYTES * (size_t)gn_ucx_rails(ucx);
	p.data = gn_alloc_aligned(p.max_bytes);
	p.spare = gn_alloc_aligned(p.max_bytes);
	if (!p.data || !p.spare) {
		gn_probe_release(&p);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for messages of %zu bytes", max_bytes);
	}
	/* pages never written would all map the same page of zeros */
	memset(p.data, 1, p.max_bytes);
	memset(p.spare, 1, p.max_bytes);
	*out = p;
	return GN_OK;
}

void gn_probe_release(struct gn_probe *p)
{
	free(p->data);
	free(p->spare);
	*p = (struct gn_probe){0};
}

size_t gn_probe_chunk_bytes(const struct gn_probe *p)
{
	int same_node = gn_world_node_of(p->world, p->me) == gn_world_node_of(p->world, p->peer);

	return GN_FRAGMENT_BYTES * (size_t)(same_node ? 1 : gn_ucx_rails(p->ucx));
}

static void yield_or_block(struct gn_probe *p, unsigned count)
{
	struct pollfd ready = {.fd = gn_ucx_event_fd(p->ucx), .events = POLLIN};

	if (p->oversubscribed && count > GN_YIELDS && gn_ucx_arm(p->ucx))
		poll(&ready, 1, 1);
	else
		sched_yield();
}

/* Waits as gn_coll_wait() does. */
static enum gn_status wait_for(struct gn_probe *p, const struct gn_ucx_request *r, struct gn_err *err)
{
	uint64_t started = 0, checked = 0, now;
	enum gn_status status = GN_OK;
	unsigned idle = 0, polls = p->oversubscribed ? GN_POLLS_OVERSUBSCRIBED : GN_POLLS;

	while (r->active && !status) {
		if (gn_ucx_progress(p->ucx)) {
			idle = 0;
			continue;
		}
		if (++idle % polls)
			continue;
		yield_or_block(p, idle / polls);
		now = gn_clock_ns();
		started = started ? started : now;
		if (now - checked < CHECK_NS)
			continue;
		checked = now;
		status = gn_world_check_wait(p->world, started, err);
	}
	if (!status && r->status)
		return gn_err_set(err, r->status, "a message between ranks %d and %d failed: %s", p->me, p->peer,
				  gn_status_text(r->status));
	return status;
}

static enum gn_status post_send(struct gn_probe *p, int to, int what, const void *data, size_t bytes,
				struct gn_ucx_request *r, struct gn_err *err)
{
	*r = (struct gn_ucx_request){.complete = on_complete};
	return gn_ucx_send(p->ucx, to, tag_of(p->me, what), data, bytes, r, err);
}

static enum gn_status post_receive(struct gn_probe *p, int from, int what, void *data, size_t bytes,
				   struct gn_ucx_request *r, struct gn_err *err)
{
	*r = (struct gn_ucx_request){.complete = on_complete};
	return gn_ucx_receive(p->ucx, from, tag_of(from, what), data, bytes, r, err);
}

static enum gn_status send_and_wait(struct gn_probe *p, int to, int what, const void *data, size_t bytes, struct gn_err *err)
{
	struct gn_ucx_request r;
	enum gn_status status = post_send(p, to, what, data, bytes, &r, err);

	return status ? status : wait_for(p, &r, err);
}

static enum gn_status receive_and_wait(struct gn_probe *p, int from, int what, void *data, size_t bytes, struct gn_err *err)
{
	struct gn_ucx_request r;
	enum gn_status status = post_receive(p, from, what, data, bytes, &r, err);

	return status ? status : wait_for(p, &r, err);
}

static void idle_for(struct gn_probe *p, double seconds)
{
	double until = gn_clock_s() + seconds;

	while (gn_clock_s() < until) {
		gn_ucx_progress(p->ucx);
		sched_yield();
	}
}

/* --- the answering rank --- */

static enum gn_status answer_eager(struct gn_probe *p, const struct command *c, struct gn_err *err)
{
	char go;
	enum gn_status status = receive_and_wait(p, p->peer, TAG_GO, &go, 1, err);

	return status ? status : receive_and_wait(p, p->peer, TAG_DATA, p->data, c->bytes, err);
}

static enum gn_status answer_stream(struct gn_probe *p, const struct command *c, struct gn_err *err)
{
	struct gn_ucx_request *all = calloc(c->count, sizeof *all);
	double *arrived = (double *)p->spare;
	enum gn_status status = GN_OK;

	if (!all)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu messages", (size_t)c->count);
	for (size_t i = 0; i < c->count && !status; i++)
		status = post_receive(p, p->peer, TAG_DATA, p->data + i % FLOOD * c->bytes, c->bytes, &all[i], err);
	if (!status)
		status = send_and_wait(p, p->peer, TAG_GO, p->data, 1, err);
	for (size_t i = 0; i < c->count && !status; i++) {
		status = wait_for(p, &all[i], err);
		arrived[i] = gn_clock_s();
	}
	if (!status)
		status = send_and_wait(p, p->peer, TAG_REPLY, arrived, c->count * sizeof *arrived, err);
	/* after a failure requests may still be active: they are leaked, and the UCX endpoints abandoned */
	if (!status)
		free(all);
	return status;
}

static enum gn_status answer_one_way(struct gn_probe *p, const struct command *c, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < c->count && !status; i++) {
		status = receive_and_wait(p, p->peer, TAG_DATA, p->data, c->bytes, err);
		if (!status)
			status = send_and_wait(p, p->peer, TAG_REPLY, p->data, c->bytes, err);
	}
	return status;
}

/* Receives nothing while the messages arrive, then all of them. */
static enum gn_status answer_flood(struct gn_probe *p, const struct command *c, struct gn_err *err)
{
	struct gn_ucx_request all[FLOOD];
	enum gn_status status = send_and_wait(p, p->peer, TAG_GO, p->data, 1, err);
	double until = gn_clock_s() + FLOOD_ARRIVES_S, took;

	while (gn_clock_s() < until)
		sched_yield();
	took = gn_clock_s();
	for (size_t i = 0; i < FLOOD && !status; i++)
		status = post_receive(p, p->peer, TAG_DATA, p->data + i * c->bytes, c->bytes, &all[i], err);
	for (size_t i = 0; i < FLOOD && !status; i++)
		status = wait_for(p, &all[i], err);
	took = (gn_clock_s() - took) / FLOOD;
	return status ? status : send_and_wait(p, p->peer, TAG_REPLY, &took, sizeof took, err);
}

static int command_fits(const struct gn_probe *p, const struct command *c)
{
	size_t at_once = c->op == OP_STREAM || c->op == OP_FLOOD ? FLOOD : 1;

	return c->bytes <= p->max_bytes / at_once && c->count <= GN_PROBE_CHUNKS;
}

enum gn_status gn_probe_answer(struct gn_probe *p, struct gn_err *err)
{
	static enum gn_status (*const answers[])(struct gn_probe *p, const struct command *c, struct gn_err *err) = {
		[OP_EAGER] = answer_eager, [OP_STREAM] = answer_stream, [OP_ONE_WAY] = answer_one_way,
		[OP_FLOOD] = answer_flood,
	};
	enum gn_status status = gn_ucx_connect(p->ucx, p->peer, err);
	struct command c;

	while (!status) {
		status = receive_and_wait(p, p->peer, TAG_COMMAND, &c, sizeof c, err);
		if (status || c.op == OP_END)
			break;
		if (c.op > OP_FLOOD || !command_fits(p, &c))
			return gn_err_set(err, GN_ERR_MISMATCH, "rank %d sent an unknown measurement command: do all ranks run the "
					  "same build of gannet?", p->peer);
		status = answers[c.op](p, &c, err);
	}
	return status;
}

/* --- the driver --- */

static enum gn_status send_command(struct gn_probe *p, uint64_t op, uint64_t count, uint64_t bytes, struct gn_err *err)
{
	struct command c = {op, count, bytes};

	return send_and_wait(p, p->peer, TAG_COMMAND, &c, sizeof c, err);
}

enum gn_status gn_probe_end(struct gn_probe *p, struct gn_err *err)
{
	return send_command(p, OP_END, 0, 0, err);
}

enum gn_status gn_probe_wait(struct gn_probe *p, int rank, struct gn_err *err)
{
	char byte;

	return receive_and_wait(p, rank, TAG_NOTIFY, &byte, 1, err);
}

enum gn_status gn_probe_notify(struct gn_probe *p, int rank, struct gn_err *err)
{
	enum gn_status status = gn_ucx_connect(p->ucx, rank, err);

	return status ? status : send_and_wait(p, rank, TAG_NOTIFY, p->data, 1, err);
}

enum gn_status gn_probe_is_eager(struct gn_probe *p, size_t bytes, int *out, struct gn_err *err)
{
	/* longer than an eager message takes at 10 MB/s */
	double until = gn_clock_s() + 10e-3 + (double)bytes / 10e6;
	enum gn_status status = send_command(p, OP_EAGER, 1, bytes, err);
	struct gn_ucx_request r;
	int eager;

	if (!status)
		status = post_send(p, p->peer, TAG_DATA, p->data, bytes, &r, err);
	if (status)
		return status;
	while (r.active && gn_clock_s() < until) {
		gn_ucx_progress(p->ucx);
		sched_yield();
	}
	eager = !r.active;
	status = send_and_wait(p, p->peer, TAG_GO, p->spare, 1, err);
	if (!status)
		status = wait_for(p, &r, err);
	if (!status)
		*out = eager;
	return status;
}

enum gn_status gn_probe_stream(struct gn_probe *p, int chunks, double idle_s, double *arrived_s, struct gn_err *err)
{
	struct gn_ucx_request *all = calloc((size_t)chunks, sizeof *all);
	size_t bytes = gn_probe_chunk_bytes(p);
	enum gn_status status = GN_OK;
	char go;

	if (!all)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d messages", chunks);
	idle_for(p, idle_s);
	status = send_command(p, OP_STREAM, (uint64_t)chunks, bytes, err);
	if (!status)
		status = receive_and_wait(p, p->peer, TAG_GO, &go, 1, err);
	for (int i = 0; i < chunks && !status; i++)
		status = post_send(p, p->peer, TAG_DATA, p->data + (size_t)i % FLOOD * bytes, bytes, &all[i], err);
	for (int i = 0; i < chunks && !status; i++)
		status = wait_for(p, &all[i], err);
	if (!status)
		status = receive_and_wait(p, p->peer, TAG_REPLY, p->spare, (size_t)chunks * sizeof *arrived_s, err);
	if (status)
		return status;
	memcpy(arrived_s, p->spare, (size_t)chunks * sizeof *arrived_s);
	free(all);
	return GN_OK;
}

static enum gn_status ping_pong(struct gn_probe *p, size_t bytes, double *out, struct gn_err *err)
{
	double began = gn_clock_s();
	struct gn_ucx_request back;
	enum gn_status status = post_receive(p, p->peer, TAG_REPLY, p->spare, bytes, &back, err);

	if (!status)
		status = send_and_wait(p, p->peer, TAG_DATA, p->data, bytes, err);
	if (!status)
		status = wait_for(p, &back, err);
	*out = (gn_clock_s() - began) / 2;
	return status;
}

enum gn_status gn_probe_one_way(struct gn_probe *p, size_t bytes, int count, double idle_s, double *out,
				struct gn_err *err)
{
	double times[GN_PROBE_CHUNKS];
	enum gn_status status;

	count = count < 1 ? 1 : count < GN_PROBE_CHUNKS ? count : GN_PROBE_CHUNKS;
	status = send_command(p, OP_ONE_WAY, (uint64_t)count, bytes, err);
	for (int i = 0; i < count && !status; i++) {
		idle_for(p, idle_s);
		status = ping_pong(p, bytes, &times[i], err);
	}
	if (status)
		return status;
	gn_sort_doubles(times, (size_t)count);
	*out = times[count / 2];
	return GN_OK;
}

enum gn_status gn_probe_overheads(struct gn_probe *p, size_t bytes, double *send_s, double *receive_s, struct gn_err *err)
{
	enum gn_status status = send_command(p, OP_FLOOD, FLOOD, bytes, err);
	struct gn_ucx_request all[FLOOD];
	double took, receive;
	char go;

	if (!status)
		status = receive_and_wait(p, p->peer, TAG_GO, &go, 1, err);
	took = gn_clock_s();
	for (size_t i = 0; i < FLOOD && !status; i++)
		status = post_send(p, p->peer, TAG_DATA, p->data + i * bytes, bytes, &all[i], err);
	took = (gn_clock_s() - took) / FLOOD;
	for (size_t i = 0; i < FLOOD && !status; i++)
		status = wait_for(p, &all[i], err);
	if (!status)
		status = receive_and_wait(p, p->peer, TAG_REPLY, &receive, sizeof receive, err);
	if (status)
		return status;
	*send_s = took;
	*receive_s = receive;
	return GN_OK;
}
