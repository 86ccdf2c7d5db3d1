#include "transport/tune/tune_internal.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "transport/topology/oversubscription.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define FLOOD 16
/* Time enough for a flood of small messages to lie in the receiver's kernel. */
#define FLOOD_LANDS_S 5e-3
#define CHECK_NS 2000000u

enum { TAG_COMMAND = 1, TAG_DATA, TAG_BACK, TAG_GO, TAG_TOLD };
enum { OP_END, OP_EAGER, OP_STREAM, OP_ONE_WAY, OP_FLOOD };

struct command {
	uint64_t op, count, bytes;
};

static uint64_t tag_of(int sender, int what)
{
	return (uint64_t)sender << 8 | (uint64_t)what;
}

static void completed(struct gn_ucx_request *r)
{
	(void)r;
}

enum gn_status gn_probe_create(struct gn_world *world, struct gn_ucx *fabric, int oversubscribed, size_t max_bytes,
			       struct gn_probe *out, struct gn_err *err)
{
	size_t stream = (size_t)GN_PROBE_CHUNKS * sizeof(double);
	struct gn_probe p = {.world = world, .fabric = fabric, .me = gn_world_rank(world), .peer = -1,
			     .oversubscribed = oversubscribed};

	p.max_bytes = max_bytes > stream ? max_bytes : stream;
	if (p.max_bytes < FLOOD * GN_FRAGMENT_BYTES * (size_t)gn_ucx_rails(fabric))
		p.max_bytes = FLOOD * GN_FRAGMENT_BYTES * (size_t)gn_ucx_rails(fabric);
	p.data = gn_alloc_aligned(p.max_bytes);
	p.spare = gn_alloc_aligned(p.max_bytes);
	if (!p.data || !p.spare) {
		gn_probe_release(&p);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for messages of %zu bytes", max_bytes);
	}
	/* pages that were never written would all be one page of zeros */
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

	return GN_FRAGMENT_BYTES * (size_t)(same_node ? 1 : gn_ucx_rails(p->fabric));
}

static void give_way(struct gn_probe *p, unsigned turn)
{
	struct pollfd ready = {.fd = gn_ucx_event_fd(p->fabric), .events = POLLIN};

	if (p->oversubscribed && turn > GN_YIELDS && gn_ucx_arm(p->fabric))
		poll(&ready, 1, 1);
	else
		sched_yield();
}

/* Waits as gn_coll_wait() does. */
static enum gn_status wait_for(struct gn_probe *p, const struct gn_ucx_request *r, struct gn_err *err)
{
	uint64_t started = 0, checked = 0, now;
	enum gn_status status = GN_OK;
	unsigned idle = 0, looks = p->oversubscribed ? GN_POLLS_OVERSUBSCRIBED : GN_POLLS;

	while (r->active && !status) {
		if (gn_ucx_progress(p->fabric)) {
			idle = 0;
			continue;
		}
		if (++idle % looks)
			continue;
		give_way(p, idle / looks);
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
	*r = (struct gn_ucx_request){.complete = completed};
	return gn_ucx_send(p->fabric, to, tag_of(p->me, what), data, bytes, r, err);
}

static enum gn_status post_receive(struct gn_probe *p, int from, int what, void *data, size_t bytes,
				   struct gn_ucx_request *r, struct gn_err *err)
{
	*r = (struct gn_ucx_request){.complete = completed};
	return gn_ucx_receive(p->fabric, from, tag_of(from, what), data, bytes, r, err);
}

static enum gn_status send_now(struct gn_probe *p, int to, int what, const void *data, size_t bytes, struct gn_err *err)
{
	struct gn_ucx_request r;
	enum gn_status status = post_send(p, to, what, data, bytes, &r, err);

	return status ? status : wait_for(p, &r, err);
}

static enum gn_status receive_now(struct gn_probe *p, int from, int what, void *data, size_t bytes, struct gn_err *err)
{
	struct gn_ucx_request r;
	enum gn_status status = post_receive(p, from, what, data, bytes, &r, err);

	return status ? status : wait_for(p, &r, err);
}

static void idle_for(struct gn_probe *p, double seconds)
{
	double until = gn_clock_s() + seconds;

	while (gn_clock_s() < until) {
		gn_ucx_progress(p->fabric);
		sched_yield();
	}
}

/* --- the side that answers --- */

static enum gn_status answer_eager(struct gn_probe *p, const struct command *c, struct gn_err *err)
{
	char go;
	enum gn_status status = receive_now(p, p->peer, TAG_GO, &go, 1, err);

	return status ? status : receive_now(p, p->peer, TAG_DATA, p->data, c->bytes, err);
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
		status = send_now(p, p->peer, TAG_GO, p->data, 1, err);
	for (size_t i = 0; i < c->count && !status; i++) {
		status = wait_for(p, &all[i], err);
		arrived[i] = gn_clock_s();
	}
	if (!status)
		status = send_now(p, p->peer, TAG_BACK, arrived, c->count * sizeof *arrived, err);
	/* after a failure requests may still be under way: the fabric is given up, and they are left to it */
	if (!status)
		free(all);
	return status;
}

static enum gn_status answer_one_way(struct gn_probe *p, const struct command *c, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < c->count && !status; i++) {
		status = receive_now(p, p->peer, TAG_DATA, p->data, c->bytes, err);
		if (!status)
			status = send_now(p, p->peer, TAG_BACK, p->data, c->bytes, err);
	}
	return status;
}

/* Looks away while the messages come, then takes them in at once. */
static enum gn_status answer_flood(struct gn_probe *p, const struct command *c, struct gn_err *err)
{
	struct gn_ucx_request all[FLOOD];
	enum gn_status status = send_now(p, p->peer, TAG_GO, p->data, 1, err);
	double until = gn_clock_s() + FLOOD_LANDS_S, took;

	while (gn_clock_s() < until)
		sched_yield();
	took = gn_clock_s();
	for (size_t i = 0; i < FLOOD && !status; i++)
		status = post_receive(p, p->peer, TAG_DATA, p->data + i * c->bytes, c->bytes, &all[i], err);
	for (size_t i = 0; i < FLOOD && !status; i++)
		status = wait_for(p, &all[i], err);
	took = (gn_clock_s() - took) / FLOOD;
	return status ? status : send_now(p, p->peer, TAG_BACK, &took, sizeof took, err);
}

static int fits(const struct gn_probe *p, const struct command *c)
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
	enum gn_status status = gn_ucx_connect(p->fabric, p->peer, err);
	struct command c;

	while (!status) {
		status = receive_now(p, p->peer, TAG_COMMAND, &c, sizeof c, err);
		if (status || c.op == OP_END)
			break;
		if (c.op > OP_FLOOD || !fits(p, &c))
			return gn_err_set(err, GN_ERR_MISMATCH, "rank %d asked for what this rank does not know", p->peer);
		status = answers[c.op](p, &c, err);
	}
	return status;
}

/* --- the side that drives --- */

static enum gn_status ask(struct gn_probe *p, uint64_t op, uint64_t count, uint64_t bytes, struct gn_err *err)
{
	struct command c = {op, count, bytes};

	return send_now(p, p->peer, TAG_COMMAND, &c, sizeof c, err);
}

enum gn_status gn_probe_end(struct gn_probe *p, struct gn_err *err)
{
	return ask(p, OP_END, 0, 0, err);
}

enum gn_status gn_probe_await(struct gn_probe *p, int rank, struct gn_err *err)
{
	char told;

	return receive_now(p, rank, TAG_TOLD, &told, 1, err);
}

enum gn_status gn_probe_tell(struct gn_probe *p, int rank, struct gn_err *err)
{
	enum gn_status status = gn_ucx_connect(p->fabric, rank, err);

	return status ? status : send_now(p, rank, TAG_TOLD, p->data, 1, err);
}

enum gn_status gn_probe_is_eager(struct gn_probe *p, size_t bytes, int *out, struct gn_err *err)
{
	/* longer than such a message takes even at 10 MB/s */
	double until = gn_clock_s() + 10e-3 + (double)bytes / 10e6;
	enum gn_status status = ask(p, OP_EAGER, 1, bytes, err);
	struct gn_ucx_request r;
	int eager;

	if (!status)
		status = post_send(p, p->peer, TAG_DATA, p->data, bytes, &r, err);
	if (status)
		return status;
	while (r.active && gn_clock_s() < until) {
		gn_ucx_progress(p->fabric);
		sched_yield();
	}
	eager = !r.active;
	status = send_now(p, p->peer, TAG_GO, p->spare, 1, err);
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
	status = ask(p, OP_STREAM, (uint64_t)chunks, bytes, err);
	if (!status)
		status = receive_now(p, p->peer, TAG_GO, &go, 1, err);
	for (int i = 0; i < chunks && !status; i++)
		status = post_send(p, p->peer, TAG_DATA, p->data + (size_t)i % FLOOD * bytes, bytes, &all[i], err);
	for (int i = 0; i < chunks && !status; i++)
		status = wait_for(p, &all[i], err);
	if (!status)
		status = receive_now(p, p->peer, TAG_BACK, p->spare, (size_t)chunks * sizeof *arrived_s, err);
	if (status)
		return status;
	memcpy(arrived_s, p->spare, (size_t)chunks * sizeof *arrived_s);
	free(all);
	return GN_OK;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static enum gn_status there_and_back(struct gn_probe *p, size_t bytes, double *out, struct gn_err *err)
{
	double began = gn_clock_s();
	struct gn_ucx_request back;
	enum gn_status status = post_receive(p, p->peer, TAG_BACK, p->spare, bytes, &back, err);

	if (!status)
		status = send_now(p, p->peer, TAG_DATA, p->data, bytes, err);
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
	status = ask(p, OP_ONE_WAY, (uint64_t)count, bytes, err);
	for (int i = 0; i < count && !status; i++) {
		idle_for(p, idle_s);
		status = there_and_back(p, bytes, &times[i], err);
	}
	if (status)
		return status;
	qsort(times, (size_t)count, sizeof *times, by_value);
	*out = times[count / 2];
	return GN_OK;
}

enum gn_status gn_probe_overheads(struct gn_probe *p, size_t bytes, double *send_s, double *receive_s, struct gn_err *err)
{
	enum gn_status status = ask(p, OP_FLOOD, FLOOD, bytes, err);
	struct gn_ucx_request all[FLOOD];
	double took, receive;
	char go;

	if (!status)
		status = receive_now(p, p->peer, TAG_GO, &go, 1, err);
	took = gn_clock_s();
	for (size_t i = 0; i < FLOOD && !status; i++)
		status = post_send(p, p->peer, TAG_DATA, p->data + i * bytes, bytes, &all[i], err);
	took = (gn_clock_s() - took) / FLOOD;
	for (size_t i = 0; i < FLOOD && !status; i++)
		status = wait_for(p, &all[i], err);
	if (!status)
		status = receive_now(p, p->peer, TAG_BACK, &receive, sizeof receive, err);
	if (status)
		return status;
	*send_s = took;
	*receive_s = receive;
	return GN_OK;
}
