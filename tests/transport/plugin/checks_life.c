/* How communicators, connections and the library itself come and go. */
#include "tests/transport/plugin/lab.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_communicators(struct lab *lab)
{
	enum { COUNT = 6 };
	void *contexts[COUNT] = {0}, *comms[COUNT];

	lab_load(lab);
	contexts[0] = lab->context;
	for (int i = 1; i < COUNT; i++)
		must(lab, plug_init(&lab->plug, &contexts[i], lab_logger), "init for another communicator");
	for (int i = 0; i < COUNT; i++)
		for (int j = 0; j < i && lab->plug.version >= 11; j++)
			if (contexts[i] && contexts[i] == contexts[j])
				fail(lab, "two communicators got the same context");
	for (int i = 0; i < COUNT; i++) {
		lab->context = contexts[i];
		comms[i] = lab_pair(lab, i % 2, !(i % 2));
	}
	for (int i = COUNT - 1; i >= 0; i--)
		one_message(lab, lab->rank == i % 2, comms[i], 5000, (uint64_t)i);
	/* half of them end while the others go on */
	for (int half = 0; half < 2; half++) {
		meet(lab);
		for (int i = half; i < COUNT; i += 2) {
			lab_close(lab, lab->rank == i % 2, comms[i]);
			must(lab, plug_finalize(&lab->plug, contexts[i]), "finalize");
		}
		for (int i = 1; i < COUNT && !half; i += 2)
			one_message(lab, lab->rank == i % 2, comms[i], 70000, (uint64_t)(10 + i));
	}
	plug_close(&lab->plug);
}

/* NCCL up to 2.28 calls finalize for a communicator whose init failed. */
static void check_failed_init(struct lab *lab)
{
	const char *why = "", *before = getenv("UCX_TLS");
	char *saved = before ? strdup(before) : NULL;
	void *context = NULL;
	int count;

	if (plug_open(&lab->plug, lab->options->path, lab->options->version, &why))
		fail(lab, "cannot load it: %s", why);
	setenv("UCX_TLS", "no-such-transport", 1);
	if (!plug_init(&lab->plug, &context, lab_logger) && !plug_devices(&lab->plug, &count))
		skip(lab, "init does not fail with UCX_TLS=no-such-transport");
	must(lab, plug_finalize(&lab->plug, context), "finalize after an init that failed");
	if (saved)
		setenv("UCX_TLS", saved, 1);
	else
		unsetenv("UCX_TLS");
	plug_close(&lab->plug);
	lab_load(lab);
	lab_unload(lab);
	free(saved);
}

static void check_listen_reuse(struct lab *lab)
{
	enum { EACH = 3 };
	char handle[GN_NCCL_HANDLE_BYTES];
	void *comms[2 * EACH], *mhandles[2 * EACH], *requests[2 * EACH], *listener;
	int from[2 * EACH] = {0};

	lab_load(lab);
	if (lab->rank) {
		hear(lab, 0, handle, sizeof handle);
		for (int i = 0; i < EACH; i++)
			comms[i] = lab_connect(lab, handle);
		for (int i = 0; i < EACH; i++) {
			int me = lab->rank * 10 + i;
			void *mhandle = reg(lab, comms[i], &me, sizeof me);

			await(lab, send_one(lab, comms[i], &me, sizeof me, 0, mhandle), NULL);
			dereg(lab, comms[i], mhandle);
		}
	} else {
		listener = lab_listen(lab, handle);
		for (int r = 1; r < lab->size; r++)
			tell(lab, r, handle, sizeof handle);
		for (int i = 0; i < 2 * EACH; i++)
			comms[i] = lab_accept(lab, listener);
		must(lab, plug_close_listen(&lab->plug, listener), "closeListen");
		/* in which order connections of one process are accepted is promised nowhere, so all may send at once */
		for (int i = 0; i < 2 * EACH; i++) {
			mhandles[i] = reg(lab, comms[i], &from[i], sizeof from[i]);
			requests[i] = receive_one(lab, comms[i], &from[i], sizeof from[i], 0, mhandles[i]);
		}
		for (int i = 0; i < 2 * EACH; i++) {
			await(lab, requests[i], NULL);
			dereg(lab, comms[i], mhandles[i]);
			for (int j = 0; j < i; j++)
				if (from[i] == from[j])
					fail(lab, "two connections by one listener lead to the same sender");
		}
	}
	meet(lab);
	for (int i = 0; i < (lab->rank ? EACH : 2 * EACH); i++)
		lab_close(lab, lab->rank, comms[i]);
	lab_unload(lab);
}

static void check_recreate(struct lab *lab)
{
	enum { CYCLES = 16, SETTLED = 6 };
	int descriptors = 0, now;

	lab_load(lab);
	for (int i = 0; i < CYCLES; i++) {
		void *there = lab_pair(lab, 0, 1), *back = lab_pair(lab, 1, 0);

		one_message(lab, !lab->rank, there, 3000, (uint64_t)i);
		one_message(lab, lab->rank, back, 3000, (uint64_t)(100 + i));
		meet(lab);
		/* who closes first, and what, changes */
		if (i % 3 == 1)
			nap(5 * lab->rank);
		lab_close(lab, i % 2 ? !lab->rank : lab->rank, i % 2 ? there : back);
		lab_close(lab, i % 2 ? lab->rank : !lab->rank, i % 2 ? back : there);
		must(lab, plug_finalize(&lab->plug, lab->context), "finalize");
		lab->context = NULL;
		meet(lab);
		now = count_descriptors();
		if (i == SETTLED)
			descriptors = now;
		/* no more than a few that a network keeps for itself */
		if (i > SETTLED && now > descriptors + 2)
			fail(lab, "%d descriptors are open after %d cycles of connecting and closing, %d after %d", now, i + 1,
			     descriptors, SETTLED + 1);
		if (i + 1 < CYCLES)
			must(lab, plug_init(&lab->plug, &lab->context, lab_logger), "init again");
	}
	plug_close(&lab->plug);
}

enum { RING_COUNT = 12, RING_BYTES = 700000, RING_DEPTH = 3, RING_WAYS = 4 };

/* One connection of the ring, in one direction. */
struct way {
	void *comm, *mhandle, *requests[RING_DEPTH];
	unsigned char *buffers;
	int sends, sender, posted, finished;
};

/* In an order that all agree on. */
static void open_ring(struct lab *lab, struct way *ways)
{
	for (int r = 0; r < lab->size; r++) {
		int next = (r + 1) % lab->size;
		struct way *w = &ways[lab->rank == r ? 0 : 2];

		if (lab->rank != r && lab->rank != next)
			continue;
		w[0] = (struct way){.comm = lab_pair(lab, r, next), .sends = lab->rank == r, .sender = r};
		w[1] = (struct way){.comm = lab_pair(lab, next, r), .sends = lab->rank == next, .sender = next};
	}
	for (int w = 0; w < RING_WAYS; w++) {
		ways[w].buffers = malloc((size_t)RING_DEPTH * RING_BYTES);
		ways[w].mhandle = reg(lab, ways[w].comm, ways[w].buffers, (size_t)RING_DEPTH * RING_BYTES);
	}
}

static void post_next(struct lab *lab, struct way *w)
{
	int slot = w->posted % RING_DEPTH, tag = 0;
	void **request = &w->requests[slot], *data = w->buffers + (size_t)slot * RING_BYTES;
	size_t bytes = RING_BYTES;

	*request = NULL;
	if (w->sends) {
		fill(data, RING_BYTES, (uint64_t)(1000 * w->sender + w->posted));
		must(lab, plug_isend(&lab->plug, w->comm, data, bytes, tag, w->mhandle, request), "isend");
	} else {
		must(lab, plug_irecv(&lab->plug, w->comm, 1, &data, &bytes, &tag, &w->mhandle, request), "irecv");
	}
	w->posted += *request != NULL;
}

/* Whether that was the last message. */
static int finish_oldest(struct lab *lab, struct way *w)
{
	int slot = w->finished % RING_DEPTH, done = 0;

	must(lab, plug_test(&lab->plug, w->requests[slot], &done, NULL), "test");
	if (done && !w->sends && wrong(w->buffers + (size_t)slot * RING_BYTES, RING_BYTES,
				       (uint64_t)(1000 * w->sender + w->finished)) >= 0)
		fail(lab, "message %d around the ring is wrong", w->finished);
	w->finished += done;
	return done && w->finished == RING_COUNT;
}

/* Around a ring of four, both ways to each neighbour, large messages in both at once: no order may be assumed. */
static void check_ring(struct lab *lab)
{
	struct way ways[RING_WAYS] = {{0}};
	int open = RING_WAYS;

	lab_load(lab);
	open_ring(lab, ways);
	while (open)
		for (struct way *w = ways; w < ways + RING_WAYS; w++) {
			if (w->posted < RING_COUNT && w->posted - w->finished < RING_DEPTH)
				post_next(lab, w);
			if (w->finished < w->posted)
				open -= finish_oldest(lab, w);
		}
	meet(lab);
	for (int w = 0; w < RING_WAYS; w++) {
		dereg(lab, ways[w].comm, ways[w].mhandle);
		lab_close(lab, ways[w].sends, ways[w].comm);
		free(ways[w].buffers);
	}
	lab_unload(lab);
}

/* What test has called done arrives, although the sender closes, and its process ends, before anybody looks. */
static void check_last_message(struct lab *lab)
{
	enum { BYTES = 200000 };
	unsigned char *buffer = malloc(BYTES);
	void *comm, *mhandle, *request = NULL;
	char byte;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffer, BYTES);
	if (!lab->rank) {
		fill(buffer, BYTES, 77);
		await(lab, send_one(lab, comm, buffer, BYTES, 0, mhandle), NULL);
		dereg(lab, comm, mhandle);
		lab_close(lab, 1, comm);
		lab_unload(lab);
		free(buffer);
		tell(lab, 1, "x", 1);
		return;
	}
	request = receive_one(lab, comm, buffer, BYTES, 0, mhandle);
	/* the sender may not get done before this end has moved */
	for (int done = 0, i = 0; i < 3000 && !done; i++) {
		must(lab, plug_test(&lab->plug, request, &done, NULL), "test");
		if (done)
			request = NULL;
		nap(i % 100 == 99);
	}
	if (request)
		await(lab, request, NULL);
	hear(lab, 0, &byte, 1);
	if (wrong(buffer, BYTES, 77) >= 0)
		fail(lab, "the last message before the end of its sender is wrong");
	dereg(lab, comm, mhandle);
	lab_close(lab, 0, comm);
	free(buffer);
	lab_unload(lab);
}

static void check_reload(struct lab *lab)
{
	for (int i = 0; i < 4; i++) {
		void *comm;

		lab_load(lab);
		comm = lab_pair(lab, i % 2, !(i % 2));
		one_message(lab, lab->rank == i % 2, comm, 100000, (uint64_t)i);
		meet(lab);
		lab_close(lab, lab->rank == i % 2, comm);
		lab_unload(lab);
		/* whatever still runs in it, or is called back, would now */
		free(malloc(1 << 22));
		nap(30);
		meet(lab);
	}
}

struct worker {
	struct lab lab; /* its own, for the context */
	void *listener;
	char handle[GN_NCCL_HANDLE_BYTES];
	int index;
};

static void *work(void *argument)
{
	enum { COUNT = 60, BYTES = 40000 };
	struct worker *w = argument;
	struct lab *lab = &w->lab;
	int sends = !lab->rank;
	void *comm;

	comm = sends ? lab_connect(lab, w->handle) : lab_accept(lab, w->listener);
	if (!sends)
		must(lab, plug_close_listen(&lab->plug, w->listener), "closeListen");
	for (int i = 0; i < COUNT; i++)
		one_message(lab, sends, comm, (size_t)(1 + (i * 997 + w->index) % BYTES), (uint64_t)(1000 * w->index + i));
	lab_close(lab, sends, comm);
	return NULL;
}

/* Two threads share a communicator, two have one each; connecting, messages and closing all at once. */
static void check_threads(struct lab *lab)
{
	enum { COUNT = 4 };
	struct worker workers[COUNT];
	pthread_t threads[COUNT];
	void *contexts[COUNT] = {0};

	lab_load(lab);
	contexts[0] = contexts[1] = lab->context;
	for (int i = 2; i < COUNT; i++)
		must(lab, plug_init(&lab->plug, &contexts[i], lab_logger), "init");
	for (int i = 0; i < COUNT; i++) {
		workers[i].lab = *lab;
		workers[i].lab.context = contexts[i];
		workers[i].index = i;
		if (lab->rank) {
			workers[i].listener = lab_listen(&workers[i].lab, workers[i].handle);
			tell(lab, 0, workers[i].handle, sizeof workers[i].handle);
		} else {
			hear(lab, 1, workers[i].handle, sizeof workers[i].handle);
		}
	}
	for (int i = 0; i < COUNT; i++)
		if (pthread_create(&threads[i], NULL, work, &workers[i]))
			skip(lab, "no threads");
	for (int i = 0; i < COUNT; i++)
		pthread_join(threads[i], NULL);
	meet(lab);
	for (int i = 1; i < COUNT; i++)
		must(lab, plug_finalize(&lab->plug, contexts[i]), "finalize");
	plug_close(&lab->plug);
}

const struct lab_check checks_life[] = {
	{"communicators", "six communicators in one process, each initialised, some ended before others", 2, 0, 0,
	 check_communicators},
	{"failed-init", "finalize after an init that failed, and another try", 1, 0, 0, check_failed_init},
	{"listen-reuse", "one listener, six connections from two processes", 3, 0, 0, check_listen_reuse},
	{"recreate", "connect and close sixteen times; no descriptor is left behind", 2, 0, 2, check_recreate},
	{"ring", "four processes in a ring, large messages both ways at once", 4, 0, 0, check_ring},
	{"last-message", "what is done arrives, though the sender ends at once", 2, 0, 0, check_last_message},
	{"reload", "dlclose and dlopen, four times", 2, 0, 0, check_reload},
	{"threads", "four threads, with and without communicators of their own", 2, 0, 0, check_threads},
	{0},
};
