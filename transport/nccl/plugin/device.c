#include "transport/nccl/plugin/device.h"

#include "transport/nccl/plugin/abi.h"
#include "src/base/file.h"
#include "transport/topology/devices.h"
#include "transport/ucx/ucx_common.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

/* The speed that NCCL's socket transport reports for devices of unknown speed. */
#define UNKNOWN_MBIT_PER_S 10000

/* Parses the GUID in sysfs, "0c42:a103:0065:b2f4"; 0 when there is none. */
static uint64_t read_guid(const char *rdma_device)
{
	char path[PATH_MAX], text[64];
	uint64_t guid = 0;
	ssize_t n;

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/node_guid", rdma_device);
	n = gn_file_read_start(path, text, sizeof text);
	for (ssize_t i = 0; i < n; i++) {
		const char *digit = strchr("0123456789abcdef", text[i]);

		if (digit && text[i])
			guid = guid << 4 | (uint64_t)(digit - "0123456789abcdef");
	}
	return guid;
}

/* The name of a rail is "eth0" or "mlx5_0:1". */
static void describe(struct gn_device *d, const struct gn_rail_device *rail, const struct gn_devices *devices, int index)
{
	char base[GN_RAIL_NAME_MAX], path[PATH_MAX];
	const char *colon = strchr(rail->name, ':');
	int rdma = colon && !strchr(rail->network, '/');

	snprintf(base, sizeof base, "%.*s", rdma ? (int)(colon - rail->name) : (int)strlen(rail->name), rail->name);
	snprintf(d->name, sizeof d->name, "%s", rail->name);
	snprintf(d->ucx_name, sizeof d->ucx_name, "%s", rail->name);
	snprintf(path, sizeof path, "/sys/class/%s/%s/device", rdma ? "infiniband" : "net", base);
	d->pci_path = realpath(path, NULL);
	d->port = rdma ? atoi(colon + 1) : 0;
	d->guid = rdma ? read_guid(base) : 0;
	if (!d->guid)
		d->guid = (uint64_t)index;
	for (int i = 0; i < devices->count; i++)
		if (!strcmp(devices->items[i].name, base) && devices->items[i].gbit_per_s > 0)
			d->mbit_per_s = (int)(devices->items[i].gbit_per_s * 1000);
}

static enum gn_status find(struct gn_device_table *t, struct gn_err *err)
{
	struct gn_devices devices = {0};
	struct gn_rails rails = {0};
	enum gn_status status = gn_rails_find("/sys", gn_ucx_tls_rail_kinds(getenv("UCX_TLS")), getenv("UCX_NET_DEVICES"), &rails, err);

	if (!status)
		status = gn_devices_read("/sys", &devices, err);
	for (int i = 0; i < rails.count && !status; i++) {
		t->items[i].mbit_per_s = UNKNOWN_MBIT_PER_S;
		describe(&t->items[i], &rails.items[i], &devices, i);
	}
	t->count = rails.count;
	if (!status && !t->count) {
		snprintf(t->items[0].name, sizeof t->items[0].name, "ucx");
		t->items[0].mbit_per_s = UNKNOWN_MBIT_PER_S;
		t->count = 1;
	}
	gn_devices_release(&devices);
	return status;
}

static enum gn_status query_ucx(struct gn_device_table *t, struct gn_err *err)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG | UCP_FEATURE_AM};
	ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
	ucp_context_h context;
	ucp_config_t *config;
	ucs_status_t rc = ucp_config_read(NULL, NULL, &config);

	if (rc == UCS_OK) {
		rc = ucp_init(&params, config, &context);
		ucp_config_release(config);
	}
	if (rc != UCS_OK)
		return gn_err_set(err, GN_ERR_FAILED, "UCX cannot be used here: %s", ucs_status_string(rc));
	t->pointers = GN_NCCL_PTR_HOST;
	if (ucp_context_query(context, &attr) == UCS_OK && (attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)))
		t->pointers |= GN_NCCL_PTR_CUDA;
	ucp_cleanup(context);
	return GN_OK;
}

enum gn_status gn_device_table_read(struct gn_device_table *out, struct gn_err *err)
{
	struct gn_device_table t = {0};
	enum gn_status status = query_ucx(&t, err);

	if (!status)
		status = find(&t, err);
	if (status)
		gn_device_table_release(&t);
	else
		*out = t;
	return status;
}

void gn_device_table_release(struct gn_device_table *t)
{
	for (int i = 0; i < t->count; i++)
		free(t->items[i].pci_path);
	*t = (struct gn_device_table){0};
}
