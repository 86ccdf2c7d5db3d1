#include "tests/transport/plugin/cluster.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void finish(struct cluster *cluster, int code, const char *format, va_list args)
{
	char text[512];
	int len = vsnprintf(text, sizeof text, format, args);

	if (len > 0 && write(cluster->result, text, (size_t)len < sizeof text ? (size_t)len : sizeof text - 1) < 0)
		_exit(CODE_FAILED);
	/* not exit(): what the plugin left behind is not to be asked any more */
	_exit(code);
}

void fail(struct cluster *cluster, const char *format, ...)
{
	char text[512];
	va_list args;

	snprintf(text, sizeof text, "process %d: %s", cluster->rank, format);
	va_start(args, format);
	finish(cluster, CODE_FAILED, text, args);
	va_end(args);
	_exit(CODE_FAILED);
}

void skip(struct cluster *cluster, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	finish(cluster, CODE_SKIPPED, format, args);
	va_end(args);
	_exit(CODE_SKIPPED);
}

void must(struct cluster *cluster, int rc, const char *what)
{
	static const char *const names[] = {"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
					    "ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError"};

	if (rc)
		fail(cluster, "%s returned %s", what, rc > 0 && rc < 7 ? names[rc] : "a code that is none");
}

double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void nap(int milliseconds)
{
	poll(NULL, 0, milliseconds);
}

void tell(struct cluster *cluster, int rank, const void *data, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = send(cluster->wires[rank], (const char *)data + at, bytes - at, MSG_NOSIGNAL);

		if (n <= 0)
			fail(cluster, "process %d does not listen any more", rank);
		at += (size_t)n;
	}
}

void hear(struct cluster *cluster, int rank, void *data, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = recv(cluster->wires[rank], (char *)data + at, bytes - at, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fail(cluster, "process %d has ended", rank);
		at += (size_t)n;
	}
}

void meet(struct cluster *cluster)
{
	char byte = 0;

	for (int r = 1; r < cluster->size; r++) {
		if (cluster->rank == r)
			tell(cluster, 0, &byte, 1);
		if (!cluster->rank)
			hear(cluster, r, &byte, 1);
	}
	for (int r = 1; r < cluster->size; r++) {
		if (cluster->rank == r)
			hear(cluster, 0, &byte, 1);
		if (!cluster->rank)
			tell(cluster, r, &byte, 1);
	}
}

void cluster_logger(enum gn_nccl_log_level level, unsigned long subsystems, const char *file, int line, const char *format, ...)
{
	const char *wanted = getenv("GN_CONFORM_LOG");
	char text[512];
	va_list args;

	(void)subsystems;
	(void)file;
	(void)line;
	if (!wanted || !*wanted)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	fprintf(stderr, "# [%d] %d %s\n", (int)getpid(), (int)level, text);
}

void cluster_load(struct cluster *cluster)
{
	const char *why = "";
	int count = 0;

	if (plug_open(&cluster->plug, cluster->options->path, cluster->options->version, &why))
		fail(cluster, "cannot load it: %s", why);
	must(cluster, plug_init(&cluster->plug, &cluster->context, cluster_logger), "init");
	must(cluster, plug_devices(&cluster->plug, &count), "devices");
	if (count < 1)
		fail(cluster, "devices() tells %d devices", count);
	must(cluster, plug_properties(&cluster->plug, cluster->device, &cluster->properties), "getProperties");
}

void cluster_unload(struct cluster *cluster)
{
	must(cluster, plug_finalize(&cluster->plug, cluster->context), "finalize");
	cluster->context = NULL;
	plug_close(&cluster->plug);
}

void *cluster_listen(struct cluster *cluster, void *handle)
{
	void *comm = NULL;

	must(cluster, plug_listen(&cluster->plug, cluster->context, cluster->device, handle, &comm), "listen");
	if (!comm)
		fail(cluster, "listen left no comm");
	return comm;
}

void *cluster_connect(struct cluster *cluster, void *handle)
{
	void *comm = NULL;

	while (!comm)
		must(cluster, plug_connect(&cluster->plug, cluster->context, cluster->device, handle, &comm), "connect");
	return comm;
}

void *cluster_accept(struct cluster *cluster, void *listen_comm)
{
	void *comm = NULL;

	while (!comm)
		must(cluster, plug_accept(&cluster->plug, listen_comm, &comm), "accept");
	return comm;
}

void *cluster_pair(struct cluster *cluster, int from, int to)
{
	char handle[GN_NCCL_HANDLE_BYTES];
	void *listener, *comm;

	if (cluster->rank == from) {
		hear(cluster, to, handle, sizeof handle);
		return cluster_connect(cluster, handle);
	}
	listener = cluster_listen(cluster, handle);
	tell(cluster, from, handle, sizeof handle);
	comm = cluster_accept(cluster, listener);
	must(cluster, plug_close_listen(&cluster->plug, listener), "closeListen");
	return comm;
}

void cluster_close(struct cluster *cluster, int sends, void *comm)
{
	if (sends)
		must(cluster, plug_close_send(&cluster->plug, comm), "closeSend");
	else
		must(cluster, plug_close_recv(&cluster->plug, comm), "closeRecv");
}

/* splitmix64 */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

void fill(void *data, size_t bytes, uint64_t seed)
{
	unsigned char *to = data;

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = mix(seed + i);

		memcpy(to + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

long wrong(const void *data, size_t bytes, uint64_t seed)
{
	const unsigned char *from = data;

	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t word = mix(seed + i);
		size_t len = bytes - i < 8 ? bytes - i : 8;

		if (memcmp(from + i, &word, len))
			return (long)i;
	}
	return -1;
}

void *send_one(struct cluster *cluster, void *comm, void *data, size_t bytes, int tag, void *mhandle)
{
	void *request = NULL;

	while (!request)
		must(cluster, plug_isend(&cluster->plug, comm, data, bytes, tag, mhandle, &request), "isend");
	return request;
}

void *receive_one(struct cluster *cluster, void *comm, void *data, size_t bytes, int tag, void *mhandle)
{
	void *request = NULL;

	while (!request)
		must(cluster, plug_irecv(&cluster->plug, comm, 1, &data, &bytes, &tag, &mhandle, &request), "irecv");
	return request;
}

void await(struct cluster *cluster, void *request, int *sizes)
{
	int done = 0;

	while (!done)
		must(cluster, plug_test(&cluster->plug, request, &done, sizes), "test");
}

void *reg(struct cluster *cluster, void *comm, void *data, size_t bytes)
{
	void *mhandle = NULL;

	must(cluster, plug_reg(&cluster->plug, comm, data, bytes, GN_NCCL_PTR_HOST, &mhandle), "regMr of host memory");
	return mhandle;
}

void dereg(struct cluster *cluster, void *comm, void *mhandle)
{
	must(cluster, plug_dereg(&cluster->plug, comm, mhandle), "deregMr");
}

int count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count;
}

void within(struct cluster *cluster, double began_s, const char *what)
{
	const double limit_s = 0.3 * cluster->options->limit_s;

	if (now_s() - began_s > limit_s)
		fail(cluster, "%s took %.1f s, more than %.0f", what, now_s() - began_s, limit_s);
}

void one_message(struct cluster *cluster, int sends, void *comm, size_t bytes, uint64_t seed)
{
	unsigned char *buffer = calloc(1, bytes);
	void *mhandle = reg(cluster, comm, buffer, bytes);

	if (sends) {
		fill(buffer, bytes, seed);
		await(cluster, send_one(cluster, comm, buffer, bytes, 1, mhandle), NULL);
	} else {
		await(cluster, receive_one(cluster, comm, buffer, bytes, 1, mhandle), NULL);
		if (wrong(buffer, bytes, seed) >= 0)
			fail(cluster, "a message is wrong, or another connection's");
	}
	dereg(cluster, comm, mhandle);
	free(buffer);
}

void still_works(struct cluster *cluster)
{
	void *comm = cluster_pair(cluster, 1, 0);

	one_message(cluster, cluster->rank, comm, 5000, 5);
	meet(cluster);
	cluster_close(cluster, cluster->rank, comm);
	cluster_unload(cluster);
}
