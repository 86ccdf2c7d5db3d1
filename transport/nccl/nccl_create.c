#include "transport/coll/agree.h"
#include "transport/nccl/nccl_record.h"
#include "transport/nccl/nccl_internal.h"

#include <stdlib.h>
#include <string.h>

static enum gn_status create_stream(struct gn_nccl_backend *c, struct gn_err *err)
{
	int least = 0, greatest = 0;
	enum gn_status status = gn_nccl_enter(c, err);

	if (!status)
		status = gn_gpu_call(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange",
				     c->ordinal, err);
	/* the highest priority: ahead of the kernels of backward, which keep the GPU busy */
	return status ? status
		      : gn_gpu_call(cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, greatest),
				    "cudaStreamCreateWithPriority", c->ordinal, err);
}

static void fill_record(struct gn_nccl_backend *c, const struct gn_comm *comm, struct gn_nccl_record *record)
{
	ncclUniqueId id;
	struct gn_err why;
	enum gn_status status = gn_nccl_api_load(&c->api, &why);

	_Static_assert(sizeof id == GN_NCCL_ID_BYTES, "NCCL's identifiers have another size");
	if (!status)
		status = create_stream(c, &why);
	if (!status)
		status = gn_gpu_call(cudaDeviceGetPCIBusId(record->gpu, sizeof record->gpu, c->ordinal), "cudaDeviceGetPCIBusId",
				     c->ordinal, &why);
	if (!status && gn_comm_rank(comm) == 0) {
		ncclResult_t rc = c->api.get_unique_id(&id);

		if (rc == ncclSuccess)
			memcpy(record->id, &id, sizeof record->id);
		else
			status = gn_nccl_fail(c, rc, "ncclGetUniqueId", &why);
	}
	record->version = c->api.version;
	record->status = status;
	if (status)
		memcpy(record->why, why.text, strnlen(why.text, sizeof record->why - 1));
}

static enum gn_status exchange_records(struct gn_nccl_backend *c, struct gn_comm *comm, ncclUniqueId *id, struct gn_err *err)
{
	size_t size = (size_t)gn_comm_size(comm);
	struct gn_nccl_record mine = {0}, *records = calloc(size, sizeof *records);
	const char **hosts = calloc(size, sizeof *hosts);
	enum gn_status status = GN_OK;

	fill_record(c, comm, &mine);
	if (!records || !hosts)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu ranks", size);
	if (!status)
		status = gn_agree_gather(comm, &mine, sizeof mine, records, err);
	for (size_t r = 0; !status && r < size; r++) {
		hosts[r] = gn_world_host_of(c->world, gn_comm_world_rank(comm, (int)r));
		records[r].why[sizeof records[r].why - 1] = 0;
		records[r].gpu[sizeof records[r].gpu - 1] = 0;
	}
	if (!status)
		status = gn_nccl_records_check(records, hosts, size, err);
	if (!status)
		memcpy(id, records[0].id, sizeof *id);
	free(records);
	free(hosts);
	return status;
}

static enum gn_status join(struct gn_nccl_backend *c, const struct gn_comm *comm, const ncclUniqueId *id, struct gn_err *err)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclResult_t rc;

	config.blocking = 0;
	rc = c->api.init_rank_config(&c->native, gn_comm_size(comm), *id, gn_comm_rank(comm), &config);
	return gn_nccl_wait(c, rc, "ncclCommInitRankConfig", GN_NCCL_START_NS, err);
}

enum gn_status gn_nccl_create(struct gn_comm *comm, struct gn_device *device, struct gn_coll_backend **out, struct gn_err *err)
{
	struct gn_nccl_backend *c = calloc(1, sizeof *c);
	ncclUniqueId id;
	struct gn_err why;
	enum gn_status status;

	if (!c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for NCCL");
	c->base.ops = &gn_nccl_ops;
	c->world = gn_comm_world(comm);
	c->ordinal = gn_device_ordinal(device);
	status = exchange_records(c, comm, &id, &why);
	if (!status)
		status = gn_nccl_end_operation(c, join(c, comm, &id, &c->why), &why);
	if (status && c->status)
		status = gn_agree_explain(comm, gn_world_failure_reason_ns(c->world), 1, &why);
	if (status) {
		if (err)
			*err = why;
		c->base.ops->destroy(&c->base);
		return status;
	}
	*out = &c->base;
	return GN_OK;
}
