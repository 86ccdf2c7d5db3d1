/* What is asked of a plugin when something is wrong, or large. */
#include "tests/transport/plugin/cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sends that nobody waits for. */
static void check_close_unmatched(struct cluster *cluster)
{
	enum { COUNT = 8, BYTES = 300000 };
	unsigned char *buffers = calloc(COUNT, BYTES);
	void *comm, *mhandle, *request;
	double began;
	int done;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffers, (size_t)COUNT * BYTES);
	for (int i = 0; i < COUNT && !cluster->rank; i++) {
		request = NULL;
		must(cluster, plug_isend(&cluster->plug, comm, buffers + (size_t)i * BYTES, BYTES, 0, mhandle, &request), "isend");
		if (request)
			must(cluster, plug_test(&cluster->plug, request, &done, NULL), "test");
	}
	meet(cluster);
	began = now_s();
	dereg(cluster, comm, mhandle);
	cluster_close(cluster, !cluster->rank, comm);
	within(cluster, began, "closing with sends that nobody waits for");
	free(buffers);
	meet(cluster);
	still_works(cluster);
}

/* Receptions that nobody serves; afterwards their memory is the caller's. */
static void check_close_posted(struct cluster *cluster)
{
	enum { COUNT = 16, BYTES = 20000 };
	unsigned char *buffers = malloc((size_t)COUNT * BYTES);
	void *comm, *mhandle, *request;
	double began, end;

	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffers, (size_t)COUNT * BYTES);
	for (int i = 0; i < COUNT && cluster->rank; i++)
		receive_one(cluster, comm, buffers + (size_t)i * BYTES, BYTES, 0, mhandle);
	meet(cluster);
	if (cluster->rank) {
		began = now_s();
		dereg(cluster, comm, mhandle);
		cluster_close(cluster, 0, comm);
		within(cluster, began, "closing with receptions that nobody serves");
		fill(buffers, (size_t)COUNT * BYTES, 6);
	}
	meet(cluster);
	/* the other end may get an error, or nothing; but through it goes none */
	for (end = now_s() + 0.3; !cluster->rank && now_s() < end;) {
		int done;

		request = NULL;
		memset(buffers, 0xee, BYTES);
		if (plug_isend(&cluster->plug, comm, buffers, BYTES, 0, mhandle, &request))
			break;
		if (request && plug_test(&cluster->plug, request, &done, NULL))
			break;
	}
	meet(cluster);
	/* longer than anything that was on its way takes */
	nap(200 * cluster->rank);
	if (cluster->rank && wrong(buffers, (size_t)COUNT * BYTES, 6) >= 0)
		fail(cluster, "a buffer was written to after closeRecv");
	if (!cluster->rank) {
		began = now_s();
		dereg(cluster, comm, mhandle);
		cluster_close(cluster, 1, comm);
		within(cluster, began, "closing after the other end");
	}
	free(buffers);
	meet(cluster);
	still_works(cluster);
}

/* In the middle of large messages; the order changes. */
static void check_close_midway(struct cluster *cluster)
{
	enum { COUNT = 3, ROUNDS = 4 };
	const size_t bytes = 6u << 20;
	unsigned char *buffers = malloc(COUNT * bytes);
	double began;

	cluster_load(cluster);
	for (int round = 0; round < ROUNDS; round++) {
		void *comm = cluster_pair(cluster, 0, 1), *mhandle = reg(cluster, comm, buffers, COUNT * bytes), *requests[COUNT] = {0};

		memset(buffers, 1, COUNT * bytes);
		for (int i = 0; i < COUNT && cluster->rank; i++)
			requests[i] = receive_one(cluster, comm, buffers + i * bytes, bytes, 0, mhandle);
		meet(cluster);
		/* an error is right once the other end has closed */
		for (int i = 0, rc = 0; i < COUNT && !cluster->rank && !rc; i++)
			for (double end = now_s() + 1; !requests[i] && !rc && now_s() < end;)
				rc = plug_isend(&cluster->plug, comm, buffers + i * bytes, bytes, 0, mhandle, &requests[i]);
		for (int i = 0; i < 5 * round && requests[0]; i++) {
			int done;

			if (plug_test(&cluster->plug, requests[0], &done, NULL) || done)
				break;
		}
		if (round % 2 == cluster->rank)
			nap(20);
		began = now_s();
		dereg(cluster, comm, mhandle);
		cluster_close(cluster, !cluster->rank, comm);
		within(cluster, began, "closing in the middle of a message");
		if (cluster->rank)
			fill(buffers, COUNT * bytes, 8);
		meet(cluster);
		nap(30);
		if (cluster->rank && wrong(buffers, COUNT * bytes, 8) >= 0)
			fail(cluster, "a buffer was written to after closeRecv");
	}
	free(buffers);
	meet(cluster);
	still_works(cluster);
}

/* Ends this process as a crash of its machine would, as far as others see. */
static void die(void)
{
	raise(SIGKILL);
}

/* Until test or isend says so, by half of the limit; returns how long it took, or -1. */
static double notice(struct cluster *cluster, void *comm, void *data, size_t bytes, void *mhandle, void *request)
{
	double began = now_s();

	while (now_s() - began < cluster->options->limit_s / 2.0) {
		int done = 0;

		if (!request && plug_isend(&cluster->plug, comm, data, bytes, 0, mhandle, &request))
			return now_s() - began;
		if (request && plug_test(&cluster->plug, request, &done, NULL))
			return now_s() - began;
		if (done)
			request = NULL;
	}
	return -1;
}

/* kill_sender: process 1 sends, else it receives; it dies in the middle. With `look` process 0 has to find out, without it
 * has just to get away. */
static void with_a_dead_peer(struct cluster *cluster, int kill_sender, int look)
{
	enum { COUNT = 4 };
	const size_t bytes = 4u << 20;
	unsigned char *buffers = calloc(COUNT, bytes);
	void *comm, *mhandle, *requests[COUNT] = {0};
	int sends = kill_sender ? cluster->rank : !cluster->rank;
	double began, noticed = 0;
	char byte;

	cluster_load(cluster);
	comm = cluster_pair(cluster, kill_sender, !kill_sender);
	mhandle = reg(cluster, comm, buffers, COUNT * bytes);
	/* one that arrives, so that the way is there */
	await(cluster, sends ? send_one(cluster, comm, buffers, 100, 0, mhandle) : receive_one(cluster, comm, buffers, bytes, 0, mhandle),
	      NULL);
	for (int i = 0; i < COUNT && !sends; i++)
		requests[i] = receive_one(cluster, comm, buffers + i * bytes, bytes, 0, mhandle);
	for (int i = 0; i < 2 && sends; i++)
		requests[i] = send_one(cluster, comm, buffers + i * bytes, bytes, 0, mhandle);
	meet(cluster);
	for (int i = 0; i < 3; i++) {
		int done = 0;

		/* the other may be dead by now */
		if (requests[0] && plug_test(&cluster->plug, requests[0], &done, NULL))
			break;
		if (done)
			requests[0] = NULL;
	}
	if (cluster->rank)
		die();
	/* its end of the pipe closes when it is gone */
	if (recv(cluster->wires[1], &byte, 1, 0) > 0)
		fail(cluster, "the other process lives");
	if (look)
		noticed = notice(cluster, comm, buffers, bytes, mhandle, sends ? requests[1] : requests[COUNT - 1]);
	if (noticed < 0)
		fail(cluster, "%.0f s after the %s died no call has failed", cluster->options->limit_s / 2.0, kill_sender ? "sender" : "receiver");
	began = now_s();
	dereg(cluster, comm, mhandle);
	cluster_close(cluster, sends, comm);
	must(cluster, plug_finalize(&cluster->plug, cluster->context), "finalize");
	within(cluster, began, "closing after the other process died");
	free(buffers);
	plug_close(&cluster->plug);
}

static void check_dead_sender(struct cluster *cluster)
{
	with_a_dead_peer(cluster, 1, 1);
}

static void check_dead_receiver(struct cluster *cluster)
{
	with_a_dead_peer(cluster, 0, 1);
}

static void check_dead_sender_close(struct cluster *cluster)
{
	with_a_dead_peer(cluster, 1, 0);
}

static void check_dead_receiver_close(struct cluster *cluster)
{
	with_a_dead_peer(cluster, 0, 0);
}

/* It dies between listen and accept. */
static void check_dead_listener(struct cluster *cluster)
{
	char handle[GN_NCCL_HANDLE_BYTES], byte;
	void *comm = NULL, *listener;
	double began, end;

	cluster_load(cluster);
	if (cluster->rank) {
		listener = cluster_listen(cluster, handle);
		tell(cluster, 0, handle, sizeof handle);
		hear(cluster, 0, &byte, 1);
		die();
		must(cluster, plug_close_listen(&cluster->plug, listener), "closeListen");
	}
	hear(cluster, 1, handle, sizeof handle);
	must(cluster, plug_connect(&cluster->plug, cluster->context, cluster->device, handle, &comm), "connect");
	tell(cluster, 1, "x", 1);
	recv(cluster->wires[1], &byte, 1, 0);
	for (end = now_s() + 1.5; now_s() < end && !comm;) {
		began = now_s();
		if (plug_connect(&cluster->plug, cluster->context, cluster->device, handle, &comm))
			break;
		within(cluster, began, "connect to a process that died");
	}
	began = now_s();
	if (comm)
		cluster_close(cluster, 1, comm);
	cluster_unload(cluster);
	within(cluster, began, "finalize after the listener died");
}

/* Many connections; number i goes from process i % 2 to the other. */
struct crowd {
	int count;
	char *handles;
	void **listeners, **comms, **requests, **mhandles;
	uint64_t *words;
};

static uint64_t word_of(int i)
{
	return (uint64_t)i * 7919;
}

static void crowd_listen(struct cluster *cluster, struct crowd *c)
{
	for (int i = 0; i < c->count; i++) {
		char *handle = c->handles + (size_t)i * GN_NCCL_HANDLE_BYTES;

		if (i % 2 != cluster->rank) {
			c->listeners[i] = cluster_listen(cluster, handle);
			tell(cluster, !cluster->rank, handle, GN_NCCL_HANDLE_BYTES);
		} else {
			hear(cluster, !cluster->rank, handle, GN_NCCL_HANDLE_BYTES);
		}
	}
}

static void crowd_connect(struct cluster *cluster, struct crowd *c)
{
	for (int open = 0; open < c->count;)
		for (int i = 0; i < c->count; i++) {
			if (c->comms[i])
				continue;
			if (c->listeners[i])
				must(cluster, plug_accept(&cluster->plug, c->listeners[i], &c->comms[i]), "accept");
			else
				must(cluster, plug_connect(&cluster->plug, cluster->context, cluster->device,
						       c->handles + (size_t)i * GN_NCCL_HANDLE_BYTES, &c->comms[i]), "connect");
			open += c->comms[i] != NULL;
		}
}

/* Whether connection i's message is through now. */
static int crowd_move(struct cluster *cluster, struct crowd *c, int i)
{
	int done = 0;

	if (!c->requests[i])
		must(cluster, plug_isend(&cluster->plug, c->comms[i], &c->words[i], sizeof c->words[i], 0, c->mhandles[i], &c->requests[i]),
		     "isend");
	if (c->requests[i])
		must(cluster, plug_test(&cluster->plug, c->requests[i], &done, NULL), "test");
	if (!done)
		return 0;
	if (c->words[i] != word_of(i))
		fail(cluster, "connection %d of %d delivered another one's message", i, c->count);
	dereg(cluster, c->comms[i], c->mhandles[i]);
	c->mhandles[i] = NULL;
	return 1;
}

static void crowd_exchange(struct cluster *cluster, struct crowd *c)
{
	for (int i = 0; i < c->count; i++) {
		c->mhandles[i] = reg(cluster, c->comms[i], &c->words[i], sizeof c->words[i]);
		if (c->listeners[i])
			c->requests[i] = receive_one(cluster, c->comms[i], &c->words[i], sizeof c->words[i], 0, c->mhandles[i]);
		else
			c->words[i] = word_of(i);
	}
	for (int left = c->count; left;)
		for (int i = 0; i < c->count; i++)
			if (c->mhandles[i])
				left -= crowd_move(cluster, c, i);
}

/* Both directions, all at once, then a message over each. */
static void check_many(struct cluster *cluster)
{
	size_t count = (size_t)cluster->options->connections;
	struct crowd c = {(int)count, malloc(count * GN_NCCL_HANDLE_BYTES), calloc(count, sizeof(void *)),
			  calloc(count, sizeof(void *)), calloc(count, sizeof(void *)), calloc(count, sizeof(void *)),
			  calloc(count, sizeof(uint64_t))};

	cluster_load(cluster);
	crowd_listen(cluster, &c);
	crowd_connect(cluster, &c);
	crowd_exchange(cluster, &c);
	meet(cluster);
	for (int i = 0; i < c.count; i++) {
		if (c.listeners[i])
			must(cluster, plug_close_listen(&cluster->plug, c.listeners[i]), "closeListen");
		cluster_close(cluster, !c.listeners[i], c.comms[i]);
	}
	cluster_unload(cluster);
	free(c.handles);
	free(c.listeners);
	free(c.comms);
	free(c.requests);
	free(c.mhandles);
	free(c.words);
}

/* Ports of this process that take TCP connections. */
static int my_ports(int ports[], int max)
{
	int count = 0;

	for (int fd = 3; fd < 4096 && count < max; fd++) {
		struct sockaddr_storage a;
		socklen_t len = sizeof a;
		int listening = 0;
		socklen_t size = sizeof listening;

		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) || !listening ||
		    getsockname(fd, (struct sockaddr *)&a, &len))
			continue;
		if (a.ss_family == AF_INET)
			ports[count++] = ntohs(((struct sockaddr_in *)&a)->sin_port);
		else if (a.ss_family == AF_INET6)
			ports[count++] = ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
	}
	return count;
}

static int call(int port, const void *data, size_t bytes)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof to) && send(fd, data, bytes, MSG_NOSIGNAL) >= 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Silent ones, talkative ones, and ones that leave, before the right one comes. */
static void check_strangers(struct cluster *cluster)
{
	char handle[GN_NCCL_HANDLE_BYTES], noise[20000];
	int ports[16], count, fds[48], open = 0;
	void *listener, *comm;
	double end;

	fill(noise, sizeof noise, 12);
	cluster_load(cluster);
	if (!cluster->rank) {
		hear(cluster, 1, handle, sizeof handle);
		comm = cluster_connect(cluster, handle);
	} else {
		listener = cluster_listen(cluster, handle);
		count = my_ports(ports, 16);
		if (!count)
			skip(cluster, "the plugin listens on no TCP port");
		for (int i = 0; i < count; i++) {
			fds[open++] = call(ports[i], noise, 0);
			fds[open++] = call(ports[i], noise, 100);
			fds[open++] = call(ports[i], noise, sizeof noise);
		}
		for (end = now_s() + 0.3; now_s() < end;) {
			must(cluster, plug_accept(&cluster->plug, listener, &comm), "accept");
			if (comm)
				fail(cluster, "accept made a connection of a stranger's");
		}
		tell(cluster, 0, handle, sizeof handle);
		comm = cluster_accept(cluster, listener);
		must(cluster, plug_close_listen(&cluster->plug, listener), "closeListen");
		for (int i = 0; i < open; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	still_works(cluster);
}

/* Ours: whoever has a handle but for one bit of its token stays outside, and who answers without knowing the other word is
 * not believed (transport/nccl/plugin/cm.h has the places). */
static void check_token(struct cluster *cluster)
{
	char handle[GN_NCCL_HANDLE_BYTES], false_handle[GN_NCCL_HANDLE_BYTES];
	void *listener = NULL, *comm = NULL;
	int refused = 0;

	cluster_load(cluster);
	if (strcmp(plug_name(&cluster->plug), "Gannet"))
		skip(cluster, "another plugin's handles are its own");
	if (cluster->rank) {
		listener = cluster_listen(cluster, handle);
		tell(cluster, 0, handle, sizeof handle);
	} else {
		hear(cluster, 1, handle, sizeof handle);
	}
	for (int at = 8; at < 8 + 32; at += 31) {
		double end = now_s() + 6;

		memcpy(false_handle, handle, sizeof handle);
		false_handle[at] ^= 1;
		/* the listener's process answers meanwhile */
		for (refused = 0; now_s() < end && !refused;) {
			if (cluster->rank) {
				must(cluster, plug_accept(&cluster->plug, listener, &comm), "accept");
				refused = recv(cluster->wires[0], false_handle, 1, MSG_DONTWAIT) == 1;
			} else {
				refused = plug_connect(&cluster->plug, cluster->context, cluster->device, false_handle, &comm) != 0;
			}
			if (comm)
				fail(cluster, "a handle with one bit changed (byte %d) makes a connection", at);
		}
		if (!cluster->rank)
			tell(cluster, 1, "x", 1);
		if (!refused)
			fail(cluster, "a handle with one bit changed (byte %d) is not refused", at);
	}
	comm = cluster->rank ? cluster_accept(cluster, listener) : cluster_connect(cluster, handle);
	if (cluster->rank)
		must(cluster, plug_close_listen(&cluster->plug, listener), "closeListen");
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

/* NCCL keeps the handle in one place and does not change it; a plugin need not rely on that. */
static void check_moved_handle(struct cluster *cluster)
{
	char handle[GN_NCCL_HANDLE_BYTES], copy[GN_NCCL_HANDLE_BYTES];
	void *listener, *comm = NULL, *second = NULL;
	double end;

	cluster_load(cluster);
	if (cluster->rank) {
		listener = cluster_listen(cluster, handle);
		tell(cluster, 0, handle, sizeof handle);
		comm = cluster_accept(cluster, listener);
		for (end = now_s() + 0.3; now_s() < end && !second;)
			must(cluster, plug_accept(&cluster->plug, listener, &second), "accept");
		if (second)
			fail(cluster, "one connection was made twice");
		must(cluster, plug_close_listen(&cluster->plug, listener), "closeListen");
	} else {
		hear(cluster, 1, handle, sizeof handle);
		while (!comm) {
			memcpy(copy, handle, sizeof copy);
			must(cluster, plug_connect(&cluster->plug, cluster->context, cluster->device, copy, &comm), "connect");
			memset(copy, 0, sizeof copy);
		}
	}
	meet(cluster);
	cluster_close(cluster, !cluster->rank, comm);
	cluster_unload(cluster);
}

const struct cluster_check checks_hard[] = {
	{"close-unmatched", "closing with sends that nobody waits for", 2, 0, 0, check_close_unmatched},
	{"close-posted", "closing with receptions that nobody serves, whose memory is then left alone", 2, 0, 0, check_close_posted},
	{"close-midway", "closing in the middle of large messages", 2, 0, 2, check_close_midway},
	{"dead-sender", "a reception fails when its sender's process is killed", 2, 0, 2, check_dead_sender},
	{"dead-receiver", "a send fails when its receiver's process is killed", 2, 0, 2, check_dead_receiver},
	{"dead-sender-close", "teardown does not wait for a sender that was killed", 2, 0, 0, check_dead_sender_close},
	{"dead-receiver-close", "teardown does not wait for a receiver that was killed", 2, 0, 0, check_dead_receiver_close},
	{"dead-listener", "connecting to a process that was killed does not block", 2, 0, 0, check_dead_listener},
	{"many", "many connections both ways, a message over each", 2, 0, 2, check_many},
	{"strangers", "noise on its TCP ports does not keep the right one out", 2, 0, 0, check_strangers},
	{"token", "a handle with one bit changed is refused", 2, 1, 0, check_token},
	{"moved-handle", "connect goes on with a copy of the handle", 2, 1, 0, check_moved_handle},
	{0},
};
