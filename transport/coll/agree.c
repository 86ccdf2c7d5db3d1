#include "transport/coll/agree.h"

#include "src/base/clock.h"
#include "src/base/option.h"
#include "src/base/version.h"
#include "transport/coll/comm_internal.h"
#include "transport/health/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Characters of a digest in a message. */
#define SHOWN 16

/* Each rank writes its record to its place in a zeroed array; an allreduce of the arrays is then an allgather. */
enum gn_status gn_agree_gather(struct gn_comm *comm, const void *mine, size_t record_bytes, void *all,
			       struct gn_err *err)
{
	size_t ranks = (size_t)gn_comm_size(comm), words = (record_bytes + 3) / 4;
	int32_t *slots = calloc(ranks * words, sizeof *slots);
	enum gn_status status;

	if (!slots)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to gather records of %zu ranks", ranks);
	memcpy(slots + (size_t)gn_comm_rank(comm) * words, mine, record_bytes);
	status = gn_comm_allreduce(comm, slots, ranks * words, GN_I32, NULL, err);
	for (size_t r = 0; r < ranks && !status; r++)
		memcpy((char *)all + r * record_bytes, slots + r * words, record_bytes);
	free(slots);
	return status;
}

struct failure {
	int32_t status;
	char text[512];
};

int gn_agree_is_over(struct gn_comm *comm, enum gn_status status)
{
	return status == GN_ERR_PEER_LOST || gn_world_aborted(gn_comm_world(comm));
}

enum gn_status gn_agree_explain(struct gn_comm *comm, uint64_t limit_ns, int library, struct gn_err *why)
{
	struct gn_world *world = gn_comm_world(comm);
	uint64_t started = gn_clock_ns();
	struct gn_err reason;
	enum gn_status status = GN_OK;

	while (!status && gn_clock_ns() < started + limit_ns) {
		gn_recorder_waiting(gn_world_recorder(world), library);
		status = gn_comm_check(comm, started, &reason);
		if (!status)
			gn_clock_sleep_ns(5000000);
	}
	if (status)
		*why = reason;
	else
		gn_world_abort(world, why->status, why->text);
	return why->status;
}

static const char *host_of(const struct gn_comm *comm, int rank)
{
	return gn_world_host_of(gn_comm_world(comm), gn_comm_world_rank(comm, rank));
}

enum gn_status gn_agree_status(struct gn_comm *comm, enum gn_status mine, struct gn_err *err)
{
	int32_t ranks = gn_comm_size(comm), own = mine, first = mine ? gn_comm_rank(comm) : ranks;
	struct failure failure = {.status = own};
	struct gn_err none;
	enum gn_status status;

	if (mine && gn_agree_is_over(comm, mine))
		return mine;
	if (mine && err)
		snprintf(failure.text, sizeof failure.text, "%.*s", (int)sizeof failure.text - 1, err->text);
	status = gn_comm_allreduce(comm, &first, 1, GN_I32, gn_reduce_min(GN_I32), err ? err : &none);
	if (!status && first == ranks)
		return GN_OK;
	if (!status)
		status = gn_comm_broadcast(comm, &failure, sizeof failure, first, err ? err : &none);
	/* where the others have failed alike and have left before this rank knew: the cause, not that they are gone */
	if (status == GN_ERR_PEER_LOST && mine)
		return gn_err_set(err, mine, "%s", failure.text);
	if (status)
		return status;
	if (ranks == 1)
		return gn_err_set(err, (enum gn_status)failure.status, "%s", failure.text);
	gn_err_set(err, (enum gn_status)failure.status, "rank %d on %s: %s", (int)first, host_of(comm, first), failure.text);
	if (err)
		err->told = gn_comm_rank(comm) > 0;
	return (enum gn_status)failure.status;
}

struct holder {
	const char *digest;
	int rank;
};

static int by_digest(const void *a, const void *b)
{
	const struct holder *x = a, *y = b;
	int order = strcmp(x->digest, y->digest);

	return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* The longest run of equal digests, which are sorted by digest, then rank; of equally long runs that with the lowest rank. */
static void find_usual(const struct holder *sorted, int ranks, struct gn_agree_odd *out)
{
	for (int first = 0, end; first < ranks; first = end) {
		for (end = first + 1; end < ranks && !strcmp(sorted[end].digest, sorted[first].digest);)
			end++;
		if (end - first > out->same || (end - first == out->same && sorted[first].rank < out->usual)) {
			out->same = end - first;
			out->usual = sorted[first].rank;
		}
	}
}

enum gn_status gn_agree_find_odd(const struct gn_agree_item *all, size_t stride, int ranks, struct gn_agree_odd *out,
				 struct gn_err *err)
{
	struct holder *sorted = calloc((size_t)ranks, sizeof *sorted);
	struct gn_agree_odd odd = {.odd = -1};

	if (!sorted)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to compare %d ranks", ranks);
	for (int r = 0; r < ranks; r++)
		sorted[r] = (struct holder){all[(size_t)r * stride].digest, r};
	qsort(sorted, (size_t)ranks, sizeof *sorted, by_digest);
	find_usual(sorted, ranks, &odd);
	free(sorted);
	for (int r = 0; r < ranks && odd.odd < 0; r++)
		if (strcmp(all[(size_t)r * stride].digest, all[(size_t)odd.usual * stride].digest))
			odd.odd = r;
	*out = odd;
	return GN_OK;
}

struct gn_agree_item gn_agree_program(void)
{
	struct gn_agree_item item = {.what = "program"};

	snprintf(item.digest, sizeof item.digest, "%s, commit %.20s, sources %.16s", gn_version(), gn_version_commit(), gn_version_source_digest());
	return item;
}

enum gn_status gn_agree_options(struct gn_comm *comm, const char *options, struct gn_err *err)
{
	uint64_t len = strlen(options) + 1;
	char *first = NULL;
	enum gn_status status = gn_comm_broadcast(comm, &len, sizeof len, 0, err);

	if (!status) {
		first = calloc(1, len);
		status = gn_agree_status(comm, first ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to compare options"), err);
	}
	if (!status && !gn_comm_rank(comm))
		memcpy(first, options, len);
	if (!status)
		status = gn_comm_broadcast(comm, first, len, 0, err);
	if (!status)
		status = gn_agree_status(comm, gn_options_agree(first, options, err), err);
	free(first);
	return status;
}

static enum gn_status compare(struct gn_comm *comm, const struct gn_agree_item *items,
			      const struct gn_agree_item *all, size_t count, struct gn_err *err)
{
	int ranks = gn_comm_size(comm);
	enum gn_status status = GN_OK;
	struct gn_agree_odd o;

	for (size_t i = 0; i < count && !status; i++) {
		int shown = strcmp(items[i].what, "program") ? SHOWN : (int)sizeof items->digest;

		status = gn_agree_find_odd(all + i, count, ranks, &o, err);
		if (!status && o.odd >= 0)
			status = gn_err_set(err, GN_ERR_MISMATCH,
					    "rank %d on %s differs from %d of %d ranks in its %s (%.*s instead of %.*s, which rank %d on %s has): "
					    "start the same program with the same options and data everywhere", o.odd, host_of(comm, o.odd),
					    o.same, ranks, items[i].what, shown, all[(size_t)o.odd * count + i].digest, shown,
					    all[(size_t)o.usual * count + i].digest, o.usual, host_of(comm, o.usual));
	}
	return status;
}

enum gn_status gn_agree_digests(struct gn_comm *comm, const struct gn_agree_item *items, size_t count,
				struct gn_err *err)
{
	size_t ranks = (size_t)gn_comm_size(comm);
	struct gn_agree_item *mine = calloc(count + 1, sizeof *mine), *all = calloc(ranks * count + 1, sizeof *all);
	enum gn_status status = GN_OK;

	if (!mine || !all) {
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to compare %zu ranks", ranks);
	} else {
		/* only digests are exchanged: `what` is a pointer */
		for (size_t i = 0; i < count; i++)
			memcpy(mine[i].digest, items[i].digest, sizeof mine[i].digest);
		status = gn_agree_gather(comm, mine, count * sizeof *mine, all, err);
		for (size_t k = 0; k < ranks * count; k++)
			all[k].digest[sizeof all->digest - 1] = 0;
	}
	if (!status)
		status = compare(comm, items, all, count, err);
	if (status == GN_ERR_MISMATCH && err)
		err->told = gn_comm_rank(comm) > 0;
	free(mine);
	free(all);
	return status;
}
