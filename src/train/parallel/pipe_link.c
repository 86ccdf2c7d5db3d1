#include "src/train/parallel/pipe_link.h"

#include "src/base/alloc.h"
#include "src/base/clock.h"
#include "transport/select/cost.h"

#include <stdlib.h>

enum { SLOTS = 2 };
/* Where no cost is known. */
#define GUESSED_BYTES_PER_S 1e9

struct slot {
	void *memory;
	struct gn_p2p *message;
	int is_started; /* and not waited for */
};

struct gn_pipe_link {
	struct gn_pipe_link_options options;
	struct slot slots[SLOTS];
	int messages;	/* of the step */
	int started;	/* of them: sends, or receives that are posted */
	int taken;	/* received ones that are done */
	uint64_t waited_ns;
};

enum gn_status gn_pipe_link_create(const struct gn_pipe_link_options *o, struct gn_pipe_link **out, struct gn_err *err)
{
	struct gn_pipe_link *l = calloc(1, sizeof *l);
	enum gn_status status = GN_OK;

	if (!l)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for messages between stages");
	l->options = *o;
	for (int i = 0; i < SLOTS && !status; i++) {
		struct gn_p2p_args args = {.peer = o->peer, .tag = o->tag, .len_bytes = o->bytes};

		l->slots[i].memory = args.data = gn_pages_map(o->bytes);
		if (!args.data)
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for messages of %zu bytes between stages", o->bytes);
		else
			status = (o->sends ? gn_p2p_prepare_send : gn_p2p_prepare_receive)(o->comm, &args, &l->slots[i].message, err);
	}
	if (status)
		gn_pipe_link_destroy(l);
	else
		*out = l;
	return status;
}

void gn_pipe_link_destroy(struct gn_pipe_link *l)
{
	if (!l)
		return;
	for (int i = 0; i < SLOTS; i++) {
		gn_p2p_free(l->slots[i].message);
		gn_pages_unmap(l->slots[i].memory, l->options.bytes);
	}
	free(l);
}

static enum gn_status start(struct gn_pipe_link *l, struct gn_err *err)
{
	struct slot *slot = &l->slots[l->started % SLOTS];
	enum gn_status status = gn_p2p_start(slot->message, NULL, err);

	slot->is_started = !status;
	l->started += !status;
	return status;
}

static enum gn_status finish(struct gn_pipe_link *l, struct slot *slot, struct gn_err *err)
{
	uint64_t began = gn_clock_ns();
	enum gn_status status = slot->is_started ? gn_p2p_wait(slot->message, err) : GN_OK;

	slot->is_started = slot->is_started && status;
	l->waited_ns += gn_clock_ns() - began;
	return status;
}

enum gn_status gn_pipe_link_begin(struct gn_pipe_link *l, int messages, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (!l)
		return GN_OK;
	l->messages = messages;
	l->started = l->taken = 0;
	while (!l->options.sends && l->started < SLOTS && l->started < messages && !status)
		status = start(l, err);
	return status;
}

void gn_pipe_link_shorten(struct gn_pipe_link *l, int messages)
{
	if (l)
		l->messages = messages;
}

enum gn_status gn_pipe_link_room(struct gn_pipe_link *l, void **memory, struct gn_err *err)
{
	struct slot *slot = &l->slots[l->started % SLOTS];

	*memory = slot->memory;
	return finish(l, slot, err);
}

enum gn_status gn_pipe_link_send(struct gn_pipe_link *l, struct gn_err *err)
{
	return start(l, err);
}

enum gn_status gn_pipe_link_take(struct gn_pipe_link *l, const void **data, struct gn_err *err)
{
	struct slot *slot = &l->slots[l->taken % SLOTS];

	*data = slot->memory;
	return finish(l, slot, err);
}

enum gn_status gn_pipe_link_done(struct gn_pipe_link *l, struct gn_err *err)
{
	l->taken++;
	return l->started < l->messages ? start(l, err) : GN_OK;
}

enum gn_status gn_pipe_link_end(struct gn_pipe_link *l, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int i = 0; i < SLOTS && l && !status; i++)
		status = finish(l, &l->slots[i], err);
	return status;
}

uint64_t gn_pipe_link_waited_ns(const struct gn_pipe_link *l)
{
	return l ? l->waited_ns : 0;
}

double gn_pipe_link_rate(const struct gn_comm *comm, int other_node)
{
	const struct gn_cost *cost = gn_comm_cost(comm);
	double rate = other_node ? cost->link.bytes_per_s : cost->node.bytes_per_s;

	return rate > 0 ? rate : GUESSED_BYTES_PER_S;
}
