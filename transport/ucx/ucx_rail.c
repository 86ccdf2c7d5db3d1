#include "transport/ucx/ucx_internal.h"

#include "src/base/clock.h"
#include "src/base/thread.h"
#include "transport/schedule/algo.h"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- context and worker --- */

/* Sets an option of UCX's tcp transport, UCX_TCP_KEY, unless the environment sets it. ucp_config_modify() calls it KEY, from UCX
 * 1.17 on TCP_KEY; UCX warns about unknown names and ignores them. */
static ucs_status_t set_tcp_option(ucp_config_t *config, const char *variable, int number, const char *unit)
{
	unsigned major, minor, release;
	char value[32];

	if (getenv(variable))
		return UCS_OK;
	ucp_get_version(&major, &minor, &release);
	snprintf(value, sizeof value, "%d%s", number, unit);
	return ucp_config_modify(config, variable + strlen(major > 1 || minor >= 17 ? "UCX_" : "UCX_TCP_"), value);
}

/* Whether UCX will open its tcp transport. It warns, on standard output, about options of a transport that it does not open. */
static int opens_tcp(const struct gn_ucx_rail *r, const char *tls)
{
	const char *allowed = gn_rails_allowed(), *at = *r->device || !allowed ? r->device : allowed;
	char name[IFNAMSIZ];
	int found = !*at;

	for (size_t len; *at && !found; at += len + (at[len] == ',')) {
		len = strcspn(at, ",");
		if (len >= sizeof name)
			continue;
		memcpy(name, at, len);
		name[len] = 0;
		found = if_nametoindex(name) != 0;
	}
	return found && gn_ucx_tls_has_tcp(tls);
}

/* TCP keepalive: an idle connection reports a failed link one second before the world's limit, so that the job ends within the
 * limit (gn_ucx_check). While a rank waits for a message on that link, the heartbeat has that second to report first, because it
 * knows more. UCX's defaults take 15 s. UCX's own keepalive for all transports is disabled: each of its rounds counts as an event
 * of ucp_worker_progress(), so that a stalled job seemed to make progress while rounds were more frequent than the limit. */
static ucs_status_t configure_tcp(const struct gn_ucx_rail *r, const char *tls, ucp_config_t *config)
{
	int limit = gn_world_silent_after_ms(r->ucx->world) / 1000, idle = limit > 9 ? limit / 5 : 1;
	/* TCP_KEEPCNT is at most 127 */
	int rest = limit - 1 - idle, interval = 1 + rest / 100, probes = rest / interval > 2 ? rest / interval : 2;
	ucs_status_t rc = ucp_config_modify(config, "KEEPALIVE_INTERVAL", "inf");

	if (rc == UCS_OK && !opens_tcp(r, tls))
		return UCS_OK;
	if (rc == UCS_OK)
		rc = set_tcp_option(config, "UCX_TCP_KEEPIDLE", idle, "s");
	if (rc == UCS_OK)
		rc = set_tcp_option(config, "UCX_TCP_KEEPINTVL", interval, "s");
	if (rc == UCS_OK)
		rc = set_tcp_option(config, "UCX_TCP_KEEPCNT", probes, "");
	/* Pieces of encrypted messages are copied by UCX, 8 KiB at a time by default; its peer takes 64 KiB. */
	if (rc == UCS_OK && gn_ucx_encrypts(r->ucx) && !getenv("UCX_TCP_RX_SEG_SIZE"))
		rc = set_tcp_option(config, "UCX_TCP_TX_SEG_SIZE", 64, "k");
	/* Nonblocking connect: gn_ucx_probe() must not block for the two minutes that the kernel retries an unreachable address. */
	return rc == UCS_OK && r->ucx->rail_count > 1 ? set_tcp_option(config, "UCX_TCP_CONN_NB", 1, "") : rc;
}

static ucs_status_t configure(const struct gn_ucx_rail *r, const char *tls, ucp_config_t *config)
{
	ucs_status_t rc = configure_tcp(r, tls, config);

	if (rc == UCS_OK)
		rc = ucp_config_modify(config, "TLS", tls);
	if (rc == UCS_OK && *r->device)
		rc = ucp_config_modify(config, "NET_DEVICES", r->device);
	/* "rc" also names dc, which some adapters lack; UCX would warn about it */
	if (rc == UCS_OK && !strcmp(r->ucx->transport, "rc") && !getenv("UCX_WARN_INVALID_CONFIG"))
		rc = ucp_config_modify(config, "WARN_INVALID_CONFIG", "n");
	/* only applies to sends with the flag of send_flags_of() */
	if (rc == UCS_OK && !getenv("UCX_RNDV_SEND_NBR_THRESH"))
		rc = ucp_config_modify(config, "RNDV_SEND_NBR_THRESH", "inf");
	return rc;
}

enum gn_status gn_ucx_rail_open(struct gn_ucx_rail *r, const char *tls, struct gn_err *err)
{
	size_t size = (size_t)gn_world_size(r->ucx->world);
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
					     UCP_PARAM_FIELD_ESTIMATED_NUM_PPN,
			       .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
			       .estimated_num_eps = (size_t)gn_algorithms_peers((int)size),
			       .estimated_num_ppn = (size_t)gn_world_local_size(r->ucx->world)};
	ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
	ucp_config_t *config;
	ucs_status_t rc;

	/* UCX aborts the process */
	if (gn_thread_check("UCX", err))
		return GN_ERR_FAILED;
	r->endpoints = calloc(size, sizeof *r->endpoints);
	if (!r->endpoints)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for UCX endpoints to %zu ranks", size);
	rc = ucp_config_read(NULL, NULL, &config);
	if (rc != UCS_OK)
		return gn_ucx_fail(err, "cannot read UCX's configuration", rc);
	rc = configure(r, tls, config);
	if (rc == UCS_OK)
		rc = ucp_init(&params, config, &r->context);
	ucp_config_release(config);
	if (rc != UCS_OK) {
		gn_ucx_fail(err, "cannot initialise UCX", rc);
		return gn_err_prefix(err, "transports '%s'%s%s", tls, *r->device ? " on " : "", r->device);
	}
	rc = ucp_worker_create(r->context, &wp, &r->worker);
	if (rc == UCS_OK)
		rc = ucp_worker_get_efd(r->worker, &r->event_fd);
	return rc == UCS_OK ? GN_OK : gn_ucx_explain_worker(tls, rc, err);
}

void gn_ucx_rail_close(struct gn_ucx_rail *r, int keep_worker)
{
	/* Destroying a worker with messages in flight would complete requests that are freed, and UCX 1.13 cannot cancel sends over
	 * shared memory. Over TCP it aborts the process if a connection is still being made ("Assertion `req->send.wireup.type ==
	 * ..."). Such a worker is therefore leaked; the process ends soon. */
	if (r->worker && !keep_worker)
		ucp_worker_destroy(r->worker);
	if (r->context && !keep_worker)
		ucp_cleanup(r->context);
	free(r->endpoints);
}

/* --- address exchange. A record is the rank's share of rails (8 bytes), with bits that say that it encrypts or has failed, its salt
 * (32 bytes) and the error's text, or for each rail the length of its worker address (8 bytes) and the address, zero-padded to a
 * multiple of 8 bytes. --- */

static const uint64_t ENCRYPTS = (uint64_t)1 << 63, FAILED = (uint64_t)1 << 62;

const char *gn_ucx_salt_of(const struct gn_ucx *f, int rank)
{
	return (const char *)f->addresses.items[rank] + sizeof(uint64_t);
}

static size_t padded(uint64_t len)
{
	return ((size_t)len + 7) & ~(size_t)7;
}

static enum gn_status append_address(const struct gn_ucx_rail *r, struct gn_strbuf *out, struct gn_err *err)
{
	static const char zeros[8];
	ucp_address_t *address = NULL;
	size_t len = 0;
	ucs_status_t rc = ucp_worker_get_address(r->worker, &address, &len);
	uint64_t len_field = len;

	if (rc != UCS_OK)
		return gn_ucx_fail(err, "cannot get a UCX worker address", rc);
	gn_strbuf_append(out, (const char *)&len_field, sizeof len_field);
	gn_strbuf_append(out, (const void *)address, len);
	gn_strbuf_append(out, zeros, padded(len) - len);
	ucp_worker_release_address(r->worker, address);
	return gn_strbuf_failed(out) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a UCX worker address") : GN_OK;
}

/* opened: whether this rank has rails to store them in; else only a failure is looked for. */
static enum gn_status parse_addresses(struct gn_ucx *f, size_t rank, enum gn_status opened, struct gn_err *err)
{
	const char *from = f->addresses.items[rank];
	size_t len = f->addresses.lens[rank];
	uint64_t each, share = 0;
	int i = 0, here = gn_world_rank(f->world);

	if (len >= sizeof share + GN_UCX_SALT_BYTES) {
		memcpy(&share, from, sizeof share);
		from += sizeof share + GN_UCX_SALT_BYTES;
		len -= sizeof share + GN_UCX_SALT_BYTES;
	}
	if (share & FAILED) {
		gn_err_set(err, GN_ERR_FAILED, "rank %zu on %s: %.*s", rank, gn_world_host_of(f->world, (int)rank), (int)len, from);
		if (err)
			err->told = here && (size_t)here != rank;
		return GN_ERR_FAILED;
	}
	if (opened)
		return GN_OK;
	if (!(share & ENCRYPTS) != !f->cipher)
		return gn_err_set(err, GN_ERR_USAGE, "rank %zu on %s has %s--encrypt-network or GN_ENCRYPT_NETWORK, rank %d has %s: give all ranks the "
				  "same", rank, gn_world_host_of(f->world, (int)rank), f->cipher ? "no " : "", here,
				  f->cipher ? "one" : "none");
	share &= ~ENCRYPTS;
	f->shares[rank] = (struct gn_ucx_rail_share){(uint8_t)(share % GN_RAILS_MAX),
						     (uint8_t)(share / GN_RAILS_MAX % GN_RAILS_MAX + 1)};

	for (; i < f->rail_count && len >= sizeof each; i++) {
		memcpy(&each, from, sizeof each);
		if (!each || each > len - sizeof each || padded(each) > len - sizeof each)
			break;
		f->rails[i].endpoints[rank].address = from + sizeof each;
		from += sizeof each + padded(each);
		len -= sizeof each + padded(each);
	}
	if (i < f->rail_count || len)
		return gn_err_set(err, GN_ERR_MISMATCH, "rank %zu sent its UCX addresses in another format: do all ranks run the same "
				  "build of gannet?", rank);
	return GN_OK;
}

enum gn_status gn_ucx_exchange_addresses(struct gn_ucx *f, enum gn_status opened, struct gn_err *err)
{
	uint64_t share = 0;
	enum gn_status status = GN_OK;
	uint8_t salt[GN_UCX_SALT_BYTES];
	struct gn_strbuf mine = {0};

	f->shares = calloc((size_t)gn_world_size(f->world), sizeof *f->shares);
	if (!f->shares)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", gn_world_size(f->world));
	if (f->rail_count > 1)
		share = (uint64_t)gn_ucx_nearest_rail(f) + GN_RAILS_MAX * (uint64_t)gn_ucx_extra_rails(f);
	status = gn_ucx_cipher_create(f, salt, err);
	share |= (f->cipher ? ENCRYPTS : 0) | (opened ? FAILED : 0);
	gn_strbuf_append(&mine, (const char *)&share, sizeof share);
	gn_strbuf_append(&mine, (const char *)salt, sizeof salt);
	if (opened)
		gn_strbuf_puts(&mine, err ? err->text : gn_status_text(opened));
	for (int i = 0; !status && !opened && i < f->rail_count; i++)
		status = append_address(&f->rails[i], &mine, err);
	if (!status)
		status = gn_world_exchange(f->world, gn_strbuf_text(&mine), mine.len, &f->addresses, err);
	for (size_t r = 0; !status && r < f->addresses.size; r++)
		status = parse_addresses(f, r, opened, err);
	gn_strbuf_release(&mine);
	return status;
}

/* --- endpoints --- */

static void endpoint_broke(void *argument, ucp_ep_h ep, ucs_status_t rc)
{
	(void)ep;
	gn_ucx_note_disconnect(argument, rc);
}

static ucs_status_t create_endpoint(struct gn_ucx_endpoint *e, ucp_err_handling_mode_t mode)
{
	e->reports_errors = mode == UCP_ERR_HANDLING_MODE_PEER;
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = e->address,
		.err_mode = mode,
		.err_handler = {.cb = endpoint_broke, .arg = e},
	};

	return ucp_ep_create(e->rail->worker, &params, &e->ep);
}

static void close_and_wait(struct gn_ucx_endpoint *e)
{
	ucp_request_param_t param = {0};
	void *request = ucp_ep_close_nbx(e->ep, &param);

	while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS)
		ucp_worker_progress(e->rail->worker);
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
	e->ep = NULL;
}

/* UCX silently falls back from rc to ud when it expects more endpoints than rc's limit. */
static enum gn_status check_lanes(const struct gn_ucx_endpoint *e, int rank, struct gn_err *err)
{
	const struct gn_world *w = e->rail->ucx->world;
	const char *wanted = e->rail->ucx->transport;
	enum gn_status status = GN_OK;
	struct gn_strbuf lanes = {0};

	gn_ucx_endpoint_lanes(e->ep, 0, &lanes);
	if (!gn_ucx_lanes_match(gn_strbuf_text(&lanes), wanted))
		status = gn_err_set(err, GN_ERR_FAILED, "rank %d on %s was to reach rank %d on %s by %s, but UCX selected %s: remove what "
				    "prevents %s (a limit such as UCX_RC_MAX_NUM_EPS, a device without it), or select another "
				    "transport", gn_world_rank(w), gn_world_host_of(w, gn_world_rank(w)), rank,
				    gn_world_host_of(w, rank), wanted, gn_strbuf_text(&lanes), wanted);
	gn_strbuf_release(&lanes);
	return status;
}

/* A peer that has just died cannot be reached either. Blocks for up to a second for the heartbeat to report it, which is then the
 * error. */
static enum gn_status check_peer_lost(struct gn_world *w, int rank, struct gn_err *err)
{
	enum gn_status status = gn_world_check_ranks(w, &rank, 1, 0, err);

	for (int i = 0; !status && i < 100; i++) {
		gn_clock_sleep_ns(10000000);
		status = gn_world_check_ranks(w, &rank, 1, 0, err);
	}
	return status;
}

/* Shared memory in UCX 1.13 does not support peer error handling, so endpoints to peers on this node are created without it; if
 * such an endpoint uses a network, it is created again with error handling. */
enum gn_status gn_ucx_rail_connect(struct gn_ucx_rail *r, int rank, struct gn_err *err)
{
	struct gn_ucx_endpoint *e = &r->endpoints[rank];
	int plain = e->same_node && r->ucx->shm_allowed;
	const char *allowed = gn_rails_allowed();
	struct gn_world *w = r->ucx->world;
	enum gn_status lost;
	ucs_status_t rc;

	if (e->ep)
		return GN_OK;
	if (gn_world_is_lost(w, rank))
		return gn_world_check_ranks(w, &rank, 1, 0, err);
	rc = create_endpoint(e, plain ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER);
	if (rc == UCS_OK && plain && !gn_ucx_endpoint_is_shm(e)) {
		close_and_wait(e);
		rc = create_endpoint(e, UCP_ERR_HANDLING_MODE_PEER);
	}
	if (rc == UCS_OK) {
		/* Over TCP messages are sent eagerly, without rendezvous. With rendezvous the receiver's reply queues behind the data that it
		 * sends itself on the same connection, and the two directions alternate: on 1 Gbit/s links an allreduce of 4 MiB took twice
		 * the wire time. The TCP window holds back a sender that is ahead of its receiver, unless a progress thread drains the
		 * socket. */
		e->send_flags = gn_ucx_endpoint_is_tcp(e) ? UCP_OP_ATTR_FLAG_FAST_CMPL : 0;
		r->ucx->may_queue |= e->send_flags != 0;
		return check_lanes(e, rank, err);
	}
	e->ep = NULL;
	lost = check_peer_lost(w, rank, err);
	if (lost)
		return lost;
	if (allowed)
		return gn_err_set(err, GN_ERR_FAILED, "rank %d on %s is not reached from %s by UCX_NET_DEVICES=%.100s (%s): name devices of "
				  "one network that connects these hosts, or unset it (gannet.conf may set it, as interfaces)", rank,
				  gn_world_host_of(w, rank), gn_world_host_of(w, gn_world_rank(w)), allowed, ucs_status_string(rc));
	gn_ucx_fail(err, "no allowed transport reaches it", rc);
	gn_err_prefix(err, "rank %d on %s%s%s", rank, gn_world_host_of(w, rank), *r->device ? ", by " : "", r->device);
	return GN_ERR_FAILED;
}

void gn_ucx_rail_drop(struct gn_ucx_rail *r, int rank)
{
	ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
	ucp_ep_h ep = r->endpoints[rank].ep;
	void *request;

	r->endpoints[rank].ep = NULL;
	request = ucp_ep_close_nbx(ep, &force);
	/* the request of an endpoint that is still connecting over tcp completes when the kernel's connect times out: not
	 * awaited */
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
}

int gn_ucx_rail_disconnect(struct gn_ucx_rail *r, uint64_t until_ns)
{
	ucp_request_param_t param = {0};
	int size = gn_world_size(r->ucx->world), left;
	void **closing = calloc((size_t)size, sizeof *closing);

	for (int i = 0; i < size; i++) {
		int lost = gn_world_is_lost(r->ucx->world, i);
		void *request = r->endpoints[i].ep && !lost ? ucp_ep_close_nbx(r->endpoints[i].ep, &param) : NULL;

		/* what is under way to a lost rank over shared memory never completes */
		r->endpoints[i].ep = NULL;
		if (closing && UCS_PTR_IS_PTR(request))
			closing[i] = request;
	}
	do {
		left = 0;
		for (int i = 0; i < 64; i++)
			ucp_worker_progress(r->worker);
		for (int i = 0; closing && i < size; i++) {
			if (closing[i] && ucp_request_check_status(closing[i]) != UCS_INPROGRESS) {
				ucp_request_free(closing[i]);
				closing[i] = NULL;
			}
			left += closing[i] != NULL;
		}
	} while (left && gn_clock_ns() < until_ns);
	/* ucp_worker_destroy() completes the remaining requests; it asserts if they were not freed before */
	for (int i = 0; closing && i < size; i++)
		if (closing[i])
			ucp_request_free(closing[i]);
	free(closing);
	return !left;
}
