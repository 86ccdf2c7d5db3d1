/* Messages between the ranks of a job, checked.
 * usage: message_probe TRANSPORT flood COUNT   all others send COUNT short messages in all to rank 0, which is slow
 *        message_probe TRANSPORT calls COUNT   every rank makes COUNT calls of random lengths to random others
 *        message_probe TRANSPORT killed COUNT  the same, and the last rank kills itself in the middle; rank 0 counts
 *        message_probe TRANSPORT lost          rank 0 gives one up that answers nothing; the others go on
 *        message_probe TRANSPORT amid          rank 1 leaves while long data come into memory of its own, and then kills itself
 *        message_probe TRANSPORT answer        the same while rank 0 fetches a long answer from such memory
 *        message_probe TRANSPORT forged        what does not come from this job, or breaks the protocol, is dropped
 * Prints what rank 0 counted; exit code 1 when something is wrong. PROBE_PROGRESS=thread: progress by a thread. */
#include "src/base/clock.h"
#include "src/base/log.h"
#include "transport/coll/messages_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FLOOD, CALL, STOP, DATA_MAX = 200000, IN_FLIGHT = 64 };

struct probe {
	struct gn_world *world;
	struct gn_comm *comm;
	struct gn_messages *messages;
	int rank, size;
	uint64_t count;
	uint64_t *next; /* from each rank, the number expected */
	uint64_t received, done, failed, stopped;
	uint64_t draw;
	int victim; /* the rank that kills itself; -1: none */
	uint64_t ended; /* calls that ended because it did */
	unsigned char *place; /* of amid, PLACE_BYTES; NULL: there is none */
	int is_placed;
};

static int bad(const char *what, int from, uint64_t got, uint64_t wanted)
{
	fprintf(stderr, "%s from rank %d: %" PRIu64 ", expected %" PRIu64 "\n", what, from, got, wanted);
	return 1;
}

/* --- flood --- */

struct flood {
	struct gn_message_send send;
	struct probe *probe;
	uint64_t number;
};

static void take_flood(void *context, struct gn_message *m)
{
	struct probe *p = context;
	uint64_t number;

	memcpy(&number, m->header, sizeof number);
	if (m->header_bytes != sizeof number || number != p->next[m->from])
		p->failed += (uint64_t)bad("number", m->from, number, p->next[m->from]);
	p->next[m->from]++;
	p->received++;
	/* slower than its senders */
	for (int i = 0; i < 20; i++)
		gn_clock_pause();
}

static void again(struct gn_message_send *s)
{
	struct flood *f = s->context;
	struct probe *p = f->probe;

	if (s->status) {
		p->failed++;
		return;
	}
	p->done++;
	if (p->next[0] >= p->count)
		return;
	f->number = p->next[0]++;
	p->failed += gn_message_send(p->messages, s, NULL) != GN_OK;
}

static int all_received(void *context)
{
	struct probe *p = context;

	return p->failed || p->received == p->count * (uint64_t)(p->size - 1);
}

static int all_done(void *context)
{
	struct probe *p = context;

	return p->failed || p->done == p->count;
}

static enum gn_status flood(struct probe *p, struct gn_err *err)
{
	static struct flood floods[IN_FLIGHT];
	struct gn_message_kind kind = {.handle = take_flood, .context = p};
	struct gn_messages_counts counts;
	struct rusage usage;
	enum gn_status status = GN_OK;

	p->count /= (uint64_t)(p->size - 1);
	if (p->rank == 0) {
		gn_messages_handle(p->messages, FLOOD, &kind);
		status = gn_messages_wait(p->messages, all_received, p, err);
		gn_messages_count(p->messages, &counts);
		getrusage(RUSAGE_SELF, &usage);
		printf("received %" PRIu64 " held at most %zu dropped %" PRIu64 " resident %ld MB\n", p->received, counts.held_max,
		       counts.dropped, usage.ru_maxrss / 1024);
		if (counts.held_max > (size_t)(p->size - 1) * GN_MESSAGES_CREDITS)
			p->failed += (uint64_t)bad("messages held", 0, counts.held_max, GN_MESSAGES_CREDITS);
		return status;
	}
	for (int i = 0; i < IN_FLIGHT && p->next[0] < p->count && !status; i++) {
		floods[i] = (struct flood){.probe = p, .number = p->next[0]++};
		floods[i].send = (struct gn_message_send){.kind = FLOOD, .header = &floods[i].number, .header_bytes = sizeof(uint64_t),
							  .complete = again, .context = &floods[i]};
		status = gn_message_send(p->messages, &floods[i].send, err);
	}
	return status ? status : gn_messages_wait(p->messages, all_done, p, err);
}

/* --- calls --- */

struct call {
	struct gn_message_send send;
	struct probe *probe;
	uint64_t seed;
	unsigned char data[DATA_MAX], answer[DATA_MAX];
};

struct reply {
	unsigned char *data;
	struct reply *next, **place;
};

/* Whose data may still be read: until they are sent, else until the messages are destroyed. */
static struct reply *replies;

static void fill(unsigned char *data, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		data[i] = (unsigned char)((seed + i) * 31 >> 3);
}

static int differs(const unsigned char *data, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		if (data[i] != (unsigned char)((seed + i) * 31 >> 3))
			return 1;
	return 0;
}

/* Short ones, long ones, and none. */
static size_t length_of(uint64_t seed)
{
	return seed % 5 == 0 ? 0 : seed % 5 < 4 ? seed % 5000 : seed % DATA_MAX;
}

static uint64_t draw(struct probe *p)
{
	return (p->draw = p->draw * 6364136223846793005u + 1442695040888963407u) >> 17;
}

static void free_reply(void *context)
{
	struct reply *r = context;

	*r->place = r->next;
	if (r->next)
		r->next->place = r->place;
	free(r->data);
	free(r);
}

static void take_call(void *context, struct gn_message *m)
{
	struct probe *p = context;
	uint64_t seed;
	struct reply *r = calloc(1, sizeof *r);
	size_t len;

	if (p->rank == p->victim && p->received == p->count / 2)
		kill(getpid(), SIGKILL);
	memcpy(&seed, m->header, sizeof seed);
	if (m->data_bytes != length_of(seed) || differs(m->data, m->data_bytes, seed))
		p->failed += (uint64_t)bad("data", m->from, m->data_bytes, length_of(seed));
	seed = ~seed;
	len = length_of(seed);
	r->data = malloc(len + 1);
	r->next = replies;
	r->place = &replies;
	if (replies)
		replies->place = &r->next;
	replies = r;
	fill(r->data, len, seed);
	if (gn_message_answer(m, &seed, sizeof seed, r->data, len, free_reply, r, NULL)) {
		p->failed += m->from != p->victim;
		free_reply(r);
	}
	p->received++;
}

static void next_call(struct call *c)
{
	struct probe *p = c->probe;

	c->seed = draw(p);
	c->send.to = (int)(c->seed % (uint64_t)(p->size - 1));
	c->send.to += c->send.to >= p->rank;
	c->send.data_bytes = length_of(c->seed);
	fill(c->data, c->send.data_bytes, c->seed);
	p->next[0]++;
	if (!gn_message_call(p->messages, &c->send, NULL))
		return;
	/* to the one that is lost, which is known at once: another instead */
	p->failed += c->send.to != p->victim;
	if (p->failed)
		return;
	p->ended++;
	p->next[0]--;
	next_call(c);
}

/* Whether a call ended with its receiver, which the transport may tell before the heartbeat. */
static int ended_by_loss(struct probe *p, const struct gn_message_send *s)
{
	if (s->status != GN_ERR_PEER_LOST || s->to != p->victim)
		return 0;
	p->ended++;
	return 1;
}

static void take_answer(struct gn_message_send *s)
{
	struct call *c = s->context;
	struct probe *p = c->probe;
	uint64_t seed = 0;

	memcpy(&seed, s->answer_header, sizeof seed);
	if (!ended_by_loss(p, s) && (s->status || seed != ~c->seed || s->answer_bytes != length_of(seed) || differs(c->answer, s->answer_bytes, seed)))
		p->failed += (uint64_t)bad("answer", s->to, s->answer_bytes, length_of(~c->seed));
	p->done++;
	if (p->next[0] < p->count)
		next_call(c);
}

/* Every rank answers until all are through: each tells all others that it is. */
static void take_stop(void *context, struct gn_message *m)
{
	struct probe *p = context;

	(void)m;
	p->stopped++;
}

static int all_stopped(void *context)
{
	struct probe *p = context;

	return p->failed || p->stopped == (uint64_t)(p->size - 1 - (p->victim >= 0));
}

static enum gn_status stop_all(struct probe *p, struct gn_err *err)
{
	struct gn_message_send *stops = calloc((size_t)p->size, sizeof *stops);
	enum gn_status status = GN_OK;

	for (int r = 0; r < p->size && !status; r++) {
		stops[r] = (struct gn_message_send){.to = r, .kind = STOP};
		if (r != p->rank && r != p->victim)
			status = gn_message_send(p->messages, &stops[r], err);
	}
	if (!status)
		status = gn_messages_wait(p->messages, all_stopped, p, err);
	/* those of the last rank may still be on their way */
	if (!status && p->victim < 0)
		status = gn_comm_barrier(p->comm, err);
	while (!status && gn_messages_progress(p->messages))
		;
	free(stops);
	return status;
}

static enum gn_status calls(struct probe *p, struct gn_err *err)
{
	enum { CALLS = 40 };
	struct gn_message_kind on_call = {.handle = take_call, .context = p}, on_stop = {.handle = take_stop, .context = p};
	struct call *c = calloc(CALLS, sizeof *c);
	struct gn_messages_counts counts;
	enum gn_status status;

	gn_messages_handle(p->messages, CALL, &on_call);
	gn_messages_handle(p->messages, STOP, &on_stop);
	for (int i = 0; i < CALLS && p->next[0] < p->count; i++) {
		c[i].probe = p;
		c[i].send = (struct gn_message_send){.kind = CALL, .header = &c[i].seed, .header_bytes = sizeof c[i].seed, .data = c[i].data,
						     .answer = c[i].answer, .answer_room_bytes = DATA_MAX, .complete = take_answer,
						     .context = &c[i]};
		next_call(&c[i]);
	}
	status = gn_messages_wait(p->messages, all_done, p, err);
	if (!status)
		status = stop_all(p, err);
	gn_messages_count(p->messages, &counts);
	if (p->rank == 0)
		printf("answered %" PRIu64 " ended %" PRIu64 " of %" PRIu64 " dropped %" PRIu64 " bytes held at most %zu\n", counts.answered, p->ended, p->count,
		       counts.dropped, counts.held_bytes_max);
	if (counts.dropped && p->victim < 0)
		p->failed++;
	free(c);
	return status;
}

/* --- lost --- */

enum { LOST_EACH = 100 };

static struct gn_message_send lost_sends[3 * LOST_EACH];

/* Of those to the rank that is given up, short ones without an answer may have left before. */
static void count_end(struct gn_message_send *s)
{
	size_t i = (size_t)(s - lost_sends);
	int to_last = i < 2 * LOST_EACH, may_leave = i % 3 && !s->data_bytes;
	struct probe *p = s->context;

	p->done++;
	p->failed += s->status != (to_last ? GN_ERR_PEER_LOST : GN_OK) && !(to_last && may_leave && s->status == GN_OK);
}

static int some_done(void *context)
{
	struct probe *p = context;

	return p->done == p->count;
}

/* The last rank has no handler, so that calls to it stay open, and long data with their sender. */
static enum gn_status lost(struct probe *p, struct gn_err *err)
{
	enum { EACH = LOST_EACH };
	struct gn_message_send *sends = lost_sends;
	static unsigned char data[DATA_MAX];
	struct gn_message_kind kind = {.handle = take_flood, .context = p};
	struct gn_err why;
	enum gn_status status = GN_OK;

	if (p->rank == 0) {
		for (int i = 0; i < 3 * EACH && !status; i++) {
			int to_last = i < 2 * EACH;

			sends[i] = (struct gn_message_send){.to = to_last ? p->size - 1 : 1, .kind = FLOOD, .complete = count_end,
							    .context = p, .header = &p->next[to_last], .header_bytes = 0};
			if (to_last && i % 2)
				sends[i].data = data, sends[i].data_bytes = sizeof data;
			status = to_last && i % 3 == 0 ? gn_message_call(p->messages, &sends[i], err)
						       : gn_message_send(p->messages, &sends[i], err);
		}
		for (int i = 0; i < 1000; i++)
			gn_messages_progress(p->messages);
		gn_messages_lost(p->messages, p->size - 1);
		p->count = 3 * EACH;
		if (!status)
			status = gn_messages_wait(p->messages, some_done, p, err);
		sends[0].to = p->size - 1;
		if (gn_message_send(p->messages, &sends[0], &why) != GN_ERR_PEER_LOST)
			p->failed++;
		printf("ended %" PRIu64 " of %" PRIu64 "\n", p->done, p->count);
	}
	kind.handle = take_stop;
	if (p->rank == 1) {
		gn_messages_handle(p->messages, FLOOD, &kind);
		p->size = EACH + 1;
		status = gn_messages_wait(p->messages, all_stopped, p, err);
	}
	return status ? status : gn_comm_barrier(p->comm, err);
}

/* --- amid --- */

enum { PLACE_BYTES = 256 << 20 };

static void *place_amid(void *context, const struct gn_message *m)
{
	struct probe *p = context;

	p->is_placed = 1;
	return m->data_bytes == PLACE_BYTES ? p->place : NULL;
}

static int sent_or_lost(void *context)
{
	struct probe *p = context;

	return p->done || gn_world_is_lost(p->world, 1);
}

static void count_done(struct gn_message_send *s)
{
	((struct probe *)s->context)->done++;
}

static void answer_amid(void *context, struct gn_message *m)
{
	struct probe *p = context;

	p->failed += gn_message_answer(m, NULL, 0, p->place, PLACE_BYTES, NULL, NULL, NULL) != GN_OK;
	p->is_placed = 1;
}

static enum gn_status amid(struct probe *p, int answers, struct gn_err *err)
{
	static struct gn_message_send send;
	struct gn_message_kind kind = {.handle = answers ? answer_amid : take_stop, .place = place_amid, .context = p};
	void *memory = mmap(NULL, PLACE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	enum gn_status status;

	if (memory == MAP_FAILED)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d bytes", PLACE_BYTES);
	if (p->rank == 0) {
		send = (struct gn_message_send){.to = 1, .kind = FLOOD, .complete = count_done, .context = p};
		if (answers)
			send.answer = memory, send.answer_room_bytes = PLACE_BYTES;
		else
			send.data = memory, send.data_bytes = PLACE_BYTES;
		status = answers ? gn_message_call(p->messages, &send, err) : gn_message_send(p->messages, &send, err);
		return status ? status : gn_messages_wait(p->messages, sent_or_lost, p, err);
	}
	p->place = memory;
	gn_messages_handle(p->messages, FLOOD, &kind);
	while (!p->is_placed)
		gn_messages_progress(p->messages);
	return GN_OK;
}

/* --- forged --- */

static int bad_case(size_t i)
{
	fprintf(stderr, "bad message %zu was taken\n", i);
	return 1;
}

static int arrives(struct probe *p, const struct gn_message_wire *wire, size_t header_bytes)
{
	const struct gn_ucx_am am = {.header = wire, .header_bytes = header_bytes};
	struct gn_messages_counts before, after;

	gn_messages_count(p->messages, &before);
	gn_message_arrived(p->messages, &am);
	gn_messages_count(p->messages, &after);
	return after.dropped == before.dropped;
}

static enum gn_status forged(struct probe *p, struct gn_err *err)
{
	const struct gn_message_wire good = {.token = p->messages->token, .from = (uint32_t)!p->rank};
	struct gn_message_wire bad[8];
	struct gn_message_kind kind = {.handle = take_stop, .context = p};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		bad[i] = good;
	bad[0].token++;
	bad[1].from = (uint32_t)p->size;
	bad[2].from = (uint32_t)p->rank;
	bad[3].header_bytes = GN_MESSAGE_HEADER_MAX + 1;
	bad[4].sequence = GN_MESSAGES_CREDITS;
	bad[5].kind = GN_MESSAGE_KINDS;
	bad[6].credits = 1; /* more than were ever used; the message itself is then the second of its number */
	bad[7].is = GN_MESSAGE_ANSWER, bad[7].call = 77;
	gn_messages_handle(p->messages, 0, &kind);
	p->failed += !arrives(p, &good, sizeof good);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		if (arrives(p, &bad[i], sizeof bad[i]))
			p->failed += (uint64_t)bad_case(i);
	p->failed += (uint64_t)arrives(p, &good, sizeof good - 1);
	gn_messages_progress(p->messages);
	p->failed += p->stopped != 1;
	return gn_comm_barrier(p->comm, err);
}

static enum gn_status run(struct probe *p, const char *what, struct gn_err *err)
{
	if (p->size < 2)
		return gn_err_set(err, GN_ERR_USAGE, "messages need two ranks");
	if (!strcmp(what, "flood"))
		return flood(p, err);
	p->victim = strcmp(what, "killed") && strcmp(what, "amid") && strcmp(what, "answer") ? -1 : p->size - 1;
	if (!strcmp(what, "amid") || !strcmp(what, "answer"))
		return amid(p, !strcmp(what, "answer"), err);
	if (!strcmp(what, "calls") || p->victim >= 0)
		return calls(p, err);
	return !strcmp(what, "forged") ? forged(p, err) : lost(p, err);
}

int main(int argc, char **argv)
{
	const struct gn_world_options how = {.keep_going = 1};
	struct gn_comm_options options = {.transport = argc > 1 ? argv[1] : "auto", .progress = getenv("PROBE_PROGRESS")};
	struct probe p = {.count = argc > 3 ? strtoull(argv[3], NULL, 10) : 1000};
	struct gn_log *log = NULL;
	struct gn_err err = {.text = ""};
	enum gn_status status = gn_log_create(2, GN_LOG_WARN, &log, &err);

	if (!status)
		status = gn_world_create(&how, log, &p.world, &err);
	if (!status)
		status = gn_comm_create(p.world, &options, log, &p.comm, &err);
	if (!status)
		status = gn_messages_create(p.comm, &p.messages, &err);
	if (!status) {
		p.rank = gn_comm_rank(p.comm);
		p.size = gn_comm_size(p.comm);
		p.draw = (uint64_t)p.rank + 1;
		p.next = calloc((size_t)p.size, sizeof *p.next);
		status = run(&p, argc > 2 ? argv[2] : "calls", &err);
	}
	if (!status && p.victim < 0)
		status = gn_comm_barrier(p.comm, &err);
	if (status)
		fprintf(stderr, "%s\n", err.text);
	gn_messages_destroy(p.messages);
	while (replies)
		free_reply(replies);
	if (p.place)
		munmap(p.place, PLACE_BYTES);
	gn_comm_destroy(p.comm);
	if (p.place) {
		fprintf(stderr, "left with %d messages\n", (int)p.stopped);
		kill(getpid(), SIGKILL);
	}
	gn_world_destroy(p.world);
	gn_log_destroy(log);
	free(p.next);
	return status || p.failed ? 1 : 0;
}
