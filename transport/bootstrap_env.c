/* A star around rank 0, which listens at MASTER_ADDR:MASTER_PORT: a handshake with each, rank 0's word to it, and from then on
 * length-prefixed messages. In the place of any of them may come that the meeting is off, and why. */
#include "transport/bootstrap.h"

#include "src/base/clock.h"
#include "transport/door.h"
#include "transport/net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_MAX (64u << 20)
/* instead of a message's length */
#define CALLED_OFF UINT64_MAX

struct called_off {
	uint64_t instead_of_length;
	uint32_t status; /* without its sign */
	char text[GN_ERR_TEXT_MAX];
};

struct env_bootstrap {
	struct gn_bootstrap base;
	struct gn_detect place;
	struct gn_log *log;
	int *fds; /* rank 0: one per rank; others: fds[0] */
};

struct meeting {
	struct env_bootstrap *e;
	struct gn_door *door;
	const void *word;
	size_t word_bytes;
	uint64_t started_ns;
	int missing;
};

static enum gn_status receive(const struct gn_bootstrap *b, int rank, int fd, void *data, size_t len_bytes,
			      struct gn_err *err)
{
	uint64_t started = gn_clock_ns();
	enum gn_status status;

	for (size_t done = 0; done < len_bytes;) {
		ssize_t n = recv(fd, (char *)data + done, len_bytes - done, MSG_DONTWAIT);

		if (n > 0) {
			done += (size_t)n;
			continue;
		}
		if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			status = b->watch ? gn_bootstrap_may_wait(b, started, "", err) : GN_OK;
			return status ? status
				      : gn_err_set(err, GN_ERR_PEER_LOST, "rank %d closed its connection to rank %d", rank,
						   b->rank);
		}
		if (!gn_net_readable(fd, gn_bootstrap_nap_ms(b))) {
			status = gn_bootstrap_may_wait(b, started, "the exchange over MASTER_ADDR", err);
			if (status)
				return status;
		}
	}
	return GN_OK;
}

static enum gn_status transmit(const struct gn_bootstrap *b, int rank, int fd, const void *data, size_t len_bytes,
			       struct gn_err *err)
{
	uint64_t started = gn_clock_ns();
	enum gn_status status;

	for (size_t done = 0; done < len_bytes;) {
		ssize_t n = gn_net_send_some(fd, (const char *)data + done, len_bytes - done);

		if (n < 0)
			return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d cannot send to rank %d: %s", b->rank, rank,
					  strerror(errno));
		done += (size_t)n;
		if (!n && !gn_net_writable(fd, gn_bootstrap_nap_ms(b))) {
			status = gn_bootstrap_may_wait(b, started, "the exchange over MASTER_ADDR", err);
			if (status)
				return status;
		}
	}
	return GN_OK;
}

static enum gn_status hear_why(const struct gn_bootstrap *b, int rank, int fd, struct gn_err *err)
{
	struct called_off off;
	const size_t heard = sizeof off.instead_of_length;
	enum gn_status status = receive(b, rank, fd, (char *)&off + heard, sizeof off - heard, err);

	if (status)
		return status;
	off.text[sizeof off.text - 1] = 0;
	return gn_err_set(err, off.status == (uint32_t)-GN_ERR_USAGE ? GN_ERR_USAGE : GN_ERR_PEER_LOST, "%s", off.text);
}

static enum gn_status receive_message(const struct gn_bootstrap *b, int rank, int fd, void **out, size_t *len_bytes,
				      struct gn_err *err)
{
	uint64_t len;
	enum gn_status status = receive(b, rank, fd, &len, sizeof len, err);
	void *data;

	if (status)
		return status;
	if (len == CALLED_OFF)
		return hear_why(b, rank, fd, err);
	if (len > MESSAGE_MAX)
		return gn_err_set(err, GN_ERR_FAILED, "rank %d announces a message of %llu bytes: not one of ours", rank,
				  (unsigned long long)len);
	data = malloc(len + 1);
	if (!data)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %llu bytes", (unsigned long long)len);
	status = receive(b, rank, fd, data, len, err);
	if (status) {
		free(data);
		return status;
	}
	*out = data;
	*len_bytes = len;
	return GN_OK;
}

static enum gn_status send_message(const struct gn_bootstrap *b, int rank, int fd, const void *data, size_t len_bytes,
				   struct gn_err *err)
{
	uint64_t len = len_bytes;
	enum gn_status status = transmit(b, rank, fd, &len, sizeof len, err);

	return status || !len ? status : transmit(b, rank, fd, data, len_bytes, err);
}

static enum gn_status own_copy(const void *mine, size_t len_bytes, void **out, size_t *len, struct gn_err *err)
{
	void *copy = malloc(len_bytes + 1);

	if (!copy)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu bytes", len_bytes);
	if (len_bytes)
		memcpy(copy, mine, len_bytes);
	*out = copy;
	*len = len_bytes;
	return GN_OK;
}

/* Rank 0 has got gathered messages by now and gives all of them to everyone. */
static enum gn_status spread(struct env_bootstrap *e, void **out, const size_t *lens, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int to = 1; to < e->base.size && !status; to++)
		for (int from = 0; from < e->base.size && !status; from++)
			status = send_message(&e->base, to, e->fds[to], out[from], lens[from], err);
	return status;
}

static enum gn_status env_exchange(struct gn_bootstrap *b, const void *mine, size_t len_bytes, void **out, size_t *lens,
				   struct gn_err *err)
{
	struct env_bootstrap *e = (struct env_bootstrap *)b;
	enum gn_status status;
	int got = 0;

	if (len_bytes > MESSAGE_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "%zu bytes are too many to exchange at start", len_bytes);
	if (b->rank == 0) {
		status = own_copy(mine, len_bytes, &out[0], &lens[0], err);
		for (got = !status; !status && got < b->size; got += !status)
			status = receive_message(b, got, e->fds[got], &out[got], &lens[got], err);
		if (!status)
			status = spread(e, out, lens, err);
	} else {
		status = send_message(b, 0, e->fds[0], mine, len_bytes, err);
		for (; !status && got < b->size; got += !status)
			status = receive_message(b, 0, e->fds[0], &out[got], &lens[got], err);
	}
	if (status)
		/* nothing set on failure: callers free what is */
		while (got-- > 0) {
			free(out[got]);
			out[got] = NULL;
		}
	return status;
}

static void call_off_one(int fd, const struct gn_err *why)
{
	struct called_off off = {.instead_of_length = CALLED_OFF, .status = (uint32_t)-why->status};

	snprintf(off.text, sizeof off.text, "%s", why->text);
	gn_net_send_all(fd, &off, sizeof off, 1000);
}

/* Everyone who is here hears why the meeting is off. */
static enum gn_status call_off(const struct meeting *m, int newcomer, const struct gn_err *why, struct gn_err *err)
{
	call_off_one(newcomer, why);
	for (int r = 1; r < m->e->base.size; r++)
		if (m->e->fds[r] >= 0)
			call_off_one(m->e->fds[r], why);
	close(newcomer);
	return gn_err_set(err, why->status, "%s", why->text);
}

static enum gn_status welcome(struct meeting *m, const struct gn_door_guest *g, struct gn_err *err)
{
	struct env_bootstrap *e = m->e;
	int size = e->base.size;
	struct gn_err why;

	if (g->size != (uint32_t)size) {
		gn_err_set(&why, GN_ERR_USAGE, "rank %u says WORLD_SIZE=%u but rank 0 says WORLD_SIZE=%d", g->rank, g->size,
			   size);
		return call_off(m, g->fd, &why, err);
	}
	if (g->rank == 0 || g->rank >= (uint32_t)size || e->fds[g->rank] >= 0) {
		gn_err_set(&why, GN_ERR_USAGE, "two processes say RANK=%u of WORLD_SIZE=%d", g->rank, size);
		return call_off(m, g->fd, &why, err);
	}
	e->fds[g->rank] = g->fd;
	m->missing--;
	return send_message(&e->base, (int)g->rank, g->fd, m->word, m->word_bytes, err);
}

static enum gn_status meet_once(struct meeting *m, struct gn_err *err)
{
	struct pollfd p[GN_DOOR_POLL_MAX];
	struct gn_door_guest guest;
	enum gn_status status = GN_OK;

	if (poll(p, (nfds_t)gn_door_poll(m->door, p), gn_bootstrap_nap_ms(&m->e->base)) < 0 && errno != EINTR)
		return gn_err_errno(err, errno, "waiting for the other ranks");
	while (!status && m->missing && gn_door_turn(m->door, &guest))
		status = welcome(m, &guest, err);
	if (!status && m->missing)
		status = gn_bootstrap_may_wait(&m->e->base, m->started_ns, "the meeting at MASTER_PORT", err);
	return status;
}

static enum gn_status host_meeting(struct env_bootstrap *e, const void *word, size_t word_bytes, struct gn_err *err)
{
	struct meeting m = {e, NULL, word, word_bytes, gn_clock_ns(), e->base.size - 1};
	int port = e->place.port;
	enum gn_status status = gn_door_open(&port, GN_HANDSHAKE_MEETING, &e->base.secret, e->log, &m.door, err);

	if (status) {
		gn_err_prefix(err, "rank 0 (MASTER_PORT)");
		return status;
	}
	while (m.missing && !status)
		status = meet_once(&m, err);
	gn_door_close(m.door);
	return status;
}

/* Rank 0 may be late, and a stranger may have its port for a moment: keep knocking until the deadline. Only a rank 0 that says
 * that our secret is not its own ends it at once. */
static enum gn_status knock(struct env_bootstrap *e, struct gn_err *err)
{
	const struct gn_detect *d = &e->place;
	const struct timespec pause = {0, 50000000};
	enum gn_status status;
	struct gn_err why;

	for (;;) {
		status = gn_net_connect(d->address, d->port, gn_net_left_ms(e->base.deadline_ns, 2000), &e->fds[0], &why);
		if (!status)
			status = gn_handshake_join(e->fds[0], &e->base.secret, GN_HANDSHAKE_MEETING, (uint32_t)d->rank,
						   (uint32_t)d->size, gn_net_left_ms(e->base.deadline_ns, 5000), &why);
		if (!status)
			return GN_OK;
		if (e->fds[0] >= 0)
			close(e->fds[0]);
		e->fds[0] = -1;
		if (status == GN_ERR_USAGE)
			return gn_err_set(err, status, "rank 0 at MASTER_ADDR=%s port %d refuses this rank: %s", d->address,
					  d->port, why.text);
		if (gn_clock_ns() > e->base.deadline_ns)
			return gn_err_set(err, GN_ERR_STALL, "rank 0 is not at MASTER_ADDR=%s port %d: %s", d->address, d->port,
					  why.text);
		nanosleep(&pause, NULL);
	}
}

static enum gn_status env_word(struct gn_bootstrap *b, const void *mine, size_t len_bytes, void **out, size_t *len,
			       struct gn_err *err)
{
	struct env_bootstrap *e = (struct env_bootstrap *)b;
	enum gn_status status;

	if (b->size == 1)
		return GN_OK;
	if (b->rank == 0)
		return host_meeting(e, mine, len_bytes, err);
	status = knock(e, err);
	return status ? status : receive_message(b, 0, e->fds[0], out, len, err);
}

static enum gn_status env_called_off(struct gn_bootstrap *b, struct gn_err *err)
{
	int fd = ((const struct env_bootstrap *)b)->fds[0];
	uint64_t first;

	if (b->rank == 0 || recv(fd, &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) != (ssize_t)sizeof first || first != CALLED_OFF ||
	    recv(fd, &first, sizeof first, MSG_DONTWAIT) != (ssize_t)sizeof first)
		return GN_OK;
	return hear_why(b, 0, fd, err);
}

static void env_destroy(struct gn_bootstrap *b, int clean)
{
	struct env_bootstrap *e = (struct env_bootstrap *)b;

	(void)clean;
	for (int i = 0; e->fds && i < (b->rank ? 1 : b->size); i++)
		if (e->fds[i] >= 0)
			close(e->fds[i]);
	gn_secret_wipe(&b->secret);
	free(e->fds);
	free(e);
}

static const struct gn_bootstrap_ops env_ops = {"environment", env_word, env_called_off, env_exchange, env_destroy};

/* The file that the user names, or one in the home directory that all of the user's jobs share. */
static enum gn_status find_secret(struct env_bootstrap *e, struct gn_log *log, struct gn_err *err)
{
	const char *named = getenv(GN_BOOTSTRAP_SECRET), *home = getenv("HOME");
	char path[1024];
	enum gn_status status = GN_OK;

	if (named && *named)
		return gn_secret_read(named, &e->base.secret, err);
	if (!home || *home != '/' || (size_t)snprintf(path, sizeof path, "%s/.gannet-secret", home) >= sizeof path)
		status = gn_err_set(err, GN_ERR_USAGE, "there is no home directory for a secret");
	if (!status)
		status = gn_secret_make(path, err);
	if (!status)
		status = gn_secret_read(path, &e->base.secret, err);
	if (status) {
		gn_err_prefix(err, "no secret by which ranks know each other: set " GN_BOOTSTRAP_SECRET " to a file that all ranks can "
			      "read, made by (umask 077; head -c 32 /dev/urandom >FILE)");
		return status;
	}
	if (e->base.rank == 0 && e->base.size > 1)
		gn_log_warn(log, GN_BOOTSTRAP_SECRET " is not set: ranks know each other by %s, which all jobs of this user share", path);
	return GN_OK;
}

enum gn_status gn_bootstrap_env(const struct gn_detect *d, int timeout_ms, struct gn_log *log, struct gn_bootstrap **out,
				struct gn_err *err)
{
	struct env_bootstrap *e = calloc(1, sizeof *e);
	int *fds = malloc(sizeof *fds * (size_t)d->size);
	enum gn_status status;

	if (!e || !fds) {
		free(e);
		free(fds);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a bootstrap");
	}
	e->base = (struct gn_bootstrap){.ops = &env_ops, .rank = d->rank, .size = d->size};
	e->base.deadline_ns = gn_clock_ns() + (uint64_t)timeout_ms * 1000000;
	e->place = *d;
	e->log = log;
	e->fds = fds;
	for (int i = 0; i < d->size; i++)
		fds[i] = -1;
	status = d->size > 1 ? find_secret(e, log, err) : GN_OK;
	if (status) {
		env_destroy(&e->base, 0);
		return status;
	}
	*out = &e->base;
	return GN_OK;
}
