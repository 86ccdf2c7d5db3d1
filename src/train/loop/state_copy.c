#include "src/train/loop/state_copy.h"

#include "src/base/alloc.h"
#include "transport/coll/agree.h"
#include "transport/coll/p2p.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN_FLOATS = 16 };

static size_t room(size_t count)
{
	return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

enum gn_status gn_state_copy_reserve(struct gn_state_copy *c, size_t elements, size_t buffers, int slots, int averages, struct gn_err *err)
{
	const size_t len = (room(elements) * (size_t)(1 + slots + averages) + room(buffers) * (size_t)(1 + averages)) * sizeof(float);
	float *at;

	if (len > c->len_bytes) {
		gn_state_copy_release(c);
		c->memory = gn_alloc_aligned(len);
		if (!c->memory)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copy of %.1f MB of the run's state", (double)len * 1e-6);
		c->len_bytes = len;
	}
	*c = (struct gn_state_copy){.memory = c->memory, .len_bytes = c->len_bytes, .elements = elements, .buffer_count = buffers};
	at = c->params = c->memory;
	for (int k = 0; k < slots; k++)
		c->slots[k] = at += room(elements);
	if (averages)
		c->average = at += room(elements);
	c->buffers = at += room(elements);
	if (averages)
		c->average_buffers = at + room(buffers);
	return GN_OK;
}

float *gn_state_copy_array(const struct gn_state_copy *c, int k)
{
	return k == 0 ? c->params : k <= GN_OPTIM_SLOTS_MAX ? c->slots[k - 1] : c->average;
}

static void join(float *to, const float *one, size_t count, const float *other, size_t other_count)
{
	if (to && count)
		memcpy(to, one, count * sizeof *to);
	if (to && other_count)
		memcpy(to + count, other, other_count * sizeof *to);
}

enum gn_status gn_state_copy_append(struct gn_state_copy *c, const struct gn_state_copy *more, struct gn_err *err)
{
	struct gn_state_copy both = {.memory = NULL};
	enum gn_status status;
	int slots = 0;

	while (slots < GN_OPTIM_SLOTS_MAX && c->slots[slots])
		slots++;
	status = gn_state_copy_reserve(&both, c->elements + more->elements, c->buffer_count + more->buffer_count, slots, c->average != NULL, err);
	if (status)
		return status;
	for (int k = 0; k < GN_STATE_ARRAYS; k++)
		join(gn_state_copy_array(&both, k), gn_state_copy_array(c, k), c->elements, gn_state_copy_array(more, k), more->elements);
	join(both.buffers, c->buffers, c->buffer_count, more->buffers, more->buffer_count);
	join(both.average_buffers, c->average_buffers, c->buffer_count, more->average_buffers, more->buffer_count);
	both.state = c->state;
	both.is_there = c->is_there;
	gn_state_copy_release(c);
	*c = both;
	return GN_OK;
}

void gn_state_copy_release(struct gn_state_copy *c)
{
	free(c->memory);
	*c = (struct gn_state_copy){.memory = NULL};
}

enum { TAG_LAYOUTS = 24, TAG_STATE };

struct gn_stage_ring {
	struct gn_comm *pipe;
	int ward, holder;	      /* stages */
	struct gn_model *model;	      /* the ward's */
	struct gn_weight_layouts *layouts;
	struct gn_state_copy mine;    /* that is sent */
	struct gn_state_copy kept[2]; /* of the ward's, by turns: one is whole */
	int latest;
};

/* Both at once: a ring of ranks that only send would wait. */
static enum gn_status pass_on(const struct gn_stage_ring *g, uint32_t tag, const void *out, size_t out_bytes, void *in, size_t in_bytes, struct gn_err *err)
{
	struct gn_p2p_args a = {.peer = g->ward, .tag = tag, .data = in, .len_bytes = in_bytes};
	struct gn_p2p *receive = NULL, *send = NULL;
	enum gn_status status = gn_p2p_prepare_receive(g->pipe, &a, &receive, err);

	a = (struct gn_p2p_args){.peer = g->holder, .tag = tag, .data = (void *)(uintptr_t)out, .len_bytes = out_bytes};
	if (!status)
		status = gn_p2p_prepare_send(g->pipe, &a, &send, err);
	if (!status)
		status = gn_p2p_start(receive, NULL, err);
	if (!status)
		status = gn_p2p_start(send, NULL, err);
	if (!status)
		status = gn_p2p_wait(receive, err);
	if (!status)
		status = gn_p2p_wait(send, err);
	gn_p2p_free(receive);
	gn_p2p_free(send);
	return status;
}

/* In which the ward has its weights. */
static enum gn_status get_layouts(struct gn_stage_ring *g, const struct gn_model *model, const struct gn_weight_layouts *layouts, struct gn_err *err)
{
	size_t own = (size_t)gn_model_param_count(model) * sizeof(struct gn_weight_layout);
	size_t its = (size_t)gn_model_param_count(g->model) * sizeof(struct gn_weight_layout);
	struct gn_weight_layout *got = calloc(1, its + 1);
	enum gn_status status = got ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the layouts of another stage");

	status = gn_agree_status(g->pipe, status, err);
	if (!status)
		status = pass_on(g, TAG_LAYOUTS, gn_weight_layouts_layouts(layouts), own, got, its, err);
	if (!status)
		status = gn_weight_layouts_create(g->model, &g->layouts, err);
	if (!status)
		status = gn_weight_layouts_set(g->layouts, got, err);
	free(got);
	return gn_agree_status(g->pipe, status, err);
}

static enum gn_status reserve(struct gn_stage_ring *g, const struct gn_model *own, int slots, int averages, struct gn_err *err)
{
	size_t elements = gn_model_param_elements(g->model), buffers = gn_model_buffer_elements(g->model);
	enum gn_status status = gn_state_copy_reserve(&g->mine, gn_model_param_elements(own), gn_model_buffer_elements(own), slots, averages, err);

	for (int i = 0; i < 2 && !status; i++)
		status = gn_state_copy_reserve(&g->kept[i], elements, buffers, slots, averages, err);
	return gn_agree_status(g->pipe, status, err);
}

enum gn_status gn_stage_ring_create(struct gn_comm *pipe, const struct gn_model *own, const struct gn_weight_layouts *layouts, struct gn_model *ward,
				    int slots, int averages, struct gn_stage_ring **out, struct gn_err *err)
{
	int stages = gn_comm_size(pipe), stage = gn_comm_rank(pipe);
	struct gn_stage_ring *g = calloc(1, sizeof *g);
	enum gn_status status = gn_agree_status(pipe, g && ward ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a copy of a stage"), err);

	if (!g)
		gn_model_destroy(ward);
	else
		*g = (struct gn_stage_ring){.pipe = pipe, .ward = (stage + stages - 1) % stages, .holder = (stage + 1) % stages, .model = ward};
	if (!status)
		status = get_layouts(g, own, layouts, err);
	if (!status)
		status = reserve(g, own, slots, averages, err);
	if (status)
		gn_stage_ring_destroy(g);
	else
		*out = g;
	return status;
}

void gn_stage_ring_destroy(struct gn_stage_ring *g)
{
	if (!g)
		return;
	gn_weight_layouts_destroy(g->layouts);
	gn_model_destroy(g->model);
	gn_state_copy_release(&g->mine);
	gn_state_copy_release(&g->kept[0]);
	gn_state_copy_release(&g->kept[1]);
	free(g);
}

struct gn_state_copy *gn_stage_ring_mine(struct gn_stage_ring *g)
{
	return &g->mine;
}

enum gn_status gn_stage_ring_exchange(struct gn_stage_ring *g, struct gn_state_copy *kept, struct gn_err *err)
{
	struct gn_state_copy *in = &g->kept[!g->latest], last = *kept;
	enum gn_status status;

	in->is_there = 0;
	status = pass_on(g, TAG_STATE, g->mine.memory, g->mine.len_bytes, in->memory, in->len_bytes, err);
	in->state = g->mine.state; /* all are at the same step */
	in->is_there = !status;
	if (!status)
		status = gn_comm_barrier(g->pipe, err);
	if (status)
		return status;
	/* the next rank has this copy: this one may make the update, and forget what was before it */
	g->latest = !g->latest;
	*kept = g->mine;
	g->mine = last;
	return GN_OK;
}

const struct gn_state_copy *gn_stage_ring_copy(const struct gn_stage_ring *g, uint64_t step)
{
	for (int i = 0; i < 2; i++)
		if (g->kept[i].is_there && g->kept[i].state.step == step)
			return &g->kept[i];
	return NULL;
}

int gn_stage_ring_ward(const struct gn_stage_ring *g)
{
	return g->ward;
}

struct gn_weight_layouts *gn_stage_ring_layouts(const struct gn_stage_ring *g)
{
	return g->layouts;
}

size_t gn_stage_ring_bytes(const struct gn_stage_ring *g)
{
	return g->mine.len_bytes;
}
