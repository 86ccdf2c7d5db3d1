#include "transport/nccl/plugin/worker.h"

#include "src/base/clock.h"
#include "transport/ucx/ucx_common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#define MESSAGE_ID 0
#define CONNS_MAX 65536u
/* The interval of checks of sockets and unexpected messages, and the number of progress calls between two readings of the clock. */
#define CHECK_NS 1000000u
#define CHECK_CALLS 64u

static enum gn_status fail(struct gn_err *err, const char *what, ucs_status_t rc)
{
	return gn_err_set(err, rc == UCS_ERR_NO_MEMORY ? GN_ERR_NO_MEMORY : GN_ERR_FAILED, "%s: %s (UCX)", what,
			  ucs_status_string(rc));
}

/* --- opening --- */

static ucs_status_t set(ucp_config_t *config, const char *name, const char *value)
{
	char variable[64];

	snprintf(variable, sizeof variable, "UCX_%s", name);
	return getenv(variable) ? UCS_OK : ucp_config_modify(config, name, value);
}

/* "mlx5_0:1" is a port of an RDMA device. Without a device name UCX may use any. */
static int is_rdma(const char *device)
{
	return device && *device ? strchr(device, ':') != NULL : !access("/sys/class/infiniband", F_OK);
}

/* Endpoints report peer failures only over transports with error handling, so it is enabled for shared memory, under the name of
 * the family for UCX 1.13, under the name of each transport for later versions. As in transport/ucx/ucx_rail.c messages over TCP do
 * not use rendezvous: the receiver has posted its buffer before they are sent. Settings that a UCX does not have are ignored.
 * Unlike there, UCX's keepalive stays enabled: NCCL waits without a limit, and nothing else detects that the data network has
 * failed while the sockets of gn_link_add_socket(), which may use another network, are alive. */
static ucs_status_t configure(ucp_config_t *config, const char *device, int traffic_class)
{
	ucs_status_t rc = UCS_OK;
	char number[16];

	/* UCX 1.13 warns of settings that no transport uses */
	if (gn_ucx_tls_has_shm(getenv("UCX_TLS")) && set(config, "MM_ERROR_HANDLING", "y") != UCS_OK) {
		set(config, "POSIX_ERROR_HANDLING", "y");
		set(config, "SYSV_ERROR_HANDLING", "y");
	}
	set(config, "RNDV_SEND_NBR_THRESH", "inf");
	/* SysV segments are accessible to the user's group */
	set(config, "TLS", "^sysv");
	if (device && *device)
		rc = ucp_config_modify(config, "NET_DEVICES", device);
	snprintf(number, sizeof number, "%d", traffic_class);
	if (rc == UCS_OK && traffic_class >= 0 && is_rdma(device))
		rc = ucp_config_modify(config, "IB_TRAFFIC_CLASS", number);
	return rc;
}

static enum gn_status open_context(struct gn_worker *w, const char *device, int traffic_class, struct gn_err *err)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
			       .features = UCP_FEATURE_TAG | UCP_FEATURE_AM,
			       .name = "nccl-net-gannet"};
	ucp_config_t *config;
	ucs_status_t rc = ucp_config_read(NULL, NULL, &config);

	if (rc != UCS_OK)
		return fail(err, "reading UCX's configuration", rc);
	rc = configure(config, device, traffic_class);
	if (rc == UCS_OK)
		rc = ucp_init(&params, config, &w->ucp_context);
	ucp_config_release(config);
	if (rc == UCS_OK)
		return GN_OK;
	fail(err, "creating the UCX context", rc);
	return gn_err_prefix(err, "device '%s'", device && *device ? device : "any");
}

/* NULL when no connection has that number. */
static struct gn_conn *find(const struct gn_worker *w, uint32_t number)
{
	const struct gn_worker_slot *slot = (number & 0xffff) < w->conn_room ? &w->conns[number & 0xffff] : NULL;

	return slot && slot->conn && slot->number == number ? slot->conn : NULL;
}

static ucs_status_t receive_message(void *argument, const void *header, size_t header_bytes, void *data, size_t bytes,
				    const ucp_am_recv_param_t *param)
{
	struct gn_worker *w = argument;
	struct gn_conn *c;
	struct gn_wire m;

	(void)header;
	(void)header_bytes;
	if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) || bytes != sizeof m)
		return UCS_OK;
	memcpy(&m, data, sizeof m);
	c = m.key == w->name.key ? find(w, m.conn) : NULL;
	if (c)
		w->callbacks->message(c, &m);
	return UCS_OK;
}

static enum gn_status open_worker(struct gn_worker *w, struct gn_err *err)
{
	ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				      .thread_mode = UCS_THREAD_MODE_SERIALIZED};
	ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
							UCP_AM_HANDLER_PARAM_FIELD_ARG,
					  .id = MESSAGE_ID,
					  .cb = receive_message,
					  .arg = w};
	ucs_status_t rc = ucp_worker_create(w->ucp_context, &params, &w->ucp_worker);

	if (rc == UCS_OK)
		rc = ucp_worker_set_am_recv_handler(w->ucp_worker, &handler);
	if (rc == UCS_OK)
		rc = ucp_worker_get_address(w->ucp_worker, &w->address, &w->address_bytes);
	return rc == UCS_OK ? GN_OK : fail(err, "creating the UCX worker", rc);
}

enum gn_status gn_worker_create(const struct gn_plugin_log *log, const char *device, int traffic_class,
				const struct gn_worker_callbacks *callbacks, struct gn_worker **out, struct gn_err *err)
{
	struct gn_worker *w = calloc(1, sizeof *w);
	enum gn_status status = GN_OK;

	if (!w)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a worker");
	pthread_mutex_init(&w->lock, NULL);
	w->log = *log;
	w->callbacks = callbacks;
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (w->epoll < 0 || getrandom(&w->name, sizeof w->name, 0) != sizeof w->name)
		status = gn_err_set(err, GN_ERR_FAILED,
				    "cannot create a worker: no file descriptor or no random numbers available");
	if (!status)
		status = open_context(w, device, traffic_class, err);
	if (!status)
		status = open_worker(w, err);
	if (status)
		gn_worker_destroy(w);
	else
		*out = w;
	return status;
}

static void drop_done(void *request, ucs_status_t rc, const ucp_tag_recv_info_t *info, void *argument)
{
	(void)rc;
	(void)info;
	(void)argument;
	ucp_request_free(request);
}

/* Receives are posted before their messages are sent, so an unexpected message is for a closed connection or from an
 * unauthenticated peer. It is received into an empty buffer, so that it neither uses memory nor blocks its sender. */
static void drop_unexpected(struct gn_worker *w)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv = drop_done};
	ucp_tag_recv_info_t info;
	ucp_tag_message_h message;
	char nothing;

	while ((message = ucp_tag_probe_nb(w->ucp_worker, 0, 0, 1, &info)))
		ucp_tag_msg_recv_nbx(w->ucp_worker, &nothing, 0, message, &param);
}

/* UCX 1.13 never completes a receive that has begun to arrive when its sender dies. Nothing is written to it unless the UCX worker
 * is progressed. ucp_worker_destroy() may still call back for other operations, so connections are freed after it. */
void gn_worker_destroy(struct gn_worker *w)
{
	gn_progress_thread_stop(w);
	gn_links_close(w);
	if (w->ucp_worker && !w->frozen)
		drop_unexpected(w);
	if (w->address)
		ucp_worker_release_address(w->ucp_worker, w->address);
	if (w->ucp_worker)
		ucp_worker_destroy(w->ucp_worker);
	if (w->ucp_context)
		ucp_cleanup(w->ucp_context);
	w->callbacks->reap(w, 1);
	if (w->epoll >= 0)
		close(w->epoll);
	free(w->conns);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* --- progress --- */

static void check(struct gn_worker *w)
{
	uint64_t now = gn_clock_ns();

	if (now - w->checked_ns < CHECK_NS)
		return;
	w->checked_ns = now;
	drop_unexpected(w);
	gn_links_poll(w);
	w->callbacks->reap(w, 0);
}

unsigned gn_worker_progress(struct gn_worker *w)
{
	unsigned moved;

	if (w->frozen)
		return 0;
	moved = ucp_worker_progress(w->ucp_worker);
	if (w->link_broke)
		gn_links_close_broken(w);
	if (++w->progress_calls % CHECK_CALLS == 0)
		check(w);
	return moved;
}

/* --- connections by number: the low half is the index in the table, the high half is random --- */

static enum gn_status grow(struct gn_worker *w, struct gn_err *err)
{
	uint32_t room = w->conn_room ? 2 * w->conn_room : 16;
	struct gn_worker_slot *more;

	if (w->conn_room >= CONNS_MAX)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "more than %u connections", CONNS_MAX);
	more = realloc(w->conns, room * sizeof *more);
	if (!more)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u connections", room);
	memset(more + w->conn_room, 0, (room - w->conn_room) * sizeof *more);
	w->conn_next = w->conn_room;
	w->conns = more;
	w->conn_room = room;
	return GN_OK;
}

enum gn_status gn_worker_add_conn(struct gn_worker *w, struct gn_conn *c, uint32_t *number, struct gn_err *err)
{
	uint32_t tried = 0;
	uint16_t high;

	while (tried < w->conn_room && w->conns[w->conn_next].conn) {
		w->conn_next = (w->conn_next + 1) % w->conn_room;
		tried++;
	}
	if (tried == w->conn_room && grow(w, err))
		return err ? err->status : GN_ERR_FAILED;
	if (getrandom(&high, sizeof high, 0) != sizeof high)
		return gn_err_set(err, GN_ERR_FAILED, "no random numbers available");
	*number = (uint32_t)high << 16 | w->conn_next;
	w->conns[w->conn_next] = (struct gn_worker_slot){.conn = c, .number = *number};
	w->conn_next = (w->conn_next + 1) % w->conn_room;
	return GN_OK;
}

void gn_worker_remove_conn(struct gn_worker *w, uint32_t number)
{
	w->conns[number & 0xffff] = (struct gn_worker_slot){0};
}

/* --- operations --- */

static void complete(struct gn_op *op, ucs_status_t rc, size_t len_bytes)
{
	op->active = 0;
	op->handle = NULL;
	op->status = rc;
	op->len_bytes = len_bytes;
	--*op->active_of_conn;
	op->worker->active -= op->data != NULL;
}

static void on_sent(void *request, ucs_status_t rc, void *argument)
{
	struct gn_op *op = argument;

	ucp_request_free(request);
	complete(op, rc, op->len_bytes);
}

static void on_received(void *request, ucs_status_t rc, const ucp_tag_recv_info_t *info, void *argument)
{
	ucp_request_free(request);
	complete(argument, rc, rc == UCS_OK ? info->length : 0);
}

static void activate(struct gn_op *op, size_t len_bytes)
{
	op->active = 1;
	op->len_bytes = len_bytes;
	op->status = UCS_INPROGRESS;
	++*op->active_of_conn;
	op->worker->active += op->data != NULL;
}

static void started(struct gn_op *op, void *request)
{
	if (!UCS_PTR_IS_PTR(request))
		complete(op, UCS_PTR_STATUS(request), op->len_bytes);
	else if (op->active)
		op->handle = request;
}

void gn_op_send(struct gn_op *op, struct gn_link *link, uint64_t tag, const void *data, size_t len_bytes)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | link->send_flags,
				     .cb.send = on_sent,
				     .user_data = op};

	op->data = data;
	op->room_bytes = len_bytes;
	activate(op, len_bytes);
	started(op, ucp_tag_send_nbx(link->ep, data, len_bytes, tag ^ link->peer.key, &param));
}

void gn_op_receive(struct gn_op *op, struct gn_worker *w, uint64_t tag, void *data, size_t len_bytes)
{
	ucp_tag_recv_info_t info = {0};
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
						     UCP_OP_ATTR_FIELD_RECV_INFO,
				     .cb.recv = on_received,
				     .user_data = op,
				     .recv_info.tag_info = &info};
	void *request;

	op->data = data;
	op->room_bytes = len_bytes;
	activate(op, len_bytes);
	request = ucp_tag_recv_nbx(w->ucp_worker, data, len_bytes, tag ^ w->name.key, UINT64_MAX, &param);
	if (!request)
		op->len_bytes = info.length;
	started(op, request);
}

void gn_op_send_message(struct gn_op *op, struct gn_link *link, const struct gn_wire *message)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
						     UCP_OP_ATTR_FIELD_FLAGS,
				     .flags = UCP_AM_SEND_FLAG_EAGER,
				     .cb.send = on_sent,
				     .user_data = op};

	activate(op, sizeof *message);
	started(op, ucp_am_send_nbx(link->ep, MESSAGE_ID, NULL, 0, message, sizeof *message, &param));
}

void gn_op_flush(struct gn_op *op, struct gn_link *link)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.send = on_sent,
				     .user_data = op};

	activate(op, 0);
	started(op, ucp_ep_flush_nbx(link->ep, &param));
}

void gn_op_cancel(struct gn_op *op, struct gn_worker *w)
{
	if (op->active && op->handle)
		ucp_request_cancel(w->ucp_worker, op->handle);
}

static void write_log(const struct gn_plugin_log *r, enum gn_nccl_log_level level, const char *format, va_list args)
{
	char text[GN_ERR_TEXT_MAX];

	if (!r->logger)
		return;
	vsnprintf(text, sizeof text, format, args);
	r->logger(level, GN_NCCL_SUB_INIT | GN_NCCL_SUB_NET, __FILE__, __LINE__, "NET/gannet: %s", text);
}

void gn_plugin_log_warn(const struct gn_plugin_log *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_log(r, GN_NCCL_LOG_WARN, format, args);
	va_end(args);
}

void gn_plugin_log_info(const struct gn_plugin_log *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_log(r, GN_NCCL_LOG_INFO, format, args);
	va_end(args);
}

enum gn_nccl_result gn_plugin_log_result(const struct gn_plugin_log *r, enum gn_status status, const struct gn_err *err)
{
	if (status)
		gn_plugin_log_warn(r, "%s", err->text);
	switch (status) {
	case GN_OK:
		return GN_NCCL_SUCCESS;
	case GN_ERR_PEER_LOST:
		return GN_NCCL_REMOTE_ERROR;
	case GN_ERR_USAGE:
		return GN_NCCL_INVALID_USAGE;
	case GN_ERR_UNSUPPORTED:
		return GN_NCCL_INVALID_ARGUMENT;
	default:
		return GN_NCCL_SYSTEM_ERROR;
	}
}
