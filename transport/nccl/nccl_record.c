#include "transport/nccl/nccl_record.h"

#include <stdlib.h>
#include <string.h>

static enum gn_status find_unable(const struct gn_nccl_record *cards, const char *const *hosts, size_t count,
				  struct gn_err *err)
{
	for (size_t r = 0; r < count; r++)
		if (cards[r].status)
			return gn_err_set(err, (enum gn_status)cards[r].status, "NCCL: rank %zu on %s: %.199s", r, hosts[r],
					  cards[r].why);
	return GN_OK;
}

static enum gn_status compare_versions(const struct gn_nccl_record *cards, const char *const *hosts, size_t count,
				       struct gn_err *err)
{
	for (size_t r = 1; r < count; r++)
		if (cards[r].version != cards[0].version)
			return gn_err_set(err, GN_ERR_MISMATCH,
					  "NCCL: rank 0 on %s has version %d, rank %zu on %s has %d: install the same everywhere, "
					  "or use --comm ucx", hosts[0], cards[0].version, r, hosts[r], cards[r].version);
	return GN_OK;
}

struct place {
	const char *host, *gpu;
	int rank;
};

static int by_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;
	int order = strcmp(x->host, y->host);

	if (!order)
		order = strcmp(x->gpu, y->gpu);
	return order ? order : x->rank - y->rank;
}

static enum gn_status find_shared_gpu(const struct gn_nccl_record *cards, const char *const *hosts, size_t count,
				      struct gn_err *err)
{
	struct place *places = calloc(count, sizeof *places);
	enum gn_status status = GN_OK;

	if (!places)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu ranks", count);
	for (size_t r = 0; r < count; r++)
		places[r] = (struct place){hosts[r], cards[r].gpu, (int)r};
	qsort(places, count, sizeof *places, by_place);
	for (size_t i = 1; i < count && !status; i++)
		if (!strcmp(places[i].host, places[i - 1].host) && !strcmp(places[i].gpu, places[i - 1].gpu))
			status = gn_err_set(err, GN_ERR_UNSUPPORTED,
					    "NCCL: ranks %d and %d on %s have one GPU between them, %.15s, which NCCL refuses: "
					    "give each rank a GPU of its own (--gpus-per-task=1), or use --comm ucx", places[i - 1].rank,
					    places[i].rank, places[i].host, places[i].gpu);
	free(places);
	return status;
}

enum gn_status gn_nccl_records_judge(const struct gn_nccl_record *cards, const char *const *hosts, size_t count,
				   struct gn_err *err)
{
	enum gn_status status = find_unable(cards, hosts, count, err);

	if (!status)
		status = compare_versions(cards, hosts, count, err);
	return status ? status : find_shared_gpu(cards, hosts, count, err);
}
