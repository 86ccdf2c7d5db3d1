/* A star around rank 0, which listens at MASTER_ADDR:MASTER_PORT: hellos at first, then length-prefixed messages. */
#include "transport/bootstrap.h"

#include "src/base/clock.h"
#include "transport/net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "GNmeet1"
#define WAITING_MAX 64
#define MESSAGE_MAX (64u << 20)

struct hello {
	char magic[8];
	uint32_t rank, size;
};

/* What rank 0 answers: go, or why not. */
struct answer {
	char magic[8];
	uint32_t refused;
	char text[GN_ERR_TEXT_MAX];
};

struct env_bootstrap {
	struct gn_bootstrap base;
	int *fds; /* rank 0: one per rank; others: fds[0] */
};

/* Someone who has connected and not yet said all of hello. */
struct arrival {
	int fd;
	size_t got;
	struct hello hello;
};

struct meeting {
	struct env_bootstrap *e;
	int listener, missing;
	struct arrival waiting[WAITING_MAX];
	int waiting_count;
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
		if (!gn_net_readable(fd, 100)) {
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
	if (!gn_net_send_all(fd, data, len_bytes, 60000))
		return GN_OK;
	return gn_err_set(err, GN_ERR_PEER_LOST, "rank %d cannot send to rank %d: %s", b->rank, rank, strerror(errno));
}

static enum gn_status receive_message(const struct gn_bootstrap *b, int rank, int fd, void **out, size_t *len_bytes,
				      struct gn_err *err)
{
	uint64_t len;
	enum gn_status status = receive(b, rank, fd, &len, sizeof len, err);
	void *data;

	if (status)
		return status;
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
		while (got-- > 0)
			free(out[got]);
	return status;
}

static void env_destroy(struct gn_bootstrap *b, int clean)
{
	struct env_bootstrap *e = (struct env_bootstrap *)b;

	(void)clean;
	for (int i = 0; e->fds && i < (b->rank ? 1 : b->size); i++)
		if (e->fds[i] >= 0)
			close(e->fds[i]);
	free(e->fds);
	free(e);
}

static const struct gn_bootstrap_ops env_ops = {"environment", env_exchange, env_destroy};

static void refuse(int fd, const char *text)
{
	struct answer a = {.magic = MAGIC, .refused = 1};

	snprintf(a.text, sizeof a.text, "%s", text);
	gn_net_send_all(fd, &a, sizeof a, 1000);
}

/* The whole meeting has failed: everyone who is here hears why. */
static enum gn_status call_off(const struct meeting *m, int newcomer, struct gn_err *err)
{
	struct gn_err none = {.status = GN_ERR_FAILED, .text = "rank 0 gave up"};
	const char *why = err ? err->text : none.text;

	refuse(newcomer, why);
	for (int r = 1; r < m->e->base.size; r++)
		if (m->e->fds[r] >= 0)
			refuse(m->e->fds[r], why);
	close(newcomer);
	return err ? err->status : none.status;
}

static enum gn_status welcome(struct meeting *m, const struct arrival *a, struct gn_err *err)
{
	const struct hello *h = &a->hello;
	int size = m->e->base.size;

	if ((int)h->size != size) {
		gn_err_set(err, GN_ERR_USAGE, "rank %u says WORLD_SIZE=%u but rank 0 says WORLD_SIZE=%d", h->rank, h->size,
			   size);
		return call_off(m, a->fd, err);
	}
	if (h->rank == 0 || (int)h->rank >= size || m->e->fds[h->rank] >= 0) {
		gn_err_set(err, GN_ERR_USAGE, "two processes say RANK=%u of WORLD_SIZE=%d", h->rank, size);
		return call_off(m, a->fd, err);
	}
	m->e->fds[h->rank] = a->fd;
	m->missing--;
	return GN_OK;
}

static void forget(struct meeting *m, int i)
{
	m->waiting[i] = m->waiting[--m->waiting_count];
}

/* Strangers and garbage are dropped; what is ours is welcomed. */
static enum gn_status listen_to(struct meeting *m, int i, struct gn_err *err)
{
	struct arrival *a = &m->waiting[i], whole;
	ssize_t n = recv(a->fd, (char *)&a->hello + a->got, sizeof a->hello - a->got, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return GN_OK;
	if (n > 0)
		a->got += (size_t)n;
	if (n <= 0 || memcmp(a->hello.magic, MAGIC, a->got < 8 ? a->got : 8)) {
		close(a->fd);
		forget(m, i);
		return GN_OK;
	}
	if (a->got < sizeof a->hello)
		return GN_OK;
	whole = *a;
	forget(m, i);
	return welcome(m, &whole, err);
}

static void let_in(struct meeting *m)
{
	int fd = gn_net_accept(m->listener);

	if (fd < 0)
		return;
	if (m->waiting_count == WAITING_MAX) {
		/* whoever says nothing the longest makes room */
		close(m->waiting[0].fd);
		memmove(m->waiting, m->waiting + 1, sizeof *m->waiting * (WAITING_MAX - 1));
		m->waiting_count--;
	}
	m->waiting[m->waiting_count++] = (struct arrival){.fd = fd};
}

static void name_missing(const struct env_bootstrap *e, char *text, size_t size)
{
	size_t len = 0;

	text[0] = 0;
	for (int r = 1; r < e->base.size && len + 16 < size; r++)
		if (e->fds[r] < 0)
			len += (size_t)snprintf(text + len, size - len, "%s%d", len ? ", " : "", r);
}

static enum gn_status meet_once(struct meeting *m, struct gn_err *err)
{
	struct pollfd p[WAITING_MAX + 1] = {{.fd = m->listener, .events = POLLIN}};
	int count = m->waiting_count;
	enum gn_status status = GN_OK;
	char missing[256];

	for (int i = 0; i < count; i++)
		p[i + 1] = (struct pollfd){.fd = m->waiting[i].fd, .events = POLLIN};
	if (poll(p, (nfds_t)count + 1, 200) < 0 && errno != EINTR)
		return gn_err_errno(err, errno, "waiting for the other ranks");
	for (int i = count; i-- > 0 && !status;)
		if (p[i + 1].revents)
			status = listen_to(m, i, err);
	if (!status && p[0].revents)
		let_in(m);
	if (!status && gn_clock_ns() > m->e->base.deadline_ns && m->missing) {
		name_missing(m->e, missing, sizeof missing);
		status = gn_err_set(err, GN_ERR_STALL, "these ranks did not come to the meeting point in time: %s", missing);
		for (int r = 1; r < m->e->base.size; r++)
			if (m->e->fds[r] >= 0)
				refuse(m->e->fds[r], err ? err->text : "rank 0 gave up");
	}
	return status;
}

static enum gn_status host_meeting(struct env_bootstrap *e, int port, struct gn_err *err)
{
	struct meeting m = {.e = e, .missing = e->base.size - 1};
	struct answer go = {.magic = MAGIC};
	enum gn_status status = gn_net_listen(&port, &m.listener, err);

	if (status) {
		gn_err_prefix(err, "rank 0 (MASTER_PORT)");
		return status;
	}
	while (m.missing && !status)
		status = meet_once(&m, err);
	for (int r = 1; r < e->base.size && !status; r++)
		status = transmit(&e->base, r, e->fds[r], &go, sizeof go, err);
	for (int i = 0; i < m.waiting_count; i++)
		close(m.waiting[i].fd);
	close(m.listener);
	return status;
}

/* Rank 0 may be late, and a stranger may have its port for a moment: keep knocking until the deadline. */
static enum gn_status join_meeting(struct env_bootstrap *e, const struct gn_detect *d, struct gn_err *err)
{
	struct hello h = {.magic = MAGIC, .rank = (uint32_t)d->rank, .size = (uint32_t)d->size};
	struct timespec pause = {0, 50000000};
	enum gn_status status;
	struct answer a;

	for (;;) {
		status = gn_net_connect(d->address, d->port, 2000, &e->fds[0], err);
		if (!status && !gn_net_send_all(e->fds[0], &h, sizeof h, 2000))
			break;
		if (!status)
			close(e->fds[0]);
		e->fds[0] = -1;
		if (gn_clock_ns() > e->base.deadline_ns) {
			if (!status)
				gn_err_set(err, GN_ERR_IO, "nobody answers");
			gn_err_prefix(err, "rank 0 is not at MASTER_ADDR=%s", d->address);
			if (err)
				err->status = GN_ERR_STALL;
			return GN_ERR_STALL;
		}
		nanosleep(&pause, NULL);
	}
	status = receive(&e->base, 0, e->fds[0], &a, sizeof a, err);
	if (status)
		return status;
	if (memcmp(a.magic, MAGIC, sizeof a.magic))
		return gn_err_set(err, GN_ERR_FAILED, "what listens at %s port %d is not rank 0 of a Gannet job", d->address,
				  d->port);
	a.text[sizeof a.text - 1] = 0;
	return a.refused ? gn_err_set(err, GN_ERR_USAGE, "%s", a.text) : GN_OK;
}

enum gn_status gn_bootstrap_env(const struct gn_detect *d, int timeout_ms, struct gn_bootstrap **out,
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
	e->fds = fds;
	for (int i = 0; i < d->size; i++)
		fds[i] = -1;
	if (d->size == 1)
		status = GN_OK;
	else
		status = d->rank ? join_meeting(e, d, err) : host_meeting(e, d->port, err);
	if (status) {
		env_destroy(&e->base, 0);
		return status;
	}
	*out = &e->base;
	return GN_OK;
}
