/* What is asked of a plugin whose users stop in the middle: NCCL's abort, processes that are stopped, proxies that sleep. */
#include "tests/transport/plugin/cluster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing takes longer to begin, or to come: 5 s with the default limit, more where --limit says that the machine is slow. */
static double begin_s(const struct cluster *cluster)
{
	return cluster->options->limit_s / 4.0;
}

/* Has that process said something? */
static int heard(struct cluster *cluster, int rank)
{
	char byte;

	return recv(cluster->wires[rank], &byte, 1, MSG_DONTWAIT) == 1;
}

enum { MIDWAY_BYTES = 64 << 20 };

/* Process 0: until the message has begun and is not over. 0: it was over at once. */
static int begun(struct cluster *cluster, void *request, int sends, const volatile unsigned char *buffer)
{
	double end = now_s() + begin_s(cluster);
	int done = 0;

	while (sends ? !heard(cluster, 1) : !*buffer) {
		must(cluster, plug_test(&cluster->plug, request, &done, NULL), "test");
		if (done)
			return 0;
		if (now_s() > end)
			fail(cluster, "a message of %d bytes has not begun after %.0f s", MIDWAY_BYTES, begin_s(cluster));
	}
	return 1;
}

/* Process 1: goes on, as long as it can, until process 0 has closed. */
static void go_on(struct cluster *cluster, void *request, int sends, const volatile unsigned char *buffer)
{
	int done = 0, said = 0;

	while (!heard(cluster, 0)) {
		if (!done && plug_test(&cluster->plug, request, &done, NULL))
			done = 1;
		if (!sends && !said && *buffer) {
			tell(cluster, 0, "x", 1);
			said = 1;
		}
	}
	if (!sends && !said)
		tell(cluster, 0, "x", 1);
}

/* Process 0 takes its memory back in the middle of a message and goes: whatever touches it then crashes. */
static void take_back(struct cluster *cluster, int sends)
{
	void *comm = cluster_pair(cluster, sends ? cluster->rank : !cluster->rank, sends ? !cluster->rank : cluster->rank), *mhandle, *request;
	unsigned char *buffer = mmap(NULL, MIDWAY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double began;
	int heard_of;
	char byte;

	if (buffer == MAP_FAILED)
		skip(cluster, "no memory");
	mhandle = reg(cluster, comm, buffer, MIDWAY_BYTES);
	if (sends)
		memset(buffer, 0x55, MIDWAY_BYTES);
	request = sends ? send_one(cluster, comm, buffer, MIDWAY_BYTES, 0, mhandle) :
			  receive_one(cluster, comm, buffer, MIDWAY_BYTES, 0, mhandle);
	if (cluster->rank) {
		go_on(cluster, request, sends, buffer);
	} else {
		heard_of = begun(cluster, request, sends, buffer);
		began = now_s();
		dereg(cluster, comm, mhandle);
		if (mprotect(buffer, MIDWAY_BYTES, PROT_NONE))
			skip(cluster, "memory cannot be taken back");
		cluster_close(cluster, sends, comm);
		within(cluster, began, "taking memory back and closing in the middle of a message");
		tell(cluster, 1, "x", 1);
		if (sends && !heard_of)
			hear(cluster, 1, &byte, 1);
	}
	meet(cluster);
	if (cluster->rank) {
		dereg(cluster, comm, mhandle);
		cluster_close(cluster, sends, comm);
	}
	munmap(buffer, MIDWAY_BYTES);
}

static void check_dereg_midway(struct cluster *cluster)
{
	cluster_load(cluster);
	for (int round = 0; round < 2; round++)
		take_back(cluster, round % 2 == cluster->rank);
	still_works(cluster);
}

/* A connection over which a message has gone. */
static void *open_used(struct cluster *cluster, int from)
{
	void *comm = cluster_pair(cluster, from, !from);

	one_message(cluster, cluster->rank == from, comm, 3000, 9);
	return comm;
}

static void stop(struct cluster *cluster, pid_t pid)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	kill(pid, SIGSTOP);
	for (double end = now_s() + begin_s(cluster); state != 'T' && now_s() < end; nap(1)) {
		file = fopen(path, "r");
		if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
			skip(cluster, "%s does not tell whether the process is stopped", path);
		fclose(file);
	}
	if (state != 'T')
		fail(cluster, "process %d does not stop", (int)pid);
}

/* A process that is stopped takes nothing and says nothing, and is not dead. The last connection waits for a message. */
static void check_close_stopped(struct cluster *cluster)
{
	enum { COUNT = 9, BYTES = 1000 };
	void *comms[COUNT], *mhandle;
	unsigned char buffer[BYTES];
	pid_t pid = getpid();
	double began = now_s();
	char byte;

	cluster_load(cluster);
	for (int i = 0; i < COUNT; i++)
		comms[i] = open_used(cluster, (i + 1) % 2);
	mhandle = reg(cluster, comms[COUNT - 1], buffer, BYTES);
	if (cluster->rank) {
		tell(cluster, 0, &pid, sizeof pid);
		hear(cluster, 0, &byte, 1);
	} else {
		receive_one(cluster, comms[COUNT - 1], buffer, BYTES, 0, mhandle);
		hear(cluster, 1, &pid, sizeof pid);
		stop(cluster, pid);
		began = now_s();
	}
	dereg(cluster, comms[COUNT - 1], mhandle);
	for (int i = 0; i < COUNT; i++)
		cluster_close(cluster, (i + 1) % 2 == cluster->rank, comms[i]);
	must(cluster, plug_finalize(&cluster->plug, cluster->context), "finalize");
	if (!cluster->rank) {
		within(cluster, began, "closing nine connections to a process that is stopped");
		kill(pid, SIGCONT);
		tell(cluster, 1, "x", 1);
	}
	meet(cluster);
	plug_close(&cluster->plug);
}

/* As after an init that was aborted: listeners that nobody closes, connections that nobody asks for again. */
static void abandon(struct cluster *cluster, void *foreign_handle)
{
	char handle[GN_NCCL_HANDLE_BYTES];
	void *comm = NULL;

	must(cluster, plug_init(&cluster->plug, &cluster->context, cluster_logger), "init");
	for (int i = 0; i < 3; i++)
		cluster_listen(cluster, handle);
	must(cluster, plug_connect(&cluster->plug, cluster->context, cluster->device, foreign_handle, &comm), "connect");
	must(cluster, plug_finalize(&cluster->plug, cluster->context), "finalize");
}

static void check_abandoned(struct cluster *cluster)
{
	enum { ROUNDS = 5, SETTLED = 1 };
	char handle[GN_NCCL_HANDLE_BYTES];
	void *listener;
	int descriptors = 0, now;

	cluster_load(cluster);
	if (cluster->plug.version < 11)
		skip(cluster, "before version 11 there is no finalize");
	if (cluster->rank) {
		listener = cluster_listen(cluster, handle);
		tell(cluster, 0, handle, sizeof handle);
		meet(cluster);
		must(cluster, plug_close_listen(&cluster->plug, listener), "closeListen");
		cluster_unload(cluster);
		return;
	}
	hear(cluster, 1, handle, sizeof handle);
	must(cluster, plug_finalize(&cluster->plug, cluster->context), "finalize");
	for (int i = 0; i < ROUNDS; i++) {
		abandon(cluster, handle);
		now = count_descriptors();
		if (i == SETTLED)
			descriptors = now;
		if (i > SETTLED && now > descriptors + 2)
			fail(cluster, "%d descriptors are open after %d aborted inits, %d after %d", now, i + 1, descriptors,
			     SETTLED + 1);
	}
	meet(cluster);
	plug_close(&cluster->plug);
}

/* The receiver is slow, so that much is on its way when the sender has done. */
static void receive_slowly(struct cluster *cluster, void *request)
{
	int done = 0, over = 0;
	char byte;

	for (int i = 0; !done && !over; i++) {
		must(cluster, plug_test(&cluster->plug, request, &done, NULL), "test");
		nap(i % 4 == 3);
		over = heard(cluster, 0);
	}
	for (double end = now_s() + begin_s(cluster); !done && now_s() < end;)
		must(cluster, plug_test(&cluster->plug, request, &done, NULL), "test");
	if (!done)
		fail(cluster, "a message has not come %.0f s after its sender was done with it", begin_s(cluster));
	if (!over)
		hear(cluster, 0, &byte, 1);
}

/* When all is done NCCL's proxy sleeps. What its network has taken must leave all the same. Sockets whose buffers are full are
 * met sooner with small ones; other networks than UCX's are asked as they are. */
static void check_idle_sender(struct cluster *cluster)
{
	enum { COUNT = 60, BYTES = 300000, MORE = 5003 };
	unsigned char *buffer = malloc(BYTES + COUNT * MORE);
	void *comm, *mhandle;

	setenv("UCX_TCP_SNDBUF", "128k", 0);
	setenv("UCX_TCP_RCVBUF", "256k", 0);
	cluster_load(cluster);
	comm = cluster_pair(cluster, 0, 1);
	mhandle = reg(cluster, comm, buffer, BYTES + COUNT * MORE);
	for (int i = 0; i < COUNT; i++) {
		size_t bytes = (size_t)BYTES + (size_t)i * MORE;

		if (!cluster->rank) {
			fill(buffer, bytes, (uint64_t)i);
			await(cluster, send_one(cluster, comm, buffer, bytes, 0, mhandle), NULL);
			tell(cluster, 1, "x", 1);
		} else {
			receive_slowly(cluster, receive_one(cluster, comm, buffer, bytes, 0, mhandle));
			if (wrong(buffer, bytes, (uint64_t)i) >= 0)
				fail(cluster, "a message whose sender sleeps is wrong");
		}
		meet(cluster);
	}
	dereg(cluster, comm, mhandle);
	cluster_close(cluster, !cluster->rank, comm);
	free(buffer);
	cluster_unload(cluster);
}

/* LeakSanitizer asks this at the end of a process. In a forked child its check waits for ever where a thread of the parent held a lock of
 * the allocator (once in sixty on a busy machine). */
static int is_forked;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return is_forked;
}

/* In a child that has been forked amid it, and has none of its threads, and in the process itself, which ends as it is. */
static void check_exit(struct cluster *cluster)
{
	double end;
	pid_t pid;

	cluster_load(cluster);
	open_used(cluster, 0);
	open_used(cluster, 1);
	pid = fork();
	if (pid < 0)
		skip(cluster, "cannot fork");
	if (!pid) {
		is_forked = 1;
		exit(CODE_OK);
	}
	for (end = now_s() + begin_s(cluster); waitpid(pid, NULL, WNOHANG) != pid; nap(1)) {
		if (now_s() < end)
			continue;
		kill(pid, SIGKILL);
		fail(cluster, "a child does not end %.0f s after it has called exit", begin_s(cluster));
	}
	meet(cluster);
	exit(CODE_OK);
}

const struct cluster_check checks_stop[] = {
	{"dereg-midway", "after deregMr memory is left alone, also in the middle of a message", 2, 0, 2, check_dereg_midway},
	{"close-stopped", "closing many connections to a process that is stopped", 2, 0, 0, check_close_stopped},
	{"abandoned", "finalize with listeners and attempts left leaves no descriptor", 2, 1, 0, check_abandoned},
	{"idle-sender", "what is done arrives, though its sender makes no more calls", 2, 0, 0, check_idle_sender},
	{"exit", "a process that ends without closing anything ends, and so does one that it has forked", 2, 0, 0, check_exit},
	{0},
};
