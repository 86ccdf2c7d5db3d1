#include "src/train/parallel/server_internal.h"

#include "src/base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* --- what workers send --- */

static enum gn_status sum_alone(struct gn_update_group *g, double *values, size_t count, struct gn_err *err)
{
	(void)g;
	(void)values;
	(void)count;
	(void)err;
	return GN_OK;
}

static enum gn_status make_optimizer(struct gn_server *s, struct gn_err *err)
{
	const struct gn_server_options *o = &s->options;
	struct gn_server_part range = gn_server_part(s->elements, gn_server_count(&o->spec, gn_comm_size(o->comm)), o->index);
	struct gn_optimizer_arrays arrays = {.params = s->params, .grads = s->grads, .ranks = 1, .parts = &s->parts, .group = &s->alone};

	s->part = (struct gn_part){.begin = range.begin, .count = range.end - range.begin};
	s->parts = (struct gn_parts){&s->part, 1, s->part.count};
	s->alone.sum = sum_alone;
	for (int r = 0; r < s->workers; r++) {
		s->list[r].array = gn_alloc_aligned(gn_server_part_bytes(s) + 1);
		if (!s->list[r].array)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the gradients of %d workers", s->workers);
	}
	return gn_optimizer_create(s->model, &o->optimizer, &arrays, s->device.compute, &s->optimizer, err);
}

static enum gn_status make_arrays(struct gn_server *s, struct gn_err *err)
{
	const struct gn_server_options *o = &s->options;
	enum gn_status status = gn_model_create(o->model, s->first.classes, s->first.channels, s->first.side, &s->model, err);

	if (!status)
		status = gn_plan_device_open(&o->device, &s->device, err);
	if (status)
		return status;
	s->elements = gn_model_param_elements(s->model);
	s->map_bytes = s->elements * sizeof(float) + 1;
	s->params = gn_pages_map(s->map_bytes);
	s->grads = gn_pages_map(s->map_bytes);
	if (!s->params || !s->grads)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the parameters of %s", gn_model_name(s->model));
	return make_optimizer(s, err);
}

static void take_open(struct gn_served_worker *w, const struct gn_server_open *open)
{
	struct gn_server *s = w->server;

	w->open = *open;
	if (w == s->list) {
		s->first = *open;
		gn_server_fail(s, make_arrays(s, &s->err));
		s->is_open = !s->err.status;
		gn_server_answer_open(w, s->err.status ? "the server cannot make its arrays" : "");
	} else {
		gn_server_release(s);
	}
}

/* Where an array is put; NULL: there is none. */
static float *array_of(const struct gn_server *s, int array)
{
	if (!s->is_open || array < 0 || array > gn_optim_slots(gn_optimizer_kind(s->optimizer)))
		return NULL;
	return array ? gn_optimizer_slot(s->optimizer, array - 1)->host : s->params + s->part.begin;
}

static float *place_of(struct gn_served_worker *w, enum gn_server_kind kind, const void *header, size_t bytes)
{
	const struct gn_server *s = w->server;
	const struct gn_server_push *p = header;

	if (kind == GN_SERVER_PUT)
		return bytes == gn_server_part_bytes(s) ? array_of(s, ((const struct gn_server_put *)header)->array) : NULL;
	if (kind != GN_SERVER_PUSH || !s->is_ready || w->waits || p->begin < s->part.begin || p->begin > s->part.begin + s->part.count ||
	    p->count > s->part.begin + s->part.count - p->begin || p->count * sizeof(float) != bytes)
		return NULL;
	return w->array + (p->begin - s->part.begin);
}

/* Whether a call of this kind can be one now. */
static int is_right(const struct gn_served_worker *w, enum gn_server_kind kind)
{
	const struct gn_server *s = w->server;

	if (w->waits || w->has_left)
		return 0;
	return kind == GN_SERVER_OPEN ? w != s->list || !s->is_open : kind == GN_SERVER_COMMIT ? s->is_ready && w->pushed == s->part.count
	       : kind == GN_SERVER_PUT ? w == s->list && s->is_open : kind == GN_SERVER_FETCH ? w == s->list && s->is_ready : 1;
}

static void take_commit(struct gn_served_worker *w, const struct gn_server_commit *c)
{
	struct gn_server *s = w->server;

	w->commit = *c;
	w->clock++;
	s->state.stop |= c->stop;
	if (s->options.spec.mode == GN_UPDATE_SYNC) {
		gn_server_apply_all(s);
		return;
	}
	gn_server_apply_one(w);
	gn_server_release(s);
}

static void take_call(struct gn_served_worker *w, enum gn_server_kind kind, const void *header)
{
	struct gn_server *s = w->server;

	w->waits = 1;
	w->waits_for = kind;
	if (kind == GN_SERVER_OPEN) {
		take_open(w, header);
	} else if (kind == GN_SERVER_PUT) {
		s->is_ready |= ((const struct gn_server_put *)header)->is_last;
		gn_server_answer(w, NULL, 0, NULL, 0);
		gn_server_release(s);
	} else if (kind == GN_SERVER_COMMIT) {
		take_commit(w, header);
	} else if (kind == GN_SERVER_FETCH) {
		if (!((const struct gn_server_fetch *)header)->drains)
			gn_server_answer_fetch(w);
		else
			gn_server_release(s);
	} else {
		w->has_left = 1;
		s->state.stop |= ((const struct gn_server_leave *)header)->stop;
		gn_server_release(s);
	}
}

/* Headers are as long as their kind says. */
static int is_long_enough(enum gn_server_kind kind, size_t bytes)
{
	static const size_t lengths[] = {sizeof(struct gn_server_open), sizeof(struct gn_server_put), sizeof(struct gn_server_push),
					 sizeof(struct gn_server_commit), sizeof(struct gn_server_fetch), sizeof(struct gn_server_leave)};

	return bytes == lengths[kind];
}

static void reject(struct gn_served_worker *w, enum gn_server_kind kind)
{
	struct gn_server *s = w->server;
	int rank = (int)(w - s->list);

	gn_server_fail(s, gn_err_set(&s->err, GN_ERR_MISMATCH, "rank %d on %s, a worker, sent what does not fit (kind %d, %zu of %zu "
				     "elements): another version of gannet?", rank, gn_world_host_of(gn_comm_world(s->options.comm), rank),
				     (int)kind, w->pushed, s->part.count));
}

/* place: where data belong, or NULL. */
static void take(struct gn_served_worker *w, enum gn_server_kind kind, const void *header, const void *data, size_t data_bytes)
{
	float *place = place_of(w, kind, header, data_bytes);

	if ((kind == GN_SERVER_PUT || kind == GN_SERVER_PUSH) && !place) {
		reject(w, kind);
		return;
	}
	if (place && data_bytes && data != place)
		memcpy(place, data, data_bytes);
	if (kind == GN_SERVER_PUSH)
		w->pushed += data_bytes / sizeof(float);
	else if (is_right(w, kind))
		take_call(w, kind, header);
	else
		reject(w, kind);
}

static void arrived(void *context, struct gn_message *m)
{
	struct gn_server *s = context;
	enum gn_server_kind kind = (enum gn_server_kind)m->kind;
	struct gn_served_worker *w = m->from < s->workers ? &s->list[m->from] : NULL;

	if (!w || !is_long_enough(kind, m->header_bytes) || gn_message_is_call(m) != (kind != GN_SERVER_PUSH)) {
		gn_server_fail(s, gn_err_set(&s->err, GN_ERR_MISMATCH, "rank %d sent what is no message to a parameter server", m->from));
		return;
	}
	if (kind != GN_SERVER_PUSH && !w->waits) {
		w->message = m;
		w->local = NULL;
	}
	s->handling = m;
	take(w, kind, m->header, m->data, m->data_bytes);
	s->handling = NULL;
	if (w->waits && w->message == m)
		gn_message_keep(m);
}

static void *place(void *context, const struct gn_message *m)
{
	struct gn_server *s = context;

	if (m->from >= s->workers || !is_long_enough((enum gn_server_kind)m->kind, m->header_bytes))
		return NULL;
	return place_of(&s->list[m->from], (enum gn_server_kind)m->kind, m->header, m->data_bytes);
}

void gn_server_take_local(struct gn_server *s, enum gn_server_kind kind, const void *header, const void *data, size_t data_bytes,
			  struct gn_server_local *local)
{
	struct gn_served_worker *w = &s->list[gn_comm_rank(s->options.comm)];

	w->message = NULL;
	w->local = local;
	if (local)
		local->is_done = 0;
	take(w, kind, header, data, data_bytes);
}

/* --- lost ranks, and the end --- */

static void lose(struct gn_server *s, int rank)
{
	struct gn_world *world = gn_comm_world(s->options.comm);
	struct gn_served_worker *w = rank < s->workers ? &s->list[rank] : NULL;

	if (w && w->is_lost)
		return;
	/* an only worker, a server, and any rank of sync */
	if (!w || s->options.spec.is_shared || s->options.spec.mode == GN_UPDATE_SYNC) {
		gn_server_fail(s, gn_world_check_ranks(world, &rank, 1, 0, &s->err));
		return;
	}
	w->is_lost = 1;
	s->state.workers--;
	if (w->waits && w->message)
		gn_message_done(w->message);
	w->waits = 0;
	gn_server_release(s);
}

int gn_server_is_done(struct gn_server *s)
{
	struct gn_world *world = gn_comm_world(s->options.comm);
	unsigned losses = gn_world_losses(world);

	if (losses != s->losses) {
		s->losses = losses;
		for (int r = 0; r < gn_comm_size(s->options.comm); r++)
			if (gn_world_is_lost(world, r))
				lose(s, r);
	}
	for (int r = 0; r < s->workers && !s->err.status; r++)
		if (!s->list[r].is_lost && (!s->list[r].has_left || s->list[r].answers))
			return 0;
	return 1;
}

uint64_t gn_server_fetches(const struct gn_server *s)
{
	return s->fetches;
}

enum gn_status gn_server_status(const struct gn_server *s, struct gn_err *err)
{
	if (s->err.status)
		*err = s->err;
	return s->err.status;
}

static int is_done(void *context)
{
	return gn_server_is_done(context);
}

enum gn_status gn_server_wait(struct gn_server *s, struct gn_err *err)
{
	enum gn_status status = gn_messages_wait(s->options.messages, is_done, s, err);

	return status ? status : gn_server_status(s, err);
}

/* --- lifecycle --- */

enum gn_status gn_server_create(const struct gn_server_options *options, struct gn_server **out, struct gn_err *err)
{
	struct gn_server *s = calloc(1, sizeof *s);
	struct gn_message_kind kind = {.handle = arrived, .place = place, .context = s};
	int workers = gn_server_workers(&options->spec, gn_comm_size(options->comm));

	if (s)
		s->list = calloc((size_t)workers, sizeof *s->list);
	if (!s || !s->list) {
		free(s);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a parameter server");
	}
	s->options = *options;
	s->workers = workers;
	s->state.workers = workers;
	for (int r = 0; r < workers; r++)
		s->list[r].server = s;
	for (int k = 0; k < GN_SERVER_KINDS; k++)
		gn_messages_handle(options->messages, k, &kind);
	*out = s;
	return GN_OK;
}

void gn_server_destroy(struct gn_server *s)
{
	if (!s)
		return;
	for (int r = 0; r < s->workers; r++) {
		if (s->list[r].waits && s->list[r].message)
			gn_message_done(s->list[r].message);
		/* else UCX may still read it, on its way to a rank that is lost */
		if (!s->list[r].answers)
			free(s->list[r].array);
	}
	gn_optimizer_destroy(s->optimizer);
	gn_plan_device_close(&s->device);
	gn_model_destroy(s->model);
	gn_pages_unmap(s->params, s->map_bytes);
	gn_pages_unmap(s->grads, s->map_bytes);
	free(s->copy);
	free(s->list);
	free(s);
}
