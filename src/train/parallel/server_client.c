#include "src/train/parallel/server_client.h"

#include <stdlib.h>
#include <string.h>

/* Of one server. */
struct call {
	struct gn_server_client *client;
	struct gn_message_send send;
	struct gn_server_local local;
	const void *answer_header;
	int is_own, is_done;
	float *fetched; /* for a fetch; NULL: there was none */
};

struct gn_server_client {
	struct gn_server_client_options options;
	int servers, first;
	uint64_t fetches; /* of this process's server, that this worker knows of */
	struct call *calls; /* of each server */
	struct gn_server_state state;
	int (*is_done)(void *context); /* what is waited for */
	void *context;
	struct gn_err err;
	int is_explained; /* err says why the run cannot go on */
};

struct push {
	struct gn_message_send send; /* first: it leads back here */
	struct gn_server_pushes *all;
	struct gn_server_push header;
	int server;
};

struct gn_server_pushes {
	struct gn_server_client *client;
	struct push *list;
	int count, under_way;
};

/* --- failures --- */

/* The loss of a server, or in sync of any rank. */
static enum gn_status fail(struct gn_server_client *c, int rank)
{
	const struct gn_world *world = gn_comm_world(c->options.comm);

	if (c->err.status)
		return c->err.status;
	if (!gn_world_check_ranks(world, &rank, 1, 0, &c->err))
		gn_err_set(&c->err, GN_ERR_PEER_LOST, "rank %d on %s is lost", rank, gn_world_host_of(world, rank));
	if (rank >= c->first && rank < c->first + c->servers && !c->options.spec.is_shared)
		gn_err_prefix(&c->err, "parameter server");
	/* nothing may come into memory that is freed next */
	for (int i = 0; i < c->servers; i++)
		if (!c->calls[i].is_own)
			gn_messages_lost(c->options.messages, c->first + i);
	return c->err.status;
}

static void look_for_losses(struct gn_server_client *c)
{
	const struct gn_world *world = gn_comm_world(c->options.comm);
	int ranks = gn_comm_size(c->options.comm), sync = gn_server_client_is_sync(c);

	if (c->options.own && gn_server_is_done(c->options.own) && gn_server_status(c->options.own, &c->err))
		return;
	for (int r = 0; r < ranks && gn_world_losses(world) && !c->err.status; r++)
		if (gn_world_is_lost(world, r) && (sync || (r >= c->first && r < c->first + c->servers)))
			fail(c, r);
}

/* Why the run cannot go on, if so: *err gets it. async and ssp go on without workers: not without those that serve. */
static enum gn_status tell_failure(struct gn_server_client *c, struct gn_err *err)
{
	if (c->err.status == GN_ERR_PEER_LOST && c->options.spec.is_shared && !gn_server_client_is_sync(c) && !c->is_explained)
		gn_err_prefix(&c->err, "the run cannot go on, for with --servers shared every rank holds a part of the parameters");
	c->is_explained = c->err.status != GN_OK;
	if (c->err.status)
		*err = c->err;
	return c->err.status;
}

static int is_over(void *context)
{
	struct gn_server_client *c = context;

	look_for_losses(c);
	return c->err.status || c->is_done(c->context);
}

enum gn_status gn_server_client_wait(struct gn_server_client *c, int (*is_done)(void *context), void *context, struct gn_err *err)
{
	enum gn_status status, failure;

	c->is_done = is_done;
	c->context = context;
	status = c->err.status ? c->err.status : gn_messages_wait(c->options.messages, is_over, c, &c->err);
	failure = tell_failure(c, err);
	return status ? status : failure;
}

/* --- calls --- */

static void answered(struct gn_message_send *send)
{
	struct call *call = send->context;

	call->is_done = 1;
	if (send->status == GN_ERR_PEER_LOST)
		fail(call->client, send->to);
	else if (send->status)
		gn_err_set(&call->client->err, send->status, "rank %d on %s, a parameter server, has answered with another length: another "
			   "version of gannet?", send->to, gn_world_host_of(gn_comm_world(call->client->options.comm), send->to));
}

static int all_answered(void *context)
{
	const struct gn_server_client *c = context;

	for (int i = 0; i < c->servers; i++)
		if (!c->calls[i].is_done && !(c->calls[i].is_own && c->calls[i].local.is_done))
			return 0;
	return 1;
}

/* Of this server; data and answers: of all parameters, or NULL. */
static enum gn_status start_call(struct call *call, enum gn_server_kind kind, const void *header, size_t header_bytes, const float *data,
				 float *answer, size_t len_bytes)
{
	struct gn_server_client *c = call->client;
	struct gn_message_send *s = &call->send;
	int rank = c->first + (int)(call - c->calls);

	call->is_done = 0;
	if (call->is_own) {
		call->local = (struct gn_server_local){.answer = answer, .answer_bytes = answer ? len_bytes : 0};
		call->answer_header = call->local.header;
		gn_server_take_local(c->options.own, kind, header, data, data ? len_bytes : 0, &call->local);
		return GN_OK;
	}
	*s = (struct gn_message_send){.to = rank, .kind = kind, .header = header, .header_bytes = header_bytes, .data = data,
				      .data_bytes = data ? len_bytes : 0, .answer = answer, .answer_room_bytes = answer ? len_bytes : 0,
				      .complete = answered, .context = call};
	call->answer_header = s->answer_header;
	if (!gn_message_call(c->options.messages, s, &c->err))
		return GN_OK;
	c->err.status = GN_OK;
	return fail(c, rank);
}

static struct gn_server_part part_of(const struct gn_server_client *c, size_t elements, int server)
{
	return gn_server_part(elements, c->servers, server);
}

/* The same call to all servers; of data and answer each has its part. */
static enum gn_status call_all(struct gn_server_client *c, enum gn_server_kind kind, const void *header, size_t header_bytes,
			       const float *data, float *answer, size_t elements, struct gn_err *err)
{
	for (int i = 0; i < c->servers && !c->err.status; i++) {
		struct gn_server_part p = part_of(c, elements, i);

		start_call(&c->calls[i], kind, header, header_bytes, data ? data + p.begin : NULL, answer ? answer + p.begin : NULL,
			   (p.end - p.begin) * sizeof(float));
	}
	return gn_server_client_wait(c, all_answered, c, err);
}

static enum gn_status put_arrays(struct gn_server_client *c, const struct gn_server_arrays *a, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int k = a->slot_count; k >= 0 && !status; k--) {
		struct gn_server_put put = {.array = k, .is_last = k == 0};

		status = call_all(c, GN_SERVER_PUT, &put, sizeof put, k ? a->slots[k - 1] : a->params, NULL, a->elements, err);
	}
	return status;
}

enum gn_status gn_server_client_open(struct gn_server_client *c, struct gn_server_open *open, const struct gn_server_arrays *a,
				     struct gn_err *err)
{
	int is_first = gn_server_client_worker(c) == 0;
	struct gn_server_opened opened = {.problem = ""};
	enum gn_status status = call_all(c, GN_SERVER_OPEN, open, sizeof *open, NULL, is_first ? NULL : a->params, a->elements, err);

	for (int i = 0; i < c->servers && !status && !*opened.problem; i++)
		memcpy(&opened, c->calls[i].answer_header, sizeof opened);
	if (!status && *opened.problem)
		return gn_err_set(err, GN_ERR_MISMATCH, "worker %d cannot train with the parameter servers: %.*s", gn_server_client_worker(c),
				  (int)sizeof opened.problem, opened.problem);
	if (!status && is_first)
		return put_arrays(c, a, err);
	if (!status)
		open->state = opened.state;
	return status;
}

enum gn_status gn_server_client_commit(struct gn_server_client *c, struct gn_server_commit *commit, float *params, size_t elements,
				       struct gn_err *err)
{
	double norm2 = 0;
	enum gn_status status = call_all(c, GN_SERVER_COMMIT, commit, sizeof *commit, NULL, params, elements, err);

	for (int i = c->servers; i-- > 0 && !status;) {
		memcpy(&c->state, c->calls[i].answer_header, sizeof c->state);
		norm2 += c->state.norm2;
		commit->stop |= c->state.stop;
	}
	c->state.norm2 = norm2;
	return status;
}

/* One server's: parameters, then slots. */
static void take_fetched(const struct gn_server_client *c, int i, const struct gn_server_arrays *a)
{
	struct gn_server_part p = part_of(c, a->elements, i);
	size_t count = p.end - p.begin;

	memcpy(a->params + p.begin, c->calls[i].fetched, count * sizeof(float));
	for (int k = 0; k < a->slot_count; k++)
		memcpy(a->slots[k] + p.begin, c->calls[i].fetched + (size_t)(1 + k) * count, count * sizeof(float));
}

static int own_is_fetched(void *context)
{
	const struct gn_server_client *c = context;

	return !c->options.own || gn_server_fetches(c->options.own) > c->fetches;
}

enum gn_status gn_server_client_fetch(struct gn_server_client *c, int drains, const struct gn_server_arrays *a, struct gn_err *err)
{
	const struct gn_server_fetch fetch = {drains};
	enum gn_status status;

	if (gn_server_client_worker(c)) {
		status = gn_server_client_wait(c, own_is_fetched, c, err);
		c->fetches++;
		return status;
	}
	for (int i = 0; i < c->servers && !c->err.status; i++) {
		struct gn_server_part p = part_of(c, a->elements, i);
		size_t bytes = (p.end - p.begin) * (size_t)(1 + a->slot_count) * sizeof(float);

		if (!c->calls[i].fetched)
			c->calls[i].fetched = malloc(bytes + 1);
		if (!c->calls[i].fetched)
			gn_err_set(&c->err, GN_ERR_NO_MEMORY, "no memory for the state of parameter server %d", i);
		else
			start_call(&c->calls[i], GN_SERVER_FETCH, &fetch, sizeof fetch, NULL, c->calls[i].fetched, bytes);
	}
	status = gn_server_client_wait(c, all_answered, c, err);
	for (int i = 0; i < c->servers && !status; i++)
		take_fetched(c, i, a);
	return status;
}

static int own_is_done(void *context)
{
	return gn_server_is_done(context);
}

enum gn_status gn_server_client_leave(struct gn_server_client *c, int stop, struct gn_err *err)
{
	const struct gn_server_leave leave = {stop};
	enum gn_status status = call_all(c, GN_SERVER_LEAVE, &leave, sizeof leave, NULL, NULL, 0, err);

	return status || !c->options.own ? status : gn_server_client_wait(c, own_is_done, c->options.own, err);
}

/* --- pushes --- */

static void pushed(struct gn_message_send *send)
{
	struct push *p = (struct push *)send;

	p->all->under_way--;
	if (send->status)
		fail(p->all->client, send->to);
}

enum gn_status gn_server_pushes_create(struct gn_server_client *c, const float *data, size_t elements, size_t begin, size_t count,
				       struct gn_server_pushes **out, struct gn_err *err)
{
	struct gn_server_pushes *all = calloc(1, sizeof *all);

	if (all)
		all->list = calloc((size_t)c->servers, sizeof *all->list);
	if (!all || !all->list) {
		free(all);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for gradients to %d servers", c->servers);
	}
	all->client = c;
	for (int i = 0; i < c->servers; i++) {
		struct gn_server_part part = part_of(c, elements, i);
		size_t from = part.begin > begin ? part.begin : begin, to = part.end < begin + count ? part.end : begin + count;
		struct push *p = &all->list[all->count];

		if (from >= to)
			continue;
		p->all = all;
		p->server = i;
		p->header = (struct gn_server_push){from, to - from};
		p->send = (struct gn_message_send){.to = c->first + i, .kind = GN_SERVER_PUSH, .header = &p->header, .header_bytes = sizeof p->header,
						   .data = data + (from - begin), .data_bytes = (to - from) * sizeof(float), .complete = pushed};
		all->count++;
	}
	*out = all;
	return GN_OK;
}

void gn_server_pushes_free(struct gn_server_pushes *p)
{
	if (!p)
		return;
	free(p->list);
	free(p);
}

enum gn_status gn_server_pushes_start(struct gn_server_pushes *all, struct gn_err *err)
{
	struct gn_server_client *c = all->client;

	for (int i = 0; i < all->count && !c->err.status; i++) {
		struct push *p = &all->list[i];

		if (c->calls[p->server].is_own) {
			gn_server_take_local(c->options.own, GN_SERVER_PUSH, &p->header, p->send.data, p->send.data_bytes, NULL);
			continue;
		}
		all->under_way++;
		if (gn_message_send(c->options.messages, &p->send, err)) {
			all->under_way--;
			fail(c, p->send.to);
		}
	}
	return tell_failure(c, err);
}

enum gn_status gn_server_pushes_test(struct gn_server_pushes *p, int *done, struct gn_err *err)
{
	gn_messages_progress(p->client->options.messages);
	*done = p->under_way == 0;
	return tell_failure(p->client, err);
}

/* --- lifecycle --- */

enum gn_status gn_server_client_create(const struct gn_server_client_options *options, struct gn_server_client **out, struct gn_err *err)
{
	int ranks = gn_comm_size(options->comm);
	struct gn_server_client *c = calloc(1, sizeof *c);

	if (c) {
		c->servers = gn_server_count(&options->spec, ranks);
		c->first = gn_server_first(&options->spec, ranks);
		c->calls = calloc((size_t)c->servers, sizeof *c->calls);
	}
	if (!c || !c->calls) {
		free(c);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for calls to parameter servers");
	}
	c->options = *options;
	for (int i = 0; i < c->servers; i++) {
		c->calls[i].client = c;
		c->calls[i].is_own = c->first + i == gn_comm_rank(options->comm);
	}
	*out = c;
	return GN_OK;
}

void gn_server_client_destroy(struct gn_server_client *c)
{
	if (!c)
		return;
	for (int i = 0; i < c->servers; i++)
		free(c->calls[i].fetched);
	free(c->calls);
	free(c);
}

int gn_server_client_worker(const struct gn_server_client *c)
{
	return gn_comm_rank(c->options.comm);
}

int gn_server_client_workers(const struct gn_server_client *c)
{
	return gn_server_workers(&c->options.spec, gn_comm_size(c->options.comm));
}

int gn_server_client_is_sync(const struct gn_server_client *c)
{
	return c->options.spec.mode == GN_UPDATE_SYNC;
}

const struct gn_server_state *gn_server_client_state(const struct gn_server_client *c)
{
	return &c->state;
}
