/* How communicators, connections and the library itself come and go. */
#include "tests/transport/plugin/cluster.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_communicators(struct cluster *cluster)
{
	enum { COUNT = 6 };
	void *contexts[COUNT] = {0}, *comms[COUNT];

	cluster_load(cluster);
	contexts[0] = cluster->context;
	for (int i = 1; i < COUNT; i++)
		must(cluster, plug_init(&cluster->plug, &contexts[i], cluster_logger), "init for another communicator");
	for (int i = 0; i < COUNT; i++)
		for (int j = 0; j < i && cluster->plug.version >= 11; j++)
			if (contexts[i] && contexts[i] == contexts[j])
				fail(cluster, "two communicators got the same context");
	for (int i = 0; i < COUNT; i++) {
		cluster->context = contexts[i];
		comms[i] = cluster_pair(cluster, i % 2, !(i % 2));
	}
	for (int i = COUNT - 1; i >= 0; i--)
		one_message(cluster, cluster->rank == i % 2, comms[i], 5000, (uint64_t)i);
	/* half of them end while the others go on */
	for (int half = 0; half < 2; half++) {
		meet(cluster);
		for (int i = half; i < COUNT; i += 2) {
			cluster_close(cluster, cluster->rank == i % 2, comms[i]);
			must(cluster, plug_finalize(&cluster->plug, contexts[i]), "finalize");
		}
		for (int i = 1; i < COUNT && !half; i += 2)
			one_message(cluster, cluster->rank == i % 2, comms[i], 70000, (uint64_t)(10 + i));
	}
	plug_close(&cluster->plug);
}

/* NCCL up to 2.28 calls finalize for a communicator whose init failed. */
static void check_failed_init(struct cluster *cluster)
{
	const char *why = "", *before = getenv("UCX_TLS");
	char *saved = before ? strdup(before) : NULL;
	void *context = NULL;
	int count;

	if (plug_open(&cluster->plug, cluster->options->path, cluster->options->version, &why))
		fail(cluster, "cannot load it: %s", why);
	setenv("UCX_TLS", "no-such-transport", 1);
	if (!plug_init(&cluster->plug, &context, cluster_logger) && !plug_devices(&cluster->plug, &count))
		skip(cluster, "init does not fail with UCX_TLS=no-such-transport");
	must(cluster, plug_finalize(&cluster->plug, context), "finalize after an init that failed");
	if (saved)
		setenv("UCX_TLS", saved, 1);
	else
		unsetenv("UCX_TLS");
	plug_close(&cluster->plug);
	cluster_load(cluster);
	cluster_unload(cluster);
	free(saved);
}

static void check_listen_reuse(struct cluster *cluster)
{
	enum { EACH = 3 };
	char handle[GN_NCCL_HANDLE_BYTES];
	void *comms[2 * EACH], *mhandles[2 * EACH], *requests[2 * EACH], *listener;
	int from[2 * EACH] = {0};

	cluster_load(cluster);
	if (cluster->rank) {
		hear(cluster, 0, handle, sizeof handle);
		for (int i = 0; i < EACH; i++)
			comms[i] = cluster_connect(cluster, handle);
		for (int i = 0; i < EACH; i++) {
			int me = cluster->rank * 10 + i;
			void *mhandle = reg(cluster, comms[i], &me, sizeof me);

			await(cluster, send_one(cluster, comms[i], &me, sizeof me, 0, mhandle), NULL);
			dereg(cluster, comms[i], mhandle);
		}
	} else {
		listener = cluster_listen(cluster, handle);
		for (int r = 1; r < cluster->size; r++)
			tell(cluster, r, handle, sizeof handle);
		for (int i = 0; i < 2 * EACH; i++)
			comms[i] = cluster_accept(cluster, listener);
		must(cluster, plug_close_listen(&cluster->plug, listener), "closeListen");
		/* in which order connections of one process are accepted is promised nowhere, so all may send at once */
		for (int i = 0; i < 2 * EACH; i++) {
			mhandles[i] = reg(cluster, comms[i], &from[i], sizeof from[i]);
			requests[i] = receive_one(cluster, comms[i], &from[i], sizeof from[i], 0, mhandles[i]);
		}
		for (int i = 0; i < 2 * EACH; i++) {
			await(cluster, requests[i], NULL);
			dereg(cluster, comms[i], mhandles[i]);
			for (int j = 0; j < i; j++)
				if (from[i] == from[j])
					fail(cluster, "two connections by one listener lead to the same sender");
		}
	}
	meet(cluster);
	for (int i = 0; i < (cluster->rank ? EACH : 2 * EACH); i++)
		cluster_close(cluster, cluster->rank, comms[i]);
	cluster_unload(cluster);
}

static void check_recreate(struct cluster *cluster)
{
	enum { CYCLES = 10, SETTLED = 4 };
	int descriptors = 0, now;

	cluster_load(cluster);
	for (int i = 0; i < CYCLES; i++) {
		void *there = cluster_pair(cluster, 0, 1), *back = cluster_pair(cluster, 1, 0);

		one_message(cluster, !cluster->rank, there, 3000, (uint64_t)i);
		one_message(cluster, cluster->rank, back, 3000, (uint64_t)(100 + i));
		meet(cluster);
		/* who closes first, and what, changes */
		if (i % 3 == 1)
			nap(5 * cluster->rank);
		cluster_close(cluster, i % 2 ? !cluster->rank : cluster->rank, i % 2 ? there : back);
		cluster_close(cluster, i % 2 ? cluster->rank : !cluster->rank, i % 2 ? back : there);
		must(cluster, plug_finalize(&cluster->plug, cluster->context), "finalize");
		cluster->context = NULL;
		meet(cluster);
		now = count_descriptors();
		if (i == SETTLED)
			descriptors = now;
		/* no more than a few that a network keeps for itself */
		if (i > SETTLED && now > descriptors + 2)
			fail(cluster, "%d descriptors are open after %d cycles of connecting and closing, %d after %d", now, i + 1,
			     descriptors, SETTLED + 1);
		if (i + 1 < CYCLES)
			must(cluster, plug_init(&cluster->plug, &cluster->context, cluster_logger), "init again");
	}
	plug_close(&cluster->plug);
}

enum { RING_COUNT = 6, RING_BYTES = 700000, RING_DEPTH = 3, RING_WAYS = 4 };

/* One connection of the ring, in one direction. */
struct way {
	void *comm, *mhandle, *requests[RING_DEPTH];
	unsigned char *buffers;
	int sends, sender, posted, finished;
};

/* In an order that all agree on. */
static void open_ring(struct cluster *cluster, struct way *ways)
{
	for (int r = 0; r < cluster->size; r++) {
		int next = (r + 1) % cluster->size;
		struct way *w = &ways[cluster->rank == r ? 0 : 2];

		if (cluster->rank != r && cluster->rank != next)
			continue;
		w[0] = (struct way){.comm = cluster_pair(cluster, r, next), .sends = cluster->rank == r, .sender = r};
		w[1] = (struct way){.comm = cluster_pair(cluster, next, r), .sends = cluster->rank == next, .sender = next};
	}
	for (int w = 0; w < RING_WAYS; w++) {
		ways[w].buffers = malloc((size_t)RING_DEPTH * RING_BYTES);
		ways[w].mhandle = reg(cluster, ways[w].comm, ways[w].buffers, (size_t)RING_DEPTH * RING_BYTES);
	}
}

static void post_next(struct cluster *cluster, struct way *w)
{
	int slot = w->posted % RING_DEPTH, tag = 0;
	void **request = &w->requests[slot], *data = w->buffers + (size_t)slot * RING_BYTES;
	size_t bytes = RING_BYTES;

	*request = NULL;
	if (w->sends) {
		fill(data, RING_BYTES, (uint64_t)(1000 * w->sender + w->posted));
		must(cluster, plug_isend(&cluster->plug, w->comm, data, bytes, tag, w->mhandle, request), "isend");
	} else {
		must(cluster, plug_irecv(&cluster->plug, w->comm, 1, &data, &bytes, &tag, &w->mhandle, request), "irecv");
	}
	w->posted += *request != NULL;
}

/* Whether that was the last message. */
static int finish_oldest(struct cluster *cluster, struct way *w)
{
	int slot = w->finished % RING_DEPTH, done = 0;

	must(cluster, plug_test(&cluster->plug, w->requests[slot], &done, NULL), "test");
	if (done && !w->sends && wrong(w->buffers + (size_t)slot * RING_BYTES, RING_BYTES,
				       (uint64_t)(1000 * w->sender + w->finished)) >= 0)
		fail(cluster, "message %d around the ring is wrong", w->finished);
	w->finished += done;
	return done && w->finished == RING_COUNT;
}

/* Around a ring of four, both ways to each neighbour, large messages in both at once: no order may be assumed. */
static void check_ring(struct cluster *cluster)
{
	struct way ways[RING_WAYS] = {{0}};
	int open = RING_WAYS;

	cluster_load(cluster);
	open_ring(cluster, ways);
	while (open)
		for (struct way *w = ways; w < ways + RING_WAYS; w++) {
			if (w->posted < RING_COUNT && w->posted - w->finished < RING_DEPTH)
				post_next(cluster, w);
			if (w->finished < w->posted)
				open -= finish_oldest(cluster, w);
		}
	meet(cluster);
	for (int w = 0; w < RING_WAYS; w++) {
		dereg(cluster, ways[w].comm, ways[w].mhandle);
		cluster_close(cluster, ways[w].sends, ways[w].comm);
		free(ways[w].buffers);
	}
	cluster_unload(cluster);
}

/* What test has called done arrives, although the sender closes, and its process ends, before anybody looks. */
static void check_last_message(struct cluster *cluster)
{
	enum { BYTES = 200000 };
	unsigned char *buffer = malloc(BYTES);
	void *comm, *mhandle, *request = NULL;
	char byte;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffer, BYTES);
	if (!cluster->rank) {
		fill(buffer, BYTES, 77);
		await(cluster, send_one(cluster, comm, buffer, BYTES, 0, mhandle), NULL);
		dereg(cluster, comm, mhandle);
		cluster_close(cluster, 1, comm);
		cluster_unload(cluster);
		free(buffer);
		tell(cluster, 1, "x", 1);
		return;
	}
	request = receive_one(cluster, comm, buffer, BYTES, 0, mhandle);
	/* the sender may not get done before this end has moved */
	for (int done = 0, i = 0; i < 3000 && !done; i++) {
		must(cluster, plug_test(&cluster->plug, request, &done, NULL), "test");
		if (done)
			request = NULL;
		nap(i % 100 == 99);
	}
	if (request)
		await(cluster, request, NULL);
	hear(cluster, 0, &byte, 1);
	if (wrong(buffer, BYTES, 77) >= 0)
		fail(cluster, "the last message before the end of its sender is wrong");
	dereg(cluster, comm, mhandle);
	cluster_close(cluster, 0, comm);
	free(buffer);
	cluster_unload(cluster);
}

static void check_reload(struct cluster *cluster)
{
	for (int i = 0; i < 4; i++) {
		void *comm;

		cluster_load(cluster);
		comm = cluster_pair(cluster, i % 2, !(i % 2));
		one_message(cluster, cluster->rank == i % 2, comm, 100000, (uint64_t)i);
		meet(cluster);
		cluster_close(cluster, cluster->rank == i % 2, comm);
		cluster_unload(cluster);
		/* whatever still runs in it, or is called back, would now */
		free(malloc(1 << 22));
		nap(30);
		meet(cluster);
	}
}

struct worker {
	struct cluster cluster; /* its own, for the context */
	void *listener;
	char handle[GN_NCCL_HANDLE_BYTES];
	int index;
};

static void *work(void *argument)
{
	enum { COUNT = 30, BYTES = 40000 };
	struct worker *w = argument;
	struct cluster *cluster = &w->cluster;
	int sends = !cluster->rank;
	void *comm;

	comm = sends ? cluster_connect(cluster, w->handle) : cluster_accept(cluster, w->listener);
	if (!sends)
		must(cluster, plug_close_listen(&cluster->plug, w->listener), "closeListen");
	for (int i = 0; i < COUNT; i++)
		one_message(cluster, sends, comm, (size_t)(1 + (i * 997 + w->index) % BYTES), (uint64_t)(1000 * w->index + i));
	cluster_close(cluster, sends, comm);
	return NULL;
}

/* Two threads share a communicator, two have one each; connecting, messages and closing all at once. */
static void check_threads(struct cluster *cluster)
{
	enum { COUNT = 4 };
	struct worker workers[COUNT];
	pthread_t threads[COUNT];
	void *contexts[COUNT] = {0};

	cluster_load(cluster);
	contexts[0] = contexts[1] = cluster->context;
	for (int i = 2; i < COUNT; i++)
		must(cluster, plug_init(&cluster->plug, &contexts[i], cluster_logger), "init");
	for (int i = 0; i < COUNT; i++) {
		workers[i].cluster = *cluster;
		workers[i].cluster.context = contexts[i];
		workers[i].index = i;
		if (cluster->rank) {
			workers[i].listener = cluster_listen(&workers[i].cluster, workers[i].handle);
			tell(cluster, 0, workers[i].handle, sizeof workers[i].handle);
		} else {
			hear(cluster, 1, workers[i].handle, sizeof workers[i].handle);
		}
	}
	for (int i = 0; i < COUNT; i++)
		if (pthread_create(&threads[i], NULL, work, &workers[i]))
			skip(cluster, "no threads");
	for (int i = 0; i < COUNT; i++)
		pthread_join(threads[i], NULL);
	meet(cluster);
	for (int i = 1; i < COUNT; i++)
		must(cluster, plug_finalize(&cluster->plug, contexts[i]), "finalize");
	plug_close(&cluster->plug);
}

const struct cluster_check checks_life[] = {
	{"communicators", "six communicators in one process, each initialised, some ended before others", 2, 0, 0,
	 check_communicators},
	{"failed-init", "finalize after an init that failed, and another try", 1, 0, 0, check_failed_init},
	{"listen-reuse", "one listener, six connections from two processes", 3, 0, 0, check_listen_reuse},
	{"recreate", "connect and close ten times; no descriptor is left behind", 2, 0, 2, check_recreate},
	{"ring", "four processes in a ring, large messages both ways at once", 4, 0, 0, check_ring},
	{"last-message", "what is done arrives, though the sender ends at once", 2, 0, 0, check_last_message},
	{"reload", "dlclose and dlopen, four times", 2, 0, 0, check_reload},
	{"threads", "four threads, with and without communicators of their own", 2, 0, 0, check_threads},
	{0},
};
