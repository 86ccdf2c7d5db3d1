/* A divided state from world to world: pieces are taken from a session that ends, and put together for one that begins. */
#include "src/train/loop/carried.h"
#include "src/train/loop/session.h"

#include "src/base/alloc.h"
#include "src/base/text.h"
#include "transport/coll/agree.h"

#include <stdlib.h>
#include <string.h>

/* Elements that are put together at a time. */
enum { CHUNK = 1 << 20 };

int gn_session_is_divided(const struct gn_session *s)
{
	return gn_shard_mode_of(s->options->shard) != GN_SHARD_NONE || s->options->parallel;
}

void gn_carried_copy_release(struct gn_carried_copy *k)
{
	gn_state_copy_release(&k->copy);
	free(k->spans);
	free(k->layouts);
	*k = (struct gn_carried_copy){.world = 0};
}

/* --- to take --- */

static void describe_shard(struct gn_carried_copy *k, const struct gn_session *s)
{
	const struct gn_shard *shard = s->replica.shard;
	const struct gn_parts *own = gn_shard_own_parts(shard), *all = gn_shard_parts(shard);
	int ranks = gn_comm_size(s->comm), rank = gn_comm_rank(s->comm), ward = gn_shard_ward(shard);

	k->pieces = ranks + 1;
	k->has[0] = rank;
	k->has[1] = ranks; /* what is left over of parameters, and all buffers */
	k->has[2] = ward;
	for (size_t i = 0; i < all->count; i++) {
		const struct gn_part *p = &all->list[i];
		int piece = i >= own->count ? ward : p->at < gn_shard_block_elements(shard) ? rank : ranks;

		k->spans[k->span_count++] = (struct gn_piece_span){p->begin, p->count, p->at, piece};
	}
	k->buffers[k->buffer_spans++] = (struct gn_piece_span){.count = k->copy.buffer_count, .piece = ranks};
}

/* A stage, of so many elements of parameters and buffers, behind what is there. */
static void describe_stage(struct gn_carried_copy *k, const struct gn_session *s, int stage, size_t elements, size_t buffers)
{
	const struct gn_piece_span *before = k->span_count ? &k->spans[k->span_count - 1] : NULL;
	size_t from[2] = {0}, at[2] = {0};

	if (s->pipeline)
		gn_session_stage_begins(s, stage, from);
	if (before) {
		at[0] = before->at + before->count;
		at[1] = k->buffers[k->buffer_spans - 1].count;
	}
	k->spans[k->span_count++] = (struct gn_piece_span){from[0], elements, at[0], stage};
	k->buffers[k->buffer_spans++] = (struct gn_piece_span){from[1], buffers, at[1], stage};
}

/* ward: what k's copy has of the stage before, behind its own; NULL: nothing. */
static void describe(struct gn_carried_copy *k, const struct gn_session *s, const struct gn_state_copy *ward)
{
	size_t more = ward ? ward->elements : 0, more_buffers = ward ? ward->buffer_count : 0;

	k->has[0] = s->pipeline ? gn_comm_rank(s->pipeline->pipe) : 0;
	k->has[1] = -1;
	k->has[2] = ward ? gn_stage_ring_ward(s->pipeline->ring) : -1;
	k->pieces = s->pipeline ? s->pipeline->mesh.shape.pipeline : 1;
	describe_stage(k, s, k->has[0], k->copy.elements - more, k->copy.buffer_count - more_buffers);
	if (ward)
		describe_stage(k, s, k->has[2], more, more_buffers);
}

/* In a shard's order tensors are cut anywhere: only the whole can be brought to torch's. */
static enum gn_status take_order(struct gn_carried_copy *k, struct gn_session *s, struct gn_err *err)
{
	size_t len = (size_t)gn_model_param_count(s->model) * sizeof *k->layouts;

	for (int i = 0; i < GN_STATE_ARRAYS && !s->replica.shard; i++) {
		float *array = gn_state_copy_array(&k->copy, i);

		gn_weight_layouts_out(s->replica.layouts, array);
		if (array && k->span_count > 1)
			gn_weight_layouts_out(gn_stage_ring_layouts(s->pipeline->ring), array + k->spans[1].at);
	}
	if (!s->replica.shard)
		return GN_OK;
	k->layouts = malloc(len);
	if (!k->layouts)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the layouts of parameters");
	memcpy(k->layouts, gn_weight_layouts_layouts(s->replica.layouts), len);
	return GN_OK;
}

/* copy becomes k's. */
static enum gn_status add(struct gn_carried *c, struct gn_session *s, struct gn_state_copy *copy, struct gn_err *err)
{
	const struct gn_shard *shard = s->replica.shard;
	const struct gn_state_copy *ward = s->pipeline && s->pipeline->ring ? gn_stage_ring_copy(s->pipeline->ring, copy->state.step) : NULL;
	struct gn_carried_copy *k = &c->copies[0];
	enum gn_status status = ward ? gn_state_copy_append(copy, ward, err) : GN_OK;

	if (status)
		return status;
	gn_carried_copy_release(&c->copies[GN_CARRIED_COPIES - 1]);
	memmove(k + 1, k, (GN_CARRIED_COPIES - 1) * sizeof *k);
	*k = (struct gn_carried_copy){.copy = *copy, .world = c->world};
	*copy = (struct gn_state_copy){.memory = NULL};
	k->spans = calloc(shard ? gn_shard_parts(shard)->count + 1 : 2, sizeof *k->spans);
	if (!k->spans) {
		gn_carried_copy_release(k);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a part of the run's state");
	}
	if (shard)
		describe_shard(k, s);
	else
		describe(k, s, ward);
	return take_order(k, s, err);
}

enum gn_status gn_session_take_copies(struct gn_carried *c, struct gn_session *s, struct gn_err *err)
{
	struct gn_replica *r = &s->replica;
	const int is_begun = r->undo.is_there && r->undo.state.step == s->state.step;
	struct gn_state_copy now = {.memory = NULL};
	enum gn_status status = GN_OK;

	/* without a finished step here others may not have come to this world's state */
	for (int i = 0; i < GN_CARRIED_COPIES; i++)
		if (c->copies[i].copy.state.step != s->state.step)
			gn_carried_copy_release(&c->copies[i]);
	if (r->undo.is_there && (is_begun || r->undo.state.step + 1 == s->state.step))
		status = add(c, s, &r->undo, err);
	/* an update that was begun has changed a part of this */
	if (status || is_begun)
		return status;
	status = gn_replica_copy_state(r, &now, s->is_within_step ? r->kept_buffers : r->buffers.host, &s->state, err);
	return status ? status : add(c, s, &now, err);
}

/* --- to find --- */

/* What ranks tell each other of each of their copies. */
struct offer {
	uint64_t world, step;
	int32_t pieces, has[GN_CARRIED_PIECES];
};

struct offers {
	struct offer of[GN_CARRIED_COPIES];
	int64_t number;
};

/* What is put together: of the copies of a world and a step, by which rank each piece is given. */
struct chosen {
	struct offer what;
	int *givers;	       /* [what.pieces]; -1: nobody has it */
	int missing, of_others; /* pieces: the first that nobody has, or -1; those of a rank that is lost, and that another one has */
	const struct gn_carried_copy *mine; /* NULL: none */
	struct gn_weight_layouts *order; /* of its arrays; NULL: torch's */
	float *room;
};

static int is_same(const struct offer *a, const struct offer *b)
{
	return a->world == b->world && a->step == b->step && a->pieces == b->pieces;
}

static void find_givers(struct chosen *x, const struct offers *all, int ranks)
{
	for (int p = 0; p < x->what.pieces; p++)
		x->givers[p] = -1;
	x->missing = -1;
	x->of_others = 0;
	/* a rank's own piece before that of another one */
	for (int h = 0; h < GN_CARRIED_PIECES; h++)
		for (int r = 0; r < ranks; r++)
			for (int i = 0; i < GN_CARRIED_COPIES; i++) {
				const struct offer *o = &all[r].of[i];

				if (!is_same(o, &x->what) || o->has[h] < 0 || o->has[h] >= x->what.pieces || x->givers[o->has[h]] >= 0)
					continue;
				x->givers[o->has[h]] = r;
				x->of_others += h == GN_CARRIED_PIECES - 1;
			}
	for (int p = x->what.pieces - 1; p >= 0; p--)
		if (x->givers[p] < 0)
			x->missing = p;
}

/* The last step that is complete, of it the newest world; of none the last step that anybody has. */
static enum gn_status choose(struct chosen *x, const struct offers *all, int ranks, struct gn_err *err)
{
	struct offer best = {.pieces = 0}, last = {.pieces = 0};
	int most = 1;

	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < GN_CARRIED_COPIES; i++)
			most = all[r].of[i].pieces > most ? all[r].of[i].pieces : most;
	x->givers = calloc((size_t)most, sizeof *x->givers);
	if (!x->givers)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the places of %d pieces", most);
	for (int r = 0; r < ranks; r++)
		for (int i = 0; i < GN_CARRIED_COPIES; i++) {
			const struct offer *o = &all[r].of[i];

			x->what = *o;
			find_givers(x, all, ranks);
			if (o->pieces && (!last.pieces || o->step > last.step))
				last = *o;
			if (o->pieces && x->missing < 0 && (!best.pieces || o->step > best.step || (o->step == best.step && o->world > best.world)))
				best = *o;
		}
	x->what = best.pieces ? best : last;
	find_givers(x, all, ranks);
	return GN_OK;
}

static enum gn_status find(struct gn_carried *c, struct gn_session *s, struct chosen *x, int64_t *number, struct gn_err *err)
{
	struct offers mine = {.number = c->number}, *all = calloc((size_t)gn_comm_size(s->comm), sizeof *all);
	enum gn_status status = all ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the places of ranks");

	for (int i = 0; i < GN_CARRIED_COPIES; i++) {
		const struct gn_carried_copy *k = &c->copies[i];

		if (!k->copy.is_there)
			continue;
		mine.of[i] = (struct offer){k->world, k->copy.state.step, k->pieces, {k->has[0], k->has[1], k->has[2]}};
	}
	status = gn_agree_status(s->comm, status, err);
	if (!status)
		status = gn_agree_gather(s->comm, &mine, sizeof mine, all, err);
	if (!status)
		status = gn_agree_status(s->comm, choose(x, all, gn_comm_size(s->comm), err), err);
	for (int i = 0; i < GN_CARRIED_COPIES && !status; i++)
		if (mine.of[i].pieces && is_same(&mine.of[i], &x->what))
			x->mine = &c->copies[i];
	if (!status && x->what.pieces && x->missing < 0)
		*number = all[x->givers[0]].number;
	free(all);
	return status;
}

/* --- to put together --- */

/* Elements first .. first + count - 1 of the whole, from what this rank has to give of them. */
static void put(const struct chosen *x, int rank, const float *from, const struct gn_piece_span *spans, size_t span_count, size_t first, size_t count)
{
	memset(x->room, 0, count * sizeof(float));
	for (size_t i = 0; i < span_count && from; i++) {
		const struct gn_piece_span *p = &spans[i];
		size_t begin = p->begin > first ? p->begin : first, end = p->begin + p->count < first + count ? p->begin + p->count : first + count;

		if (begin < end && x->givers[p->piece] == rank)
			memcpy(x->room + begin - first, from + p->at + begin - p->begin, (end - begin) * sizeof(float));
	}
}

/* Collective. to: elements begin .. end - 1 of all. Bits are added as integers, which leaves them as they are beside zeros. */
static enum gn_status assemble(const struct chosen *x, struct gn_comm *comm, const float *from, const struct gn_piece_span *spans, size_t span_count,
			       size_t all, float *to, size_t begin, size_t end, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t first = 0; first < all && !status; first += CHUNK) {
		size_t count = all - first < CHUNK ? all - first : CHUNK, at = begin > first ? begin : first;
		size_t until = end < first + count ? end : first + count;

		put(x, gn_comm_rank(comm), from, spans, span_count, first, count);
		status = gn_comm_allreduce(comm, x->room, count, GN_I32, NULL, err);
		if (!status && at < until)
			memcpy(to + at - begin, x->room + at - first, (until - at) * sizeof(float));
	}
	return status;
}

/* Array number k, in torch's order but for a part. */
static enum gn_status give_params(const struct chosen *x, struct gn_session *s, int k, struct gn_err *err)
{
	struct gn_replica *r = &s->replica;
	const struct gn_array *array = k == 0 ? &r->params : k <= GN_OPTIM_SLOTS_MAX ? gn_optimizer_slot(r->optimizer, k - 1) : &r->ema.params;
	const struct gn_carried_copy *m = x->mine;
	size_t all = gn_model_param_elements(s->model), from[2] = {0};
	float *to = r->shard ? r->flat : array->host;
	enum gn_status status;

	/* alike on all ranks; a stage may have no parameters */
	if (k > GN_OPTIM_SLOTS_MAX ? !gn_replica_has_average(r) : k > gn_optim_slots(gn_optimizer_kind(r->optimizer)))
		return GN_OK;
	if (s->pipeline)
		gn_session_stage_begin(s, from);
	status = assemble(x, s->comm, m ? gn_state_copy_array(&m->copy, k) : NULL, m ? m->spans : NULL, m ? m->span_count : 0, all, to, from[0],
			  from[0] + (r->shard ? all : array->count), err);
	if (status)
		return status;
	if (x->order)
		gn_weight_layouts_out(x->order, to);
	if (r->shard && k == 0)
		memcpy(array->host, to, all * sizeof(float));
	else if (r->shard) {
		gn_weight_layouts_in(r->layouts, to);
		gn_parts_pack(gn_shard_parts(r->shard), to, array->host);
	}
	return GN_OK;
}

static enum gn_status give_buffers(const struct chosen *x, struct gn_session *s, const float *mine, const struct gn_array *array, struct gn_err *err)
{
	const struct gn_carried_copy *m = x->mine;
	size_t from[2] = {0};

	if (s->pipeline)
		gn_session_stage_begin(s, from);
	return assemble(x, s->comm, m ? mine : NULL, m ? m->buffers : NULL, m ? (size_t)m->buffer_spans : 0, gn_model_buffer_elements(s->model), array->host, from[1],
			from[1] + array->count, err);
}

/* The order of arrays of parameters, as their givers have them. */
static enum gn_status share_order(struct chosen *x, struct gn_session *s, struct gn_err *err)
{
	int root = x->givers[0], is_root = gn_comm_rank(s->comm) == root;
	size_t len = (size_t)gn_model_param_count(s->model) * sizeof(struct gn_weight_layout);
	struct gn_weight_layout *layouts = NULL;
	int32_t has = is_root && x->mine->layouts;
	enum gn_status status = gn_comm_broadcast(s->comm, &has, sizeof has, root, err);

	if (status || !has)
		return status;
	layouts = malloc(len);
	status = gn_agree_status(s->comm, layouts ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the layouts of parameters"), err);
	if (!status && is_root)
		memcpy(layouts, x->mine->layouts, len);
	if (!status)
		status = gn_comm_broadcast(s->comm, layouts, len, root, err);
	if (!status) {
		status = gn_weight_layouts_create(s->model, &x->order, err);
		if (!status)
			status = gn_weight_layouts_set(x->order, layouts, err);
		status = gn_agree_status(s->comm, status, err);
	}
	free(layouts);
	return status;
}

static enum gn_status give(struct chosen *x, struct gn_session *s, struct gn_err *err)
{
	const struct gn_replica *r = &s->replica;
	const struct gn_state_copy *m = x->mine ? &x->mine->copy : NULL;
	struct gn_run_state state = m ? m->state : s->state;
	enum gn_status status;

	x->room = gn_alloc_aligned(CHUNK * sizeof(float));
	status = gn_agree_status(s->comm, x->room ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a part of the run's state"), err);
	if (!status)
		status = gn_comm_broadcast(s->comm, &state, sizeof state, x->givers[0], err);
	if (!status)
		status = share_order(x, s, err);
	for (int k = 0; k < GN_STATE_ARRAYS && !status; k++)
		status = give_params(x, s, k, err);
	if (!status)
		status = give_buffers(x, s, m ? m->buffers : NULL, &r->buffers, err);
	if (!status && gn_replica_has_average(r))
		status = give_buffers(x, s, m ? m->average_buffers : NULL, &r->ema.buffers, err);
	if (!status)
		s->state = state;
	return status;
}

enum gn_status gn_session_give_copies(struct gn_carried *c, struct gn_session *s, int64_t *number, int *done, struct gn_strbuf *told,
				      struct gn_err *err)
{
	struct chosen x = {.missing = -1};
	enum gn_status status = find(c, s, &x, number, err);
	const char *piece = s->options->parallel ? "stage" : "the part of rank";

	if (!status && x.what.pieces && x.missing < 0) {
		status = give(&x, s, err);
		*done = !status;
		if (x.of_others && s->options->parallel)
			gn_strbuf_printf(told, "; %d stage%s from the copy of another one's rank", x.of_others, gn_text_plural((uint64_t)x.of_others));
		else if (x.of_others)
			gn_strbuf_printf(told, "; %d part%s of the optimizer's state from copies", x.of_others, gn_text_plural((uint64_t)x.of_others));
		/* one of another step would be of a run that has not been */
		for (int i = 0; i < GN_CARRIED_COPIES && !status; i++)
			if (&c->copies[i] != x.mine)
				gn_carried_copy_release(&c->copies[i]);
	} else if (!status && x.what.pieces) {
		gn_strbuf_printf(told, "no rank that is left has %s %d of the run's state", piece, x.missing);
	}
	gn_weight_layouts_destroy(x.order);
	free(x.givers);
	free(x.room);
	return status;
}
