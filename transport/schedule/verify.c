#include "transport/schedule/verify.h"

#include "src/base/alloc.h"
#include "transport/schedule/verify_internal.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* --- each step --- */

static const char *step_fault(const struct gn_verify_case *c, const struct gn_verify_rank *r, int rank, size_t index)
{
	const struct gn_step *s = &r->steps[index];

	if (s->op > GN_STEP_RECV_REDUCE)
		return "has an unknown operation";
	if (s->op != GN_STEP_COPY && (s->peer < 0 || s->peer >= c->size || s->peer == rank))
		return "has an invalid peer";
	if (!s->chunk_count || s->chunk >= c->chunks || s->chunk_count > c->chunks - s->chunk)
		return "has invalid chunks";
	if (s->dependency_count > r->dependency_count || s->first_dependency > r->dependency_count - s->dependency_count)
		return "has dependencies outside of the list";
	for (uint32_t d = 0; d < s->dependency_count; d++)
		if (r->dependencies[s->first_dependency + d] >= index)
			return "depends on a later step";
	return NULL;
}

static enum gn_status check_steps(const struct gn_verify_job *j, struct gn_err *err)
{
	for (int r = 0; r < j->c->size; r++)
		for (size_t i = 0; i < j->ranks[r].count; i++) {
			const char *fault = step_fault(j->c, &j->ranks[r], r, i);

			if (fault)
				return gn_err_set(err, GN_ERR_FAILED, "rank %d: step %zu %s", r, i, fault);
		}
	return GN_OK;
}

/* --- messages --- */

struct ends {
	uint32_t send, recv; /* global steps plus one */
	int from, to;
	uint32_t message;
};

static struct ends *find_message(struct ends *table, size_t mask, int from, int to, uint32_t message)
{
	uint64_t hash = ((uint64_t)(uint32_t)from << 40 ^ (uint64_t)(uint32_t)to << 20 ^ message) * 0x9e3779b97f4a7c15u;
	size_t at = (size_t)((hash ^ hash >> 32) * 0x9e3779b97f4a7c15u >> 20) & mask;

	while ((table[at].send || table[at].recv) &&
	       (table[at].from != from || table[at].to != to || table[at].message != message))
		at = (at + 1) & mask;
	table[at].from = from;
	table[at].to = to;
	table[at].message = message;
	return &table[at];
}

static enum gn_status add_end(struct ends *table, size_t mask, int rank, const struct gn_step *s, size_t global,
			      struct gn_err *err)
{
	int sends = s->op == GN_STEP_SEND, from = sends ? rank : s->peer, to = sends ? s->peer : rank;
	struct ends *e = find_message(table, mask, from, to, s->message);
	uint32_t *end = sends ? &e->send : &e->recv;

	if (*end)
		return gn_err_set(err, GN_ERR_FAILED, "message %u from rank %d to %d is %s twice", s->message, from, to,
				  sends ? "sent" : "received");
	*end = (uint32_t)global + 1;
	return GN_OK;
}

static enum gn_status pair_message(const struct gn_verify_job *j, const struct ends *e, struct gn_err *err)
{
	const struct gn_step *send, *recv;

	if (!e->send || !e->recv)
		return gn_err_set(err, GN_ERR_FAILED, "message %u from rank %d to %d is never %s", e->message, e->from, e->to,
				  e->send ? "received" : "sent");
	send = gn_verify_step(j, e->send - 1);
	recv = gn_verify_step(j, e->recv - 1);
	/* all-to-all moves blocks to other places; all blocks have one size */
	if (send->chunk_count != recv->chunk_count ||
	    (send->chunk != recv->chunk && j->c->what != GN_COLLECTIVE_ALL_TO_ALL))
		return gn_err_set(err, GN_ERR_FAILED,
				  "message %u from rank %d to %d is sent as chunks %u+%u and received as %u+%u", e->message,
				  e->from, e->to, send->chunk, send->chunk_count, recv->chunk, recv->chunk_count);
	j->partner[e->send - 1] = e->recv - 1;
	j->partner[e->recv - 1] = e->send - 1;
	return GN_OK;
}

static enum gn_status pair_messages(const struct gn_verify_job *j, struct gn_err *err)
{
	size_t total = j->first[j->c->size], table_size = 16;
	enum gn_status status = GN_OK;
	struct ends *table;

	while (table_size < 2 * total)
		table_size *= 2;
	table = calloc(table_size, sizeof *table);
	if (!table)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to match %zu steps", total);
	for (size_t g = 0; g < total && !status; g++)
		if (gn_verify_step(j, g)->op != GN_STEP_COPY)
			status = add_end(table, table_size - 1, j->rank_of[g], gn_verify_step(j, g), g, err);
	for (size_t at = 0; at < table_size && !status; at++)
		if (table[at].send || table[at].recv)
			status = pair_message(j, &table[at], err);
	free(table);
	return status;
}

/* --- races --- */

struct reader {
	uint32_t step, next;
};

struct races {
	const struct gn_verify_rank *r;
	int rank;
	uint32_t *writer, *readers; /* per chunk; readers: head in pool */
	struct reader *pool;
	size_t pool_count, pool_room;
	uint32_t *seen, *stack; /* [step]; seen: the last search that visited it */
};

/* Whether step `later` depends on step `earlier`, directly or through others. Dependencies are on earlier steps only. */
static int depends_on(struct races *x, uint32_t later, uint32_t earlier)
{
	size_t top = 0;

	x->stack[top++] = later;
	while (top) {
		const struct gn_step *s = &x->r->steps[x->stack[--top]];

		for (uint32_t d = 0; d < s->dependency_count; d++) {
			uint32_t on = x->r->dependencies[s->first_dependency + d];

			if (on == earlier)
				return 1;
			if (on > earlier && x->seen[on] != later + 1) {
				x->seen[on] = later + 1;
				x->stack[top++] = on;
			}
		}
	}
	return 0;
}

static enum gn_status check_order(struct races *x, uint32_t later, uint32_t earlier, uint32_t chunk, struct gn_err *err)
{
	const struct gn_step *s = &x->r->steps[later];

	for (uint32_t d = 0; d < s->dependency_count; d++)
		if (x->r->dependencies[s->first_dependency + d] == earlier)
			return GN_OK;
	/* an earlier search from the same step may have stopped at another goal */
	memset(x->seen, 0, sizeof *x->seen * (later + (size_t)1));
	if (depends_on(x, later, earlier))
		return GN_OK;
	return gn_err_set(err, GN_ERR_FAILED, "rank %d: steps %u and %u race for chunk %u", x->rank, earlier, later, chunk);
}

static enum gn_status add_reader(struct races *x, uint32_t chunk, uint32_t step, struct gn_err *err)
{
	if (gn_array_grow(&x->pool, &x->pool_room, x->pool_count, sizeof *x->pool))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to look for races");
	x->pool[x->pool_count] = (struct reader){step, x->readers[chunk]};
	x->readers[chunk] = (uint32_t)x->pool_count++;
	return GN_OK;
}

static enum gn_status check_chunk(struct races *x, uint32_t step, uint32_t chunk, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (x->writer[chunk] != NONE)
		status = check_order(x, step, x->writer[chunk], chunk, err);
	if (status || x->r->steps[step].op == GN_STEP_SEND)
		return status ? status : add_reader(x, chunk, step, err);
	for (uint32_t k = x->readers[chunk]; k != NONE && !status; k = x->pool[k].next)
		status = check_order(x, step, x->pool[k].step, chunk, err);
	x->readers[chunk] = NONE;
	x->writer[chunk] = step;
	return status;
}

static enum gn_status check_rank(struct races *x, uint32_t chunks, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	x->seen = calloc(x->r->count + 1, sizeof *x->seen);
	x->stack = calloc(x->r->count + 1, sizeof *x->stack);
	x->pool_count = 0;
	memset(x->writer, 0xff, sizeof *x->writer * chunks);
	memset(x->readers, 0xff, sizeof *x->readers * chunks);
	if (!x->seen || !x->stack)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to look for races");
	for (uint32_t i = 0; i < x->r->count && !status; i++) {
		const struct gn_step *s = &x->r->steps[i];

		for (uint32_t k = 0; k < s->chunk_count && !s->from_input && !status; k++)
			status = check_chunk(x, i, s->chunk + k, err);
	}
	free(x->seen);
	free(x->stack);
	return status;
}

static enum gn_status check_races(const struct gn_verify_job *j, struct gn_err *err)
{
	struct races x = {0};
	enum gn_status status = GN_OK;

	x.writer = malloc(sizeof *x.writer * (j->c->chunks + (size_t)1));
	x.readers = malloc(sizeof *x.readers * (j->c->chunks + (size_t)1));
	if (!x.writer || !x.readers)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to look for races");
	for (x.rank = 0; x.rank < j->c->size && !status; x.rank++) {
		x.r = &j->ranks[x.rank];
		status = check_rank(&x, j->c->chunks, err);
	}
	free(x.writer);
	free(x.readers);
	free(x.pool);
	return status;
}

/* --- all checks --- */

static enum gn_status check_all(struct gn_verify_job *j, struct gn_err *err)
{
	static const uint32_t slots[] = {1, GN_SLOTS_MAX};
	enum gn_status status = check_steps(j, err);

	if (!status)
		status = pair_messages(j, err);
	if (!status)
		status = check_races(j, err);
	for (size_t i = 0; i < sizeof slots / sizeof *slots && !status; i++)
		status = gn_verify_run(j, slots[i], err);
	return status;
}

enum gn_status gn_schedule_verify(const struct gn_verify_case *c, const struct gn_verify_rank *ranks, struct gn_err *err)
{
	struct gn_verify_job j = {.c = c, .ranks = ranks};
	enum gn_status status = GN_OK;
	size_t total = 0;

	j.first = calloc((size_t)c->size + 1, sizeof *j.first);
	for (int r = 0; r < c->size; r++)
		total += ranks[r].count;
	if (total >= NONE)
		status = gn_err_set(err, GN_ERR_UNSUPPORTED, "%zu steps are too many to verify", total);
	j.partner = calloc(total + 1, sizeof *j.partner);
	j.rank_of = calloc(total + 1, sizeof *j.rank_of);
	if (!status && (!j.first || !j.partner || !j.rank_of))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to verify %zu steps", total);
	for (int r = 0; r < c->size && !status; r++) {
		j.first[r + 1] = j.first[r] + ranks[r].count;
		for (size_t g = j.first[r]; g < j.first[r + 1]; g++)
			j.rank_of[g] = r;
	}
	if (!status)
		status = check_all(&j, err);
	free(j.first);
	free(j.partner);
	free(j.rank_of);
	return status;
}

static enum gn_status write_schedules(const struct gn_algorithm *a, const struct gn_algo_args *args,
				      struct gn_schedule **schedules, struct gn_verify_rank *ranks, struct gn_err *err)
{
	struct gn_algo_args one = *args;
	enum gn_status status = GN_OK;

	for (one.rank = 0; one.rank < args->size && !status; one.rank++) {
		struct gn_verify_rank *r = &ranks[one.rank];

		status = gn_algorithm_schedule(a, &one, &schedules[one.rank], err);
		if (!status) {
			r->steps = gn_schedule_steps(schedules[one.rank], &r->count);
			r->dependencies = gn_schedule_dependencies(schedules[one.rank], &r->dependency_count);
		}
	}
	return status;
}

enum gn_status gn_verify_algorithm(const struct gn_algorithm *a, const struct gn_algo_args *args, struct gn_err *err)
{
	struct gn_verify_case c = {a->what, args->size, args->root, a->chunks(args), args->with_copy};
	struct gn_schedule **schedules = calloc((size_t)args->size, sizeof(struct gn_schedule *));
	struct gn_verify_rank *ranks = calloc((size_t)args->size, sizeof *ranks);
	enum gn_status status;

	if (schedules && ranks)
		status = write_schedules(a, args, schedules, ranks, err);
	else
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the schedules of %d ranks", args->size);
	if (!status)
		status = gn_schedule_verify(&c, ranks, err);
	if (status)
		gn_err_prefix(err, "%s, %s, %d ranks, %u chunks", gn_collective_name(a->what), a->name, args->size, c.chunks);
	for (int r = 0; schedules && r < args->size; r++)
		gn_schedule_destroy(schedules[r]);
	free(schedules);
	free(ranks);
	return status;
}
