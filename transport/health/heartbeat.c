#include "transport/health/heartbeat.h"

#include "src/base/clock.h"
#include "src/base/thread.h"
#include "transport/health/heartbeat_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define BEAT_NS 1000000000u
#define BEATS_PER_SILENCE 5
/* Rounds over all addresses, a tenth of a second apart, after which refused connections mean that rank 0 has ended. */
#define REFUSED_ROUNDS 3
#define POLL_MS 250
/* Between two checks for silent ranks: checking on each received message would cost size^2. */
#define CHECK_NS 50000000u
#define CLOSE_NS 700000000u
#define JOIN_MS_PER_RANK 1
#define LAST_S 3
#define FOREVER_S 2000000000

static void send_to_coordinator(struct gn_heartbeat *h, enum gn_heartbeat_type type, const char *text)
{
	struct gn_heartbeat_message m = gn_heartbeat_text_message(type, h->options.rank, text);

	m.cause = atomic_load(&h->causes[h->options.rank]);
	if (h->coordinator.fd >= 0)
		gn_heartbeat_send(&h->coordinator, &m, gn_heartbeat_send_deadline_ns());
}

/* Sends what the program's threads have requested. Returns whether the thread should end. */
static int handle_requests(struct gn_heartbeat *h)
{
	char why[GN_HEARTBEAT_TEXT_MAX];
	int leave, stop;
	uint64_t count;

	/* non-blocking; there is nothing to read unless another thread woke this one */
	if (read(h->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
		return 0;
	pthread_mutex_lock(&h->lock);
	memcpy(why, h->abort_reason, sizeof why);
	h->abort_reason[0] = 0;
	leave = h->leaving != GN_HEARTBEAT_EXIT_SILENT && !h->leave_sent;
	h->leave_sent |= leave;
	stop = h->stop;
	pthread_mutex_unlock(&h->lock);
	/* the pending loss may be the cause of this abort or exit: report it first */
	if (h->query && (why[0] || leave))
		gn_state_query_report_loss(h);
	if (why[0]) {
		if (h->options.rank == 0)
			gn_heartbeat_coordinator_broadcast(h, GN_HEARTBEAT_LOST, 0, why);
		else
			send_to_coordinator(h, GN_HEARTBEAT_ABORT, why);
	}
	if (leave) {
		if (h->options.rank == 0)
			gn_heartbeat_coordinator_peer_left(h, 0);
		else
			send_to_coordinator(h, GN_HEARTBEAT_LEAVE, NULL);
	}
	return stop;
}

static void send_beat(struct gn_heartbeat *h)
{
	if (h->options.rank == 0)
		gn_heartbeat_coordinator_broadcast(h, GN_HEARTBEAT_BEAT, 0, NULL);
	else
		send_to_coordinator(h, GN_HEARTBEAT_BEAT, NULL);
}

/* Excludes time in which this process did not run (stopped, or the host is overloaded) from the silence of the other ranks. */
static void exclude_absence(struct gn_heartbeat *h, uint64_t absent_ns, uint64_t now)
{
	uint64_t *heard = &h->coordinator.heard_ns;

	*heard = *heard + absent_ns < now ? *heard + absent_ns : now;
	for (int r = 1; h->members && r < h->options.size; r++) {
		heard = &h->members[r].stream.heard_ns;
		*heard = *heard + absent_ns < now ? *heard + absent_ns : now;
	}
	if (h->options.recorder)
		gn_recorder_exclude(h->options.recorder, absent_ns, now);
}

/* Rank 0, once every rank has left. */
static void announce_all_left(struct gn_heartbeat *h)
{
	if (h->options.rank || !h->leave_sent || h->remaining || h->all_left)
		return;
	gn_heartbeat_coordinator_broadcast(h, GN_HEARTBEAT_ALL_LEFT, 0, NULL);
	gn_heartbeat_set_all_left(h);
}

static void close_streams(struct gn_heartbeat *h)
{
	uint64_t until = gn_clock_ns() + CLOSE_NS;

	gn_heartbeat_stream_close(&h->coordinator, until);
	for (int r = 1; h->members && r < h->options.size; r++)
		gn_heartbeat_stream_close(&h->members[r].stream, until);
}

static void *heartbeat_thread(void *argument)
{
	struct gn_heartbeat *h = argument;
	uint64_t beat_at_ns = 0, checked_at_ns = 0, progress_at_ns = gn_clock_ns(), now;
	uint64_t period_ns = (uint64_t)h->options.silent_after_ms * 1000000 / BEATS_PER_SILENCE;

	pthread_setname_np(pthread_self(), "gannet-heartbt");
	while (!handle_requests(h)) {
		/* before the poll: rank 0 itself may have been the last to leave */
		announce_all_left(h);
		if (h->options.rank == 0)
			gn_heartbeat_coordinator_progress(h, POLL_MS);
		else
			gn_heartbeat_member_progress(h, POLL_MS);
		now = gn_clock_ns();
		if (now - progress_at_ns > 2 * POLL_MS * 1000000u)
			exclude_absence(h, now - progress_at_ns - POLL_MS * 1000000u, now);
		progress_at_ns = now;
		if (now - checked_at_ns >= CHECK_NS) {
			if (h->options.rank == 0)
				gn_heartbeat_coordinator_check(h, now);
			else
				gn_heartbeat_member_check(h, now);
			checked_at_ns = now;
		}
		gn_state_query_progress(h, now);
		if (h->options.rank == 0)
			gn_heartbeat_coordinator_report_left(h, now);
		if (now - beat_at_ns >= (period_ns < BEAT_NS ? period_ns : BEAT_NS)) {
			send_beat(h);
			beat_at_ns = now;
		}
	}
	if (h->query)
		gn_state_query_report_loss(h);
	close_streams(h);
	return NULL;
}

static void release(struct gn_heartbeat *h)
{
	for (int r = 0; h->hosts && r < h->options.size; r++)
		free(h->hosts[r]);
	free(h->hosts);
	gn_heartbeat_losses_release(h);
	free(h->members);
	gn_state_query_destroy(h->query);
	gn_auth_listener_close(h->listener);
	gn_secret_wipe(&h->options.secret);
	if (h->wake_fd >= 0)
		close(h->wake_fd);
	if (h->epoll_fd >= 0)
		close(h->epoll_fd);
	pthread_cond_destroy(&h->changed);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

static enum gn_status create(const struct gn_heartbeat_options *options, struct gn_heartbeat **out, struct gn_err *err)
{
	struct gn_heartbeat *h = calloc(1, sizeof *h);
	enum gn_status status;

	if (!h)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the heartbeat");
	h->options = *options;
	h->coordinator.fd = h->epoll_fd = -1;
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->changed, NULL);
	h->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	status = h->wake_fd < 0 ? gn_err_errno(err, errno, "cannot start the heartbeat") : gn_heartbeat_losses_create(h, err);
	if (status) {
		release(h);
		return status;
	}
	*out = h;
	return GN_OK;
}

/* Listens on the published address when there is only one, else on all addresses of the host. */
static enum gn_status open_listener(struct gn_heartbeat *h, struct gn_heartbeat_contact *contact, struct gn_err *err)
{
	const struct gn_heartbeat_options *o = &h->options;
	enum gn_status status = GN_OK;
	const char *only;
	int port = 0;

	if (o->address)
		snprintf(contact->addresses.text[contact->addresses.count++], GN_NET_ADDRESS_MAX, "%s", o->address);
	else if (o->ifnames)
		status = gn_net_choose(o->ifnames, &contact->addresses, err);
	else
		gn_net_addresses(&contact->addresses);
	if (status)
		return status;
	only = (o->address || o->ifnames) && contact->addresses.count == 1 ? contact->addresses.text[0] : NULL;
	status = gn_auth_listener_open(only, &port, GN_HANDSHAKE_HEARTBEAT, &o->secret, o->log, &h->listener, err);
	contact->port = port;
	return status;
}

enum gn_status gn_heartbeat_host(const struct gn_heartbeat_options *options, struct gn_heartbeat **out,
				 struct gn_heartbeat_contact *contact, struct gn_err *err)
{
	struct gn_heartbeat *h = NULL;
	struct gn_heartbeat_contact own = {0};
	enum gn_status status = create(options, &h, err);

	if (status)
		return status;
	h->members = calloc((size_t)options->size, sizeof *h->members);
	if (!h->members)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the heartbeat");
	if (!status)
		status = gn_heartbeat_coordinator_open(h, err);
	if (!status)
		status = gn_state_query_create(options->size, &h->query, err);
	if (!status)
		status = open_listener(h, &own, err);
	for (int r = 0; !status && r < options->size; r++)
		h->members[r].stream.fd = -1;
	h->remaining = options->size - 1;
	h->started_ns = gn_clock_ns();
	atomic_store(&h->join_by_ns, h->started_ns + (uint64_t)options->timeout_ms * 1000000);
	if (!status)
		status = gn_thread_create(&h->thread, heartbeat_thread, h, "heartbeats", err);
	if (status) {
		release(h);
		return status;
	}
	*contact = own;
	*out = h;
	return GN_OK;
}

/* Rank 0 runs when it has published its contact, so it must answer within the limit of silence; its listener handles one handshake
 * per millisecond. */
static uint64_t join_limit_ns(const struct gn_heartbeat_options *o)
{
	uint64_t ms = (uint64_t)o->silent_after_ms + (uint64_t)o->size * JOIN_MS_PER_RANK;

	return (ms < (uint64_t)o->timeout_ms ? ms : (uint64_t)o->timeout_ms) * 1000000;
}

void gn_heartbeat_expect_all(struct gn_heartbeat *h)
{
	atomic_store(&h->join_by_ns, gn_clock_ns() + join_limit_ns(&h->options));
}

/* Tries the addresses in order, each with its share of the time left, so that an unreachable address leaves time for the next ones.
 * 1: connected; -1: all refuse connections. */
static int connect_to_each(struct gn_heartbeat *h, const struct gn_heartbeat_contact *contact, uint64_t deadline,
			   struct gn_err *err)
{
	const struct gn_net_addresses *a = &contact->addresses;
	uint32_t count = a->count < GN_NET_ADDRESSES_MAX ? a->count : GN_NET_ADDRESSES_MAX;
	uint32_t refused = 0;
	uint64_t now, left;
	struct gn_err why;
	int answer;

	for (uint32_t i = 0; i < count && (now = gn_clock_ns()) < deadline; i++) {
		left = deadline - now;
		answer = gn_heartbeat_member_connect(h, a->text[i], contact, now + left / (count - i),
						     i + 1 < count ? now + left / 2 : deadline, &why);
		if (answer > 0)
			return 1;
		/* of an address that is this host's own on every host, nothing is learned */
		if (!i || (strncmp(a->text[i], "127.", 4) && strcmp(a->text[i], "::1")))
			*err = why;
		refused += answer < 0;
	}
	return count && refused == count ? -1 : 0;
}

enum gn_status gn_heartbeat_join(const struct gn_heartbeat_options *options, const struct gn_heartbeat_contact *contact,
				 struct gn_heartbeat **out, struct gn_err *err)
{
	uint64_t began = gn_clock_ns(), deadline = began + join_limit_ns(options);
	struct gn_heartbeat *h = NULL;
	struct gn_err why = {0};
	int answer, refused = 0;
	enum gn_status status = create(options, &h, err);

	if (status)
		return status;
	gn_err_set(&why, GN_ERR_FAILED, "it has published no address");
	while (!status && (answer = connect_to_each(h, contact, deadline, &why)) <= 0 && gn_clock_ns() < deadline &&
	       why.status != GN_ERR_MISMATCH) {
		/* rank 0 listens before it publishes its contact, so a refused connection means that it has ended, perhaps after it
		 * cancelled the start */
		refused = answer < 0 ? refused + 1 : 0;
		if (refused == REFUSED_ROUNDS)
			break;
		gn_clock_sleep_ns(100000000);
		status = options->check_cancelled ? options->check_cancelled(options->context, err) : GN_OK;
	}
	if (h->coordinator.fd < 0) {
		release(h);
		if (status)
			return status;
		if (why.status == GN_ERR_USAGE || why.status == GN_ERR_MISMATCH)
			return gn_err_set(err, why.status, "rank 0 refuses rank %d: %s", options->rank, why.text);
		return gn_err_set(err, GN_ERR_PEER_LOST, "rank 0 is lost: rank %d could not connect to its heartbeat within "
				  "%.1f s, at any of its %u addresses: %s; a firewall between the nodes has to pass TCP to the ports that the "
				  "kernel gives (net.ipv4.ip_local_port_range)", options->rank, (double)(gn_clock_ns() - began) / 1e9,
				  contact->addresses.count, why.text);
	}
	status = gn_thread_create(&h->thread, heartbeat_thread, h, "heartbeats", err);
	if (status) {
		close(h->coordinator.fd);
		release(h);
		return status;
	}
	*out = h;
	return GN_OK;
}

enum gn_status gn_heartbeat_name_hosts(struct gn_heartbeat *h, const char *const *host_of, struct gn_err *err)
{
	char **hosts = calloc((size_t)h->options.size, sizeof *hosts);

	for (int r = 0; hosts && r < h->options.size; r++) {
		hosts[r] = strndup(host_of[r], 255);
		if (!hosts[r]) {
			while (r-- > 0)
				free(hosts[r]);
			free(hosts);
			hosts = NULL;
			break;
		}
	}
	if (!hosts)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for host names");
	pthread_mutex_lock(&h->lock);
	h->hosts = hosts;
	pthread_mutex_unlock(&h->lock);
	return GN_OK;
}

static void wake(struct gn_heartbeat *h)
{
	uint64_t one = 1;

	/* fails only when the counter is full, and then the thread is awake already */
	if (write(h->wake_fd, &one, sizeof one) < 0)
		return;
}

void gn_heartbeat_abort(struct gn_heartbeat *h, enum gn_status cause, const char *why)
{
	if (cause == GN_ERR_PEER_LOST && !strstr(why, " is lost: "))
		cause = GN_OK;
	pthread_mutex_lock(&h->lock);
	atomic_store(&h->causes[h->options.rank], (int)cause);
	snprintf(h->abort_reason, sizeof h->abort_reason, "%s%.400s", cause ? "" : "it aborted: ", why);
	pthread_mutex_unlock(&h->lock);
	wake(h);
}

/* Whether nothing more is to be waited for: all have left, or nobody coordinates them any more. */
static int is_over(struct gn_heartbeat *h)
{
	return h->all_left || atomic_load(&h->failure) || (h->options.rank && gn_heartbeat_is_lost(h, 0));
}

void gn_heartbeat_destroy(struct gn_heartbeat *h, enum gn_heartbeat_exit how)
{
	int waits = how == GN_HEARTBEAT_EXIT_TOGETHER || how == GN_HEARTBEAT_EXIT_LAST;
	struct timespec until;

	if (!h)
		return;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += how == GN_HEARTBEAT_EXIT_LAST ? LAST_S : FOREVER_S;
	pthread_mutex_lock(&h->lock);
	h->leaving = how;
	wake(h);
	while (waits && !is_over(h))
		waits = pthread_cond_timedwait(&h->changed, &h->lock, &until) != ETIMEDOUT;
	h->stop = 1;
	pthread_mutex_unlock(&h->lock);
	wake(h);
	pthread_join(h->thread, NULL);
	release(h);
}
