#include "transport/sim/sim_plan.h"

#include <stdlib.h>
#include <string.h>

#define ELEMENT_BYTES 4
#define NONE UINT32_MAX

struct builder {
	const struct gn_algorithm *a;
	struct gn_algo_args args;
	struct gn_sim_plan p;
	size_t count, room, dependents, dependents_room, bytes;
	uint64_t max_bytes;
	uint32_t *messages;
	size_t mask;
};

static double bytes_of(const struct builder *b, const struct gn_schedule *s, const struct gn_step *step)
{
	size_t first, last, len;

	gn_schedule_range(b->bytes / ELEMENT_BYTES, gn_schedule_chunks(s), step->chunk, &first, &len);
	gn_schedule_range(b->bytes / ELEMENT_BYTES, gn_schedule_chunks(s), step->chunk + step->chunk_count - 1, &last, &len);
	return (double)(last + len - first) * ELEMENT_BYTES;
}

/* Makes room for the steps of one more rank. Extrapolates from it to all ranks, so that excessive memory is detected at once. */
static enum gn_status make_room(struct builder *b, size_t steps, size_t dependencies, struct gn_err *err)
{
	/* pairing the messages needs a hash table of at least twice the number of steps */
	uint64_t step_bytes = sizeof *b->p.steps + 4 * sizeof *b->messages;
	uint64_t wanted_bytes = (steps * step_bytes + dependencies * sizeof *b->p.dependents) * (uint64_t)b->p.ranks;
	void *moved;

	if (wanted_bytes > b->max_bytes || (uint64_t)steps * (uint64_t)b->p.ranks >= NONE ||
	    (uint64_t)dependencies * (uint64_t)b->p.ranks >= NONE)
		return gn_err_set(err, GN_ERR_UNSUPPORTED,
				  "%s over %d ranks has %zu steps per rank, %.1f GB for the %d ranks to simulate: choose another "
				  "algorithm, or no jitter and no stragglers if it is rotation symmetric",
				  b->a->name, b->args.size, steps, (double)wanted_bytes / 1e9, b->p.ranks);
	if (b->count + steps + 1 > b->room) {
		b->room = 2 * b->room > b->count + steps + 1 ? 2 * b->room : (steps + 1) * (size_t)b->p.ranks + 1;
		if (b->room < b->count + steps + 1)
			b->room = 2 * (b->count + steps + 1);
		moved = realloc(b->p.steps, b->room * sizeof *b->p.steps);
		if (!moved)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu steps", b->room);
		b->p.steps = moved;
	}
	if (b->dependents + dependencies > b->dependents_room) {
		b->dependents_room = 2 * (b->dependents + dependencies);
		moved = realloc(b->p.dependents, (b->dependents_room + 1) * sizeof *b->p.dependents);
		if (!moved)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu dependencies", b->dependents_room);
		b->p.dependents = moved;
	}
	return GN_OK;
}

/* Inverts a rank's dependencies into lists of dependents, by global step numbers. */
static void add_dependents(struct builder *b, const struct gn_step *steps, size_t count, const uint32_t *dependencies, size_t total)
{
	struct gn_sim_plan_step *own = b->p.steps + b->count;
	uint32_t at = (uint32_t)b->dependents;

	for (size_t i = 0; i < count; i++)
		for (uint32_t d = 0; d < steps[i].dependency_count; d++)
			own[dependencies[steps[i].first_dependency + d]].first_dependent++;
	/* each step gets the end of its list; filling from the back moves it to the start */
	for (size_t i = 0; i < count; i++)
		own[i].first_dependent = at += own[i].first_dependent;
	for (size_t i = count; i-- > 0;)
		for (uint32_t d = 0; d < steps[i].dependency_count; d++) {
			struct gn_sim_plan_step *on = &own[dependencies[steps[i].first_dependency + d]];

			b->p.dependents[--on->first_dependent] = (uint32_t)(b->count + i);
		}
	b->dependents += total;
}

static enum gn_status add_rank(struct builder *b, struct gn_err *err)
{
	struct gn_schedule *s;
	enum gn_status status = gn_algorithm_schedule(b->a, &b->args, &s, err);
	const struct gn_step *steps;
	const uint32_t *dependencies;
	size_t count, total;

	if (status)
		return status;
	steps = gn_schedule_steps(s, &count);
	dependencies = gn_schedule_dependencies(s, &total);
	status = make_room(b, count, total, err);
	for (size_t i = 0; i < count && !status; i++)
		b->p.steps[b->count + i] = (struct gn_sim_plan_step){
			.partner = steps[i].message, /* until paired */
			.missing = steps[i].dependency_count, .rank = b->args.rank, .peer = steps[i].peer,
			.bytes = (float)bytes_of(b, s, &steps[i]), .op = steps[i].op,
		};
	if (!status) {
		add_dependents(b, steps, count, dependencies, total);
		b->p.first[b->args.rank] = b->count;
		b->count += count;
	}
	gn_schedule_destroy(s);
	return status;
}

/* Identifies a message: simulated receiver, distance of the sender from it, message number. */
static uint64_t key_of(const struct builder *b, const struct gn_sim_plan_step *s)
{
	int size = b->args.size, sends = s->op == GN_STEP_SEND;
	uint64_t receiver = (uint64_t)(sends ? s->peer % b->p.ranks : s->rank);
	uint64_t ahead = (uint64_t)((sends ? s->rank - s->peer : s->peer - s->rank) + size) % (uint64_t)size;

	return receiver << 42 ^ ahead << 24 ^ s->partner;
}

static uint32_t *find_message(const struct builder *b, const struct gn_sim_plan_step *s)
{
	uint64_t key = key_of(b, s), hash = key * 0x9e3779b97f4a7c15u;
	size_t at = (size_t)((hash ^ hash >> 32) * 0x9e3779b97f4a7c15u >> 20) & b->mask;

	while (b->messages[at] != NONE && key_of(b, &b->p.steps[b->messages[at]]) != key)
		at = (at + 1) & b->mask;
	return &b->messages[at];
}

/* Inserts all sends into a hash table, then looks up each receive. `partner` holds the message numbers until all are paired. */
static enum gn_status pair_messages(struct builder *b, struct gn_err *err)
{
	uint32_t *partner;

	for (b->mask = 15; b->mask < b->count; b->mask = b->mask * 2 + 1)
		;
	b->messages = malloc((b->mask + 1) * sizeof *b->messages);
	partner = malloc((b->count + 1) * sizeof *partner);
	if (!b->messages || !partner) {
		free(partner);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to pair the messages of %zu steps", b->count);
	}
	memset(b->messages, 0xff, (b->mask + 1) * sizeof *b->messages);
	memset(partner, 0xff, b->count * sizeof *partner);
	for (size_t i = 0; i < b->count; i++)
		if (b->p.steps[i].op == GN_STEP_SEND)
			*find_message(b, &b->p.steps[i]) = (uint32_t)i;
	for (size_t i = 0; i < b->count; i++) {
		uint32_t send;

		if (b->p.steps[i].op == GN_STEP_SEND || b->p.steps[i].op == GN_STEP_COPY)
			continue;
		send = *find_message(b, &b->p.steps[i]);
		partner[i] = send;
		if (send != NONE)
			partner[send] = (uint32_t)i;
	}
	for (size_t i = 0; i < b->count; i++)
		b->p.steps[i].partner = partner[i];
	free(partner);
	return GN_OK;
}

enum gn_status gn_sim_plan_create(const struct gn_algorithm *a, const struct gn_algo_args *args, int ranks, size_t bytes,
				  uint64_t max_bytes, struct gn_sim_plan *out, struct gn_err *err)
{
	struct builder b = {.a = a, .args = *args, .p = {.ranks = ranks}, .bytes = bytes, .max_bytes = max_bytes};
	enum gn_status status = GN_OK;

	b.p.first = calloc((size_t)ranks + 1, sizeof *b.p.first);
	if (!b.p.first)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
	for (b.args.rank = 0; b.args.rank < ranks && !status; b.args.rank++)
		status = add_rank(&b, err);
	if (!status) {
		b.p.first[ranks] = b.count;
		b.p.steps[b.count].first_dependent = (uint32_t)b.dependents;
		status = pair_messages(&b, err);
	}
	for (size_t i = 0; i < b.count && !status; i++)
		if (b.p.steps[i].op != GN_STEP_COPY && b.p.steps[i].partner == NONE)
			status = gn_err_set(err, GN_ERR_FAILED, "%s: a message of rank %d is not sent or not received", a->name,
					    b.p.steps[i].rank);
	free(b.messages);
	if (status)
		gn_sim_plan_release(&b.p);
	else
		*out = b.p;
	return status;
}

void gn_sim_plan_release(struct gn_sim_plan *p)
{
	free(p->first);
	free(p->steps);
	free(p->dependents);
	*p = (struct gn_sim_plan){0};
}
