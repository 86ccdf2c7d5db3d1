#include "transport/nccl/plugin/cm.h"

#include "src/base/clock.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The time for active operations to complete when a connection closes and the peer is alive, and after the peer has closed. */
#define CLOSE_NS 1000000000u
/* By then what a peer sent before it left has arrived, and operations on a broken link have ended. */
#define PEER_LEFT_NS 50000000u
#define BROKEN_NS 50000000u

struct gn_request {
	struct gn_conn *conn;
	struct gn_request *next, *next_free;
	int count;
	uint32_t group;
	struct gn_op ops[GN_GROUP_MAX];
	struct gn_op announcement;
	struct gn_wire message;
};

/* --- life --- */

static void bind_op(struct gn_op *op, struct gn_conn *c)
{
	op->worker = c->worker;
	op->active_of_conn = &c->active;
}

enum gn_status gn_conn_create(struct gn_worker *w, int receives, struct gn_conn **out, struct gn_err *err)
{
	struct gn_conn *c = calloc(1, sizeof *c);
	enum gn_status status;

	if (c && !receives)
		c->groups = calloc(GN_GROUPS_MAX, sizeof *c->groups);
	if (!c || (!receives && !c->groups)) {
		free(c);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a connection");
	}
	c->worker = w;
	c->receives = receives;
	c->requests_max = receives ? GN_GROUPS_MAX : GN_SENDS_MAX;
	bind_op(&c->closing, c);
	bind_op(&c->flush, c);
	status = gn_worker_add_conn(w, c, &c->number, err);
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
	gn_worker_remove_conn(c->worker, c->number);
	if (c->link)
		gn_link_release(c->link);
	free_conn(c);
}

/* Keeps the first failure. */
static enum gn_status set_failed(struct gn_conn *c, enum gn_status status, const char *why)
{
	if (!c->failed) {
		c->failed = status;
		snprintf(c->why, sizeof c->why, "%s", why);
	}
	return status;
}

static enum gn_status failure(const struct gn_conn *c, struct gn_err *err)
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
		set_failed(c, GN_ERR_MISMATCH, "protocol error from peer; version mismatch?");
		return;
	}
	g = &c->groups[c->posted++ % GN_GROUPS_MAX];
	*g = (struct gn_group){.count = (int)m->count, .left = (int)m->count};
	memcpy(g->tags, m->tags, sizeof g->tags);
	memcpy(g->sizes, m->sizes, sizeof g->sizes);
}

/* --- requests --- */

/* NULL when the maximum is in use, or memory is exhausted. */
static struct gn_request *alloc_request(struct gn_conn *c, int count)
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
		bind_op(&r->announcement, c);
		for (int i = 0; i < GN_GROUP_MAX; i++)
			bind_op(&r->ops[i], c);
		r->next = c->requests;
		c->requests = r;
	}
	r->count = count;
	r->announcement.status = UCS_OK;
	return r;
}

static void free_request(struct gn_request *r)
{
	r->next_free = r->conn->free_requests;
	r->conn->free_requests = r;
}

/* Lock held. The failure that prevents new operations, if any. */
static enum gn_status check_usable(struct gn_conn *c, struct gn_err *err)
{
	if (!c->failed && c->worker->frozen)
		set_failed(c, GN_ERR_PEER_LOST, "memory was deregistered during a transfer");
	if (!c->failed && c->link->broken)
		set_failed(c, GN_ERR_PEER_LOST, c->link->why);
	return c->failed ? failure(c, err) : GN_OK;
}

static int find_part(const struct gn_group *g, int tag)
{
	for (int i = 0; i < g->count; i++)
		if (!g->used[i] && g->tags[i] == tag)
			return i;
	return -1;
}

/* Lock held. */
static enum gn_status start_send(struct gn_conn *c, const void *data, size_t len_bytes, int tag, struct gn_request **out,
				 struct gn_err *err)
{
	struct gn_group *g = &c->groups[c->group % GN_GROUPS_MAX];
	int part = c->group == c->posted ? -1 : find_part(g, tag);
	struct gn_request *r;
	char why[128];

	if (part < 0 && (c->peer_closed_ns || c->link->peer_left_ns)) {
		set_failed(c, GN_ERR_PEER_LOST, "it has closed the connection");
		return failure(c, err);
	}
	r = part < 0 ? NULL : alloc_request(c, 1);
	if (!r)
		return GN_OK;
	if (len_bytes > g->sizes[part]) {
		free_request(r);
		snprintf(why, sizeof why, "a message of %zu bytes with tag %d for a buffer of %llu bytes", len_bytes, tag,
			 (unsigned long long)g->sizes[part]);
		set_failed(c, GN_ERR_USAGE, why);
		return failure(c, err);
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
	struct gn_worker *w = c->worker;
	struct gn_request *r = NULL;
	enum gn_status status;

	pthread_mutex_lock(&w->lock);
	if (c->group == c->posted)
		gn_worker_progress(w);
	status = check_usable(c, err);
	if (!status)
		status = start_send(c, data, len_bytes, tag, &r, err);
	pthread_mutex_unlock(&w->lock);
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
		gn_op_receive(&r->ops[i], c->worker, gn_tag(c->number, r->group, i), data[i], sizes[i]);
	}
	gn_op_send_message(&r->announcement, c->link, &r->message);
}

enum gn_status gn_conn_receive(struct gn_conn *c, int count, void *const *data, const size_t *sizes, const int *tags,
			       struct gn_request **out, struct gn_err *err)
{
	struct gn_worker *w = c->worker;
	struct gn_request *r = NULL;
	enum gn_status status;

	if (count < 1 || count > GN_GROUP_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "a group of %d receives: 1 to %d are supported", count, GN_GROUP_MAX);
	pthread_mutex_lock(&w->lock);
	status = check_usable(c, err);
	if (!status)
		r = alloc_request(c, count);
	if (r)
		post(r, data, sizes, tags);
	pthread_mutex_unlock(&w->lock);
	if (!status)
		*out = r;
	return status;
}

/* Lock held. 1: all done; 0: not yet; -1: something failed. */
static int request_state(const struct gn_request *r)
{
	int active = r->announcement.active;
	ucs_status_t bad = r->announcement.active || r->announcement.status == UCS_OK ? UCS_OK : r->announcement.status;

	for (int i = 0; i < r->count; i++) {
		active |= r->ops[i].active;
		if (!r->ops[i].active && r->ops[i].status != UCS_OK && bad == UCS_OK)
			bad = r->ops[i].status;
	}
	if (bad != UCS_OK) {
		set_failed(r->conn, bad == UCS_ERR_MESSAGE_TRUNCATED ? GN_ERR_MISMATCH : GN_ERR_PEER_LOST,
			   r->conn->link->broken ? r->conn->link->why : ucs_status_string(bad));
		return -1;
	}
	return !active;
}

/* Lock held. Fails the connection when this request, which is not done, can no longer complete. */
static void fail_if_impossible(const struct gn_request *r)
{
	struct gn_conn *c = r->conn;
	uint64_t since = c->peer_closed_ns ? c->peer_closed_ns : c->link->peer_left_ns;

	if (c->link->broken)
		set_failed(c, GN_ERR_PEER_LOST, c->link->why);
	else if (c->receives && c->peer_closed_ns && (int32_t)(r->group - c->peer_groups) >= 0)
		set_failed(c, GN_ERR_PEER_LOST, "it has closed the connection");
	else if (since && gn_clock_ns() - since > CLOSE_NS)
		set_failed(c, GN_ERR_PEER_LOST, "it has closed the connection during a transfer");
}

enum gn_status gn_request_test(struct gn_request *r, int *done, int *sizes, struct gn_err *err)
{
	struct gn_conn *c = r->conn;
	struct gn_worker *w = c->worker;
	enum gn_status status = GN_OK;
	int state;

	pthread_mutex_lock(&w->lock);
	gn_worker_progress(w);
	state = request_state(r);
	if (!state && !c->failed)
		fail_if_impossible(r);
	if (state < 1 && c->failed) {
		status = failure(c, err);
	} else {
		for (int i = 0; state && sizes && i < r->count; i++)
			sizes[i] = r->ops[i].len_bytes > INT_MAX ? INT_MAX : (int)r->ops[i].len_bytes;
		*done = state;
		if (state)
			free_request(r);
	}
	pthread_mutex_unlock(&w->lock);
	return status;
}

void gn_conn_use_gpu_memory(struct gn_conn *c)
{
	pthread_mutex_lock(&c->worker->lock);
	c->worker->gpu_memory = 1;
	pthread_mutex_unlock(&c->worker->lock);
}

const struct gn_plugin_log *gn_request_log(const struct gn_request *r)
{
	return &r->conn->worker->log;
}

/* --- closing --- */

/* A range of the caller's memory. */
struct range {
	const char *data;
	size_t len_bytes;
};

/* Whether the operation is active and accesses the memory; s NULL: any memory. */
static int touches(const struct gn_op *op, const struct range *s)
{
	if (!op->active || !s)
		return op->active;
	return op->data && op->data < s->data + s->len_bytes && s->data < op->data + op->room_bytes;
}

static int any_touches(const struct gn_conn *c, const struct range *s)
{
	for (const struct gn_request *r = c->requests; r; r = r->next)
		for (int i = 0; i < GN_GROUP_MAX; i++)
			if (touches(&r->ops[i], s))
				return 1;
	return 0;
}

static int in_progress(const struct gn_conn *c, const struct range *s)
{
	return s ? any_touches(c, s) : c->active > 0;
}

static int peer_gone(const struct gn_conn *c)
{
	return c->link->broken || (c->link->peer_left_ns && gn_clock_ns() - c->link->peer_left_ns > PEER_LEFT_NS);
}

/* Lock held, but released in between. Progresses the worker until no operation on the memory (s NULL: no operation at all) is
 * active, until the deadline, or until the peer is gone unless even_if_gone. */
static void wait_idle(struct gn_conn *c, const struct range *s, uint64_t until_ns, int even_if_gone)
{
	while (in_progress(c, s) && (even_if_gone || !peer_gone(c)) && gn_clock_ns() < until_ns) {
		for (int i = 0; i < 16 && c->active; i++)
			gn_worker_progress(c->worker);
		if (!in_progress(c, s))
			return;
		pthread_mutex_unlock(&c->worker->lock);
		sched_yield();
		pthread_mutex_lock(&c->worker->lock);
	}
}

static void cancel_receives(struct gn_conn *c, const struct range *s)
{
	for (struct gn_request *r = c->requests; r && c->receives; r = r->next)
		for (int i = 0; i < GN_GROUP_MAX; i++)
			if (touches(&r->ops[i], s))
				gn_op_cancel(&r->ops[i], c->worker);
}

/* First waits for the operations, then breaks the link, then stops progressing the worker. */
void gn_conn_release_memory(struct gn_conn *c, const void *data, size_t len_bytes)
{
	const struct range s = {.data = data, .len_bytes = len_bytes};
	struct gn_worker *w = c->worker;

	pthread_mutex_lock(&w->lock);
	if (any_touches(c, &s)) {
		cancel_receives(c, &s);
		wait_idle(c, &s, gn_clock_ns() + (c->link->unresponsive || peer_gone(c) ? BROKEN_NS : CLOSE_NS), 1);
		c->link->unresponsive |= any_touches(c, &s);
	}
	if (any_touches(c, &s)) {
		gn_link_break(c->link, "memory was deregistered during a transfer that did not complete");
		wait_idle(c, &s, gn_clock_ns() + BROKEN_NS, 1);
		w->frozen |= any_touches(c, &s);
	}
	pthread_mutex_unlock(&w->lock);
}

static void send_closing(struct gn_conn *c)
{
	if (c->link->broken || c->link->peer_left_ns)
		return;
	c->closing_message = (struct gn_wire){.key = c->link->peer.key, .conn = c->peer_number, .kind = GN_WIRE_CLOSING,
					      .group = c->group};
	gn_op_send_message(&c->closing, c->link, &c->closing_message);
	/* completed sends may still be in UCX's queue, and there may be no further call that progresses the worker */
	if (c->link->ep)
		gn_op_flush(&c->flush, c->link);
}

void gn_conn_close(struct gn_conn *c)
{
	struct gn_worker *w = c->worker;

	pthread_mutex_lock(&w->lock);
	cancel_receives(c, NULL);
	send_closing(c);
	/* no wait for an unresponsive peer: another connection has timed out on it */
	wait_idle(c, NULL, gn_clock_ns() + (c->link->unresponsive && !any_touches(c, NULL) ? 0 : CLOSE_NS), 0);
	c->link->unresponsive = c->active && !peer_gone(c);
	if (c->active && (peer_gone(c) || any_touches(c, NULL))) {
		/* breaking the link ends the operations */
		gn_link_break(c->link, "a connection was closed during a transfer that did not complete");
		wait_idle(c, NULL, gn_clock_ns() + BROKEN_NS, 1);
	}
	gn_worker_remove_conn(w, c->number);
	gn_link_release(c->link);
	c->link = NULL;
	if (c->active) {
		c->next = w->lingering;
		w->lingering = c;
	} else {
		free_conn(c);
	}
	pthread_mutex_unlock(&w->lock);
}

static void reap(struct gn_worker *w, int all)
{
	struct gn_conn **at = &w->lingering, *c;

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
