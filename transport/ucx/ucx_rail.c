#include "transport/ucx/ucx_internal.h"

#include "src/base/clock.h"
#include "transport/schedule/algo.h"

#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

/* --- context and worker --- */

/* Sets a variable of UCX's tcp transport, UCX_TCP_KEY, unless the environment does. UCX knows it as KEY, from 1.17 on as TCP_KEY: it
 * warns of a name that it does not know, and goes on without. */
static ucs_status_t prefer(ucp_config_t *config, const char *variable, int number, const char *unit)
{
	unsigned major, minor, release;
	char value[32];

	if (getenv(variable))
		return UCS_OK;
	ucp_get_version(&major, &minor, &release);
	snprintf(value, sizeof value, "%d%s", number, unit);
	return ucp_config_modify(config, variable + strlen(major > 1 || minor >= 17 ? "UCX_" : "UCX_TCP_"), value);
}

/* UCX warns, on standard output, of settings for a transport that it does not open: of tcp without a network device. */
static int opens_tcp(const struct gn_ucx_rail *r, const char *tls)
{
	const char *allowed = getenv("UCX_NET_DEVICES"), *at = *r->device || !allowed ? r->device : allowed;
	char name[IFNAMSIZ];
	int found = !*at || !strcmp(at, "all");

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

/* A tcp connection on which nothing is sent finds out that its link is gone a second before the world's limit is over, so that
 * the job ends within it (gn_ucx_check); where someone waits for a message by that link, the watch is given the time to say
 * so, because it knows more. UCX's own values take 15 s. What UCX does besides, for all transports, is turned off: each round
 * counts as something that has happened (ucp_worker_progress), and a job that has stalled looked alive as long as rounds were
 * more frequent than the limit. */
static ucs_status_t keep_alive(const struct gn_ucx_rail *r, const char *tls, ucp_config_t *config)
{
	int limit = gn_world_silent_after_ms(r->fabric->world) / 1000, idle = limit > 9 ? limit / 5 : 1;
	/* the kernel sends 127 probes at most */
	int rest = limit - 1 - idle, every = 1 + rest / 100, probes = rest / every > 2 ? rest / every : 2;
	ucs_status_t rc = ucp_config_modify(config, "KEEPALIVE_INTERVAL", "inf");

	if (rc == UCS_OK && !opens_tcp(r, tls))
		return UCS_OK;
	if (rc == UCS_OK)
		rc = prefer(config, "UCX_TCP_KEEPIDLE", idle, "s");
	if (rc == UCS_OK)
		rc = prefer(config, "UCX_TCP_KEEPINTVL", every, "s");
	if (rc == UCS_OK)
		rc = prefer(config, "UCX_TCP_KEEPCNT", probes, "");
	/* a rail that does not reach is found out, which a connection that the kernel goes on trying for two minutes would prevent */
	return rc == UCS_OK && r->fabric->rail_count > 1 ? prefer(config, "UCX_TCP_CONN_NB", 1, "") : rc;
}

static ucs_status_t configure(const struct gn_ucx_rail *r, const char *tls, ucp_config_t *config)
{
	ucs_status_t rc = keep_alive(r, tls, config);

	if (rc == UCS_OK)
		rc = ucp_config_modify(config, "TLS", tls);
	if (rc == UCS_OK && *r->device)
		rc = ucp_config_modify(config, "NET_DEVICES", r->device);
	/* dc, which only some adapters have, is named without a look at which these are */
	if (rc == UCS_OK && !strcmp(r->fabric->transport, "rc") && !getenv("UCX_WARN_INVALID_CONFIG"))
		rc = ucp_config_modify(config, "WARN_INVALID_CONFIG", "n");
	/* of messages that ask for it, see send_flags_of() */
	if (rc == UCS_OK && !getenv("UCX_RNDV_SEND_NBR_THRESH"))
		rc = ucp_config_modify(config, "RNDV_SEND_NBR_THRESH", "inf");
	return rc;
}

/* What UCX shares lies in /dev/shm, of which containers often have 64 MB. By UCX 1.13's defaults. */
static enum gn_status explain_worker(const char *tls, ucs_status_t rc, struct gn_err *err)
{
	enum gn_status status = gn_ucx_fail(err, "opening the fabric's worker", rc);
	struct statvfs room;

	if ((rc == UCS_ERR_NO_MEMORY || rc == UCS_ERR_NO_RESOURCE) && gn_ucx_tls_has_shm(tls) && !statvfs("/dev/shm", &room))
		gn_err_prefix(err, "UCX takes 4.4 MB of /dev/shm for each rank, and %.1f of its %.1f MB are free; make it larger (docker "
			      "run --shm-size, podman too), or set UCX_POSIX_RX_BUFS_GROW=128, with which it takes 1.1 MB",
			      (double)room.f_bavail * (double)room.f_frsize / 1e6, (double)room.f_blocks * (double)room.f_frsize / 1e6);
	return status;
}

enum gn_status gn_ucx_rail_open(struct gn_ucx_rail *r, const char *tls, struct gn_err *err)
{
	size_t size = (size_t)gn_world_size(r->fabric->world);
	ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
					     UCP_PARAM_FIELD_ESTIMATED_NUM_PPN,
			       .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
			       .estimated_num_eps = (size_t)gn_algorithms_peers((int)size),
			       .estimated_num_ppn = (size_t)gn_world_local_size(r->fabric->world)};
	ucp_worker_params_t wp = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
				  .thread_mode = UCS_THREAD_MODE_SERIALIZED};
	ucp_config_t *config;
	ucs_status_t rc;

	r->ends = calloc(size, sizeof *r->ends);
	if (!r->ends)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a fabric of %zu ranks", size);
	rc = ucp_config_read(NULL, NULL, &config);
	if (rc != UCS_OK)
		return gn_ucx_fail(err, "reading UCX's settings", rc);
	rc = configure(r, tls, config);
	if (rc == UCS_OK)
		rc = ucp_init(&params, config, &r->context);
	ucp_config_release(config);
	if (rc != UCS_OK) {
		gn_ucx_fail(err, "opening the fabric", rc);
		return gn_err_prefix(err, "transports '%s'%s%s", tls, *r->device ? " on " : "", r->device);
	}
	rc = ucp_worker_create(r->context, &wp, &r->worker);
	if (rc == UCS_OK)
		rc = ucp_worker_get_efd(r->worker, &r->event_fd);
	return rc == UCS_OK ? GN_OK : explain_worker(tls, rc, err);
}

int gn_ucx_takes_gpu_memory(const struct gn_ucx *f)
{
	ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

	for (int i = 0; i < f->rail_count; i++)
		if (ucp_context_query(f->rails[i].context, &attr) != UCS_OK || !(attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)))
			return 0;
	return 1;
}

void gn_ucx_rail_close(struct gn_ucx_rail *r, int forget)
{
	/* Taking a worker down under messages on their way would call back for requests whose owners are gone, and UCX 1.13
	 * cannot cancel sends over shared memory. An abandoned one stays as it is until the process ends, soon. */
	if (r->worker && !forget)
		ucp_worker_destroy(r->worker);
	if (r->context && !forget)
		ucp_cleanup(r->context);
	free(r->ends);
}

/* --- addresses: the rank's home; of each rail its length, the address, and zeros up to a multiple of eight bytes --- */

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
	uint64_t told = len;

	if (rc != UCS_OK)
		return gn_ucx_fail(err, "this rank's fabric address", rc);
	gn_strbuf_append(out, (const char *)&told, sizeof told);
	gn_strbuf_append(out, (const void *)address, len);
	gn_strbuf_append(out, zeros, padded(len) - len);
	ucp_worker_release_address(r->worker, address);
	return gn_strbuf_failed(out) ? gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an address") : GN_OK;
}

static enum gn_status take_addresses(struct gn_ucx *f, size_t rank, struct gn_err *err)
{
	const char *from = f->told.items[rank];
	size_t len = f->told.lens[rank];
	uint64_t each, home = 0;
	int i = 0;

	if (len >= sizeof home) {
		memcpy(&home, from, sizeof home);
		from += sizeof home;
		len -= sizeof home;
	}
	f->homes[rank] = (struct gn_ucx_home){(uint8_t)(home % GN_RAILS_MAX), (uint8_t)(home / GN_RAILS_MAX % GN_RAILS_MAX + 1)};

	for (; i < f->rail_count && len >= sizeof each; i++) {
		memcpy(&each, from, sizeof each);
		if (!each || each > len - sizeof each || padded(each) > len - sizeof each)
			break;
		f->rails[i].ends[rank].address = from + sizeof each;
		from += sizeof each + padded(each);
		len -= sizeof each + padded(each);
	}
	if (i < f->rail_count || len)
		return gn_err_set(err, GN_ERR_MISMATCH, "rank %zu tells its fabric addresses in another layout: do all ranks run the same "
				  "build of gannet?", rank);
	return GN_OK;
}

enum gn_status gn_ucx_exchange_addresses(struct gn_ucx *f, struct gn_err *err)
{
	uint64_t home = 0;
	enum gn_status status = GN_OK;
	struct gn_strbuf mine;

	f->homes = calloc((size_t)gn_world_size(f->world), sizeof *f->homes);
	if (!f->homes)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", gn_world_size(f->world));
	if (f->rail_count > 1)
		home = (uint64_t)gn_ucx_nearest_rail(f) + GN_RAILS_MAX * (uint64_t)gn_ucx_span(f);
	gn_strbuf_init(&mine);
	gn_strbuf_append(&mine, (const char *)&home, sizeof home);
	for (int i = 0; !status && i < f->rail_count; i++)
		status = append_address(&f->rails[i], &mine, err);
	if (!status)
		status = gn_world_exchange(f->world, gn_strbuf_text(&mine), mine.len, &f->told, err);
	for (size_t r = 0; !status && r < f->told.size; r++)
		status = take_addresses(f, r, err);
	gn_strbuf_release(&mine);
	return status;
}

/* --- endpoints --- */

static void endpoint_broke(void *argument, ucp_ep_h ep, ucs_status_t rc)
{
	(void)ep;
	gn_ucx_note_end(argument, rc);
}

/* Over TCP no message waits for its receiver. UCX's rendezvous lets the receiver's answer queue behind the data that it is
 * sending itself, in the same byte stream, and both directions stand still by turns: on 1 Gbit links an allreduce of 4 MiB
 * took twice as long as the wire needs. The socket's window holds back a sender that is too early, unless a progress thread
 * takes in what comes. */
static uint32_t send_flags_of(const struct gn_ucx_end *e)
{
	return gn_ucx_end_is_tcp(e) ? UCP_OP_ATTR_FLAG_FAST_CMPL : 0;
}

static ucs_status_t open_endpoint(struct gn_ucx_end *e, ucp_err_handling_mode_t mode)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = e->address,
		.err_mode = mode,
		.err_handler = {.cb = endpoint_broke, .arg = e},
	};

	return ucp_ep_create(e->rail->worker, &params, &e->ep);
}

static void close_quickly(struct gn_ucx_end *e)
{
	ucp_request_param_t quick = {0};
	void *request = ucp_ep_close_nbx(e->ep, &quick);

	while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS)
		ucp_worker_progress(e->rail->worker);
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
	e->ep = NULL;
}

/* UCX leaves rc for ud where it expects more endpoints than the transport is allowed, and says nothing. */
static enum gn_status check_lanes(const struct gn_ucx_end *e, int rank, struct gn_err *err)
{
	const struct gn_world *w = e->rail->fabric->world;
	const char *wanted = e->rail->fabric->transport;
	enum gn_status status = GN_OK;
	struct gn_strbuf lanes;

	gn_strbuf_init(&lanes);
	gn_ucx_endpoint_lanes(e->ep, 0, &lanes);
	if (!gn_ucx_lanes_fit(gn_strbuf_text(&lanes), wanted))
		status = gn_err_set(err, GN_ERR_FAILED, "rank %d on %s was to reach rank %d on %s by %s, but UCX takes %s: take away what "
				    "keeps it from %s (a limit such as UCX_RC_MAX_NUM_EPS, a device that does not offer it), or ask for "
				    "another transport", gn_world_rank(w), gn_world_host_of(w, gn_world_rank(w)), rank,
				    gn_world_host_of(w, rank), wanted, gn_strbuf_text(&lanes), wanted);
	gn_strbuf_release(&lanes);
	return status;
}

/* Whoever has just died cannot be reached either: its loss, which is told within moments, is then the reason. */
static enum gn_status lost_meanwhile(struct gn_world *w, struct gn_err *err)
{
	const struct timespec pause = {0, 10000000};
	enum gn_status status = gn_world_check(w, err);

	for (int i = 0; !status && i < 100; i++) {
		nanosleep(&pause, NULL);
		status = gn_world_check(w, err);
	}
	return status;
}

/* UCX 1.13's shared memory has no error handling of its own, so peers of this node that may use it get endpoints without;
 * should such an endpoint turn out to use a network, it is made again with. */
enum gn_status gn_ucx_rail_connect(struct gn_ucx_rail *r, int rank, struct gn_err *err)
{
	struct gn_ucx_end *e = &r->ends[rank];
	int plain = e->same_node && r->fabric->shm_allowed;
	enum gn_status lost;
	ucs_status_t rc;

	if (e->ep)
		return GN_OK;
	rc = open_endpoint(e, plain ? UCP_ERR_HANDLING_MODE_NONE : UCP_ERR_HANDLING_MODE_PEER);
	if (rc == UCS_OK && plain && !gn_ucx_end_is_shm(e)) {
		close_quickly(e);
		rc = open_endpoint(e, UCP_ERR_HANDLING_MODE_PEER);
	}
	if (rc == UCS_OK) {
		e->send_flags = send_flags_of(e);
		r->fabric->may_hold |= e->send_flags != 0;
		return check_lanes(e, rank, err);
	}
	e->ep = NULL;
	lost = lost_meanwhile(r->fabric->world, err);
	if (lost)
		return lost;
	gn_ucx_fail(err, "no way to reach it with the transports allowed", rc);
	gn_err_prefix(err, "rank %d on %s%s%s", rank, gn_world_host_of(r->fabric->world, rank), *r->device ? ", by " : "",
		      r->device);
	return GN_ERR_FAILED;
}

void gn_ucx_rail_drop(struct gn_ucx_rail *r, int rank)
{
	ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
	void *request = ucp_ep_close_nbx(r->ends[rank].ep, &force);

	/* one that is still being connected over tcp ends when the kernel gives up, which nobody waits for */
	r->ends[rank].ep = NULL;
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
}

/* Ends when all the requests are done or the time is over. */
void gn_ucx_rail_disconnect(struct gn_ucx_rail *r, uint64_t until_ns)
{
	ucp_request_param_t param = {0};
	int size = gn_world_size(r->fabric->world), left;
	void **closing = calloc((size_t)size, sizeof *closing);

	for (int i = 0; i < size; i++) {
		void *request = r->ends[i].ep ? ucp_ep_close_nbx(r->ends[i].ep, &param) : NULL;

		r->ends[i].ep = NULL;
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
	/* the worker's end completes what is left, and aborts when nobody has given it up */
	for (int i = 0; closing && i < size; i++)
		if (closing[i])
			ucp_request_free(closing[i]);
	free(closing);
}
