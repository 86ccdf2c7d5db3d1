/* A plugin under test, whichever version of NCCL's interface (transport/nccl/plugin/abi.h) is asked for: the newest one's calls. */
#ifndef GN_TESTS_TRANSPORT_PLUGIN_PLUG_H
#define GN_TESTS_TRANSPORT_PLUGIN_PLUG_H

#include "transport/nccl/plugin/abi.h"

enum { PLUG_OLDEST = 8, PLUG_NEWEST = 12 };

struct plug {
	void *library;
	int version;
	union {
		const void *any;
		const struct gn_nccl_net_v8 *v8;
		const struct gn_nccl_net_v9 *v9;
		const struct gn_nccl_net_v10 *v10;
		const struct gn_nccl_net_v11 *v11;
		const struct gn_nccl_net_v12 *v12;
	} table;
};

/* What all versions tell of a device; -1 where a version does not. */
struct plug_properties {
	const char *name, *pci_path;
	int pointers, speed, max_comms, max_receives, device_type, made_of;
	long long max_p2p_bytes, max_coll_bytes;
};

/* 0; -1: the library cannot be loaded; 1: it has no such version. Both with *why, borrowed. */
int plug_open(struct plug *p, const char *path, int version, const char **why);
void plug_close(struct plug *p);

const char *plug_name(const struct plug *p);
/* Before version 11 *context is left alone, and finalize does nothing. */
int plug_init(const struct plug *p, void **context, gn_nccl_logger *logger);
int plug_finalize(const struct plug *p, void *context);
int plug_devices(const struct plug *p, int *count);
int plug_properties(const struct plug *p, int device, struct plug_properties *out);
int plug_listen(const struct plug *p, void *context, int device, void *handle, void **listen_comm);
int plug_connect(const struct plug *p, void *context, int device, void *handle, void **send_comm);
int plug_accept(const struct plug *p, void *listen_comm, void **recv_comm);
int plug_reg(const struct plug *p, void *comm, void *data, size_t size, int type, void **mhandle);
int plug_dereg(const struct plug *p, void *comm, void *mhandle);
int plug_isend(const struct plug *p, void *comm, void *data, size_t size, int tag, void *mhandle, void **request);
int plug_irecv(const struct plug *p, void *comm, int n, void **data, const size_t *sizes, int *tags, void **mhandles,
	       void **request);
int plug_iflush(const struct plug *p, void *comm, int n, void **data, int *sizes, void **mhandles, void **request);
int plug_test(const struct plug *p, void *request, int *done, int *sizes);
int plug_close_send(const struct plug *p, void *comm);
int plug_close_recv(const struct plug *p, void *comm);
int plug_close_listen(const struct plug *p, void *comm);

#endif
