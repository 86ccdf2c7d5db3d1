#include "transport/ucx/ucx_internal.h"

#include "src/base/clock.h"
#include "transport/topology/devices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <ucs/config/global_opts.h>
#include <unistd.h>

#define CLOSE_NS 1000000000u
/* A rail's worker is progressed in each call until QUIET_CALLS calls after its last fragment, because completed sends may not be on
 * the wire yet; from then on in every QUIET_INTERVAL-th call, to detect errors. */
#define QUIET_CALLS 4096
#define QUIET_INTERVAL 16

static enum gn_status allocate(struct gn_world *world, struct gn_ucx **out, struct gn_err *err)
{
	struct gn_ucx *f = calloc(1, sizeof *f);

	if (!f)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for UCX endpoints to %d ranks", gn_world_size(world));
	f->world = world;
	f->rail_count = 1;
	f->event_fd = -1;
	*out = f;
	return GN_OK;
}

/* Only the first rail carries shared memory and loopback. */
static const char *tls_of_rail(const char *tls, const struct gn_rails *rails, int rail)
{
	if (*tls != '^' || getenv("UCX_TLS") || !rail)
		return tls;
	return strchr(rails->items[rail].network, '/') ? "tcp" : "ib";
}

static enum gn_status open_rails(struct gn_ucx *f, const char *tls, const struct gn_rails *rails, struct gn_err *err)
{
	int size = gn_world_size(f->world), here = gn_world_node_of(f->world, gn_world_rank(f->world));
	enum gn_status status = GN_OK;

	if (rails->count > 1)
		f->rail_count = rails->count;
	for (int i = 0; i < f->rail_count && !status; i++) {
		struct gn_ucx_rail *r = &f->rails[i];

		r->ucx = f;
		if (rails->count)
			memcpy(r->device, rails->items[i].name, sizeof r->device);
		status = gn_ucx_rail_open(r, tls_of_rail(tls, rails, i), err);
		for (int k = 0; k < size && !status; k++) {
			r->endpoints[k].rail = r;
			r->endpoints[k].same_node = gn_world_node_of(f->world, k) == here;
		}
	}
	return status;
}

/* One event descriptor for the workers of all rails. */
static enum gn_status join_events(struct gn_ucx *f, struct gn_err *err)
{
	f->event_fd = f->rails[0].event_fd;
	if (f->rail_count == 1)
		return GN_OK;
	f->event_fd = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 0; i < f->rail_count; i++) {
		struct epoll_event event = {.events = EPOLLIN};

		if (f->event_fd < 0 || epoll_ctl(f->event_fd, EPOLL_CTL_ADD, f->rails[i].event_fd, &event))
			return gn_err_errno(err, errno, "cannot poll the events of %d network devices", f->rail_count);
	}
	return GN_OK;
}

/* Whether a UCX_NET_DEVICES has the device, or a port of it. */
static int is_named(const char *list, const char *device)
{
	for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
		if (strcspn(at, ",:") == strlen(device) && !strncmp(at, device, strlen(device)))
			return 1;
	return 0;
}

/* UCX's own error for a missing device names neither it nor the host. */
static enum gn_status need_device(const struct gn_ucx *f, const char *transport, struct gn_err *err)
{
	int rdma = !getenv("UCX_TLS") && (!strcmp(transport, "rc") || !strcmp(transport, "ud")), found = 0;
	const char *allowed = gn_rails_allowed(), *host = gn_world_host_of(f->world, gn_world_rank(f->world));
	struct gn_devices devices = {0};
	struct gn_strbuf names = {0};

	if (allowed && (strpbrk(allowed, "^*?[") || (gn_world_nodes(f->world) == 1 && f->shm_allowed)))
		allowed = NULL;
	if ((!rdma && !allowed) || gn_devices_read("/sys", &devices, NULL))
		return GN_OK;
	for (int i = 0; i < devices.count; i++) {
		const struct gn_net_device *d = &devices.items[i];

		found |= d->up && (!rdma || d->kind == GN_DEVICE_RDMA || d->kind == GN_DEVICE_SOFT_RDMA) &&
			 (!allowed || is_named(allowed, d->name));
		gn_strbuf_printf(&names, "%s%s%s", names.len ? ", " : "", d->name, d->up ? "" : " (down)");
	}
	if (!found && allowed)
		gn_err_set(err, GN_ERR_FAILED, "UCX_NET_DEVICES=%.100s names no %sdevice of %s that is up; it has %s: correct it, or unset "
			   "it (gannet.conf may set it, as interfaces)", allowed, rdma ? "RDMA " : "network ", host,
			   names.len ? gn_strbuf_text(&names) : "none");
	else if (!found)
		gn_err_set(err, GN_ERR_FAILED, "no way to reach others by %s: %s has no RDMA device that is up; it has %s", transport, host,
			   names.len ? gn_strbuf_text(&names) : "no network device");
	gn_strbuf_release(&names);
	gn_devices_release(&devices);
	return found ? GN_OK : GN_ERR_FAILED;
}

enum gn_status gn_ucx_create(struct gn_world *world, const char *transport, int rails, struct gn_ucx **out,
				struct gn_err *err)
{
	struct gn_rails agreed = {0};
	char place[GN_UCX_TLS_MAX];
	const char *tls = NULL;
	struct gn_ucx *f = NULL;
	enum gn_status status = allocate(world, &f, err);

	if (status)
		return status;
	status = gn_world_key(world, "gannet message tags", &f->tag_key, sizeof f->tag_key, err);
	if (!status)
		status = gn_ucx_tls(transport, place, &tls, err);
	f->shm_allowed = gn_ucx_tls_has_shm(tls);
	if (!getenv("UCX_TLS"))
		snprintf(f->transport, sizeof f->transport, "%s", transport);
	if (!status)
		status = need_device(f, transport, err);
	if (!status)
		status = gn_rails_agree(world, gn_ucx_tls_rail_kinds(tls), rails, &agreed, err);
	if (!status) {
		status = open_rails(f, tls, &agreed, err);
		if (!status)
			status = join_events(f, err);
		status = gn_ucx_exchange_addresses(f, status, err);
	}
	if (!status && f->rail_count > 1)
		status = gn_ucx_probe(f, err);
	if (status) {
		gn_ucx_destroy(f);
		return status;
	}
	*out = f;
	return GN_OK;
}

/* While endpoints are closed their peers may be gone, which the world tells better than UCX in its ERROR lines. level: what is to be said, and
 * then what was said before. */
static void set_ucx_log(char level[32])
{
	char before[32];

	if (getenv("UCX_LOG_LEVEL") || ucs_global_opts_get_value("LOG_LEVEL", before, sizeof before) != UCS_OK)
		return;
	ucs_global_opts_set_value("LOG_LEVEL", level);
	memcpy(level, before, sizeof before);
}

void gn_ucx_destroy(struct gn_ucx *f)
{
	uint64_t until = gn_clock_ns() + CLOSE_NS;
	char level[32] = "fatal";
	int keep_workers;

	if (!f)
		return;
	/* after a loss UCX also warns of messages of failed operations that nobody received */
	keep_workers = f->abandoned || f->disowned || gn_world_losses(f->world);
	set_ucx_log(level);
	for (int i = 0; i < f->rail_count && !f->abandoned; i++)
		if (f->rails[i].worker)
			keep_workers |= !gn_ucx_rail_disconnect(&f->rails[i], until);
	for (int i = 0; i < f->rail_count; i++)
		gn_ucx_rail_close(&f->rails[i], keep_workers);
	set_ucx_log(level);
	if (f->rail_count > 1 && f->event_fd >= 0)
		close(f->event_fd);
	gn_ucx_free_stripes(f);
	gn_ucx_free_kept(f);
	gn_ucx_cipher_destroy(f);
	gn_gathered_release(&f->addresses);
	free(f->shares);
	free(f->groups);
	free(f);
}

enum gn_status gn_ucx_connect(struct gn_ucx *f, int rank, struct gn_err *err)
{
	uint8_t usable[GN_RAILS_MAX];
	int count = gn_ucx_usable_rails(f, rank, usable), here = gn_world_rank(f->world);
	enum gn_status status = GN_OK;

	if (!count)
		return gn_err_set(err, GN_ERR_FAILED, "rank %d on %s cannot reach rank %d on %s by any of %d network devices: the first of one "
				  "node is paired with the first of the other, and so on; UCX_NET_DEVICES%s%.100s selects devices, --rails "
				  "limits their number; for tcp, a firewall has to pass the ports that UCX listens on: any, or those of "
				  "UCX_TCP_PORT_RANGE", here, gn_world_host_of(f->world, here), rank, gn_world_host_of(f->world, rank),
				  f->rail_count, gn_rails_allowed() ? "=" : "", gn_rails_allowed() ? gn_rails_allowed() : "");
	for (int i = 0; i < count && !status; i++)
		status = gn_ucx_rail_connect(&f->rails[usable[i]], rank, err);
	return status;
}

int gn_ucx_takes_gpu_memory(const struct gn_ucx *f)
{
	ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

	/* it is encrypted by processors */
	if (f->cipher)
		return 0;
	for (int i = 0; i < f->rail_count; i++)
		if (ucp_context_query(f->rails[i].context, &attr) != UCS_OK || !(attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)))
			return 0;
	return 1;
}

static unsigned progress_others(struct gn_ucx *f)
{
	int all = ++f->progress_calls % QUIET_INTERVAL == 0;
	unsigned events = 0;

	for (int i = 1; i < f->rail_count; i++) {
		struct gn_ucx_rail *r = &f->rails[i];

		r->quiet = r->in_flight ? 0 : r->quiet + (r->quiet < QUIET_CALLS);
		if (all || r->quiet < QUIET_CALLS)
			events += ucp_worker_progress(r->worker);
	}
	return events;
}

unsigned gn_ucx_progress(struct gn_ucx *f)
{
	unsigned events;

	if (f->abandoned)
		return 0;
	events = ucp_worker_progress(f->rails[0].worker);
	return f->rail_count > 1 ? events + progress_others(f) : events;
}

int gn_ucx_may_queue(const struct gn_ucx *f)
{
	return f->may_queue && !f->abandoned;
}

int gn_ucx_arm(struct gn_ucx *f)
{
	int armed = !f->abandoned;

	for (int i = 0; i < f->rail_count && armed; i++)
		armed = ucp_worker_arm(f->rails[i].worker) == UCS_OK;
	/* after the wait all rails are progressed, whichever had the event */
	for (int i = 0; i < f->rail_count; i++)
		f->rails[i].quiet = 0;
	return armed;
}

int gn_ucx_event_fd(const struct gn_ucx *f)
{
	return f->event_fd;
}

void gn_ucx_traffic(const struct gn_ucx *f, struct gn_ucx_traffic *out)
{
	*out = f->traffic;
	for (int i = 0; i < f->rail_count; i++)
		out->rail_bytes[i] = f->rail_count > 1 ? f->rails[i].sent_bytes : f->traffic.other_node_bytes;
}

int gn_ucx_rails(const struct gn_ucx *f)
{
	return f->rail_count;
}

const char *gn_ucx_rail_device(const struct gn_ucx *f, int rail)
{
	return f->rails[rail].device;
}
