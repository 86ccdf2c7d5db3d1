/* What is asked of a plugin whose users stop in the middle: NCCL's abort, processes that are stopped, proxies that sleep. */
#include "tests/transport/plugin/lab.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing takes longer to begin, or to come: 5 s with the default limit, more where --limit says that the machine is slow. */
static double begin_s(const struct lab *lab)
{
	return lab->options->limit_s / 4.0;
}

/* Has that process said something? */
static int heard(struct lab *lab, int rank)
{
	char byte;

	return recv(lab->wires[rank], &byte, 1, MSG_DONTWAIT) == 1;
}

enum { MIDWAY_BYTES = 64 << 20 };

/* Process 0: until the message has begun and is not over. 0: it was over at once. */
static int begun(struct lab *lab, void *request, int sends, const volatile unsigned char *buffer)
{
	double end = now_s() + begin_s(lab);
	int done = 0;

	while (sends ? !heard(lab, 1) : !*buffer) {
		must(lab, plug_test(&lab->plug, request, &done, NULL), "test");
		if (done)
			return 0;
		if (now_s() > end)
			fail(lab, "a message of %d bytes has not begun after %.0f s", MIDWAY_BYTES, begin_s(lab));
	}
	return 1;
}

/* Process 1: goes on, as long as it can, until process 0 has closed. */
static void go_on(struct lab *lab, void *request, int sends, const volatile unsigned char *buffer)
{
	int done = 0, said = 0;

	while (!heard(lab, 0)) {
		if (!done && plug_test(&lab->plug, request, &done, NULL))
			done = 1;
		if (!sends && !said && *buffer) {
			tell(lab, 0, "x", 1);
			said = 1;
		}
	}
	if (!sends && !said)
		tell(lab, 0, "x", 1);
}

/* Process 0 takes its memory back in the middle of a message and goes: whatever touches it then crashes. */
static void take_back(struct lab *lab, int sends)
{
	void *comm = lab_pair(lab, sends ? lab->rank : !lab->rank, sends ? !lab->rank : lab->rank), *mhandle, *request;
	unsigned char *buffer = mmap(NULL, MIDWAY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double began;
	int heard_of;
	char byte;

	if (buffer == MAP_FAILED)
		skip(lab, "no memory");
	mhandle = reg(lab, comm, buffer, MIDWAY_BYTES);
	if (sends)
		memset(buffer, 0x55, MIDWAY_BYTES);
	request = sends ? send_one(lab, comm, buffer, MIDWAY_BYTES, 0, mhandle) :
			  receive_one(lab, comm, buffer, MIDWAY_BYTES, 0, mhandle);
	if (lab->rank) {
		go_on(lab, request, sends, buffer);
	} else {
		heard_of = begun(lab, request, sends, buffer);
		began = now_s();
		dereg(lab, comm, mhandle);
		if (mprotect(buffer, MIDWAY_BYTES, PROT_NONE))
			skip(lab, "memory cannot be taken back");
		lab_close(lab, sends, comm);
		within(lab, began, "taking memory back and closing in the middle of a message");
		tell(lab, 1, "x", 1);
		if (sends && !heard_of)
			hear(lab, 1, &byte, 1);
	}
	meet(lab);
	if (lab->rank) {
		dereg(lab, comm, mhandle);
		lab_close(lab, sends, comm);
	}
	munmap(buffer, MIDWAY_BYTES);
}

static void check_dereg_midway(struct lab *lab)
{
	lab_load(lab);
	for (int round = 0; round < 4; round++)
		take_back(lab, round % 2 == lab->rank);
	still_works(lab);
}

/* A connection over which a message has gone. */
static void *open_used(struct lab *lab, int from)
{
	void *comm = lab_pair(lab, from, !from);

	one_message(lab, lab->rank == from, comm, 3000, 9);
	return comm;
}

static void stop(struct lab *lab, pid_t pid)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	kill(pid, SIGSTOP);
	for (double end = now_s() + begin_s(lab); state != 'T' && now_s() < end; nap(1)) {
		file = fopen(path, "r");
		if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
			skip(lab, "%s does not tell whether the process is stopped", path);
		fclose(file);
	}
	if (state != 'T')
		fail(lab, "process %d does not stop", (int)pid);
}

/* A process that is stopped takes nothing and says nothing, and is not dead. The last connection waits for a message. */
static void check_close_stopped(struct lab *lab)
{
	enum { COUNT = 9, BYTES = 1000 };
	void *comms[COUNT], *mhandle;
	unsigned char buffer[BYTES];
	pid_t pid = getpid();
	double began = now_s();
	char byte;

	lab_load(lab);
	for (int i = 0; i < COUNT; i++)
		comms[i] = open_used(lab, (i + 1) % 2);
	mhandle = reg(lab, comms[COUNT - 1], buffer, BYTES);
	if (lab->rank) {
		tell(lab, 0, &pid, sizeof pid);
		hear(lab, 0, &byte, 1);
	} else {
		receive_one(lab, comms[COUNT - 1], buffer, BYTES, 0, mhandle);
		hear(lab, 1, &pid, sizeof pid);
		stop(lab, pid);
		began = now_s();
	}
	dereg(lab, comms[COUNT - 1], mhandle);
	for (int i = 0; i < COUNT; i++)
		lab_close(lab, (i + 1) % 2 == lab->rank, comms[i]);
	must(lab, plug_finalize(&lab->plug, lab->context), "finalize");
	if (!lab->rank) {
		within(lab, began, "closing nine connections to a process that is stopped");
		kill(pid, SIGCONT);
		tell(lab, 1, "x", 1);
	}
	meet(lab);
	plug_close(&lab->plug);
}

/* As after an init that was aborted: listeners that nobody closes, connections that nobody asks for again. */
static void abandon(struct lab *lab, void *foreign_handle)
{
	char handle[GN_NCCL_HANDLE_BYTES];
	void *comm = NULL;

	must(lab, plug_init(&lab->plug, &lab->context, lab_logger), "init");
	for (int i = 0; i < 3; i++)
		lab_listen(lab, handle);
	must(lab, plug_connect(&lab->plug, lab->context, lab->device, foreign_handle, &comm), "connect");
	must(lab, plug_finalize(&lab->plug, lab->context), "finalize");
}

static void check_abandoned(struct lab *lab)
{
	enum { ROUNDS = 5, SETTLED = 1 };
	char handle[GN_NCCL_HANDLE_BYTES];
	void *listener;
	int descriptors = 0, now;

	lab_load(lab);
	if (lab->plug.version < 11)
		skip(lab, "before version 11 there is no finalize");
	if (lab->rank) {
		listener = lab_listen(lab, handle);
		tell(lab, 0, handle, sizeof handle);
		meet(lab);
		must(lab, plug_close_listen(&lab->plug, listener), "closeListen");
		lab_unload(lab);
		return;
	}
	hear(lab, 1, handle, sizeof handle);
	must(lab, plug_finalize(&lab->plug, lab->context), "finalize");
	for (int i = 0; i < ROUNDS; i++) {
		abandon(lab, handle);
		now = count_descriptors();
		if (i == SETTLED)
			descriptors = now;
		if (i > SETTLED && now > descriptors + 2)
			fail(lab, "%d descriptors are open after %d aborted inits, %d after %d", now, i + 1, descriptors,
			     SETTLED + 1);
	}
	meet(lab);
	plug_close(&lab->plug);
}

/* The receiver is slow, so that much is on its way when the sender has done. */
static void receive_slowly(struct lab *lab, void *request)
{
	int done = 0, over = 0;
	char byte;

	for (int i = 0; !done && !over; i++) {
		must(lab, plug_test(&lab->plug, request, &done, NULL), "test");
		nap(i % 4 == 3);
		over = heard(lab, 0);
	}
	for (double end = now_s() + begin_s(lab); !done && now_s() < end;)
		must(lab, plug_test(&lab->plug, request, &done, NULL), "test");
	if (!done)
		fail(lab, "a message has not come %.0f s after its sender was done with it", begin_s(lab));
	if (!over)
		hear(lab, 0, &byte, 1);
}

/* When all is done NCCL's proxy sleeps. What its network has taken must leave all the same. Sockets whose buffers are full are
 * met sooner with small ones; other networks than UCX's are asked as they are. */
static void check_idle_sender(struct lab *lab)
{
	enum { COUNT = 60, BYTES = 300000, MORE = 5003 };
	unsigned char *buffer = malloc(BYTES + COUNT * MORE);
	void *comm, *mhandle;

	setenv("UCX_TCP_SNDBUF", "128k", 0);
	setenv("UCX_TCP_RCVBUF", "256k", 0);
	lab_load(lab);
	comm = lab_pair(lab, 0, 1);
	mhandle = reg(lab, comm, buffer, BYTES + COUNT * MORE);
	for (int i = 0; i < COUNT; i++) {
		size_t bytes = (size_t)BYTES + (size_t)i * MORE;

		if (!lab->rank) {
			fill(buffer, bytes, (uint64_t)i);
			await(lab, send_one(lab, comm, buffer, bytes, 0, mhandle), NULL);
			tell(lab, 1, "x", 1);
		} else {
			receive_slowly(lab, receive_one(lab, comm, buffer, bytes, 0, mhandle));
			if (wrong(buffer, bytes, (uint64_t)i) >= 0)
				fail(lab, "a message whose sender sleeps is wrong");
		}
		meet(lab);
	}
	dereg(lab, comm, mhandle);
	lab_close(lab, !lab->rank, comm);
	free(buffer);
	lab_unload(lab);
}

/* In a child that has been forked amid it, and has none of its threads, and in the process itself, which ends as it is. */
static void check_exit(struct lab *lab)
{
	double end;
	pid_t pid;

	lab_load(lab);
	open_used(lab, 0);
	open_used(lab, 1);
	pid = fork();
	if (pid < 0)
		skip(lab, "cannot fork");
	if (!pid)
		exit(CODE_OK);
	for (end = now_s() + begin_s(lab); waitpid(pid, NULL, WNOHANG) != pid; nap(1)) {
		if (now_s() < end)
			continue;
		kill(pid, SIGKILL);
		fail(lab, "a child does not end %.0f s after it has called exit", begin_s(lab));
	}
	meet(lab);
	exit(CODE_OK);
}

const struct lab_check checks_stop[] = {
	{"dereg-midway", "after deregMr memory is left alone, also in the middle of a message", 2, 0, 2, check_dereg_midway},
	{"close-stopped", "closing many connections to a process that is stopped", 2, 0, 0, check_close_stopped},
	{"abandoned", "finalize with listeners and attempts left leaves no descriptor", 2, 1, 0, check_abandoned},
	{"idle-sender", "what is done arrives, though its sender makes no more calls", 2, 0, 0, check_idle_sender},
	{"exit", "a process that ends without closing anything ends, and so does one that it has forked", 2, 0, 0, check_exit},
	{0},
};
