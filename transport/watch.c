/* One thread per process does all of the connection's work; the program posts wishes under the lock and wakes it. */
#include "transport/watch.h"

#include "src/base/clock.h"
#include "transport/watch_wire.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define STRANGERS_MAX 64
#define BEAT_NS 1000000000u
#define LEFT_GRACE_NS 3000000000u
#define SHUT_NS 700000000u

enum member_state { ABSENT, HERE, LEFT, LOST };

struct member {
	enum member_state state;
	struct gn_watch_stream stream;
};

struct gn_watch {
	struct gn_watch_options options;
	uint8_t token[GN_WATCH_TOKEN_BYTES];
	pthread_t thread;
	int wake;

	/* rank 0 */
	int listener, here_or_absent;
	struct member *members;
	struct gn_watch_stream strangers[STRANGERS_MAX];
	int stranger_count;
	uint64_t join_by_ns;
	/* others */
	struct gn_watch_stream up;

	atomic_int lost; /* rank + 1 */
	atomic_int left; /* rank + 1 of the first that left */
	atomic_uint_fast64_t left_ns;

	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	char how[GN_WATCH_TEXT_MAX];
	char **hosts;
	int leaving, said_goodbye, all_gone, stop;
	char gives_up[GN_WATCH_TEXT_MAX];
};

static void note_lost(struct gn_watch *w, int rank, const char *how)
{
	pthread_mutex_lock(&w->lock);
	if (!atomic_load(&w->lost)) {
		snprintf(w->how, sizeof w->how, "%s", how);
		atomic_store(&w->lost, rank + 1);
	}
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

/* Only the first to leave: the next may be leaving because of it. */
static void note_left(struct gn_watch *w, int rank)
{
	if (atomic_load(&w->left))
		return;
	atomic_store(&w->left_ns, gn_clock_ns());
	atomic_store(&w->left, rank + 1);
}

/* Rank 0: to everyone who is still connected, but not to the rank that it is about. */
static void announce(struct gn_watch *w, enum gn_watch_type type, int rank, const char *text)
{
	for (int r = 1; r < w->options.size; r++)
		if (r != rank && w->members[r].stream.fd >= 0)
			gn_watch_write(&w->members[r].stream, type, rank, text);
}

static void member_lost(struct gn_watch *w, int rank, const char *how)
{
	struct member *m = &w->members[rank];

	m->state = LOST;
	w->here_or_absent--;
	if (m->stream.fd >= 0)
		close(m->stream.fd);
	m->stream.fd = -1;
	note_lost(w, rank, how);
	announce(w, GN_WATCH_LOST, rank, how);
}

static void member_says(struct gn_watch *w, int rank)
{
	struct member *m = &w->members[rank];
	const struct gn_watch_message *in = &m->stream.in;

	if (in->type == GN_WATCH_BYE && m->state == HERE) {
		m->state = LEFT;
		w->here_or_absent--;
		note_left(w, rank);
		announce(w, GN_WATCH_LEFT, rank, NULL);
	} else if (in->type == GN_WATCH_GIVE_UP && m->state == HERE) {
		m->stream.in.text[GN_WATCH_TEXT_MAX - 1] = 0;
		member_lost(w, rank, in->text);
	}
}

static void hear_member(struct gn_watch *w, int rank)
{
	struct member *m = &w->members[rank];
	enum gn_watch_read got;

	while (m->stream.fd >= 0 && (got = gn_watch_read(&m->stream)) != GN_WATCH_NOTHING) {
		if (got == GN_WATCH_MESSAGE) {
			member_says(w, rank);
		} else if (m->state == HERE) {
			member_lost(w, rank, "its connection closed without a goodbye");
		} else {
			close(m->stream.fd);
			m->stream.fd = -1;
		}
	}
}

static void drop_stranger(struct gn_watch *w, int i, int and_close)
{
	if (and_close)
		close(w->strangers[i].fd);
	w->stranger_count--;
	memmove(&w->strangers[i], &w->strangers[i + 1], sizeof *w->strangers * (size_t)(w->stranger_count - i));
}

/* The comparison takes the same time wherever the tokens differ. */
static int token_matches(const struct gn_watch *w, const char *given)
{
	unsigned difference = 0;

	for (int i = 0; i < GN_WATCH_TOKEN_BYTES; i++)
		difference |= w->token[i] ^ (uint8_t)given[i];
	return !difference;
}

static void hear_stranger(struct gn_watch *w, int i)
{
	struct gn_watch_stream *s = &w->strangers[i];
	enum gn_watch_read got = gn_watch_read(s);
	uint32_t rank = s->in.rank;

	if (got == GN_WATCH_NOTHING)
		return;
	if (got != GN_WATCH_MESSAGE || s->in.type != GN_WATCH_JOIN || !token_matches(w, s->in.text) || rank == 0 ||
	    (int)rank >= w->options.size || w->members[rank].state != ABSENT) {
		drop_stranger(w, i, 1);
		return;
	}
	w->members[rank].stream = *s;
	w->members[rank].state = HERE;
	drop_stranger(w, i, 0);
	gn_watch_write(&w->members[rank].stream, GN_WATCH_BEAT, 0, NULL);
	if (atomic_load(&w->lost))
		gn_watch_write(&w->members[rank].stream, GN_WATCH_LOST, atomic_load(&w->lost) - 1, w->how);
}

static void let_in(struct gn_watch *w)
{
	int fd = gn_net_accept(w->listener);

	if (fd < 0)
		return;
	if (w->stranger_count == STRANGERS_MAX)
		drop_stranger(w, 0, 1);
	w->strangers[w->stranger_count++] = (struct gn_watch_stream){.fd = fd, .heard_ns = gn_clock_ns()};
}

static void judge_members(struct gn_watch *w, uint64_t now)
{
	uint64_t limit = (uint64_t)w->options.silent_after_ms * 1000000;
	char how[64];

	snprintf(how, sizeof how, "nothing was heard from it for %.1f s", w->options.silent_after_ms / 1e3);
	for (int r = 1; r < w->options.size; r++) {
		if (w->members[r].state == HERE && now - w->members[r].stream.heard_ns > limit)
			member_lost(w, r, how);
		else if (w->members[r].state == ABSENT && now > w->join_by_ns)
			member_lost(w, r, "it did not come");
	}
	for (int i = w->stranger_count; i-- > 0;)
		if (now - w->strangers[i].heard_ns > limit)
			drop_stranger(w, i, 1);
}

/* One look at all connections of rank 0. */
static void serve(struct gn_watch *w, struct pollfd *p, int timeout_ms)
{
	int n = 2, strangers = w->stranger_count;

	p[0] = (struct pollfd){.fd = w->wake, .events = POLLIN};
	p[1] = (struct pollfd){.fd = w->listener, .events = POLLIN};
	for (int i = 0; i < strangers; i++)
		p[n++] = (struct pollfd){.fd = w->strangers[i].fd, .events = POLLIN};
	for (int r = 1; r < w->options.size; r++)
		p[n++] = (struct pollfd){.fd = w->members[r].stream.fd, .events = POLLIN};
	if (poll(p, (nfds_t)n, timeout_ms) <= 0)
		return;
	for (int r = 1; r < w->options.size; r++)
		if (p[1 + strangers + r].revents)
			hear_member(w, r);
	for (int i = strangers; i-- > 0;)
		if (p[2 + i].revents)
			hear_stranger(w, i);
	if (p[1].revents)
		let_in(w);
}

static void hear_up(struct gn_watch *w)
{
	enum gn_watch_read got;

	while (w->up.fd >= 0 && (got = gn_watch_read(&w->up)) != GN_WATCH_NOTHING) {
		w->up.in.text[GN_WATCH_TEXT_MAX - 1] = 0;
		if (got != GN_WATCH_MESSAGE) {
			close(w->up.fd);
			w->up.fd = -1;
			if (!w->all_gone)
				note_lost(w, 0, "its connection closed without a goodbye");
		} else if (w->up.in.type == GN_WATCH_LOST) {
			note_lost(w, (int)w->up.in.rank, w->up.in.text);
		} else if (w->up.in.type == GN_WATCH_LEFT) {
			note_left(w, (int)w->up.in.rank);
		} else if (w->up.in.type == GN_WATCH_ALL_GONE) {
			pthread_mutex_lock(&w->lock);
			w->all_gone = 1;
			pthread_cond_broadcast(&w->changed);
			pthread_mutex_unlock(&w->lock);
		}
	}
}

static void follow(struct gn_watch *w, int timeout_ms)
{
	struct pollfd p[2] = {{.fd = w->wake, .events = POLLIN}, {.fd = w->up.fd, .events = POLLIN}};

	if (poll(p, 2, timeout_ms) > 0 && p[1].revents)
		hear_up(w);
}

static void judge_up(struct gn_watch *w, uint64_t now)
{
	char how[64];

	if (w->up.fd < 0 || now - w->up.heard_ns <= (uint64_t)w->options.silent_after_ms * 1000000)
		return;
	snprintf(how, sizeof how, "nothing was heard from it for %.1f s", w->options.silent_after_ms / 1e3);
	close(w->up.fd);
	w->up.fd = -1;
	note_lost(w, 0, how);
}

/* What the program wants said. Returns whether the thread should end. */
static int obey(struct gn_watch *w)
{
	char why[GN_WATCH_TEXT_MAX];
	int goodbye, stop;
	uint64_t count;

	if (gn_net_readable(w->wake, 0) == 1 && read(w->wake, &count, sizeof count) < 0)
		return 0;
	pthread_mutex_lock(&w->lock);
	memcpy(why, w->gives_up, sizeof why);
	w->gives_up[0] = 0;
	goodbye = w->leaving && !w->said_goodbye;
	w->said_goodbye |= goodbye;
	stop = w->stop;
	pthread_mutex_unlock(&w->lock);
	if (why[0]) {
		if (w->options.rank == 0)
			announce(w, GN_WATCH_LOST, 0, why);
		else if (w->up.fd >= 0)
			gn_watch_write(&w->up, GN_WATCH_GIVE_UP, w->options.rank, why);
	}
	if (goodbye) {
		if (w->options.rank == 0)
			announce(w, GN_WATCH_LEFT, 0, NULL);
		else if (w->up.fd >= 0)
			gn_watch_write(&w->up, GN_WATCH_BYE, w->options.rank, NULL);
	}
	return stop;
}

static void beat(struct gn_watch *w)
{
	if (w->options.rank == 0)
		announce(w, GN_WATCH_BEAT, 0, NULL);
	else if (w->up.fd >= 0)
		gn_watch_write(&w->up, GN_WATCH_BEAT, w->options.rank, NULL);
}

/* A process that was itself stopped must not take its own absence for the silence of others. */
static void forgive(struct gn_watch *w, uint64_t now)
{
	w->up.heard_ns = now;
	for (int r = 1; w->members && r < w->options.size; r++)
		w->members[r].stream.heard_ns = now;
}

static void finish(struct gn_watch *w)
{
	uint64_t until = gn_clock_ns() + SHUT_NS;

	gn_watch_shut(&w->up, until);
	for (int i = 0; i < w->stranger_count; i++)
		close(w->strangers[i].fd);
	for (int r = 1; w->members && r < w->options.size; r++)
		gn_watch_shut(&w->members[r].stream, until);
}

static void *run(void *argument)
{
	struct gn_watch *w = argument;
	size_t slots = w->options.rank ? 2 : (size_t)w->options.size + STRANGERS_MAX + 2;
	struct pollfd *p = calloc(slots, sizeof *p);
	uint64_t last_beat = 0, last_turn = gn_clock_ns(), now;

	while (p && !obey(w)) {
		if (w->options.rank == 0)
			serve(w, p, 250);
		else
			follow(w, 250);
		now = gn_clock_ns();
		if (now - last_turn > (uint64_t)w->options.silent_after_ms * 500000)
			forgive(w, now);
		last_turn = now;
		if (w->options.rank == 0)
			judge_members(w, now);
		else
			judge_up(w, now);
		if (now - last_beat >= BEAT_NS) {
			beat(w);
			last_beat = now;
		}
		if (w->options.rank == 0 && w->said_goodbye && !w->here_or_absent && !w->all_gone) {
			announce(w, GN_WATCH_ALL_GONE, 0, NULL);
			pthread_mutex_lock(&w->lock);
			w->all_gone = 1;
			pthread_cond_broadcast(&w->changed);
			pthread_mutex_unlock(&w->lock);
		}
	}
	if (!p)
		note_lost(w, w->options.rank, "no memory for its watch");
	finish(w);
	free(p);
	return NULL;
}

/* The program's signals are for its own threads. */
static enum gn_status start(struct gn_watch *w, struct gn_err *err)
{
	sigset_t all, before;
	int failure;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	failure = pthread_create(&w->thread, NULL, run, w);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failure ? gn_err_errno(err, failure, "cannot start the watch") : GN_OK;
}

static void release(struct gn_watch *w)
{
	for (int r = 0; w->hosts && r < w->options.size; r++)
		free(w->hosts[r]);
	free(w->hosts);
	free(w->members);
	if (w->listener >= 0)
		close(w->listener);
	if (w->wake >= 0)
		close(w->wake);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static enum gn_status create(const struct gn_watch_options *options, struct gn_watch **out, struct gn_err *err)
{
	struct gn_watch *w = calloc(1, sizeof *w);

	if (!w)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the watch");
	w->options = *options;
	w->listener = w->up.fd = -1;
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

enum gn_status gn_watch_host(const struct gn_watch_options *options, struct gn_watch **out,
			     struct gn_watch_invitation *invitation, struct gn_err *err)
{
	struct gn_watch *w = NULL;
	struct gn_watch_invitation i = {0};
	int port = 0;
	enum gn_status status = create(options, &w, err);

	if (status)
		return status;
	w->members = calloc((size_t)options->size, sizeof *w->members);
	if (!w->members || getrandom(w->token, sizeof w->token, 0) != (ssize_t)sizeof w->token)
		status = gn_err_set(err, GN_ERR_FAILED, "no memory or no random numbers for the watch");
	if (!status)
		status = gn_net_listen(&port, &w->listener, err);
	for (int r = 0; !status && r < options->size; r++)
		w->members[r].stream.fd = -1;
	w->here_or_absent = options->size - 1;
	w->join_by_ns = gn_clock_ns() + (uint64_t)options->timeout_ms * 1000000;
	if (!status)
		status = start(w, err);
	if (status) {
		release(w);
		return status;
	}
	memcpy(i.token, w->token, sizeof i.token);
	i.port = port;
	gn_net_addresses(&i.addresses);
	*invitation = i;
	*out = w;
	return GN_OK;
}

/* Knocks at one address. An answer shows that the other end is ours and knows the token. */
static int knock(struct gn_watch *w, const char *address, const struct gn_watch_invitation *inv, struct gn_err *err)
{
	struct gn_watch_message join = {.magic = GN_WATCH_MAGIC, .type = GN_WATCH_JOIN};

	if (gn_net_connect(address, inv->port, 2000, &w->up.fd, err)) {
		w->up.fd = -1;
		return 0;
	}
	join.rank = (uint32_t)w->options.rank;
	memcpy(join.text, inv->token, sizeof inv->token);
	w->up.got = 0;
	if (!gn_net_send_all(w->up.fd, &join, sizeof join, 1000) &&
	    !gn_net_receive_all(w->up.fd, &w->up.in, sizeof w->up.in, 3000) && w->up.in.magic == GN_WATCH_MAGIC &&
	    w->up.in.type == GN_WATCH_BEAT) {
		w->up.got = sizeof w->up.in;
		w->up.heard_ns = gn_clock_ns();
		return 1;
	}
	gn_err_set(err, GN_ERR_FAILED, "whoever answers at %s port %d does not let us in", address, inv->port);
	close(w->up.fd);
	w->up.fd = -1;
	return 0;
}

enum gn_status gn_watch_join(const struct gn_watch_options *options, const struct gn_watch_invitation *invitation,
			     struct gn_watch **out, struct gn_err *err)
{
	uint64_t deadline = gn_clock_ns() + (uint64_t)options->timeout_ms * 1000000;
	struct timespec pause = {0, 100000000};
	struct gn_watch *w = NULL;
	enum gn_status status = create(options, &w, err);

	if (status)
		return status;
	gn_err_set(err, GN_ERR_FAILED, "it has no address");
	while (w->up.fd < 0 && gn_clock_ns() < deadline) {
		for (uint32_t i = 0; w->up.fd < 0 && i < invitation->addresses.count && i < GN_NET_ADDRESSES_MAX; i++)
			if (knock(w, invitation->addresses.text[i], invitation, err))
				break;
		if (w->up.fd < 0)
			nanosleep(&pause, NULL);
	}
	if (w->up.fd < 0) {
		gn_err_prefix(err, "the watch of rank 0 cannot be reached under any of its %u addresses",
			      invitation->addresses.count);
		release(w);
		return err ? err->status : GN_ERR_FAILED;
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

enum gn_status gn_watch_name_hosts(struct gn_watch *w, const char *const *host_of, struct gn_err *err)
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

static enum gn_status tell(const struct gn_watch *w, int rank, const char *how, struct gn_err *err)
{
	pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&w->lock;
	const char *host;

	pthread_mutex_lock(lock);
	host = w->hosts && rank < w->options.size ? w->hosts[rank] : NULL;
	gn_err_set(err, GN_ERR_PEER_LOST, "rank %d%s%s is lost: %s", rank, host ? " on " : "", host ? host : "",
		   how ? how : w->how);
	pthread_mutex_unlock(lock);
	return GN_ERR_PEER_LOST;
}

enum gn_status gn_watch_check(const struct gn_watch *w, struct gn_err *err)
{
	int lost = atomic_load_explicit(&w->lost, memory_order_acquire);

	return lost ? tell(w, lost - 1, NULL, err) : GN_OK;
}

enum gn_status gn_watch_check_wait(const struct gn_watch *w, uint64_t started_ns, struct gn_err *err)
{
	int left = atomic_load(&w->left);
	uint64_t since;

	if (atomic_load(&w->lost) || !left)
		return gn_watch_check(w, err);
	since = atomic_load(&w->left_ns);
	if (started_ns > since)
		since = started_ns;
	if (gn_clock_ns() < since + LEFT_GRACE_NS)
		return GN_OK;
	return tell(w, left - 1, "it has left the job while others still wait for it", err);
}

static void wake(struct gn_watch *w)
{
	uint64_t one = 1;

	/* cannot fail but by a full counter, and then the thread is awake */
	if (write(w->wake, &one, sizeof one) < 0)
		return;
}

void gn_watch_give_up(struct gn_watch *w, const char *why)
{
	pthread_mutex_lock(&w->lock);
	snprintf(w->gives_up, sizeof w->gives_up, "it gave up: %.160s", why);
	pthread_mutex_unlock(&w->lock);
	wake(w);
}

void gn_watch_destroy(struct gn_watch *w, int leave)
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
