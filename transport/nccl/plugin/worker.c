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
/* Sockets and strays are looked for this often, by the clock, and the clock is read every so many turns. */
#define LOOK_NS 1000000u
#define LOOK_TURNS 64u

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

/* Or any, of which some may be. "mlx5_0:1" is a port. */
static int is_rdma(const char *device)
{
	return device && *device ? strchr(device, ':') != NULL : !access("/sys/class/infiniband", F_OK);
}

/* Peer failures are reported by endpoints that allow it, so shared memory has to allow it, too: under its family's name as UCX
 * 1.13 wants it, under each one's own later. As in transport/ucx/ucx_rail.c messages over TCP do not wait for the receiver:
 * here it has posted its buffer before they are sent. A UCX without a setting does without. UCX's own keepalive stays on, other
 * than there: who would notice a data network that is cut while the sockets of gn_link_keep(), which go another way, are alive,
 * is nobody else, as NCCL waits without a limit; and that its rounds look like progress disturbs no one here. */
static ucs_status_t configure(ucp_config_t *config, const char *device, int traffic_class)
{
	ucs_status_t rc = UCS_OK;
	char number[16];

	/* UCX 1.13 warns of settings that nothing has */
	if (gn_ucx_tls_has_shm(getenv("UCX_TLS")) && set(config, "MM_ERROR_HANDLING", "y") != UCS_OK) {
		set(config, "POSIX_ERROR_HANDLING", "y");
		set(config, "SYSV_ERROR_HANDLING", "y");
	}
	set(config, "RNDV_SEND_NBR_THRESH", "inf");
	/* its segments are open to the user's group */
	set(config, "TLS", "^sysv");
	if (device && *device)
		rc = ucp_config_modify(config, "NET_DEVICES", device);
	snprintf(number, sizeof number, "%d", traffic_class);
	if (rc == UCS_OK && traffic_class >= 0 && is_rdma(device))
		rc = ucp_config_modify(config, "IB_TRAFFIC_CLASS", number);
	return rc;
}

static enum gn_status open_context(struct gn_worker *e, const char *device, int traffic_class, struct gn_err *err)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
			       .features = UCP_FEATURE_TAG | UCP_FEATURE_AM,
			       .name = "nccl-net-gannet"};
	ucp_config_t *config;
	ucs_status_t rc = ucp_config_read(NULL, NULL, &config);

	if (rc != UCS_OK)
		return fail(err, "reading UCX's settings", rc);
	rc = configure(config, device, traffic_class);
	if (rc == UCS_OK)
		rc = ucp_init(&params, config, &e->context);
	ucp_config_release(config);
	if (rc == UCS_OK)
		return GN_OK;
	fail(err, "opening the fabric", rc);
	return gn_err_prefix(err, "device '%s'", device && *device ? device : "any");
}

/* NULL when no connection has that number. */
static struct gn_conn *find(const struct gn_worker *e, uint32_t number)
{
	const struct gn_worker_slot *slot = (number & 0xffff) < e->conn_room ? &e->conns[number & 0xffff] : NULL;

	return slot && slot->conn && slot->number == number ? slot->conn : NULL;
}

static ucs_status_t take_message(void *argument, const void *header, size_t header_bytes, void *data, size_t bytes,
				 const ucp_am_recv_param_t *param)
{
	struct gn_worker *e = argument;
	struct gn_conn *c;
	struct gn_wire m;

	(void)header;
	(void)header_bytes;
	if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) || bytes != sizeof m)
		return UCS_OK;
	memcpy(&m, data, sizeof m);
	c = m.key == e->name.key ? find(e, m.conn) : NULL;
	if (c)
		e->callbacks->message(c, &m);
	return UCS_OK;
}

static enum gn_status open_worker(struct gn_worker *e, struct gn_err *err)
{
	ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				      .thread_mode = UCS_THREAD_MODE_SERIALIZED};
	ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
							UCP_AM_HANDLER_PARAM_FIELD_ARG,
					  .id = MESSAGE_ID,
					  .cb = take_message,
					  .arg = e};
	ucs_status_t rc = ucp_worker_create(e->context, &params, &e->worker);

	if (rc == UCS_OK)
		rc = ucp_worker_set_am_recv_handler(e->worker, &handler);
	if (rc == UCS_OK)
		rc = ucp_worker_get_address(e->worker, &e->address, &e->address_bytes);
	return rc == UCS_OK ? GN_OK : fail(err, "opening the fabric's worker", rc);
}

enum gn_status gn_worker_create(const struct gn_plugin_log *report, const char *device, int traffic_class,
				const struct gn_worker_callbacks *callbacks, struct gn_worker **out, struct gn_err *err)
{
	struct gn_worker *e = calloc(1, sizeof *e);
	enum gn_status status = GN_OK;

	if (!e)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a fabric");
	pthread_mutex_init(&e->lock, NULL);
	e->report = *report;
	e->callbacks = callbacks;
	e->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (e->epoll < 0 || getrandom(&e->name, sizeof e->name, 0) != sizeof e->name)
		status = gn_err_set(err, GN_ERR_FAILED, "cannot open a fabric: no descriptor or no random numbers to be had");
	if (!status)
		status = open_context(e, device, traffic_class, err);
	if (!status)
		status = open_worker(e, err);
	if (status) {
		gn_worker_destroy(e);
		return status;
	}
	*out = e;
	return GN_OK;
}

static void dropped(void *request, ucs_status_t rc, const ucp_tag_recv_info_t *info, void *argument)
{
	(void)rc;
	(void)info;
	(void)argument;
	ucp_request_free(request);
}

/* Messages come after their reception was posted, so one that waits for a reception is for a connection that is closed, or a
 * stranger's. Taken into no buffer, so that it neither fills memory nor holds up its sender. */
static void drop_strays(struct gn_worker *e)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK, .cb.recv = dropped};
	ucp_tag_recv_info_t info;
	ucp_tag_message_h message;
	char nothing;

	while ((message = ucp_tag_probe_nb(e->worker, 0, 0, 1, &info)))
		ucp_tag_msg_recv_nbx(e->worker, &nothing, 0, message, &param);
}

/* UCX 1.13 never ends a reception of which a part has come when its sender dies. Nothing more is written to it without a turn
 * of the worker, and the worker's end may still call back for others: connections are freed after it. */
void gn_worker_destroy(struct gn_worker *e)
{
	gn_progress_thread_stop(e);
	gn_links_close(e);
	if (e->worker && !e->frozen)
		drop_strays(e);
	if (e->address)
		ucp_worker_release_address(e->worker, e->address);
	if (e->worker)
		ucp_worker_destroy(e->worker);
	if (e->context)
		ucp_cleanup(e->context);
	e->callbacks->reap(e, 1);
	if (e->epoll >= 0)
		close(e->epoll);
	free(e->conns);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

/* --- progress --- */

static void look(struct gn_worker *e)
{
	uint64_t now = gn_clock_ns();

	if (now - e->looked_ns < LOOK_NS)
		return;
	e->looked_ns = now;
	drop_strays(e);
	gn_links_look(e);
	e->callbacks->reap(e, 0);
}

unsigned gn_worker_progress(struct gn_worker *e)
{
	unsigned moved;

	if (e->frozen)
		return 0;
	moved = ucp_worker_progress(e->worker);
	if (e->broke)
		gn_links_mend(e);
	if (++e->turns % LOOK_TURNS == 0)
		look(e);
	return moved;
}

/* --- connections by number: the low half says where, the high half is random --- */

static enum gn_status grow(struct gn_worker *e, struct gn_err *err)
{
	uint32_t room = e->conn_room ? 2 * e->conn_room : 16;
	struct gn_worker_slot *more;

	if (e->conn_room >= CONNS_MAX)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "more than %u connections", CONNS_MAX);
	more = realloc(e->conns, room * sizeof *more);
	if (!more)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u connections", room);
	memset(more + e->conn_room, 0, (room - e->conn_room) * sizeof *more);
	e->conn_next = e->conn_room;
	e->conns = more;
	e->conn_room = room;
	return GN_OK;
}

enum gn_status gn_worker_add(struct gn_worker *e, struct gn_conn *c, uint32_t *number, struct gn_err *err)
{
	uint32_t tried = 0;
	uint16_t high;

	while (tried < e->conn_room && e->conns[e->conn_next].conn) {
		e->conn_next = (e->conn_next + 1) % e->conn_room;
		tried++;
	}
	if (tried == e->conn_room && grow(e, err))
		return err ? err->status : GN_ERR_FAILED;
	if (getrandom(&high, sizeof high, 0) != sizeof high)
		return gn_err_set(err, GN_ERR_FAILED, "no random numbers to be had");
	*number = (uint32_t)high << 16 | e->conn_next;
	e->conns[e->conn_next] = (struct gn_worker_slot){.conn = c, .number = *number};
	e->conn_next = (e->conn_next + 1) % e->conn_room;
	return GN_OK;
}

void gn_worker_remove(struct gn_worker *e, uint32_t number)
{
	e->conns[number & 0xffff] = (struct gn_worker_slot){0};
}

/* --- operations --- */

static void done(struct gn_op *op, ucs_status_t rc, size_t len_bytes)
{
	op->active = 0;
	op->handle = NULL;
	op->status = rc;
	op->len_bytes = len_bytes;
	--*op->active_of_conn;
	op->worker->active -= op->data != NULL;
}

static void sent(void *request, ucs_status_t rc, void *argument)
{
	struct gn_op *op = argument;

	ucp_request_free(request);
	done(op, rc, op->len_bytes);
}

static void received(void *request, ucs_status_t rc, const ucp_tag_recv_info_t *info, void *argument)
{
	ucp_request_free(request);
	done(argument, rc, rc == UCS_OK ? info->length : 0);
}

static void begin(struct gn_op *op, size_t len_bytes)
{
	op->active = 1;
	op->len_bytes = len_bytes;
	op->status = UCS_INPROGRESS;
	++*op->active_of_conn;
	op->worker->active += op->data != NULL;
}

static void begun(struct gn_op *op, void *request)
{
	if (!UCS_PTR_IS_PTR(request))
		done(op, UCS_PTR_STATUS(request), op->len_bytes);
	else if (op->active)
		op->handle = request;
}

void gn_op_send(struct gn_op *op, struct gn_link *link, uint64_t tag, const void *data, size_t len_bytes)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | link->send_flags,
				     .cb.send = sent,
				     .user_data = op};

	op->data = data;
	op->room_bytes = len_bytes;
	begin(op, len_bytes);
	begun(op, ucp_tag_send_nbx(link->ep, data, len_bytes, tag ^ link->peer.key, &param));
}

void gn_op_receive(struct gn_op *op, struct gn_worker *e, uint64_t tag, void *data, size_t len_bytes)
{
	ucp_tag_recv_info_t info = {0};
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
						     UCP_OP_ATTR_FIELD_RECV_INFO,
				     .cb.recv = received,
				     .user_data = op,
				     .recv_info.tag_info = &info};
	void *request;

	op->data = data;
	op->room_bytes = len_bytes;
	begin(op, len_bytes);
	request = ucp_tag_recv_nbx(e->worker, data, len_bytes, tag ^ e->name.key, UINT64_MAX, &param);
	if (!request)
		op->len_bytes = info.length;
	begun(op, request);
}

void gn_op_tell(struct gn_op *op, struct gn_link *link, const struct gn_wire *message)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
						     UCP_OP_ATTR_FIELD_FLAGS,
				     .flags = UCP_AM_SEND_FLAG_EAGER,
				     .cb.send = sent,
				     .user_data = op};

	begin(op, sizeof *message);
	begun(op, ucp_am_send_nbx(link->ep, MESSAGE_ID, NULL, 0, message, sizeof *message, &param));
}

void gn_op_flush(struct gn_op *op, struct gn_link *link)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.send = sent,
				     .user_data = op};

	begin(op, 0);
	begun(op, ucp_ep_flush_nbx(link->ep, &param));
}

void gn_op_cancel(struct gn_op *op, struct gn_worker *e)
{
	if (op->active && op->handle)
		ucp_request_cancel(e->worker, op->handle);
}
