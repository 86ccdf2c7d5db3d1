#include "transport/nccl/plugin/conn.h"

#include "src/base/clock.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long operations of an end that closes may take when the peer is alive, and how long after the peer has closed an
 * operation may still be on its way. */
#define SETTLE_NS 1000000000u
/* What a peer that has left sent before is here by then, and what ends with a broken link has ended. */
#define LEFT_NS 50000000u
#define BROKEN_NS 50000000u

struct gn_request {
	struct gn_conn *conn;
	struct gn_request *next, *next_free;
	int count;
	uint32_t group;
	struct gn_op ops[GN_GROUP_MAX];
	struct gn_op told;
	struct gn_wire message;
};

/* --- life --- */

static void bind_op(struct gn_op *op, struct gn_conn *c)
{
	op->worker = c->engine;
	op->active_of_conn = &c->active;
}

enum gn_status gn_conn_create(struct gn_worker *e, int receives, struct gn_conn **out, struct gn_err *err)
{
	struct gn_conn *c = calloc(1, sizeof *c);
	enum gn_status status;

	if (c && !receives)
		c->groups = calloc(GN_GROUPS_MAX, sizeof *c->groups);
	if (!c || (!receives && !c->groups)) {
		free(c);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a connection");
	}
	c->engine = e;
	c->receives = receives;
	c->requests_max = receives ? GN_GROUPS_MAX : GN_SENDS_MAX;
	bind_op(&c->goodbye, c);
	bind_op(&c->flush, c);
	status = gn_worker_add(e, c, &c->number, err);
	if (status) {
		free(c->groups);
		free(c);
		return status;
	}
	*out = c;
	return GN_OK;
}

static void free_conn(struct gn_conn *c)
{
	struct gn_request *next;

	for (struct gn_request *r = c->requests; r; r = next) {
		next = r->next;
		free(r);
	}
	free(c->groups);
	free(c);
}

void gn_conn_discard(struct gn_conn *c)
{
	gn_worker_remove(c->engine, c->number);
	if (c->link)
		gn_link_release(c->link);
	free_conn(c);
}

/* The first failure counts. */
static enum gn_status latch(struct gn_conn *c, enum gn_status status, const char *why)
{
	if (!c->failed) {
		c->failed = status;
		snprintf(c->why, sizeof c->why, "%s", why);
	}
	return status;
}

static enum gn_status tell_failure(const struct gn_conn *c, struct gn_err *err)
{
	return gn_err_set(err, c->failed, "%s %s: %s", c->receives ? "receiving from" : "sending to", c->link->host, c->why);
}

static void message(struct gn_conn *c, const struct gn_wire *m)
{
	struct gn_group *g;

	if (m->kind == GN_WIRE_CLOSING) {
		c->peer_groups = m->group;
		c->peer_closed_ns = gn_clock_ns();
		return;
	}
	if (m->kind != GN_WIRE_POSTED || c->receives || m->group != c->posted || c->posted - c->group >= GN_GROUPS_MAX ||
	    m->count < 1 || m->count > GN_GROUP_MAX) {
		latch(c, GN_ERR_MISMATCH, "the other end breaks the rules: does it run the same version?");
		return;
	}
	g = &c->groups[c->posted++ % GN_GROUPS_MAX];
	*g = (struct gn_group){.count = (int)m->count, .left = (int)m->count};
	memcpy(g->tags, m->tags, sizeof g->tags);
	memcpy(g->sizes, m->sizes, sizeof g->sizes);
}

/* --- requests --- */

/* NULL: as many are under way as may be. */
static struct gn_request *take_request(struct gn_conn *c, int count)
{
	struct gn_request *r = c->free_requests;

	if (r) {
		c->free_requests = r->next_free;
	} else {
		r = c->request_count < c->requests_max ? calloc(1, sizeof *r) : NULL;
		if (!r)
			return NULL;
		c->request_count++;
		r->conn = c;
		bind_op(&r->told, c);
		for (int i = 0; i < GN_GROUP_MAX; i++)
			bind_op(&r->ops[i], c);
		r->next = c->requests;
		c->requests = r;
	}
	r->count = count;
	r->told.status = UCS_OK;
	return r;
}

static void give_request(struct gn_request *r)
{
	r->next_free = r->conn->free_requests;
	r->conn->free_requests = r;
}

/* Lock held. What stands in the way of anything new? */
static enum gn_status check(struct gn_conn *c, struct gn_err *err)
{
	if (!c->failed && c->engine->frozen)
		latch(c, GN_ERR_PEER_LOST, "memory was taken back in the middle of a message");
	if (!c->failed && c->link->broken)
		latch(c, GN_ERR_PEER_LOST, c->link->why);
	return c->failed ? tell_failure(c, err) : GN_OK;
}

static int find_part(const struct gn_group *g, int tag)
{
	for (int i = 0; i < g->count; i++)
		if (!g->used[i] && g->tags[i] == tag)
			return i;
	return -1;
}

/* Lock held. */
static enum gn_status send_now(struct gn_conn *c, const void *data, size_t len_bytes, int tag, struct gn_request **out,
			       struct gn_err *err)
{
	struct gn_group *g = &c->groups[c->group % GN_GROUPS_MAX];
	int part = c->group == c->posted ? -1 : find_part(g, tag);
	struct gn_request *r;
	char why[128];

	if (part < 0 && (c->peer_closed_ns || c->link->left_ns)) {
		latch(c, GN_ERR_PEER_LOST, "it has closed the connection");
		return tell_failure(c, err);
	}
	r = part < 0 ? NULL : take_request(c, 1);
	if (!r)
		return GN_OK;
	if (len_bytes > g->sizes[part]) {
		give_request(r);
		snprintf(why, sizeof why, "a message of %zu bytes with tag %d for a buffer of %llu", len_bytes, tag,
			 (unsigned long long)g->sizes[part]);
		latch(c, GN_ERR_USAGE, why);
		return tell_failure(c, err);
	}
	r->group = c->group;
	gn_op_send(&r->ops[0], c->link, gn_tag(c->peer_number, c->group, part), data, len_bytes);
	g->used[part] = 1;
	c->group += !--g->left;
	*out = r;
	return GN_OK;
}

enum gn_status gn_conn_send(struct gn_conn *c, const void *data, size_t len_bytes, int tag, struct gn_request **out,
			    struct gn_err *err)
{
	struct gn_worker *e = c->engine;
	struct gn_request *r = NULL;
	enum gn_status status;

	pthread_mutex_lock(&e->lock);
	if (c->group == c->posted)
		gn_worker_progress(e);
	status = check(c, err);
	if (!status)
		status = send_now(c, data, len_bytes, tag, &r, err);
	pthread_mutex_unlock(&e->lock);
	if (!status)
		*out = r;
	return status;
}

/* Lock held. */
static void post(struct gn_request *r, void *const *data, const size_t *sizes, const int *tags)
{
	struct gn_conn *c = r->conn;

	r->group = c->group++;
	r->message = (struct gn_wire){.key = c->link->peer.key, .conn = c->peer_number, .kind = GN_WIRE_POSTED, .group = r->group,
				      .count = (uint32_t)r->count};
	for (int i = 0; i < r->count; i++) {
		r->message.tags[i] = tags[i];
		r->message.sizes[i] = sizes[i];
		gn_op_receive(&r->ops[i], c->engine, gn_tag(c->number, r->group, i), data[i], sizes[i]);
	}
	gn_op_tell(&r->told, c->link, &r->message);
}

enum gn_status gn_conn_receive(struct gn_conn *c, int count, void *const *data, const size_t *sizes, const int *tags,
			       struct gn_request **out, struct gn_err *err)
{
	struct gn_worker *e = c->engine;
	struct gn_request *r = NULL;
	enum gn_status status;

	if (count < 1 || count > GN_GROUP_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "a group of %d receptions: 1 to %d", count, GN_GROUP_MAX);
	pthread_mutex_lock(&e->lock);
	status = check(c, err);
	if (!status)
		r = take_request(c, count);
	if (r)
		post(r, data, sizes, tags);
	pthread_mutex_unlock(&e->lock);
	if (!status)
		*out = r;
	return status;
}

/* Lock held. 1: all done; 0: not yet; -1: something failed. */
static int state_of(const struct gn_request *r)
{
	int active = r->told.active;
	ucs_status_t bad = r->told.active || r->told.status == UCS_OK ? UCS_OK : r->told.status;

	for (int i = 0; i < r->count; i++) {
		active |= r->ops[i].active;
		if (!r->ops[i].active && r->ops[i].status != UCS_OK && bad == UCS_OK)
			bad = r->ops[i].status;
	}
	if (bad != UCS_OK) {
		latch(r->conn, bad == UCS_ERR_MESSAGE_TRUNCATED ? GN_ERR_MISMATCH : GN_ERR_PEER_LOST,
		      r->conn->link->broken ? r->conn->link->why : ucs_status_string(bad));
		return -1;
	}
	return !active;
}

/* Lock held, for a request that is not done. Will it ever be? */
static void give_up_if_hopeless(const struct gn_request *r)
{
	struct gn_conn *c = r->conn;
	uint64_t since = c->peer_closed_ns ? c->peer_closed_ns : c->link->left_ns;

	if (c->link->broken)
		latch(c, GN_ERR_PEER_LOST, c->link->why);
	else if (c->receives && c->peer_closed_ns && (int32_t)(r->group - c->peer_groups) >= 0)
		latch(c, GN_ERR_PEER_LOST, "it has closed the connection");
	else if (since && gn_clock_ns() - since > SETTLE_NS)
		latch(c, GN_ERR_PEER_LOST, "it has closed the connection in the middle of a message");
}

enum gn_status gn_request_test(struct gn_request *r, int *done, int *sizes, struct gn_err *err)
{
	struct gn_conn *c = r->conn;
	struct gn_worker *e = c->engine;
	enum gn_status status = GN_OK;
	int state;

	pthread_mutex_lock(&e->lock);
	gn_worker_progress(e);
	state = state_of(r);
	if (!state && !c->failed)
		give_up_if_hopeless(r);
	if (state < 1 && c->failed) {
		status = tell_failure(c, err);
	} else {
		for (int i = 0; state && sizes && i < r->count; i++)
			sizes[i] = r->ops[i].len_bytes > INT_MAX ? INT_MAX : (int)r->ops[i].len_bytes;
		*done = state;
		if (state)
			give_request(r);
	}
	pthread_mutex_unlock(&e->lock);
	return status;
}

void gn_conn_note_gpu(struct gn_conn *c)
{
	pthread_mutex_lock(&c->engine->lock);
	c->engine->gpu_memory = 1;
	pthread_mutex_unlock(&c->engine->lock);
}

const struct gn_plugin_log *gn_request_report(const struct gn_request *r)
{
	return &r->conn->engine->report;
}

/* --- closing --- */

/* Memory of the caller's. */
struct stretch {
	const char *data;
	size_t len_bytes;
};

/* Has UCX this operation, and does it touch that memory? NULL: any. */
static int touches(const struct gn_op *op, const struct stretch *s)
{
	if (!op->active || !s)
		return op->active;
	return op->data && op->data < s->data + s->len_bytes && s->data < op->data + op->room_bytes;
}

static int any_touches(const struct gn_conn *c, const struct stretch *s)
{
	for (const struct gn_request *r = c->requests; r; r = r->next)
		for (int i = 0; i < GN_GROUP_MAX; i++)
			if (touches(&r->ops[i], s))
				return 1;
	return 0;
}

static int under_way(const struct gn_conn *c, const struct stretch *s)
{
	return s ? any_touches(c, s) : c->active > 0;
}

static int gone(const struct gn_conn *c)
{
	return c->link->broken || (c->link->left_ns && gn_clock_ns() - c->link->left_ns > LEFT_NS);
}

/* Lock held; lets others in between. Until nothing is under way, there or at all. */
static void settle(struct gn_conn *c, const struct stretch *s, uint64_t until_ns, int even_gone)
{
	while (under_way(c, s) && (even_gone || !gone(c)) && gn_clock_ns() < until_ns) {
		for (int i = 0; i < 16 && c->active; i++)
			gn_worker_progress(c->engine);
		if (!under_way(c, s))
			return;
		pthread_mutex_unlock(&c->engine->lock);
		sched_yield();
		pthread_mutex_lock(&c->engine->lock);
	}
}

static void cancel_receptions(struct gn_conn *c, const struct stretch *s)
{
	for (struct gn_request *r = c->requests; r && c->receives; r = r->next)
		for (int i = 0; i < GN_GROUP_MAX; i++)
			if (touches(&r->ops[i], s))
				gn_op_cancel(&r->ops[i], c->engine);
}

/* Lets it end, then ends the link, then never takes a turn again. */
void gn_conn_forget(struct gn_conn *c, const void *data, size_t len_bytes)
{
	const struct stretch s = {.data = data, .len_bytes = len_bytes};
	struct gn_worker *e = c->engine;

	pthread_mutex_lock(&e->lock);
	if (any_touches(c, &s)) {
		cancel_receptions(c, &s);
		settle(c, &s, gn_clock_ns() + (c->link->idle || gone(c) ? BROKEN_NS : SETTLE_NS), 1);
		c->link->idle |= any_touches(c, &s);
	}
	if (any_touches(c, &s)) {
		gn_link_break(c->link, "memory was taken back in the middle of a message that did not end");
		settle(c, &s, gn_clock_ns() + BROKEN_NS, 1);
		e->frozen |= any_touches(c, &s);
	}
	pthread_mutex_unlock(&e->lock);
}

static void say_goodbye(struct gn_conn *c)
{
	if (c->link->broken || c->link->left_ns)
		return;
	c->goodbye_message = (struct gn_wire){.key = c->link->peer.key, .conn = c->peer_number, .kind = GN_WIRE_CLOSING,
					      .group = c->group};
	gn_op_tell(&c->goodbye, c->link, &c->goodbye_message);
	/* what is complete may still lie in UCX's queue, and nobody may call again */
	if (c->link->ep)
		gn_op_flush(&c->flush, c->link);
}

void gn_conn_close(struct gn_conn *c)
{
	struct gn_worker *e = c->engine;

	pthread_mutex_lock(&e->lock);
	cancel_receptions(c, NULL);
	say_goodbye(c);
	/* one connection has waited for such a peer already */
	settle(c, NULL, gn_clock_ns() + (c->link->idle && !any_touches(c, NULL) ? 0 : SETTLE_NS), 0);
	c->link->idle = c->active && !gone(c);
	if (c->active && (gone(c) || any_touches(c, NULL))) {
		/* the end of the link ends them */
		gn_link_break(c->link, "a connection was closed in the middle of a message that did not end");
		settle(c, NULL, gn_clock_ns() + BROKEN_NS, 1);
	}
	gn_worker_remove(e, c->number);
	gn_link_release(c->link);
	c->link = NULL;
	if (c->active) {
		c->next = e->lingering;
		e->lingering = c;
	} else {
		free_conn(c);
	}
	pthread_mutex_unlock(&e->lock);
}

static void reap(struct gn_worker *e, int all)
{
	struct gn_conn **at = &e->lingering, *c;

	while ((c = *at)) {
		if (c->active && !all) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free_conn(c);
	}
}

const struct gn_worker_callbacks gn_conn_callbacks = {.message = message, .reap = reap};
