/* What is asked of a plugin when something is wrong, or large. */
#include "tests/transport/plugin/lab.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A death has to be known by then. */
#define NOTICE_S 10.0

/* Sends that nobody waits for. */
static void check_close_unmatched(struct lab *lab)
{
	enum { COUNT = 8, BYTES = 300000 };
	unsigned char *buffers = calloc(COUNT, BYTES);
	void *comm, *mhandle, *request;
	double began;
	int done;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffers, (size_t)COUNT * BYTES);
	for (int i = 0; i < COUNT && !lab->rank; i++) {
		request = NULL;
		must(lab, plug_isend(&lab->plug, comm, buffers + (size_t)i * BYTES, BYTES, 0, mhandle, &request), "isend");
		if (request)
			must(lab, plug_test(&lab->plug, request, &done, NULL), "test");
	}
	meet(lab);
	began = now_s();
	dereg(lab, comm, mhandle);
	lab_close(lab, !lab->rank, comm);
	within(lab, began, "closing with sends that nobody waits for");
	free(buffers);
	meet(lab);
	still_works(lab);
}

/* Receptions that nobody serves; afterwards their memory is the caller's. */
static void check_close_posted(struct lab *lab)
{
	enum { COUNT = 16, BYTES = 20000 };
	unsigned char *buffers = malloc((size_t)COUNT * BYTES);
	void *comm, *mhandle, *request;
	double began, end;

	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffers, (size_t)COUNT * BYTES);
	for (int i = 0; i < COUNT && lab->rank; i++)
		receive_one(lab, comm, buffers + (size_t)i * BYTES, BYTES, 0, mhandle);
	meet(lab);
	if (lab->rank) {
		began = now_s();
		dereg(lab, comm, mhandle);
		lab_close(lab, 0, comm);
		within(lab, began, "closing with receptions that nobody serves");
		fill(buffers, (size_t)COUNT * BYTES, 6);
	}
	meet(lab);
	/* the other end may get an error, or nothing; but through it goes none */
	for (end = now_s() + 0.3; !lab->rank && now_s() < end;) {
		int done;

		request = NULL;
		memset(buffers, 0xee, BYTES);
		if (plug_isend(&lab->plug, comm, buffers, BYTES, 0, mhandle, &request))
			break;
		if (request && plug_test(&lab->plug, request, &done, NULL))
			break;
	}
	meet(lab);
	/* longer than anything that was on its way takes */
	nap(200 * lab->rank);
	if (lab->rank && wrong(buffers, (size_t)COUNT * BYTES, 6) >= 0)
		fail(lab, "a buffer was written to after closeRecv");
	if (!lab->rank) {
		began = now_s();
		dereg(lab, comm, mhandle);
		lab_close(lab, 1, comm);
		within(lab, began, "closing after the other end");
	}
	free(buffers);
	meet(lab);
	still_works(lab);
}

/* In the middle of large messages; the order changes. */
static void check_close_midway(struct lab *lab)
{
	enum { COUNT = 3, ROUNDS = 4 };
	const size_t bytes = 6u << 20;
	unsigned char *buffers = malloc(COUNT * bytes);
	double began;

	lab_load(lab);
	for (int round = 0; round < ROUNDS; round++) {
		void *comm = lab_pair(lab, 0, 1), *mhandle = reg(lab, comm, buffers, COUNT * bytes), *requests[COUNT] = {0};

		memset(buffers, 1, COUNT * bytes);
		for (int i = 0; i < COUNT && lab->rank; i++)
			requests[i] = receive_one(lab, comm, buffers + i * bytes, bytes, 0, mhandle);
		meet(lab);
		/* an error is right once the other end has closed */
		for (int i = 0, rc = 0; i < COUNT && !lab->rank && !rc; i++)
			for (double end = now_s() + 1; !requests[i] && !rc && now_s() < end;)
				rc = plug_isend(&lab->plug, comm, buffers + i * bytes, bytes, 0, mhandle, &requests[i]);
		for (int i = 0; i < 5 * round && requests[0]; i++) {
			int done;

			if (plug_test(&lab->plug, requests[0], &done, NULL) || done)
				break;
		}
		if (round % 2 == lab->rank)
			nap(20);
		began = now_s();
		dereg(lab, comm, mhandle);
		lab_close(lab, !lab->rank, comm);
		within(lab, began, "closing in the middle of a message");
		if (lab->rank)
			fill(buffers, COUNT * bytes, 8);
		meet(lab);
		nap(30);
		if (lab->rank && wrong(buffers, COUNT * bytes, 8) >= 0)
			fail(lab, "a buffer was written to after closeRecv");
	}
	free(buffers);
	meet(lab);
	still_works(lab);
}

/* Ends this process as a crash of its machine would, as far as others see. */
static void die(void)
{
	raise(SIGKILL);
}

/* Until test or isend says so; returns how long it took, or -1. */
static double notice(struct lab *lab, void *comm, void *data, size_t bytes, void *mhandle, void *request)
{
	double began = now_s();

	while (now_s() - began < NOTICE_S) {
		int done = 0;

		if (!request && plug_isend(&lab->plug, comm, data, bytes, 0, mhandle, &request))
			return now_s() - began;
		if (request && plug_test(&lab->plug, request, &done, NULL))
			return now_s() - began;
		if (done)
			request = NULL;
	}
	return -1;
}

/* kill_sender: process 1 sends, else it receives; it dies in the middle. With `look` process 0 has to find out, without it
 * has just to get away. */
static void with_a_dead_peer(struct lab *lab, int kill_sender, int look)
{
	enum { COUNT = 4 };
	const size_t bytes = 4u << 20;
	unsigned char *buffers = calloc(COUNT, bytes);
	void *comm, *mhandle, *requests[COUNT] = {0};
	int sends = kill_sender ? lab->rank : !lab->rank;
	double began, noticed = 0;
	char byte;

	lab_load(lab);
	comm = lab_pair(lab, kill_sender, !kill_sender);
	mhandle = reg(lab, comm, buffers, COUNT * bytes);
	/* one that arrives, so that the way is there */
	await(lab, sends ? send_one(lab, comm, buffers, 100, 0, mhandle) : receive_one(lab, comm, buffers, bytes, 0, mhandle),
	      NULL);
	for (int i = 0; i < COUNT && !sends; i++)
		requests[i] = receive_one(lab, comm, buffers + i * bytes, bytes, 0, mhandle);
	for (int i = 0; i < 2 && sends; i++)
		requests[i] = send_one(lab, comm, buffers + i * bytes, bytes, 0, mhandle);
	meet(lab);
	for (int i = 0; i < 3; i++) {
		int done = 0;

		/* the other may be dead by now */
		if (requests[0] && plug_test(&lab->plug, requests[0], &done, NULL))
			break;
		if (done)
			requests[0] = NULL;
	}
	if (lab->rank)
		die();
	/* its end of the pipe closes when it is gone */
	if (recv(lab->wires[1], &byte, 1, 0) > 0)
		fail(lab, "the other process lives");
	if (look)
		noticed = notice(lab, comm, buffers, bytes, mhandle, sends ? requests[1] : requests[COUNT - 1]);
	if (noticed < 0)
		fail(lab, "%.0f s after the %s died no call has failed", NOTICE_S, kill_sender ? "sender" : "receiver");
	began = now_s();
	dereg(lab, comm, mhandle);
	lab_close(lab, sends, comm);
	must(lab, plug_finalize(&lab->plug, lab->context), "finalize");
	within(lab, began, "closing after the other process died");
	free(buffers);
	plug_close(&lab->plug);
}

static void check_dead_sender(struct lab *lab)
{
	with_a_dead_peer(lab, 1, 1);
}

static void check_dead_receiver(struct lab *lab)
{
	with_a_dead_peer(lab, 0, 1);
}

static void check_dead_sender_close(struct lab *lab)
{
	with_a_dead_peer(lab, 1, 0);
}

static void check_dead_receiver_close(struct lab *lab)
{
	with_a_dead_peer(lab, 0, 0);
}

/* It dies between listen and accept. */
static void check_dead_listener(struct lab *lab)
{
	char handle[GN_NCCL_HANDLE_BYTES], byte;
	void *comm = NULL, *listener;
	double began, end;

	lab_load(lab);
	if (lab->rank) {
		listener = lab_listen(lab, handle);
		tell(lab, 0, handle, sizeof handle);
		hear(lab, 0, &byte, 1);
		die();
		must(lab, plug_close_listen(&lab->plug, listener), "closeListen");
	}
	hear(lab, 1, handle, sizeof handle);
	must(lab, plug_connect(&lab->plug, lab->context, lab->device, handle, &comm), "connect");
	tell(lab, 1, "x", 1);
	recv(lab->wires[1], &byte, 1, 0);
	for (end = now_s() + 1.5; now_s() < end && !comm;) {
		began = now_s();
		if (plug_connect(&lab->plug, lab->context, lab->device, handle, &comm))
			break;
		within(lab, began, "connect to a process that died");
	}
	began = now_s();
	if (comm)
		lab_close(lab, 1, comm);
	lab_unload(lab);
	within(lab, began, "finalize after the listener died");
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

static void crowd_listen(struct lab *lab, struct crowd *c)
{
	for (int i = 0; i < c->count; i++) {
		char *handle = c->handles + (size_t)i * GN_NCCL_HANDLE_BYTES;

		if (i % 2 != lab->rank) {
			c->listeners[i] = lab_listen(lab, handle);
			tell(lab, !lab->rank, handle, GN_NCCL_HANDLE_BYTES);
		} else {
			hear(lab, !lab->rank, handle, GN_NCCL_HANDLE_BYTES);
		}
	}
}

static void crowd_connect(struct lab *lab, struct crowd *c)
{
	for (int open = 0; open < c->count;)
		for (int i = 0; i < c->count; i++) {
			if (c->comms[i])
				continue;
			if (c->listeners[i])
				must(lab, plug_accept(&lab->plug, c->listeners[i], &c->comms[i]), "accept");
			else
				must(lab, plug_connect(&lab->plug, lab->context, lab->device,
						       c->handles + (size_t)i * GN_NCCL_HANDLE_BYTES, &c->comms[i]), "connect");
			open += c->comms[i] != NULL;
		}
}

/* Whether connection i's message is through now. */
static int crowd_move(struct lab *lab, struct crowd *c, int i)
{
	int done = 0;

	if (!c->requests[i])
		must(lab, plug_isend(&lab->plug, c->comms[i], &c->words[i], sizeof c->words[i], 0, c->mhandles[i], &c->requests[i]),
		     "isend");
	if (c->requests[i])
		must(lab, plug_test(&lab->plug, c->requests[i], &done, NULL), "test");
	if (!done)
		return 0;
	if (c->words[i] != word_of(i))
		fail(lab, "connection %d of %d delivered another one's message", i, c->count);
	dereg(lab, c->comms[i], c->mhandles[i]);
	c->mhandles[i] = NULL;
	return 1;
}

static void crowd_exchange(struct lab *lab, struct crowd *c)
{
	for (int i = 0; i < c->count; i++) {
		c->mhandles[i] = reg(lab, c->comms[i], &c->words[i], sizeof c->words[i]);
		if (c->listeners[i])
			c->requests[i] = receive_one(lab, c->comms[i], &c->words[i], sizeof c->words[i], 0, c->mhandles[i]);
		else
			c->words[i] = word_of(i);
	}
	for (int left = c->count; left;)
		for (int i = 0; i < c->count; i++)
			if (c->mhandles[i])
				left -= crowd_move(lab, c, i);
}

/* Both directions, all at once, then a message over each. */
static void check_many(struct lab *lab)
{
	size_t count = (size_t)lab->options->connections;
	struct crowd c = {(int)count, malloc(count * GN_NCCL_HANDLE_BYTES), calloc(count, sizeof(void *)),
			  calloc(count, sizeof(void *)), calloc(count, sizeof(void *)), calloc(count, sizeof(void *)),
			  calloc(count, sizeof(uint64_t))};

	lab_load(lab);
	crowd_listen(lab, &c);
	crowd_connect(lab, &c);
	crowd_exchange(lab, &c);
	meet(lab);
	for (int i = 0; i < c.count; i++) {
		if (c.listeners[i])
			must(lab, plug_close_listen(&lab->plug, c.listeners[i]), "closeListen");
		lab_close(lab, !c.listeners[i], c.comms[i]);
	}
	lab_unload(lab);
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
static void check_strangers(struct lab *lab)
{
	char handle[GN_NCCL_HANDLE_BYTES], noise[20000];
	int ports[16], count, fds[48], open = 0;
	void *listener, *comm;
	double end;

	fill(noise, sizeof noise, 12);
	lab_load(lab);
	if (!lab->rank) {
		hear(lab, 1, handle, sizeof handle);
		comm = lab_connect(lab, handle);
	} else {
		listener = lab_listen(lab, handle);
		count = my_ports(ports, 16);
		if (!count)
			skip(lab, "the plugin listens on no TCP port");
		for (int i = 0; i < count; i++) {
			fds[open++] = call(ports[i], noise, 0);
			fds[open++] = call(ports[i], noise, 100);
			fds[open++] = call(ports[i], noise, sizeof noise);
		}
		for (end = now_s() + 0.3; now_s() < end;) {
			must(lab, plug_accept(&lab->plug, listener, &comm), "accept");
			if (comm)
				fail(lab, "accept made a connection of a stranger's");
		}
		tell(lab, 0, handle, sizeof handle);
		comm = lab_accept(lab, listener);
		must(lab, plug_close_listen(&lab->plug, listener), "closeListen");
		for (int i = 0; i < open; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	still_works(lab);
}

/* Ours: whoever has a handle but for one bit of its token stays outside, and who answers without knowing the other word is
 * not believed (transport/nccl/plugin/cm.h has the places). */
static void check_token(struct lab *lab)
{
	char handle[GN_NCCL_HANDLE_BYTES], false_handle[GN_NCCL_HANDLE_BYTES];
	void *listener = NULL, *comm = NULL;
	int refused = 0;

	lab_load(lab);
	if (strcmp(plug_name(&lab->plug), "Gannet"))
		skip(lab, "another plugin's handles are its own");
	if (lab->rank) {
		listener = lab_listen(lab, handle);
		tell(lab, 0, handle, sizeof handle);
	} else {
		hear(lab, 1, handle, sizeof handle);
	}
	for (int at = 8; at < 8 + 32; at += 31) {
		double end = now_s() + 6;

		memcpy(false_handle, handle, sizeof handle);
		false_handle[at] ^= 1;
		/* the listener's process answers meanwhile */
		for (refused = 0; now_s() < end && !refused;) {
			if (lab->rank) {
				must(lab, plug_accept(&lab->plug, listener, &comm), "accept");
				refused = recv(lab->wires[0], false_handle, 1, MSG_DONTWAIT) == 1;
			} else {
				refused = plug_connect(&lab->plug, lab->context, lab->device, false_handle, &comm) != 0;
			}
			if (comm)
				fail(lab, "a handle with one bit changed (byte %d) makes a connection", at);
		}
		if (!lab->rank)
			tell(lab, 1, "x", 1);
		if (!refused)
			fail(lab, "a handle with one bit changed (byte %d) is not refused", at);
	}
	comm = lab->rank ? lab_accept(lab, listener) : lab_connect(lab, handle);
	if (lab->rank)
		must(lab, plug_close_listen(&lab->plug, listener), "closeListen");
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

/* NCCL keeps the handle in one place and does not change it; a plugin need not rely on that. */
static void check_moved_handle(struct lab *lab)
{
	char handle[GN_NCCL_HANDLE_BYTES], copy[GN_NCCL_HANDLE_BYTES];
	void *listener, *comm = NULL, *second = NULL;
	double end;

	lab_load(lab);
	if (lab->rank) {
		listener = lab_listen(lab, handle);
		tell(lab, 0, handle, sizeof handle);
		comm = lab_accept(lab, listener);
		for (end = now_s() + 0.3; now_s() < end && !second;)
			must(lab, plug_accept(&lab->plug, listener, &second), "accept");
		if (second)
			fail(lab, "one connection was made twice");
		must(lab, plug_close_listen(&lab->plug, listener), "closeListen");
	} else {
		hear(lab, 1, handle, sizeof handle);
		while (!comm) {
			memcpy(copy, handle, sizeof copy);
			must(lab, plug_connect(&lab->plug, lab->context, lab->device, copy, &comm), "connect");
			memset(copy, 0, sizeof copy);
		}
	}
	meet(lab);
	lab_close(lab, !lab->rank, comm);
	lab_unload(lab);
}

const struct lab_check checks_hard[] = {
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
