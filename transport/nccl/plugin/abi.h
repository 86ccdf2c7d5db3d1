/* The binary interface between NCCL and a network plugin, versions 8 to 12: a plugin is a shared object with one table of functions
 * per version, ncclNetPlugin_v8 to ncclNetPlugin_v12; NCCL uses the newest that it supports. Layouts, values and meanings are those
 * of NVIDIA's NCCL 2.30.7, folder plugins/net: its README and the headers of example/nccl. They are declared here so that the build
 * needs neither NCCL nor CUDA.
 */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_ABI_H
#define GN_TRANSPORT_NCCL_PLUGIN_ABI_H

#include <stddef.h>
#include <stdint.h>

enum gn_nccl_result {
	GN_NCCL_SUCCESS = 0,
	GN_NCCL_CUDA_ERROR = 1,
	GN_NCCL_SYSTEM_ERROR = 2,
	GN_NCCL_INTERNAL_ERROR = 3,
	GN_NCCL_INVALID_ARGUMENT = 4,
	GN_NCCL_INVALID_USAGE = 5,
	GN_NCCL_REMOTE_ERROR = 6,
};

enum {
	GN_NCCL_HANDLE_BYTES = 128, /* of a listener's handle */
	GN_NCCL_MAX_REQUESTS = 32,  /* in progress per communicator; for sends times the size of a grouped receive */
	GN_NCCL_OPTIONAL_RECV = 1,  /* *request on entry of irecv: completion need not be exact */
};

/* Kinds of memory, a bit each. */
enum { GN_NCCL_PTR_HOST = 1, GN_NCCL_PTR_CUDA = 2, GN_NCCL_PTR_DMABUF = 4 };

enum gn_nccl_log_level {
	GN_NCCL_LOG_NONE = 0,
	GN_NCCL_LOG_VERSION = 1,
	GN_NCCL_LOG_WARN = 2,
	GN_NCCL_LOG_INFO = 3,
	GN_NCCL_LOG_ABORT = 4,
	GN_NCCL_LOG_TRACE = 5,
};
/* Subsystems of the log, a bit each. */
enum { GN_NCCL_SUB_INIT = 1, GN_NCCL_SUB_NET = 16 };

/* format as for printf(); file and line of the caller. */
typedef void gn_nccl_logger(enum gn_nccl_log_level level, unsigned long subsystems, const char *file, int line,
			    const char *format, ...) __attribute__((format(printf, 5, 6)));
typedef enum gn_nccl_result gn_nccl_profiler(void **event, int type, void *phandle, int64_t plugin, void *extra);

/* For networks driven by the GPU itself; unused by this plugin. */
enum gn_nccl_device_type { GN_NCCL_DEVICE_HOST = 0, GN_NCCL_DEVICE_UNPACK = 1 };
struct gn_nccl_device_handle;

struct gn_nccl_vdevice_v9 {
	int count, devices[4];
};
struct gn_nccl_vdevice_v12 {
	int count, devices[8];
};
struct gn_nccl_config {
	int traffic_class; /* -1: none */
};

/* The properties of a device. Speed in Mbit/s, latency in microseconds. */
struct gn_nccl_properties_v8 {
	char *name, *pci_path; /* NULL: not a PCI device */
	uint64_t guid;
	int pointers, registers_globally, speed, port;
	float latency;
	int max_comms, max_receives;
	enum gn_nccl_device_type device_type;
	int device_version;
};
/* What versions since 9 have of a device, VDEVICE: the type that says what it is made of. */
#define GN_NCCL_PROPERTIES(VDEVICE)                                                                                               \
	char *name, *pci_path;                                                                                                     \
	uint64_t guid;                                                                                                             \
	int pointers, registers_globally, force_flush, speed, port;                                                                \
	float latency;                                                                                                             \
	int max_comms, max_receives;                                                                                               \
	enum gn_nccl_device_type device_type;                                                                                      \
	int device_version;                                                                                                        \
	struct VDEVICE made_of;                                                                                                    \
	size_t max_p2p_bytes, max_coll_bytes;
/* Also of version 10. */
struct gn_nccl_properties_v9 {
	GN_NCCL_PROPERTIES(gn_nccl_vdevice_v9)
};
struct gn_nccl_properties_v11 {
	GN_NCCL_PROPERTIES(gn_nccl_vdevice_v9)
	int max_multi_request;
};
struct gn_nccl_properties_v12 {
	GN_NCCL_PROPERTIES(gn_nccl_vdevice_v12)
	int max_multi_request;
	int16_t rail, plane; /* -1: unknown */
};

/* The functions that all versions have. connect() and accept() do not block: they set NULL until the connection is complete.
 * isend() and irecv() may set a NULL request: the caller retries. */
typedef enum gn_nccl_result gn_nccl_devices(int *count);
typedef enum gn_nccl_result gn_nccl_accept(void *listen_comm, void **recv_comm, struct gn_nccl_device_handle **device);
typedef enum gn_nccl_result gn_nccl_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle);
typedef enum gn_nccl_result gn_nccl_reg_mr_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
						  void **mhandle);
typedef enum gn_nccl_result gn_nccl_dereg_mr(void *comm, void *mhandle);
typedef enum gn_nccl_result gn_nccl_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request);
typedef enum gn_nccl_result gn_nccl_test(void *request, int *done, int *sizes);
typedef enum gn_nccl_result gn_nccl_close(void *comm);
typedef enum gn_nccl_result gn_nccl_get_device_mr(void *comm, void *mhandle, void **device_mhandle);
typedef enum gn_nccl_result gn_nccl_irecv_consumed(void *recv_comm, int n, void *request);

typedef enum gn_nccl_result gn_nccl_init_v8(gn_nccl_logger *logger);
typedef enum gn_nccl_result gn_nccl_init_v10(gn_nccl_logger *logger, gn_nccl_profiler *profiler);
typedef enum gn_nccl_result gn_nccl_init_v11(void **context, uint64_t comm_id, struct gn_nccl_config *config,
					     gn_nccl_logger *logger, gn_nccl_profiler *profiler);
typedef enum gn_nccl_result gn_nccl_finalize_v11(void *context);
typedef enum gn_nccl_result gn_nccl_set_attributes_v11(void *context, void *attributes);
typedef enum gn_nccl_result gn_nccl_listen_v8(int device, void *handle, void **listen_comm);
typedef enum gn_nccl_result gn_nccl_listen_v11(void *context, int device, void *handle, void **listen_comm);
typedef enum gn_nccl_result gn_nccl_connect_v8(int device, void *handle, void **send_comm,
					       struct gn_nccl_device_handle **of_device);
typedef enum gn_nccl_result gn_nccl_connect_v10(int device, struct gn_nccl_config *config, void *handle, void **send_comm,
						struct gn_nccl_device_handle **of_device);
typedef enum gn_nccl_result gn_nccl_connect_v11(void *context, int device, void *handle, void **send_comm,
						struct gn_nccl_device_handle **of_device);
typedef enum gn_nccl_result gn_nccl_isend_v8(void *send_comm, void *data, int size, int tag, void *mhandle, void **request);
typedef enum gn_nccl_result gn_nccl_isend_v9(void *send_comm, void *data, size_t size, int tag, void *mhandle, void **request);
typedef enum gn_nccl_result gn_nccl_isend_v10(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
					      void **request);
typedef enum gn_nccl_result gn_nccl_irecv_v8(void *recv_comm, int n, void **data, int *sizes, int *tags, void **mhandles,
					     void **request);
typedef enum gn_nccl_result gn_nccl_irecv_v9(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
					     void **request);
typedef enum gn_nccl_result gn_nccl_irecv_v10(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
					      void **phandles, void **request);

/* What all tables begin with; the numbers are of the versions whose functions they have. reg_mr_dmabuf is NULL unless a device reports
 * GN_NCCL_PTR_DMABUF; get_device_mr and irecv_consumed are NULL without device networking. */
#define GN_NCCL_NET(INIT, PROPERTIES, LISTEN, CONNECT, SEND)                                                                      \
	const char *name;                                                                                                          \
	gn_nccl_init_v##INIT *init;                                                                                                \
	gn_nccl_devices *devices;                                                                                                  \
	enum gn_nccl_result (*get_properties)(int device, struct gn_nccl_properties_v##PROPERTIES *out);                           \
	gn_nccl_listen_v##LISTEN *listen;                                                                                          \
	gn_nccl_connect_v##CONNECT *connect;                                                                                       \
	gn_nccl_accept *accept;                                                                                                    \
	gn_nccl_reg_mr *reg_mr;                                                                                                    \
	gn_nccl_reg_mr_dmabuf *reg_mr_dmabuf;                                                                                      \
	gn_nccl_dereg_mr *dereg_mr;                                                                                                \
	gn_nccl_isend_v##SEND *isend;                                                                                              \
	gn_nccl_irecv_v##SEND *irecv;                                                                                              \
	gn_nccl_iflush *iflush;                                                                                                    \
	gn_nccl_test *test;                                                                                                        \
	gn_nccl_close *close_send, *close_recv, *close_listen;                                                                     \
	gn_nccl_get_device_mr *get_device_mr;                                                                                      \
	gn_nccl_irecv_consumed *irecv_consumed;
/* NULL: devices cannot be merged. */
#define GN_NCCL_MAKE_VDEVICE(VERSION) enum gn_nccl_result (*make_vdevice)(int *device, struct gn_nccl_vdevice_v##VERSION *made_of);

struct gn_nccl_net_v8 {
	GN_NCCL_NET(8, 8, 8, 8, 8)
};
struct gn_nccl_net_v9 {
	GN_NCCL_NET(8, 9, 8, 8, 9)
	GN_NCCL_MAKE_VDEVICE(9)
};
struct gn_nccl_net_v10 {
	GN_NCCL_NET(10, 9, 8, 10, 10)
	GN_NCCL_MAKE_VDEVICE(9)
};
/* init() is called once per communicator and creates its context. set_attributes are hints on how it will be used, and may be NULL. */
struct gn_nccl_net_v11 {
	GN_NCCL_NET(11, 11, 11, 11, 10)
	GN_NCCL_MAKE_VDEVICE(9)
	gn_nccl_finalize_v11 *finalize;
	gn_nccl_set_attributes_v11 *set_attributes;
};
struct gn_nccl_net_v12 {
	GN_NCCL_NET(11, 12, 11, 11, 10)
	GN_NCCL_MAKE_VDEVICE(12)
	gn_nccl_finalize_v11 *finalize;
	gn_nccl_set_attributes_v11 *set_attributes;
};

#endif
