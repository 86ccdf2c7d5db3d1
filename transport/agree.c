#include "transport/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every rank adds its record into a zeroed array at its own place: an allreduce is then an allgather. */
enum gn_status gn_agree_gather(struct gn_comm *comm, const void *mine, size_t record_bytes, void *all,
			       struct gn_err *err)
{
	size_t ranks = (size_t)gn_comm_size(comm), words = (record_bytes + 3) / 4;
	int32_t *slots = calloc(ranks * words, sizeof *slots);
	enum gn_status status;

	if (!slots)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an agreement of %zu ranks", ranks);
	memcpy(slots + (size_t)gn_comm_rank(comm) * words, mine, record_bytes);
	status = gn_comm_allreduce(comm, slots, ranks * words, GN_I32, NULL, err);
	for (size_t r = 0; r < ranks && !status; r++)
		memcpy((char *)all + r * record_bytes, slots + r * words, record_bytes);
	free(slots);
	return status;
}

struct verdict {
	int32_t status;
	char text[512];
};

int gn_agree_is_over(struct gn_comm *comm, enum gn_status status)
{
	return status == GN_ERR_PEER_LOST || gn_world_gave_up(gn_comm_world(comm));
}

enum gn_status gn_agree_status(struct gn_comm *comm, enum gn_status mine, struct gn_err *err)
{
	int32_t ranks = gn_comm_size(comm), own = mine, first = mine ? gn_comm_rank(comm) : ranks;
	struct verdict verdict = {.status = own};
	struct gn_err none;
	enum gn_status status;

	if (mine && gn_agree_is_over(comm, mine))
		return mine;
	if (mine && err)
		snprintf(verdict.text, sizeof verdict.text, "%.*s", (int)sizeof verdict.text - 1, err->text);
	status = gn_comm_allreduce(comm, &first, 1, GN_I32, gn_reduce_min(GN_I32), err ? err : &none);
	if (status || first == ranks)
		return status;
	status = gn_comm_broadcast(comm, &verdict, sizeof verdict, first, err ? err : &none);
	if (status)
		return status;
	if (ranks == 1)
		return gn_err_set(err, (enum gn_status)verdict.status, "%s", verdict.text);
	return gn_err_set(err, (enum gn_status)verdict.status, "rank %d on %s: %s", (int)first,
			  gn_world_host_of(gn_comm_world(comm), first), verdict.text);
}

/* How many ranks hold the same value as rank r at item i. */
static int supporters(const struct gn_agree_item *all, int ranks, size_t count, int r, size_t i)
{
	int found = 0;

	for (int k = 0; k < ranks; k++)
		found += !strcmp(all[(size_t)k * count + i].digest, all[(size_t)r * count + i].digest);
	return found;
}

static enum gn_status compare(struct gn_comm *comm, const struct gn_agree_item *items,
			      const struct gn_agree_item *all, size_t count, struct gn_err *err)
{
	int ranks = gn_comm_size(comm);

	for (size_t i = 0; i < count; i++) {
		int most = 0, model = 0;

		for (int r = 0; r < ranks; r++) {
			int found = supporters(all, ranks, count, r, i);

			if (found > most) {
				most = found;
				model = r;
			}
		}
		for (int r = 0; r < ranks && most < ranks; r++) {
			const char *odd = all[(size_t)r * count + i].digest, *usual = all[(size_t)model * count + i].digest;

			if (strcmp(odd, usual))
				return gn_err_set(err, GN_ERR_MISMATCH,
						  "rank %d on %s differs from %d of %d ranks in its %s (%.16s instead "
						  "of %.16s): start the same program with the same options and data "
						  "everywhere", r, gn_world_host_of(gn_comm_world(comm), r), most, ranks,
						  items[i].what, odd, usual);
		}
	}
	return GN_OK;
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
		/* Pointers differ between processes: only the digests travel. */
		for (size_t i = 0; i < count; i++)
			memcpy(mine[i].digest, items[i].digest, sizeof mine[i].digest);
		status = gn_agree_gather(comm, mine, count * sizeof *mine, all, err);
	}
	if (!status)
		status = compare(comm, items, all, count, err);
	free(mine);
	free(all);
	return status;
}
