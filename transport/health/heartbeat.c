/* One thread per process does all of the connection's work; the program posts wishes under the lock and wakes it. */
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
/* Of knocking at all addresses, a tenth of a second apart. */
#define REFUSED_ROUNDS 3
#define TURN_MS 250
/* Looking at all ranks for the silent ones, which turns for each message of theirs would do too often. */
#define JUDGE_NS 50000000u
#define LEFT_GRACE_NS 3000000000u
#define SHUT_NS 700000000u
#define JOIN_MS_PER_RANK 1

void gn_heartbeat_note_lost(struct gn_heartbeat *w, int rank, const char *how)
{
	pthread_mutex_lock(&w->lock);
	if (!atomic_load(&w->lost)) {
		snprintf(w->how, sizeof w->how, "%s", how);
		atomic_store(&w->lost, rank + 1);
	}
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

void gn_heartbeat_note_verdict(struct gn_heartbeat *w, enum gn_status status, const char *text)
{
	pthread_mutex_lock(&w->lock);
	if (!atomic_load(&w->lost)) {
		snprintf(w->how, sizeof w->how, "%s", text);
		atomic_store(&w->lost, (int)status);
	}
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

void gn_heartbeat_note_left(struct gn_heartbeat *w, int rank)
{
	if (atomic_load(&w->left))
		return;
	atomic_store(&w->left_ns, gn_clock_ns());
	atomic_store(&w->left, rank + 1);
}

void gn_heartbeat_note_all_gone(struct gn_heartbeat *w)
{
	pthread_mutex_lock(&w->lock);
	w->all_gone = 1;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

static void say_up(struct gn_heartbeat *w, enum gn_heartbeat_type type, const char *text)
{
	struct gn_heartbeat_message m = gn_heartbeat_say(type, w->options.rank, text);

	if (w->up.fd >= 0)
		gn_heartbeat_send(&w->up, &m, gn_heartbeat_send_until());
}

/* What the program wants said. Returns whether the thread should end. */
static int obey(struct gn_heartbeat *w)
{
	char why[GN_HEARTBEAT_TEXT_MAX];
	int goodbye, stop;
	uint64_t count;

	/* it does not block; nothing to read when nobody woke us */
	if (read(w->wake, &count, sizeof count) < 0 && errno != EAGAIN)
		return 0;
	pthread_mutex_lock(&w->lock);
	memcpy(why, w->gives_up, sizeof why);
	w->gives_up[0] = 0;
	goodbye = w->leaving && !w->said_goodbye;
	w->said_goodbye |= goodbye;
	stop = w->stop;
	pthread_mutex_unlock(&w->lock);
	/* what was lost before may be why */
	if (w->inquiry && (why[0] || goodbye))
		gn_state_query_settle(w);
	if (why[0]) {
		if (w->options.rank == 0)
			gn_heartbeat_coordinator_announce(w, GN_HEARTBEAT_LOST, 0, why);
		else
			say_up(w, GN_HEARTBEAT_GIVE_UP, why);
	}
	if (goodbye) {
		if (w->options.rank == 0)
			gn_heartbeat_coordinator_leave(w, 0);
		else
			say_up(w, GN_HEARTBEAT_BYE, NULL);
	}
	return stop;
}

static void beat(struct gn_heartbeat *w)
{
	if (w->options.rank == 0)
		gn_heartbeat_coordinator_announce(w, GN_HEARTBEAT_BEAT, 0, NULL);
	else
		say_up(w, GN_HEARTBEAT_BEAT, NULL);
}

/* A process that did not run, because it was stopped or the machine is overloaded, must not take its own absence for the
 * silence of others: that time does not count. */
static void forgive(struct gn_heartbeat *w, uint64_t absent_ns, uint64_t now)
{
	uint64_t *heard = &w->up.heard_ns;

	*heard = *heard + absent_ns < now ? *heard + absent_ns : now;
	for (int r = 1; w->members && r < w->options.size; r++) {
		heard = &w->members[r].stream.heard_ns;
		*heard = *heard + absent_ns < now ? *heard + absent_ns : now;
	}
	if (w->options.recorder)
		gn_recorder_forgive(w->options.recorder, absent_ns, now);
}

/* Rank 0, with all goodbyes. */
static void end_when_all_have(struct gn_heartbeat *w)
{
	if (w->options.rank || !w->said_goodbye || w->here_or_absent || w->all_gone)
		return;
	gn_heartbeat_coordinator_announce(w, GN_HEARTBEAT_ALL_GONE, 0, NULL);
	gn_heartbeat_note_all_gone(w);
}

static void finish(struct gn_heartbeat *w)
{
	uint64_t until = gn_clock_ns() + SHUT_NS;

	gn_heartbeat_shut(&w->up, until);
	for (int r = 1; w->members && r < w->options.size; r++)
		gn_heartbeat_shut(&w->members[r].stream, until);
}

static void *run(void *argument)
{
	struct gn_heartbeat *w = argument;
	uint64_t last_beat = 0, last_judged = 0, last_turn = gn_clock_ns(), now;
	uint64_t beat_ns = (uint64_t)w->options.silent_after_ms * 1000000 / BEATS_PER_SILENCE;

	pthread_setname_np(pthread_self(), "gannet-watch");
	while (!obey(w)) {
		/* before it sleeps: its own goodbye may have been the last */
		end_when_all_have(w);
		if (w->options.rank == 0)
			gn_heartbeat_coordinator_turn(w, TURN_MS);
		else
			gn_heartbeat_member_turn(w, TURN_MS);
		now = gn_clock_ns();
		if (now - last_turn > 2 * TURN_MS * 1000000u)
			forgive(w, now - last_turn - TURN_MS * 1000000u, now);
		last_turn = now;
		if (now - last_judged >= JUDGE_NS) {
			if (w->options.rank == 0)
				gn_heartbeat_coordinator_judge(w, now);
			else
				gn_heartbeat_member_judge(w, now);
			last_judged = now;
		}
		gn_state_query_turn(w, now);
		if (now - last_beat >= (beat_ns < BEAT_NS ? beat_ns : BEAT_NS)) {
			beat(w);
			last_beat = now;
		}
	}
	if (w->inquiry)
		gn_state_query_settle(w);
	finish(w);
	return NULL;
}

static enum gn_status start(struct gn_heartbeat *w, struct gn_err *err)
{
	int failure = gn_thread_start(&w->thread, run, w);

	return failure ? gn_err_errno(err, failure, "cannot start the watch") : GN_OK;
}

static void release(struct gn_heartbeat *w)
{
	for (int r = 0; w->hosts && r < w->options.size; r++)
		free(w->hosts[r]);
	free(w->hosts);
	free(w->members);
	gn_state_query_destroy(w->inquiry);
	gn_auth_listener_close(w->door);
	gn_secret_wipe(&w->options.secret);
	if (w->wake >= 0)
		close(w->wake);
	if (w->ready >= 0)
		close(w->ready);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static enum gn_status create(const struct gn_heartbeat_options *options, struct gn_heartbeat **out, struct gn_err *err)
{
	struct gn_heartbeat *w = calloc(1, sizeof *w);

	if (!w)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the watch");
	w->options = *options;
	w->up.fd = w->ready = -1;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->wake < 0) {
		release(w);
		return gn_err_errno(err, errno, "cannot start the watch");
	}
	*out = w;
	return GN_OK;
}

/* Where others shall come to, and nowhere else as far as one socket can do that. */
static enum gn_status open_door(struct gn_heartbeat *w, struct gn_heartbeat_contact *i, struct gn_err *err)
{
	const struct gn_heartbeat_options *o = &w->options;
	enum gn_status status = GN_OK;
	const char *only;
	int port = 0;

	if (o->address)
		snprintf(i->addresses.text[i->addresses.count++], GN_NET_ADDRESS_MAX, "%s", o->address);
	else if (o->ifnames)
		status = gn_net_choose(o->ifnames, &i->addresses, err);
	else
		gn_net_addresses(&i->addresses);
	if (status)
		return status;
	only = (o->address || o->ifnames) && i->addresses.count == 1 ? i->addresses.text[0] : NULL;
	status = gn_auth_listener_open(only, &port, GN_HANDSHAKE_HEARTBEAT, &o->secret, o->log, &w->door, err);
	i->port = port;
	return status;
}

enum gn_status gn_heartbeat_host(const struct gn_heartbeat_options *options, struct gn_heartbeat **out,
			     struct gn_heartbeat_contact *invitation, struct gn_err *err)
{
	struct gn_heartbeat *w = NULL;
	struct gn_heartbeat_contact i = {0};
	enum gn_status status = create(options, &w, err);

	if (status)
		return status;
	w->members = calloc((size_t)options->size, sizeof *w->members);
	if (!w->members)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the watch");
	if (!status)
		status = gn_heartbeat_coordinator_open(w, err);
	if (!status)
		status = gn_state_query_create(options->size, &w->inquiry, err);
	if (!status)
		status = open_door(w, &i, err);
	for (int r = 0; !status && r < options->size; r++)
		w->members[r].stream.fd = -1;
	w->here_or_absent = options->size - 1;
	w->began_ns = gn_clock_ns();
	atomic_store(&w->join_by_ns, w->began_ns + (uint64_t)options->timeout_ms * 1000000);
	if (!status)
		status = start(w, err);
	if (status) {
		release(w);
		return status;
	}
	*invitation = i;
	*out = w;
	return GN_OK;
}

/* Rank 0 runs when it has invited: it has as long to answer as anyone's silence may last, and its door needs a moment for each. */
static uint64_t joining_ns(const struct gn_heartbeat_options *o)
{
	uint64_t ms = (uint64_t)o->silent_after_ms + (uint64_t)o->size * JOIN_MS_PER_RANK;

	return (ms < (uint64_t)o->timeout_ms ? ms : (uint64_t)o->timeout_ms) * 1000000;
}

void gn_heartbeat_expect_all(struct gn_heartbeat *w)
{
	atomic_store(&w->join_by_ns, gn_clock_ns() + joining_ns(&w->options));
}

/* One after the other, so that none that leads nowhere, or to someone who says nothing, takes the others' time. 1: let in;
 * -1: nobody listens at any. */
static int knock_at_each(struct gn_heartbeat *w, const struct gn_heartbeat_contact *in, uint64_t deadline, struct gn_err *err)
{
	uint32_t count = in->addresses.count < GN_NET_ADDRESSES_MAX ? in->addresses.count : GN_NET_ADDRESSES_MAX;
	uint32_t refused = 0;
	uint64_t now, left;
	int answer;

	for (uint32_t i = 0; i < count && (now = gn_clock_ns()) < deadline; i++) {
		left = deadline - now;
		answer = gn_heartbeat_member_knock(w, in->addresses.text[i], in, now + left / (count - i),
					      i + 1 < count ? now + left / 2 : deadline, err);
		if (answer > 0)
			return 1;
		refused += answer < 0;
	}
	return count && refused == count ? -1 : 0;
}

enum gn_status gn_heartbeat_join(const struct gn_heartbeat_options *options, const struct gn_heartbeat_contact *invitation,
			     struct gn_heartbeat **out, struct gn_err *err)
{
	uint64_t began = gn_clock_ns(), deadline = began + joining_ns(options);
	struct timespec pause = {0, 100000000};
	struct gn_heartbeat *w = NULL;
	struct gn_err why = {0};
	int answer, refused = 0;
	enum gn_status status = create(options, &w, err);

	if (status)
		return status;
	gn_err_set(&why, GN_ERR_FAILED, "it has no address");
	while (!status && (answer = knock_at_each(w, invitation, deadline, &why)) <= 0 && gn_clock_ns() < deadline) {
		/* Rank 0 listened before it invited. It may have called off what it invited to, which is to be read then. */
		refused = answer < 0 ? refused + 1 : 0;
		if (refused == REFUSED_ROUNDS)
			break;
		nanosleep(&pause, NULL);
		status = options->called_off ? options->called_off(options->context, err) : GN_OK;
	}
	if (w->up.fd < 0) {
		release(w);
		if (status)
			return status;
		if (why.status == GN_ERR_USAGE)
			return gn_err_set(err, GN_ERR_USAGE, "rank 0 refuses rank %d: %s", options->rank, why.text);
		return gn_err_set(err, GN_ERR_PEER_LOST, "rank 0 is lost: its watch has not let rank %d in for %.1f s, under none of its %u "
				  "addresses: %s", options->rank, (double)(gn_clock_ns() - began) / 1e9,
				  invitation->addresses.count, why.text);
	}
	status = start(w, err);
	if (status) {
		close(w->up.fd);
		release(w);
		return status;
	}
	*out = w;
	return GN_OK;
}

enum gn_status gn_heartbeat_name_hosts(struct gn_heartbeat *w, const char *const *host_of, struct gn_err *err)
{
	char **hosts = calloc((size_t)w->options.size, sizeof *hosts);

	for (int r = 0; hosts && r < w->options.size; r++) {
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
	pthread_mutex_lock(&w->lock);
	w->hosts = hosts;
	pthread_mutex_unlock(&w->lock);
	return GN_OK;
}

/* rank: who is lost, or the status of a verdict. */
static enum gn_status tell(const struct gn_heartbeat *w, int rank, const char *how, struct gn_err *err)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&w->lock;
	char own[400] = "", what[256];
	const char *host;

	if (w->options.recorder)
		gn_recorder_describe(w->options.recorder, what, sizeof what);

	pthread_mutex_lock(lock);
	host = w->hosts ? w->hosts[w->options.rank] : "";
	if (w->options.recorder)
		snprintf(own, sizeof own, "; rank %d%s%.64s was %s", w->options.rank, *host ? " on " : "", host, what);
	host = w->hosts && rank >= 0 && rank < w->options.size ? w->hosts[rank] : NULL;
	if (rank < 0)
		gn_err_set(err, (enum gn_status)rank, "%s%s", w->how, own);
	else
		gn_err_set(err, GN_ERR_PEER_LOST, "rank %d%s%s is lost: %s%s", rank, host ? " on " : "", host ? host : "",
			   how ? how : w->how, own);
	pthread_mutex_unlock(lock);
	return rank < 0 ? (enum gn_status)rank : GN_ERR_PEER_LOST;
}

enum gn_status gn_heartbeat_check(const struct gn_heartbeat *w, struct gn_err *err)
{
	int lost = atomic_load_explicit(&w->lost, memory_order_acquire);

	return lost ? tell(w, lost > 0 ? lost - 1 : lost, NULL, err) : GN_OK;
}

enum gn_status gn_heartbeat_check_wait(const struct gn_heartbeat *w, uint64_t started_ns, struct gn_err *err)
{
	int left = atomic_load(&w->left);
	uint64_t since;

	if (atomic_load(&w->lost) || !left)
		return gn_heartbeat_check(w, err);
	since = atomic_load(&w->left_ns);
	if (started_ns > since)
		since = started_ns;
	if (gn_clock_ns() < since + LEFT_GRACE_NS)
		return GN_OK;
	return tell(w, left - 1, "it has left the job while others still wait for it", err);
}

int gn_heartbeat_anyone_left(const struct gn_heartbeat *w)
{
	return atomic_load(&w->left) != 0;
}

static void wake(struct gn_heartbeat *w)
{
	uint64_t one = 1;

	/* cannot fail but by a full counter, and then the thread is awake */
	if (write(w->wake, &one, sizeof one) < 0)
		return;
}

void gn_heartbeat_give_up(struct gn_heartbeat *w, const char *why)
{
	pthread_mutex_lock(&w->lock);
	snprintf(w->gives_up, sizeof w->gives_up, "it gave up: %.400s", why);
	pthread_mutex_unlock(&w->lock);
	wake(w);
}

void gn_heartbeat_destroy(struct gn_heartbeat *w, int leave)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->leaving = leave;
	wake(w);
	while (leave && !w->all_gone && !atomic_load(&w->lost))
		pthread_cond_wait(&w->changed, &w->lock);
	w->stop = 1;
	pthread_mutex_unlock(&w->lock);
	wake(w);
	pthread_join(w->thread, NULL);
	release(w);
}
