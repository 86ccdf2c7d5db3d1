#include "transport/fabric.h"

#include "src/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

#define CLOSE_NS 1000000000u

struct peer {
	struct gn_fabric *fabric;
	ucp_ep_h ep;
	void *address;
	size_t address_len;
	int same_node;
	uint32_t send_flags;
};

struct gn_fabric {
	struct gn_world *world;
	uint64_t tag_key; /* what a stranger would have to guess to slip a message in */
	ucp_context_h context;
	ucp_worker_h worker;
	struct peer *peers;
	int shm_allowed;
	int abandoned;
	int broken; /* rank + 1 */
	ucs_status_t broken_status;
	uint64_t broken_ns;
	struct gn_fabric_traffic traffic;
};

static enum gn_status ucx_fail(struct gn_err *err, const char *what, ucs_status_t rc)
{
	return gn_err_set(err, rc == UCS_ERR_NO_MEMORY ? GN_ERR_NO_MEMORY : GN_ERR_FAILED, "%s: %s (UCX)", what,
			  ucs_status_string(rc));
}

static const struct {
	const char *name, *tls;
} transports[] = {
	{"tcp", "tcp,self"}, {"shm", "sm,self"}, {"rc", "rc,ud,self"}, {"ud", "ud,self"},
};

/* The UCX_TLS value for a name of ours; NULL leaves UCX's own choice. */
static enum gn_status tls_of(const char *transport, const char **tls, struct gn_err *err)
{
	*tls = getenv("UCX_TLS");
	if (*tls || !strcmp(transport, "auto"))
		return GN_OK;
	for (size_t i = 0; i < sizeof transports / sizeof *transports; i++)
		if (!strcmp(transports[i].name, transport)) {
			*tls = transports[i].tls;
			return GN_OK;
		}
	return gn_err_set(err, GN_ERR_USAGE, "no transport '%s': auto, tcp, shm, rc or ud", transport);
}

/* Does a UCX_TLS list let shared memory in? A list that begins with ^ names what is kept out. */
static int lets_shm_in(const char *tls)
{
	static const char *const words[] = {"all", "sm", "shm", "posix", "sysv", "cma", "mm", "knem", "xpmem"};
	const char *at = tls;
	int listed = 0;

	if (!tls)
		return 1;
	if (*at == '^')
		at++;
	while (*at) {
		size_t len = strcspn(at, ",");

		for (size_t i = 0; i < sizeof words / sizeof *words; i++)
			listed |= strlen(words[i]) == len && !strncmp(words[i], at, len);
		at += len + (at[len] == ',');
	}
	return *tls == '^' ? !listed : listed;
}

static enum gn_status open_context(struct gn_fabric *f, const char *tls, struct gn_err *err)
{
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
			       .features = UCP_FEATURE_TAG};
	ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				  .thread_mode = UCS_THREAD_MODE_SINGLE};
	ucp_config_t *config;
	ucs_status_t rc = ucp_config_read(NULL, NULL, &config);

	if (rc != UCS_OK)
		return ucx_fail(err, "reading UCX's settings", rc);
	if (tls)
		rc = ucp_config_modify(config, "TLS", tls);
	/* of messages that ask for it, see send_flags_of() */
	if (rc == UCS_OK && !getenv("UCX_RNDV_SEND_NBR_THRESH"))
		rc = ucp_config_modify(config, "RNDV_SEND_NBR_THRESH", "inf");
	params.estimated_num_eps = (size_t)gn_world_size(f->world);
	if (rc == UCS_OK)
		rc = ucp_init(&params, config, &f->context);
	ucp_config_release(config);
	if (rc != UCS_OK) {
		ucx_fail(err, "opening the fabric", rc);
		return gn_err_prefix(err, "transports '%s'", tls ? tls : "all");
	}
	rc = ucp_worker_create(f->context, &wp, &f->worker);
	return rc == UCS_OK ? GN_OK : ucx_fail(err, "opening the fabric's worker", rc);
}

static enum gn_status exchange_addresses(struct gn_fabric *f, struct gn_err *err)
{
	size_t size = (size_t)gn_world_size(f->world), len = 0;
	void **all = calloc(size, sizeof *all);
	size_t *lens = calloc(size, sizeof *lens);
	ucp_address_t *address = NULL;
	enum gn_status status = GN_OK;
	ucs_status_t rc;

	if (!all || !lens)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu ranks", size);
	if (!status) {
		rc = ucp_worker_get_address(f->worker, &address, &len);
		if (rc != UCS_OK)
			status = ucx_fail(err, "this rank's fabric address", rc);
	}
	if (!status)
		status = gn_world_exchange(f->world, address, len, all, lens, err);
	for (size_t r = 0; !status && r < size; r++) {
		f->peers[r].address = all[r];
		f->peers[r].address_len = lens[r];
	}
	if (address)
		ucp_worker_release_address(f->worker, address);
	free(all);
	free(lens);
	return status;
}

enum gn_status gn_fabric_create(struct gn_world *world, const char *transport, struct gn_fabric **out,
				struct gn_err *err)
{
	int size = gn_world_size(world), here = gn_world_node_of(world, gn_world_rank(world));
	struct gn_fabric *f = calloc(1, sizeof *f);
	const char *tls = NULL;
	enum gn_status status = GN_OK;

	if (f)
		f->peers = calloc((size_t)size, sizeof *f->peers);
	if (!f || !f->peers) {
		free(f);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a fabric of %d ranks", size);
	}
	f->world = world;
	for (int r = 0; r < size; r++) {
		f->peers[r].fabric = f;
		f->peers[r].same_node = gn_world_node_of(world, r) == here;
	}
	status = gn_world_key(world, "gannet message tags", &f->tag_key, sizeof f->tag_key, err);
	if (!status)
		status = tls_of(transport, &tls, err);
	f->shm_allowed = lets_shm_in(tls);
	if (!status)
		status = open_context(f, tls, err);
	if (!status)
		status = exchange_addresses(f, err);
	if (status) {
		gn_fabric_destroy(f);
		return status;
	}
	*out = f;
	return GN_OK;
}

/* Only kept for whoever asks: a peer that has finished and left is no failure. */
static void endpoint_broke(void *argument, ucp_ep_h ep, ucs_status_t rc)
{
	struct peer *p = argument;
	struct gn_fabric *f = p->fabric;

	(void)ep;
	if (f->broken)
		return;
	f->broken = (int)(p - f->peers) + 1;
	f->broken_status = rc;
	f->broken_ns = gn_clock_ns();
}

static int lane_is_shm(const char *lanes)
{
	return !strstr(lanes, "tcp/") && !strstr(lanes, "rc_") && !strstr(lanes, "ud_") && !strstr(lanes, "dc_");
}

/* Over TCP no message waits for its receiver. UCX's rendezvous lets the receiver's answer queue behind the data that it is
 * sending itself, in the same byte stream, and both directions stand still by turns: on 1 Gbit links an allreduce of 4 MiB
 * took twice as long as the wire needs. The socket's window holds back a sender that is too early. */
static uint32_t send_flags_of(struct gn_fabric *f, int rank)
{
	struct gn_strbuf lanes;
	uint32_t flags;

	gn_strbuf_init(&lanes);
	gn_fabric_lanes(f, rank, &lanes);
	flags = strstr(gn_strbuf_text(&lanes), "tcp/") ? UCP_OP_ATTR_FLAG_FAST_CMPL : 0;
	gn_strbuf_release(&lanes);
	return flags;
}

static ucs_status_t open_endpoint(struct gn_fabric *f, struct peer *p, ucp_err_handling_mode_t mode)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = p->address,
		.err_mode = mode,
		.err_handler = {.cb = endpoint_broke, .arg = p},
	};

	return ucp_ep_create(f->worker, &params, &p->ep);
}

/* Ends when all the requests are done or the time is over. */
static void close_endpoints(struct gn_fabric *f, uint64_t limit_ns)
{
	ucp_request_param_t param = {0};
	int size = gn_world_size(f->world), left;
	void **closing = calloc((size_t)size, sizeof *closing);
	uint64_t until = gn_clock_ns() + limit_ns;

	for (int r = 0; r < size; r++) {
		void *request = f->peers[r].ep ? ucp_ep_close_nbx(f->peers[r].ep, &param) : NULL;

		f->peers[r].ep = NULL;
		if (closing && UCS_PTR_IS_PTR(request))
			closing[r] = request;
	}
	do {
		left = 0;
		for (int i = 0; i < 64; i++)
			ucp_worker_progress(f->worker);
		for (int r = 0; closing && r < size; r++) {
			if (closing[r] && ucp_request_check_status(closing[r]) != UCS_INPROGRESS) {
				ucp_request_free(closing[r]);
				closing[r] = NULL;
			}
			left += closing[r] != NULL;
		}
	} while (left && gn_clock_ns() < until);
	/* the worker's end completes what is left, and aborts when nobody has given it up */
	for (int r = 0; closing && r < size; r++)
		if (closing[r])
			ucp_request_free(closing[r]);
	free(closing);
}

/* UCX 1.13's shared memory has no error handling of its own, so peers of this node that may use it get endpoints without;
 * should such an endpoint turn out to use a network, it is made again with. */
enum gn_status gn_fabric_connect(struct gn_fabric *f, int rank, struct gn_err *err)
{
	struct peer *p = &f->peers[rank];
	int plain = p->same_node && f->shm_allowed;
	ucp_request_param_t quick = {0};
	struct gn_strbuf lanes;
	ucs_status_t rc;
	void *request;

	if (p->ep)
		return GN_OK;
	rc = open_endpoint(f, p, plain ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER);
	if (rc == UCS_OK && plain) {
		gn_strbuf_init(&lanes);
		gn_fabric_lanes(f, rank, &lanes);
		if (!lane_is_shm(gn_strbuf_text(&lanes))) {
			request = ucp_ep_close_nbx(p->ep, &quick);
			while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS)
				ucp_worker_progress(f->worker);
			if (UCS_PTR_IS_PTR(request))
				ucp_request_free(request);
			p->ep = NULL;
			rc = open_endpoint(f, p, UCP_ERR_HANDLING_MODE_PEER);
		}
		gn_strbuf_release(&lanes);
	}
	if (rc == UCS_OK) {
		p->send_flags = send_flags_of(f, rank);
		return GN_OK;
	}
	p->ep = NULL;
	ucx_fail(err, "no way to reach it with the transports allowed", rc);
	gn_err_prefix(err, "rank %d on %s", rank, gn_world_host_of(f->world, rank));
	return GN_ERR_FAILED;
}

static enum gn_status status_of(ucs_status_t rc)
{
	switch (rc) {
	case UCS_OK:
		return GN_OK;
	case UCS_ERR_MESSAGE_TRUNCATED:
		return GN_ERR_MISMATCH;
	case UCS_ERR_NO_MEMORY:
		return GN_ERR_NO_MEMORY;
	case UCS_ERR_CANCELED:
	case UCS_ERR_CONNECTION_RESET:
	case UCS_ERR_ENDPOINT_TIMEOUT:
	case UCS_ERR_NOT_CONNECTED:
	case UCS_ERR_UNREACHABLE:
		return GN_ERR_PEER_LOST;
	default:
		return GN_ERR_FAILED;
	}
}

static void finish(struct gn_request *r, ucs_status_t rc)
{
	r->active = 0;
	r->handle = NULL;
	r->status = status_of(rc);
	r->complete(r);
}

static void sent(void *request, ucs_status_t rc, void *argument)
{
	ucp_request_free(request);
	finish(argument, rc);
}

/* A message shorter than its buffer is as wrong as one longer, which UCX finds by itself. */
static ucs_status_t whole(const struct gn_request *r, ucs_status_t rc, size_t length)
{
	return rc == UCS_OK && length != r->len_bytes ? UCS_ERR_MESSAGE_TRUNCATED : rc;
}

static void received(void *request, ucs_status_t rc, const ucp_tag_recv_info_t *info, void *argument)
{
	ucp_request_free(request);
	finish(argument, whole(argument, rc, info->length));
}

static enum gn_status begun(struct gn_request *r, void *request, const char *what, struct gn_err *err)
{
	if (UCS_PTR_IS_ERR(request)) {
		r->active = 0;
		ucx_fail(err, what, UCS_PTR_STATUS(request));
		if (err)
			err->status = status_of(UCS_PTR_STATUS(request));
		return status_of(UCS_PTR_STATUS(request));
	}
	if (request)
		r->handle = r->active ? request : NULL;
	else
		finish(r, UCS_OK);
	return GN_OK;
}

enum gn_status gn_fabric_send(struct gn_fabric *f, int rank, uint64_t tag, const void *data, size_t len_bytes,
			      struct gn_request *r, struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.send = sent,
				     .user_data = r};
	struct peer *p = &f->peers[rank];

	param.op_attr_mask |= p->send_flags;
	*(p->same_node ? &f->traffic.same_node_bytes : &f->traffic.other_node_bytes) += len_bytes;
	r->len_bytes = len_bytes;
	r->active = 1;
	return begun(r, ucp_tag_send_nbx(p->ep, data, len_bytes, tag ^ f->tag_key, &param), "sending", err);
}

/* A message that is here already is taken by probing: UCX 1.13 does not tell its length when a reception completes at once,
 * and freeing the request in a callback that runs inside of the call (UCP_OP_ATTR_FLAG_NO_IMM_CMPL) is a path few take. */
enum gn_status gn_fabric_receive(struct gn_fabric *f, uint64_t tag, void *data, size_t len_bytes, struct gn_request *r,
				 struct gn_err *err)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
				     .cb.recv = received,
				     .user_data = r};
	ucp_tag_recv_info_t info;
	ucp_tag_message_h message = ucp_tag_probe_nb(f->worker, tag ^ f->tag_key, UINT64_MAX, 1, &info);

	r->len_bytes = len_bytes;
	r->active = 1;
	if (message && info.length != len_bytes) {
		finish(r, UCS_ERR_MESSAGE_TRUNCATED);
		return GN_OK;
	}
	if (message)
		return begun(r, ucp_tag_msg_recv_nbx(f->worker, data, len_bytes, message, &param), "receiving", err);
	return begun(r, ucp_tag_recv_nbx(f->worker, data, len_bytes, tag ^ f->tag_key, UINT64_MAX, &param), "receiving", err);
}

unsigned gn_fabric_progress(struct gn_fabric *f)
{
	return f->abandoned ? 0 : ucp_worker_progress(f->worker);
}

void gn_fabric_abandon(struct gn_fabric *f)
{
	/* without progress no callback comes any more: whoever holds a request may forget it */
	f->abandoned = 1;
}

enum gn_status gn_fabric_check(const struct gn_fabric *f, uint64_t after_ns, struct gn_err *err)
{
	int rank = f->broken - 1;

	if (!f->broken || gn_clock_ns() - f->broken_ns < after_ns)
		return GN_OK;
	return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d on %s is lost: the connection to it broke (%s)", rank,
			  gn_world_host_of(f->world, rank), ucs_status_string(f->broken_status));
}

void gn_fabric_destroy(struct gn_fabric *f)
{
	if (!f)
		return;
	/* Taking a worker down under messages on their way would call back for requests whose owners are gone, and UCX 1.13
	 * cannot cancel sends over shared memory. An abandoned one stays as it is until the process ends, soon. */
	if (f->worker && !f->abandoned) {
		close_endpoints(f, CLOSE_NS);
		ucp_worker_destroy(f->worker);
	}
	if (f->context && !f->abandoned)
		ucp_cleanup(f->context);
	for (int r = 0; r < gn_world_size(f->world); r++)
		free(f->peers[r].address);
	free(f->peers);
	free(f);
}

void gn_fabric_traffic(const struct gn_fabric *f, struct gn_fabric_traffic *out)
{
	*out = f->traffic;
}

/* UCX 1.13 tells an endpoint's lanes only as text: "#  lane[0]:  1:tcp/eth0.0 md[1] ...". */
void gn_fabric_lanes(const struct gn_fabric *f, int rank, struct gn_strbuf *out)
{
	char *text = NULL, *line, *save = NULL, name[128], *dot;
	size_t len = 0, before = out->len;
	FILE *stream;

	if (!f->peers[rank].ep)
		return;
	stream = open_memstream(&text, &len);
	if (!stream)
		return;
	ucp_ep_print_info(f->peers[rank].ep, stream);
	fclose(stream);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "# lane[%*d]: %*d:%127s", name) != 1)
			continue;
		dot = strrchr(name, '.');
		if (dot)
			*dot = 0;
		if (!strstr(gn_strbuf_text(out) + before, name))
			gn_strbuf_printf(out, "%s%s", out->len > before ? " " : "", name);
	}
	free(text);
}
