/* The tables that NCCL looks up, oldest first. Each version differs from the next in a few arguments or in the layout of the
 * properties; the rest is in api.c. */
#include "transport/nccl/plugin/api.h"

#define EXPORT __attribute__((visibility("default")))

/* --- properties in four layouts --- */

/* What all layouts have, and then what those since version 9 have, or the later ones, given as statements. */
#define PROPERTIES(VERSION, MORE)                                                                                                  \
	static enum gn_nccl_result properties_v##VERSION(int device, struct gn_nccl_properties_v##VERSION *out)                    \
	{                                                                                                                          \
		const struct gn_device *d = gn_api_device(device);                                                                 \
                                                                                                                                   \
		if (!d || !out)                                                                                                    \
			return GN_NCCL_INVALID_ARGUMENT;                                                                           \
		*out = (struct gn_nccl_properties_v##VERSION){.name = (char *)(uintptr_t)d->name, .pci_path = d->pci_path,         \
							       .guid = d->guid, .pointers = gn_api_pointers(),                     \
							       .speed = d->mbit_per_s, .port = d->port,                            \
							       .max_comms = GN_API_COMMS_MAX,                                      \
							       .max_receives = GN_API_RECEIVES_MAX,                                \
							       .device_type = GN_NCCL_DEVICE_HOST};                                \
		MORE;                                                                                                              \
		return GN_NCCL_SUCCESS;                                                                                            \
	}

#define SINCE_V9                                                                                                                   \
	out->made_of.count = 1;                                                                                                    \
	out->made_of.devices[0] = device;                                                                                          \
	out->max_p2p_bytes = out->max_coll_bytes = GN_API_BYTES_MAX

PROPERTIES(8, (void)0)
PROPERTIES(9, SINCE_V9)
PROPERTIES(11, SINCE_V9; out->max_multi_request = 1)
PROPERTIES(12, SINCE_V9; out->max_multi_request = 1; out->rail = out->plane = -1)

/* --- before version 11: one context for all communicators --- */

static enum gn_nccl_result init_v10(gn_nccl_logger *logger, gn_nccl_profiler *profiler)
{
	(void)profiler;
	return gn_api_init_shared(logger);
}

static enum gn_nccl_result listen_v8(int device, void *handle, void **listen_comm)
{
	return gn_api_listen(gn_api_shared(), device, handle, listen_comm);
}

static enum gn_nccl_result connect_v8(int device, void *handle, void **send_comm, struct gn_nccl_device_handle **of_device)
{
	return gn_api_connect(gn_api_shared(), device, handle, send_comm, of_device);
}

/* The traffic class is ignored: the connections that share a link cannot have different ones. */
static enum gn_nccl_result connect_v10(int device, struct gn_nccl_config *config, void *handle, void **send_comm,
				       struct gn_nccl_device_handle **of_device)
{
	(void)config;
	return gn_api_connect(gn_api_shared(), device, handle, send_comm, of_device);
}

static enum gn_nccl_result isend_v9(void *send_comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	return gn_api_isend(send_comm, data, size, tag, mhandle, NULL, request);
}

static enum gn_nccl_result irecv_v9(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
				    void **request)
{
	return gn_api_irecv(recv_comm, n, data, sizes, tags, mhandles, NULL, request);
}

/* --- before version 9: sizes are int --- */

static enum gn_nccl_result isend_v8(void *send_comm, void *data, int size, int tag, void *mhandle, void **request)
{
	if (size < 0)
		return GN_NCCL_INVALID_ARGUMENT;
	return gn_api_isend(send_comm, data, (size_t)size, tag, mhandle, NULL, request);
}

static enum gn_nccl_result irecv_v8(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request)
{
	size_t wide[GN_API_RECEIVES_MAX];

	if (n < 1 || n > GN_API_RECEIVES_MAX || !sizes)
		return GN_NCCL_INVALID_ARGUMENT;
	for (int i = 0; i < n; i++) {
		if (sizes[i] < 0)
			return GN_NCCL_INVALID_ARGUMENT;
		wide[i] = (size_t)sizes[i];
	}
	return gn_api_irecv(recv_comm, n, data, wide, tags, mhandles, NULL, request);
}

/* --- the tables --- */

#define COMMON                                                                                                         \
	.name = gn_api_name, .devices = gn_api_devices, .accept = gn_api_accept, .reg_mr = gn_api_reg_mr,          \
	.dereg_mr = gn_api_dereg_mr, .iflush = gn_api_iflush, .test = gn_api_test, .close_send = gn_api_close,     \
	.close_recv = gn_api_close, .close_listen = gn_api_close_listen

#define SINCE_V11                                                                                                      \
	.init = gn_api_init, .listen = gn_api_listen, .connect = gn_api_connect, .isend = gn_api_isend,            \
	.irecv = gn_api_irecv, .finalize = gn_api_finalize, .set_attributes = gn_api_set_attributes

#define TABLE(VERSION, ...)                                                                                            \
	extern const struct gn_nccl_net_v##VERSION ncclNetPlugin_v##VERSION;                                           \
	EXPORT const struct gn_nccl_net_v##VERSION ncclNetPlugin_v##VERSION = {COMMON, __VA_ARGS__};

TABLE(8, .init = gn_api_init_shared, .get_properties = properties_v8, .listen = listen_v8, .connect = connect_v8, .isend = isend_v8,
      .irecv = irecv_v8)
TABLE(9, .init = gn_api_init_shared, .get_properties = properties_v9, .listen = listen_v8, .connect = connect_v8, .isend = isend_v9,
      .irecv = irecv_v9)
TABLE(10, .init = init_v10, .get_properties = properties_v9, .listen = listen_v8, .connect = connect_v10, .isend = gn_api_isend,
      .irecv = gn_api_irecv)
TABLE(11, SINCE_V11, .get_properties = properties_v11)
TABLE(12, SINCE_V11, .get_properties = properties_v12)
