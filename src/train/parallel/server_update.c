#include "src/train/parallel/server_internal.h"

#include "src/base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void gn_server_fail(struct gn_server *s, enum gn_status status)
{
	if (!s->err.status)
		s->err.status = status;
}

/* --- answers --- */

static void answer_sent(void *context)
{
	((struct gn_served_worker *)context)->answers--;
}

void gn_server_answer(struct gn_served_worker *w, const void *header, size_t header_bytes, const void *data, size_t data_bytes)
{
	struct gn_server_local *local = w->local;

	w->waits = 0;
	if (local) {
		if (header_bytes)
			memcpy(local->header, header, header_bytes);
		if (data_bytes && data_bytes <= local->answer_bytes)
			memcpy(local->answer, data, data_bytes);
		local->is_done = 1;
		return;
	}
	/* one that is lost needs none */
	if (!gn_message_answer(w->message, header, header_bytes, data, data_bytes, answer_sent, w, NULL))
		w->answers++;
	if (w->message != w->server->handling)
		gn_message_done(w->message);
}

void gn_server_answer_open(struct gn_served_worker *w, const char *problem)
{
	const struct gn_server *s = w->server;
	struct gn_server_opened header = {.state = s->first.state};
	int with_params = s->is_ready && !*problem;

	memcpy(header.problem, problem, strlen(problem));
	if (with_params)
		memcpy(w->array, s->params + s->part.begin, gn_server_part_bytes(s));
	gn_server_answer(w, &header, sizeof header, with_params ? w->array : NULL, with_params ? gn_server_part_bytes(s) : 0);
}

void gn_server_answer_fetch(struct gn_served_worker *w)
{
	struct gn_server *s = w->server;
	int slots = gn_optim_slots(gn_optimizer_kind(s->optimizer));
	size_t count = s->part.count;

	if (!s->copy)
		s->copy = gn_alloc_aligned(gn_server_part_bytes(s) * (size_t)(1 + slots) + 1);
	if (!s->copy) {
		gn_server_fail(s, gn_err_set(&s->err, GN_ERR_NO_MEMORY, "no memory for a copy of %zu parameters and their state", count));
		return;
	}
	memcpy(s->copy, s->params + s->part.begin, gn_server_part_bytes(s));
	for (int k = 0; k < slots; k++)
		memcpy(s->copy + count * (size_t)(1 + k), gn_optimizer_slot(s->optimizer, k)->host, gn_server_part_bytes(s));
	w->version = s->version;
	s->fetches++;
	gn_server_answer(w, &s->state, sizeof s->state, s->copy, gn_server_part_bytes(s) * (size_t)(1 + slots));
}

static void answer_commit(struct gn_served_worker *w, uint64_t slowest)
{
	struct gn_server *s = w->server;

	memcpy(w->array, s->params + s->part.begin, gn_server_part_bytes(s));
	w->version = s->version;
	w->pushed = 0;
	s->state.norm2 = w->norm2;
	if (w->clock > slowest && w->clock - slowest > s->state.ahead_most)
		s->state.ahead_most = (uint32_t)(w->clock - slowest);
	gn_server_answer(w, &s->state, sizeof s->state, w->array, gn_server_part_bytes(s));
}

/* --- who may go on --- */

static int is_training(const struct gn_served_worker *w)
{
	return !w->is_lost && !w->has_left && !(w->waits && w->waits_for == GN_SERVER_FETCH);
}

static int others_train(const struct gn_served_worker *one)
{
	const struct gn_server *s = one->server;
	int count = 0;

	for (int r = 0; r < s->workers; r++)
		count += &s->list[r] != one && is_training(&s->list[r]);
	return count;
}

/* Whether the run is over: the first worker has saved what it saves. */
static int all_have_left(const struct gn_server *s)
{
	for (int r = 0; r < s->workers; r++)
		if (!s->list[r].is_lost && !s->list[r].has_left)
			return 0;
	return 1;
}

/* Clocks of the slowest worker that trains. */
static uint64_t slowest_clock(const struct gn_server *s)
{
	uint64_t slowest = UINT64_MAX;

	for (int r = 0; r < s->workers; r++)
		if (is_training(&s->list[r]) && s->list[r].clock < slowest)
			slowest = s->list[r].clock;
	return slowest;
}

/* Why a worker cannot train with the first one; "": it can. */
static const char *difference(const struct gn_server *s, const struct gn_server_open *open)
{
	if (memcmp(open->data, s->first.data, sizeof open->data))
		return "its dataset is not that of worker 0";
	return memcmp(open->layouts, s->first.layouts, sizeof open->layouts) ? "its processor wants weights in other layouts than worker 0's" : "";
}

void gn_server_release(struct gn_server *s)
{
	uint64_t slowest = slowest_clock(s);

	for (int r = 0; r < s->workers; r++) {
		struct gn_served_worker *w = &s->list[r];

		if (!w->waits || w->is_lost)
			continue;
		if (w->waits_for == GN_SERVER_OPEN && s->is_ready)
			gn_server_answer_open(w, difference(s, &w->open));
		else if (w->waits_for == GN_SERVER_FETCH && !others_train(w))
			gn_server_answer_fetch(w);
		else if (w->waits_for == GN_SERVER_LEAVE && all_have_left(s))
			gn_server_answer(w, NULL, 0, NULL, 0);
		else if (w->waits_for == GN_SERVER_COMMIT && s->options.spec.mode != GN_UPDATE_SYNC &&
			 (s->state.stop || gn_server_may_go(&s->options.spec, w->clock, slowest)))
			answer_commit(w, slowest);
	}
}

/* --- updates --- */

/* The gradients are where the optimizer reads them. A rate for the mean over workers is divided when each worker's count alone. */
static void apply(struct gn_server *s, const struct gn_server_commit *c, double *norm2)
{
	double share = s->options.spec.mode == GN_UPDATE_SYNC ? 1 : 1.0 / s->workers;
	const struct gn_optim_update u = {.lr = c->lr * share, .grad_scale = c->grad_scale, .step = c->updates};
	struct gn_update_result result;
	enum gn_status status = gn_optimizer_step(s->optimizer, &u, &result, &s->err);

	if (status)
		gn_server_fail(s, status);
	*norm2 = status ? 0 : result.norm * result.norm;
	s->version++;
}

static void note_staleness(struct gn_server *s, uint64_t staleness)
{
	s->state.pushes++;
	s->state.staleness_sum += (double)staleness;
	s->state.histogram[staleness > GN_STALENESS_MAX ? GN_STALENESS_MAX + 1 : staleness]++;
	if (staleness > s->state.staleness_most)
		s->state.staleness_most = (uint32_t)staleness;
}

void gn_server_apply_one(struct gn_served_worker *w)
{
	struct gn_server *s = w->server;

	note_staleness(s, s->version - w->version);
	w->norm2 = 0;
	if (w->commit.skip)
		return;
	memcpy(s->grads + s->part.begin, w->array, gn_server_part_bytes(s));
	apply(s, &w->commit, &w->norm2);
}

void gn_server_apply_all(struct gn_server *s)
{
	float *sum = s->grads + s->part.begin;
	enum gn_status status = GN_OK;
	double norm2 = 0;

	for (int r = 0; r < s->workers; r++)
		if (!s->list[r].waits || s->list[r].waits_for != GN_SERVER_COMMIT)
			return;
	if (!s->list[0].commit.skip) {
		memcpy(sum, s->list[0].array, gn_server_part_bytes(s));
		for (int r = 1; r < s->workers && !status; r++)
			status = gn_compute_add(s->device.compute, s->list[r].array, sum, s->part.count, &s->err);
		if (status)
			gn_server_fail(s, status);
		apply(s, &s->list[0].commit, &norm2);
	}
	for (int r = 0; r < s->workers; r++) {
		s->list[r].norm2 = norm2;
		answer_commit(&s->list[r], s->list[r].clock);
	}
}

enum { LINE = 16, SERVERS_MAX = 65536 };

/* All of text is a number of least .. most. */
static int parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
	char *end;
	unsigned long long value;

	if (*text < '0' || *text > '9')
		return 0;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || value < least || value > most)
		return 0;
	*out = value;
	return 1;
}

static enum gn_status parse_update(const char *text, struct gn_server_spec *s, struct gn_err *err)
{
	static const char *const names[] = {"allreduce", "sync", "async"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(text, names[i])) {
			s->mode = (enum gn_update_mode)i;
			return GN_OK;
		}
	s->mode = GN_UPDATE_SSP;
	if (!strncmp(text, "ssp:", 4) && parse_number(text + 4, 0, 1000000, &s->bound))
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "--update '%s' is none of allreduce, sync, async, ssp:N (a worker is at most N clocks ahead, such "
			  "as ssp:4)", text);
}

static enum gn_status parse_servers(const char *text, struct gn_server_spec *s, struct gn_err *err)
{
	uint64_t count = 0;

	s->is_shared = !strcmp(text, "shared");
	if (s->is_shared || !strcmp(text, "none"))
		return GN_OK;
	if (!parse_number(text, 1, SERVERS_MAX, &count))
		return gn_err_set(err, GN_ERR_USAGE, "--servers '%s' is none of none, shared, or the number of ranks that serve, such as 1", text);
	s->servers = (int)count;
	return GN_OK;
}

enum gn_status gn_server_parse(const char *update, const char *servers, struct gn_server_spec *out, struct gn_err *err)
{
	struct gn_server_spec s = {.mode = GN_UPDATE_ALLREDUCE};
	enum gn_status status = parse_update(update ? update : "allreduce", &s, err);

	if (!status)
		status = parse_servers(servers ? servers : "none", &s, err);
	if (!status && s.mode != GN_UPDATE_ALLREDUCE && !s.servers && !s.is_shared)
		status = gn_err_set(err, GN_ERR_USAGE, "--update %s needs ranks that serve parameters: give --servers N or --servers shared", update);
	if (!status && s.mode == GN_UPDATE_ALLREDUCE && (s.servers || s.is_shared))
		status = gn_err_set(err, GN_ERR_USAGE, "--servers %s serves parameters to nobody: give --update sync, async or ssp:N, too", servers);
	if (!status)
		*out = s;
	return status;
}

int gn_server_workers(const struct gn_server_spec *s, int ranks)
{
	return ranks - s->servers;
}

int gn_server_count(const struct gn_server_spec *s, int ranks)
{
	return s->is_shared ? ranks : s->servers;
}

int gn_server_first(const struct gn_server_spec *s, int ranks)
{
	return s->is_shared ? 0 : ranks - s->servers;
}

struct gn_server_part gn_server_part(size_t elements, int servers, int index)
{
	size_t lines = (elements + LINE - 1) / LINE, count = (size_t)servers, i = (size_t)index;
	size_t begin = (lines / count * i + (i < lines % count ? i : lines % count)) * LINE;
	size_t end = begin + (lines / count + (i < lines % count)) * LINE;

	return (struct gn_server_part){begin < elements ? begin : elements, end < elements ? end : elements};
}

int gn_server_may_go(const struct gn_server_spec *s, uint64_t clock, uint64_t slowest)
{
	return s->mode == GN_UPDATE_ASYNC || clock <= slowest + s->bound;
}
