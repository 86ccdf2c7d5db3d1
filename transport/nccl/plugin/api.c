#include "transport/nccl/plugin/api.h"

#include "transport/nccl/plugin/context.h"
#include "transport/nccl/plugin/flush.h"
#include "transport/nccl/plugin/cm.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char gn_api_name[] = "Gannet";

/* Global to the process, see api.h. */
static struct {
	pthread_mutex_t lock;
	int ready;
	pid_t pid; /* of the process that initialized it */
	struct gn_device_table devices;
	struct gn_context *shared;
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct gn_registration {
	int type;
	const void *data;
	size_t len_bytes;
};

/* --- the process --- */

/* Keeps UCX loaded after the plugin is unloaded, because UCX patches functions of the C library. */
static void pin_ucx(void)
{
	Dl_info info;

	if (dladdr((const void *)(uintptr_t)ucp_init_version, &info) && info.dli_fname)
		dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static enum gn_status prepare(struct gn_err *err)
{
	enum gn_status status = GN_OK;

	pthread_mutex_lock(&process.lock);
	if (!process.ready) {
		pin_ucx();
		status = gn_device_table_read(&process.devices, err);
		process.ready = !status;
		process.pid = getpid();
	}
	pthread_mutex_unlock(&process.lock);
	return status;
}

/* Does nothing in a forked child, which has none of the threads, and locks in any state. */
static void __attribute__((destructor)) unload(void)
{
	if (process.pid != getpid())
		return;
	gn_contexts_stop_threads();
	gn_context_destroy(process.shared);
	gn_device_table_release(&process.devices);
	process.shared = NULL;
	process.ready = 0;
}

static void log_devices(const struct gn_plugin_log *log)
{
	for (int i = 0; i < process.devices.count; i++)
		gn_plugin_log_info(log, "device %d: %s at %d Mbit/s, memory: host%s", i, process.devices.items[i].name,
				   process.devices.items[i].mbit_per_s,
				   process.devices.pointers & GN_NCCL_PTR_CUDA ? ", CUDA" : "");
}

enum gn_nccl_result gn_api_init(void **context, uint64_t comm_id, struct gn_nccl_config *config, gn_nccl_logger *logger,
				gn_nccl_profiler *profiler)
{
	struct gn_plugin_log log = {.logger = logger};
	struct gn_context *c = NULL;
	struct gn_err err = {0};
	enum gn_status status;

	(void)comm_id;
	(void)profiler;
	*context = NULL;
	status = prepare(&err);
	if (!status)
		status = gn_context_create(&log, &process.devices, config ? config->traffic_class : -1, &c, &err);
	if (!status)
		log_devices(&log);
	*context = c;
	return gn_plugin_log_result(&log, status, &err);
}

enum gn_nccl_result gn_api_init_shared(gn_nccl_logger *logger)
{
	enum gn_nccl_result rc = GN_NCCL_SUCCESS;
	struct gn_context *fresh = NULL;
	void *made;

	pthread_mutex_lock(&process.lock);
	fresh = process.shared;
	pthread_mutex_unlock(&process.lock);
	if (fresh)
		return GN_NCCL_SUCCESS;
	rc = gn_api_init(&made, 0, NULL, logger, NULL);
	if (rc)
		return rc;
	pthread_mutex_lock(&process.lock);
	fresh = process.shared ? made : NULL;
	if (!process.shared)
		process.shared = made;
	pthread_mutex_unlock(&process.lock);
	/* another thread has created it in the meantime */
	gn_context_destroy(fresh);
	return GN_NCCL_SUCCESS;
}

void *gn_api_shared(void)
{
	return process.shared;
}

enum gn_nccl_result gn_api_finalize(void *context)
{
	gn_context_destroy(context);
	return GN_NCCL_SUCCESS;
}

enum gn_nccl_result gn_api_set_attributes(void *context, void *attributes)
{
	(void)context;
	(void)attributes;
	return GN_NCCL_SUCCESS;
}

enum gn_nccl_result gn_api_devices(int *count)
{
	struct gn_plugin_log silent = {0};
	struct gn_err err;
	enum gn_status status = prepare(&err);

	if (!status)
		*count = process.devices.count;
	return gn_plugin_log_result(&silent, status, &err);
}

const struct gn_device *gn_api_device(int device)
{
	return process.ready && device >= 0 && device < process.devices.count ? &process.devices.items[device] : NULL;
}

int gn_api_pointers(void)
{
	return process.devices.pointers;
}

/* --- connections --- */

enum gn_nccl_result gn_api_listen(void *context, int device, void *handle, void **listen_comm)
{
	struct gn_context *c = context;
	struct gn_listener *l = NULL;
	struct gn_worker *w;
	struct gn_err err;
	enum gn_status status;

	if (!c || !handle || !listen_comm)
		return GN_NCCL_INVALID_ARGUMENT;
	status = gn_context_get_worker(c, device, &w, &err);
	if (status)
		return gn_plugin_log_result(gn_context_log(c), status, &err);
	pthread_mutex_lock(&w->lock);
	status = gn_listener_create(w, c, handle, &l, &err);
	pthread_mutex_unlock(&w->lock);
	if (status)
		gn_context_put_worker(c, w);
	else
		*listen_comm = l;
	return gn_plugin_log_result(gn_context_log(c), status, &err);
}

/* An attempt in progress counts as a user of the worker, so that later calls find it. */
enum gn_nccl_result gn_api_connect(void *context, int device, void *handle, void **send_comm,
				   struct gn_nccl_device_handle **of_device)
{
	struct gn_context *c = context;
	struct gn_conn *made = NULL;
	struct gn_handle h;
	struct gn_worker *w;
	struct gn_err err;
	enum gn_status status;
	int began = 0;

	(void)of_device;
	if (!c || !handle || !send_comm)
		return GN_NCCL_INVALID_ARGUMENT;
	*send_comm = NULL;
	memcpy(&h, handle, sizeof h);
	if (h.magic != GN_HANDLE_MAGIC)
		return GN_NCCL_INVALID_ARGUMENT;
	status = gn_context_get_worker(c, device, &w, &err);
	if (status)
		return gn_plugin_log_result(gn_context_log(c), status, &err);
	pthread_mutex_lock(&w->lock);
	status = gn_cm_connect(w, &h, &began, &made, &err);
	pthread_mutex_unlock(&w->lock);
	if (made)
		made->context = c;
	if (!began)
		gn_context_put_worker(c, w);
	if (status)
		gn_context_put_worker(c, w);
	*send_comm = made;
	return gn_plugin_log_result(gn_context_log(c), status, &err);
}

enum gn_nccl_result gn_api_accept(void *listen_comm, void **recv_comm, struct gn_nccl_device_handle **of_device)
{
	struct gn_listener *l = listen_comm;
	struct gn_conn *made = NULL;
	struct gn_context *c;
	struct gn_worker *w;
	struct gn_err err;
	enum gn_status status;

	(void)of_device;
	if (!l || !recv_comm)
		return GN_NCCL_INVALID_ARGUMENT;
	*recv_comm = NULL;
	c = gn_listener_owner(l);
	w = gn_listener_worker(l);
	pthread_mutex_lock(&w->lock);
	status = gn_listener_accept(l, &made, &err);
	pthread_mutex_unlock(&w->lock);
	if (made) {
		made->context = c;
		gn_context_ref_worker(c, w);
	}
	*recv_comm = made;
	return gn_plugin_log_result(gn_context_log(c), status, &err);
}

enum gn_nccl_result gn_api_close(void *comm)
{
	struct gn_conn *conn = comm;
	struct gn_context *c;
	struct gn_worker *w;

	if (!conn)
		return GN_NCCL_SUCCESS;
	c = conn->context;
	w = conn->worker;
	gn_conn_close(conn);
	gn_context_put_worker(c, w);
	return GN_NCCL_SUCCESS;
}

enum gn_nccl_result gn_api_close_listen(void *listen_comm)
{
	struct gn_listener *l = listen_comm;
	struct gn_context *c;
	struct gn_worker *w;

	if (!l)
		return GN_NCCL_SUCCESS;
	c = gn_listener_owner(l);
	w = gn_listener_worker(l);
	pthread_mutex_lock(&w->lock);
	gn_listener_destroy(l);
	pthread_mutex_unlock(&w->lock);
	gn_context_put_worker(c, w);
	return GN_NCCL_SUCCESS;
}

/* --- memory: UCX registers and caches the memory of messages by itself, so registration only records it --- */

enum gn_nccl_result gn_api_reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct gn_registration *r;
	struct gn_conn *c = comm;

	if (!comm || !mhandle)
		return GN_NCCL_INVALID_ARGUMENT;
	if ((type != GN_NCCL_PTR_HOST && type != GN_NCCL_PTR_CUDA) || !(type & gn_api_pointers())) {
		gn_plugin_log_warn(&c->worker->log, "memory of type %d is not supported: this UCX supports %s", type,
				   gn_api_pointers() & GN_NCCL_PTR_CUDA ? "host and CUDA memory" : "host memory only");
		return GN_NCCL_INVALID_ARGUMENT;
	}
	r = malloc(sizeof *r);
	if (!r)
		return GN_NCCL_SYSTEM_ERROR;
	r->type = type;
	r->data = data;
	r->len_bytes = size;
	if (type == GN_NCCL_PTR_CUDA)
		gn_conn_use_gpu_memory(c);
	*mhandle = r;
	return GN_NCCL_SUCCESS;
}

enum gn_nccl_result gn_api_dereg_mr(void *comm, void *mhandle)
{
	struct gn_registration *r = mhandle;

	if (comm && r)
		gn_conn_release_memory(comm, r->data, r->len_bytes);
	free(r);
	return GN_NCCL_SUCCESS;
}

/* --- messages --- */

enum gn_nccl_result gn_api_isend(void *send_comm, void *data, size_t size, int tag, void *mhandle, void *phandle,
				 void **request)
{
	struct gn_conn *c = send_comm;
	struct gn_request *r = NULL;
	struct gn_err err;
	enum gn_status status;

	(void)mhandle;
	(void)phandle;
	if (!c || c->receives || !request || (!data && size))
		return GN_NCCL_INVALID_ARGUMENT;
	*request = NULL;
	status = gn_conn_send(c, data, size, tag, &r, &err);
	*request = r;
	return gn_plugin_log_result(&c->worker->log, status, &err);
}

/* GN_NCCL_OPTIONAL_RECV in *request on entry allows inexact completion; this plugin's is always exact. */
enum gn_nccl_result gn_api_irecv(void *recv_comm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
				 void **phandles, void **request)
{
	struct gn_conn *c = recv_comm;
	struct gn_request *r = NULL;
	struct gn_err err;
	enum gn_status status;

	(void)mhandles;
	(void)phandles;
	if (!c || !c->receives || !request || !data || !sizes || !tags)
		return GN_NCCL_INVALID_ARGUMENT;
	*request = NULL;
	status = gn_conn_receive(c, n, data, sizes, tags, &r, &err);
	*request = r;
	return gn_plugin_log_result(&c->worker->log, status, &err);
}

/* Only GPU memory needs a flush, and only for messages with data. */
enum gn_nccl_result gn_api_iflush(void *recv_comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	struct gn_conn *c = recv_comm;
	enum gn_status status = GN_OK;
	struct gn_err err;
	int needed = 0;

	(void)data;
	if (!c || !request)
		return GN_NCCL_INVALID_ARGUMENT;
	*request = NULL;
	for (int i = 0; i < n && mhandles && sizes; i++) {
		const struct gn_registration *r = mhandles[i];

		needed |= r && r->type == GN_NCCL_PTR_CUDA && sizes[i] > 0;
	}
	if (needed)
		status = gn_flush_gpu(&err);
	return gn_plugin_log_result(&c->worker->log, status, &err);
}

enum gn_nccl_result gn_api_test(void *request, int *done, int *sizes)
{
	struct gn_request *r = request;
	const struct gn_plugin_log *log;
	struct gn_err err;

	if (!r || !done)
		return GN_NCCL_INVALID_ARGUMENT;
	*done = 0;
	log = gn_request_log(r);
	return gn_plugin_log_result(log, gn_request_test(r, done, sizes, &err), &err);
}
