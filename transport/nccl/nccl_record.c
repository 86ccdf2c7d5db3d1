#include "transport/nccl/nccl_record.h"

#include <stdlib.h>
#include <string.h>

static enum gn_status check_status(const struct gn_nccl_record *records, const char *const *hosts, size_t count,
				   struct gn_err *err)
{
	for (size_t r = 0; r < count; r++)
		if (records[r].status)
			return gn_err_set(err, (enum gn_status)records[r].status, "NCCL: rank %zu on %s: %.199s", r, hosts[r],
					  records[r].why);
	return GN_OK;
}

static enum gn_status check_versions(const struct gn_nccl_record *records, const char *const *hosts, size_t count,
				     struct gn_err *err)
{
	for (size_t r = 1; r < count; r++)
		if (records[r].version != records[0].version)
			return gn_err_set(err, GN_ERR_MISMATCH,
					  "NCCL: rank 0 on %s has version %d, rank %zu on %s has %d: install the same everywhere, "
					  "or use --comm ucx", hosts[0], records[0].version, r, hosts[r], records[r].version);
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

static enum gn_status check_gpus(const struct gn_nccl_record *records, const char *const *hosts, size_t count,
				 struct gn_err *err)
{
	struct place *places = calloc(count, sizeof *places);
	enum gn_status status = GN_OK;

	if (!places)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu ranks", count);
	for (size_t r = 0; r < count; r++)
		places[r] = (struct place){hosts[r], records[r].gpu, (int)r};
	qsort(places, count, sizeof *places, by_place);
	for (size_t i = 1; i < count && !status; i++)
		if (!strcmp(places[i].host, places[i - 1].host) && !strcmp(places[i].gpu, places[i - 1].gpu))
			status = gn_err_set(err, GN_ERR_UNSUPPORTED,
					    "NCCL: ranks %d and %d on %s share one GPU, %.15s, which NCCL does not support: "
					    "give each rank a GPU of its own (--gpus-per-task=1), or use --comm ucx",
					    places[i - 1].rank, places[i].rank, places[i].host, places[i].gpu);
	free(places);
	return status;
}

enum gn_status gn_nccl_records_check(const struct gn_nccl_record *records, const char *const *hosts, size_t count,
				     struct gn_err *err)
{
	enum gn_status status = check_status(records, hosts, count, err);

	if (!status)
		status = check_versions(records, hosts, count, err);
	return status ? status : check_gpus(records, hosts, count, err);
}
