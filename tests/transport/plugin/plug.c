#include "tests/transport/plugin/plug.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const void *find(void *library, int version)
{
	char symbol[32];

	snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
	return dlsym(library, symbol);
}

int plug_open(struct plug *p, const char *path, int version, const char **why)
{
	memset(p, 0, sizeof *p);
	p->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!p->library) {
		*why = dlerror();
		return -1;
	}
	p->version = version;
	p->table.any = find(p->library, version);
	if (p->table.any)
		return 0;
	*why = "the symbol is missing";
	dlclose(p->library);
	return 1;
}

void plug_close(struct plug *p)
{
	dlclose(p->library);
	memset(p, 0, sizeof *p);
}

/* The same member of whichever table it is. */
#define ANY(p, member)                                                                                                 \
	((p)->version == 8    ? (p)->table.v8->member                                                                  \
	 : (p)->version == 9  ? (p)->table.v9->member                                                                  \
	 : (p)->version == 10 ? (p)->table.v10->member                                                                 \
	 : (p)->version == 11 ? (p)->table.v11->member                                                                 \
			      : (p)->table.v12->member)

const char *plug_name(const struct plug *p)
{
	return ANY(p, name);
}

int plug_init(const struct plug *p, void **context, gn_nccl_logger *logger)
{
	struct gn_nccl_config config = {.traffic_class = -1};

	switch (p->version) {
	case 8:
		return p->table.v8->init(logger);
	case 9:
		return p->table.v9->init(logger);
	case 10:
		return p->table.v10->init(logger, NULL);
	case 11:
		return p->table.v11->init(context, 1, &config, logger, NULL);
	default:
		return p->table.v12->init(context, 1, &config, logger, NULL);
	}
}

int plug_finalize(const struct plug *p, void *context)
{
	if (p->version < 11)
		return 0;
	return p->version == 11 ? p->table.v11->finalize(context) : p->table.v12->finalize(context);
}

int plug_devices(const struct plug *p, int *count)
{
	return ANY(p, devices)(count);
}

#define COPY(from)                                                                                                     \
	do {                                                                                                           \
		out->name = (from).name;                                                                               \
		out->pci_path = (from).pci_path;                                                                       \
		out->pointers = (from).pointers;                                                                       \
		out->speed = (from).speed;                                                                             \
		out->max_comms = (from).max_comms;                                                                     \
		out->max_receives = (from).max_receives;                                                               \
		out->device_type = (int)(from).device_type;                                                            \
	} while (0)
#define COPY_SINCE_V9(from)                                                                                            \
	do {                                                                                                           \
		out->max_p2p_bytes = (long long)(from).max_p2p_bytes;                                                  \
		out->max_coll_bytes = (long long)(from).max_coll_bytes;                                                \
		out->made_of = (from).made_of.count;                                                                   \
	} while (0)

int plug_properties(const struct plug *p, int device, struct plug_properties *out)
{
	struct gn_nccl_properties_v8 v8 = {0};
	struct gn_nccl_properties_v9 v9 = {0};
	struct gn_nccl_properties_v11 v11 = {0};
	struct gn_nccl_properties_v12 v12 = {0};
	int rc;

	*out = (struct plug_properties){.max_p2p_bytes = -1, .max_coll_bytes = -1, .made_of = -1};
	switch (p->version) {
	case 8:
		rc = p->table.v8->get_properties(device, &v8);
		COPY(v8);
		return rc;
	case 9:
	case 10:
		rc = p->version == 9 ? p->table.v9->get_properties(device, &v9) : p->table.v10->get_properties(device, &v9);
		COPY(v9);
		COPY_SINCE_V9(v9);
		return rc;
	case 11:
		rc = p->table.v11->get_properties(device, &v11);
		COPY(v11);
		COPY_SINCE_V9(v11);
		return rc;
	default:
		rc = p->table.v12->get_properties(device, &v12);
		COPY(v12);
		COPY_SINCE_V9(v12);
		return rc;
	}
}

int plug_listen(const struct plug *p, void *context, int device, void *handle, void **listen_comm)
{
	switch (p->version) {
	case 8:
		return p->table.v8->listen(device, handle, listen_comm);
	case 9:
		return p->table.v9->listen(device, handle, listen_comm);
	case 10:
		return p->table.v10->listen(device, handle, listen_comm);
	case 11:
		return p->table.v11->listen(context, device, handle, listen_comm);
	default:
		return p->table.v12->listen(context, device, handle, listen_comm);
	}
}

int plug_connect(const struct plug *p, void *context, int device, void *handle, void **send_comm)
{
	struct gn_nccl_device_handle *none = NULL;
	struct gn_nccl_config config = {.traffic_class = -1};

	switch (p->version) {
	case 8:
		return p->table.v8->connect(device, handle, send_comm, &none);
	case 9:
		return p->table.v9->connect(device, handle, send_comm, &none);
	case 10:
		return p->table.v10->connect(device, &config, handle, send_comm, &none);
	case 11:
		return p->table.v11->connect(context, device, handle, send_comm, &none);
	default:
		return p->table.v12->connect(context, device, handle, send_comm, &none);
	}
}

int plug_accept(const struct plug *p, void *listen_comm, void **recv_comm)
{
	struct gn_nccl_device_handle *none = NULL;

	return ANY(p, accept)(listen_comm, recv_comm, &none);
}

int plug_reg(const struct plug *p, void *comm, void *data, size_t size, int type, void **mhandle)
{
	return ANY(p, reg_mr)(comm, data, size, type, mhandle);
}

int plug_dereg(const struct plug *p, void *comm, void *mhandle)
{
	return ANY(p, dereg_mr)(comm, mhandle);
}

int plug_isend(const struct plug *p, void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	switch (p->version) {
	case 8:
		return p->table.v8->isend(comm, data, (int)size, tag, mhandle, request);
	case 9:
		return p->table.v9->isend(comm, data, size, tag, mhandle, request);
	case 10:
		return p->table.v10->isend(comm, data, size, tag, mhandle, NULL, request);
	case 11:
		return p->table.v11->isend(comm, data, size, tag, mhandle, NULL, request);
	default:
		return p->table.v12->isend(comm, data, size, tag, mhandle, NULL, request);
	}
}

int plug_irecv(const struct plug *p, void *comm, int n, void **data, const size_t *sizes, int *tags, void **mhandles,
	       void **request)
{
	size_t wide[GN_NCCL_MAX_REQUESTS];
	void *phandles[GN_NCCL_MAX_REQUESTS] = {0};
	int narrow[GN_NCCL_MAX_REQUESTS];

	for (int i = 0; i < n; i++) {
		wide[i] = sizes[i];
		narrow[i] = (int)sizes[i];
	}
	switch (p->version) {
	case 8:
		return p->table.v8->irecv(comm, n, data, narrow, tags, mhandles, request);
	case 9:
		return p->table.v9->irecv(comm, n, data, wide, tags, mhandles, request);
	case 10:
		return p->table.v10->irecv(comm, n, data, wide, tags, mhandles, phandles, request);
	case 11:
		return p->table.v11->irecv(comm, n, data, wide, tags, mhandles, phandles, request);
	default:
		return p->table.v12->irecv(comm, n, data, wide, tags, mhandles, phandles, request);
	}
}

int plug_iflush(const struct plug *p, void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	return ANY(p, iflush)(comm, n, data, sizes, mhandles, request);
}

int plug_test(const struct plug *p, void *request, int *done, int *sizes)
{
	return ANY(p, test)(request, done, sizes);
}

int plug_close_send(const struct plug *p, void *comm)
{
	return ANY(p, close_send)(comm);
}

int plug_close_recv(const struct plug *p, void *comm)
{
	return ANY(p, close_recv)(comm);
}

int plug_close_listen(const struct plug *p, void *comm)
{
	return ANY(p, close_listen)(comm);
}
