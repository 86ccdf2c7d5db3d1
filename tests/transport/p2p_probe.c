/* A rank for tests of messages between two ranks (transport/coll/p2p.h): random pairs, tags, sizes and groups, in host memory and that of a
 * device that works late, many in flight, started in an order of each rank's own; every byte is checked.
 * usage: p2p_probe TRANSPORT SEED ROUNDS [RANK AFTER]    RANK ends without a word in round AFTER
 *        p2p_probe TRANSPORT stall KIND                  rank 0 waits for a message that never comes, of rank 1, which waits in turn for
 *                                                        a message (KIND 0) or in a barrier (1)
 * PROBE_HOW: how device memory is sent, "direct" or "staged"; PROBE_PROGRESS as --progress. Exit codes as gannet's; 99: wrong data. */
#include "src/base/log.h"
#include "src/base/philox.h"
#include "tests/transport/exit_code.h"
#include "tests/transport/late_device.h"
#include "transport/coll/p2p.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRONG 99
#define MESSAGES 60
#define STARTS 2 /* of each persistent operation */

struct run {
	struct gn_comm *comms[2]; /* the world's, and a group of every second rank */
	struct gn_world *world;
	struct gn_device *device;
	struct gn_stream *stream;
	struct gn_event *event;
	uint64_t seed, round;
	int dies_in;
	uint32_t own; /* random numbers of this rank alone */
	uint64_t messages, bytes;
};

/* The same on all ranks, but for what is of this rank. */
struct message {
	int from, to, group; /* world ranks */
	uint32_t tag;
	size_t len;
	int on_device, mine; /* mine: this rank sends (1) or receives (2) */
	struct gn_p2p *p;
	unsigned char *data, *given;
};

static uint32_t chance(const struct run *r, uint32_t n, uint32_t which)
{
	uint32_t counter[4] = {(uint32_t)r->round, n, which, 0}, key[2] = {(uint32_t)r->seed, 9}, out[4];

	gn_philox(counter, key, out);
	return out[0];
}

static uint32_t own_chance(struct run *r)
{
	r->own = r->own * 1664525u + 1013904223u;
	return r->own >> 8;
}

static void fail(const struct run *r, const char *what)
{
	fprintf(stderr, "WRONG: seed %llu, round %llu: %s\n", (unsigned long long)r->seed, (unsigned long long)r->round, what);
	_exit(WRONG);
}

static unsigned char byte_of(const struct message *m, uint32_t n, int start, size_t i)
{
	return (unsigned char)(i * 31 + i / 251 + n * 7 + (uint32_t)start * 101 + (uint32_t)m->from);
}

static size_t some_length(const struct run *r, uint32_t n)
{
	static const size_t most[] = {1, 9, 300, 5000, 70000, 300000, 3000000, 8u << 20};
	size_t length = most[chance(r, n, 5) % (chance(r, n, 6) % 4 ? 5 : 8)];

	return chance(r, n, 7) % 4 ? chance(r, n, 8) % length : length;
}

static int rank_in(const struct gn_comm *c, int world_rank)
{
	for (int i = 0; i < gn_comm_size(c); i++)
		if (gn_comm_world_rank(c, i) == world_rank)
			return i;
	return -1;
}

static enum gn_status make(struct run *r, uint32_t n, struct message *m, struct gn_err *err)
{
	int size = gn_comm_size(r->comms[0]), me = gn_comm_rank(r->comms[0]);
	struct gn_p2p_args args;

	m->group = chance(r, n, 0) % 3 == 0;
	m->from = (int)(chance(r, n, 1) % (uint32_t)size);
	m->to = (int)(chance(r, n, 2) % (uint32_t)size);
	if (m->from == m->to)
		m->to = (m->to + 1) % size;
	if (m->group && (m->from - m->to) % 2)
		m->group = 0;
	m->tag = chance(r, n, 3) % 3 ? chance(r, n, 4) % 3 : chance(r, n, 4) % GN_P2P_TAGS;
	m->len = some_length(r, n);
	m->mine = m->from == me ? 1 : m->to == me ? 2 : 0;
	/* each end by itself */
	m->on_device = !m->group && chance(r, n, 9 + (uint32_t)m->mine) % 3 == 0;
	if (!m->mine)
		return GN_OK;
	m->data = malloc(m->len + 1);
	m->given = malloc(m->len + 1);
	if (!m->data || !m->given)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");
	args = (struct gn_p2p_args){.peer = rank_in(r->comms[m->group], m->mine == 1 ? m->to : m->from), .tag = m->tag, .data = m->data,
				    .len_bytes = m->len, .memory = m->on_device ? GN_MEMORY_DEVICE : GN_MEMORY_HOST};
	return m->mine == 1 ? gn_p2p_prepare_send(r->comms[m->group], &args, &m->p, err)
			    : gn_p2p_prepare_receive(r->comms[m->group], &args, &m->p, err);
}

static int same_key(const struct message *a, const struct message *b)
{
	return a->from == b->from && a->to == b->to && a->tag == b->tag && a->group == b->group;
}

/* An order of this rank's own, but for messages of one key. */
static void shuffle(struct run *r, const struct message *all, int order[MESSAGES])
{
	for (int i = 0; i < MESSAGES; i++) {
		int at = (int)(own_chance(r) % (uint32_t)(i + 1));

		order[i] = order[at];
		order[at] = i;
	}
	for (int i = 0; i < MESSAGES; i++)
		for (int k = i + 1; k < MESSAGES; k++)
			if (order[k] < order[i] && same_key(&all[order[i]], &all[order[k]])) {
				int swap = order[i];

				order[i] = order[k];
				order[k] = swap;
			}
}

/* A device's data come late; what is received is overwritten late. */
static enum gn_status start(struct run *r, struct message *m, uint32_t n, int again, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < m->len; i++)
		m->given[i] = m->mine == 1 ? byte_of(m, n, again, i) : 0xee;
	if (!m->on_device) {
		memcpy(m->data, m->given, m->len);
		return gn_p2p_start(m->p, NULL, err);
	}
	memset(m->data, 0xdd, m->len);
	status = gn_stream_copy(r->stream, m->data, m->given, m->len, err);
	if (!status)
		status = gn_event_record(r->event, r->stream, err);
	return status ? status : gn_p2p_start(m->p, r->event, err);
}

static enum gn_status finish(struct run *r, struct message *m, uint32_t n, int again, struct gn_err *err)
{
	enum gn_status status = GN_OK;
	int done = 0;

	while (chance(r, n, 14) % 2 && !done && !status) {
		status = gn_p2p_test(m->p, &done, err);
		sched_yield();
	}
	if (!status)
		status = gn_p2p_wait(m->p, err);
	for (size_t i = 0; i < m->len && !status && m->mine == 2; i++)
		if (m->data[i] != byte_of(m, n, again, i))
			fail(r, "a byte");
	r->messages += m->mine == 2;
	r->bytes += m->mine == 2 ? m->len : 0;
	return status;
}

static enum gn_status exchange(struct run *r, struct message *all, int again, struct gn_err *err)
{
	int order[MESSAGES] = {0};
	enum gn_status status = GN_OK;

	shuffle(r, all, order);
	for (int i = 0; i < MESSAGES && !status; i++)
		if (all[order[i]].mine)
			status = start(r, &all[order[i]], (uint32_t)order[i], again, err);
	if ((int)r->round == r->dies_in)
		_exit(0);
	shuffle(r, all, order);
	for (int i = 0; i < MESSAGES && !status; i++)
		if (all[order[i]].mine)
			status = finish(r, &all[order[i]], (uint32_t)order[i], again, err);
	return status;
}

static enum gn_status one_round(struct run *r, struct gn_err *err)
{
	struct message all[MESSAGES] = {{0}};
	int32_t one = 1;
	enum gn_status status = GN_OK;

	for (uint32_t n = 0; n < MESSAGES && !status; n++)
		status = make(r, n, &all[n], err);
	for (int again = 0; again < STARTS && !status; again++)
		status = exchange(r, all, again, err);
	/* after a failure copies may be queued still */
	(void)gn_stream_wait(r->stream, NULL);
	for (int n = 0; n < MESSAGES; n++) {
		gn_p2p_free(all[n].p);
		free(all[n].data);
		free(all[n].given);
	}
	/* collectives are not disturbed by messages */
	if (!status)
		status = gn_comm_allreduce(r->comms[0], &one, 1, GN_I32, NULL, err);
	if (!status && one != gn_comm_size(r->comms[0]))
		fail(r, "a sum");
	return status;
}

static void check_refusals(struct run *r)
{
	struct gn_comm *c = r->comms[1];
	char byte = 0;
	const struct gn_p2p_args wrong[] = {
		{.peer = gn_comm_rank(c), .data = &byte, .len_bytes = 1},
		{.peer = gn_comm_size(c), .data = &byte, .len_bytes = 1},
		{.peer = -2, .data = &byte, .len_bytes = 1},
		{.peer = !gn_comm_rank(c), .tag = GN_P2P_TAGS, .data = &byte, .len_bytes = 1},
		{.peer = !gn_comm_rank(c), .data = &byte, .len_bytes = 1, .memory = GN_MEMORY_DEVICE},
	};
	struct gn_p2p *p;

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		if (gn_p2p_prepare_receive(c, &wrong[i], &p, NULL) != GN_ERR_USAGE)
			fail(r, "a refusal");
	/* a receive may be of any rank, a send is to one */
	if (gn_p2p_prepare_send(c, &(struct gn_p2p_args){.peer = GN_P2P_ANY, .data = &byte, .len_bytes = 1}, &p, NULL) != GN_ERR_USAGE)
		fail(r, "a send to any rank was not refused");
}

static enum gn_status open_device(struct run *r, struct gn_err *err)
{
	struct late_device_options lo = {.seed = r->seed + 1, .pause_max_us = 20};
	struct gn_comm_device how = {.how = getenv("PROBE_HOW") ? getenv("PROBE_HOW") : "staged", .reduce = late_device_reduce};
	enum gn_status status = late_device_create(&lo, &r->device, err);

	how.device = r->device;
	if (!status)
		status = gn_stream_create(r->device, &r->stream, err);
	if (!status)
		status = gn_event_create(r->device, &r->event, err);
	return status ? status : gn_comm_attach(r->comms[0], &how, NULL, err);
}

static enum gn_status stall(struct run *r, int in_barrier, struct gn_err *err)
{
	int rank = gn_comm_rank(r->comms[0]);
	char word[64];

	if (!rank || !in_barrier)
		return gn_p2p_receive(r->comms[1], !rank, 7 + (uint32_t)rank, word, sizeof word, err);
	return gn_comm_barrier(r->comms[0], err);
}

static enum gn_status run(struct run *r, char **argv, int argc, struct gn_err *err)
{
	int rank = gn_comm_rank(r->comms[0]), stalls = !strcmp(argv[2], "stall");
	enum gn_status status = gn_comm_split(r->comms[0], stalls ? 0 : rank % 2, 0, "pipe", &r->comms[1], err);

	if (status || stalls)
		return status ? status : stall(r, atoi(argv[3]), err);
	r->seed = strtoull(argv[2], NULL, 10);
	r->own = (uint32_t)r->seed * 77u + (uint32_t)rank;
	r->dies_in = argc > 5 && atoi(argv[4]) == rank ? atoi(argv[5]) : -1;
	check_refusals(r);
	status = open_device(r, err);
	for (; r->round < strtoull(argv[3], NULL, 10) && !status; r->round++)
		status = one_round(r, err);
	if (!status)
		printf("rank %d: %llu messages of %llu bytes are right\n", rank, (unsigned long long)r->messages,
		       (unsigned long long)r->bytes);
	return status;
}

static void release(struct run *r)
{
	if (r->comms[0])
		gn_comm_detach(r->comms[0]);
	gn_event_destroy(r->event);
	gn_stream_destroy(r->stream);
	gn_device_close(r->device);
	gn_comm_destroy(r->comms[1]);
	gn_comm_destroy(r->comms[0]);
	gn_world_destroy(r->world);
}

int main(int argc, char **argv)
{
	struct gn_comm_options options = {.transport = argc > 3 ? argv[1] : NULL, .tuning = "none", .progress = getenv("PROBE_PROGRESS")};
	struct run r = {.dies_in = -1};
	struct gn_err err;
	enum gn_status status;

	if (argc < 4)
		return 2;
	status = gn_world_create(NULL, NULL, &r.world, &err);
	if (!status)
		status = gn_comm_create(r.world, &options, NULL, &r.comms[0], &err);
	if (!status)
		status = run(&r, argv, argc, &err);
	if (status && r.world && err.status != GN_ERR_PEER_LOST)
		gn_world_abort(r.world, err.status, err.text);
	release(&r);
	return status ? exit_code(&err) : 0;
}
