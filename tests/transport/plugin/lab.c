#include "tests/transport/plugin/lab.h"

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

static void finish(struct lab *lab, int code, const char *format, va_list args)
{
	char text[512];
	int len = vsnprintf(text, sizeof text, format, args);

	if (len > 0 && write(lab->result, text, (size_t)len < sizeof text ? (size_t)len : sizeof text - 1) < 0)
		_exit(CODE_FAILED);
	/* not exit(): what the plugin left behind is not to be asked any more */
	_exit(code);
}

void fail(struct lab *lab, const char *format, ...)
{
	char text[512];
	va_list args;

	snprintf(text, sizeof text, "process %d: %s", lab->rank, format);
	va_start(args, format);
	finish(lab, CODE_FAILED, text, args);
	va_end(args);
	_exit(CODE_FAILED);
}

void skip(struct lab *lab, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	finish(lab, CODE_SKIPPED, format, args);
	va_end(args);
	_exit(CODE_SKIPPED);
}

void must(struct lab *lab, int rc, const char *what)
{
	static const char *const names[] = {"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
					    "ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError"};

	if (rc)
		fail(lab, "%s returned %s", what, rc > 0 && rc < 7 ? names[rc] : "a code that is none");
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

void tell(struct lab *lab, int rank, const void *data, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = send(lab->wires[rank], (const char *)data + at, bytes - at, MSG_NOSIGNAL);

		if (n <= 0)
			fail(lab, "process %d does not listen any more", rank);
		at += (size_t)n;
	}
}

void hear(struct lab *lab, int rank, void *data, size_t bytes)
{
	for (size_t at = 0; at < bytes;) {
		ssize_t n = recv(lab->wires[rank], (char *)data + at, bytes - at, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			fail(lab, "process %d has ended", rank);
		at += (size_t)n;
	}
}

void meet(struct lab *lab)
{
	char byte = 0;

	for (int r = 1; r < lab->size; r++) {
		if (lab->rank == r)
			tell(lab, 0, &byte, 1);
		if (!lab->rank)
			hear(lab, r, &byte, 1);
	}
	for (int r = 1; r < lab->size; r++) {
		if (lab->rank == r)
			hear(lab, 0, &byte, 1);
		if (!lab->rank)
			tell(lab, r, &byte, 1);
	}
}

void lab_logger(enum gn_nccl_log_level level, unsigned long subsystems, const char *file, int line, const char *format, ...)
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

void lab_load(struct lab *lab)
{
	const char *why = "";
	int count = 0;

	if (plug_open(&lab->plug, lab->options->path, lab->options->version, &why))
		fail(lab, "cannot load it: %s", why);
	must(lab, plug_init(&lab->plug, &lab->context, lab_logger), "init");
	must(lab, plug_devices(&lab->plug, &count), "devices");
	if (count < 1)
		fail(lab, "devices() tells %d devices", count);
	must(lab, plug_properties(&lab->plug, lab->device, &lab->properties), "getProperties");
}

void lab_unload(struct lab *lab)
{
	must(lab, plug_finalize(&lab->plug, lab->context), "finalize");
	lab->context = NULL;
	plug_close(&lab->plug);
}

void *lab_listen(struct lab *lab, void *handle)
{
	void *comm = NULL;

	must(lab, plug_listen(&lab->plug, lab->context, lab->device, handle, &comm), "listen");
	if (!comm)
		fail(lab, "listen left no comm");
	return comm;
}

void *lab_connect(struct lab *lab, void *handle)
{
	void *comm = NULL;

	while (!comm)
		must(lab, plug_connect(&lab->plug, lab->context, lab->device, handle, &comm), "connect");
	return comm;
}

void *lab_accept(struct lab *lab, void *listen_comm)
{
	void *comm = NULL;

	while (!comm)
		must(lab, plug_accept(&lab->plug, listen_comm, &comm), "accept");
	return comm;
}

void *lab_pair(struct lab *lab, int from, int to)
{
	char handle[GN_NCCL_HANDLE_BYTES];
	void *listener, *comm;

	if (lab->rank == from) {
		hear(lab, to, handle, sizeof handle);
		return lab_connect(lab, handle);
	}
	listener = lab_listen(lab, handle);
	tell(lab, from, handle, sizeof handle);
	comm = lab_accept(lab, listener);
	must(lab, plug_close_listen(&lab->plug, listener), "closeListen");
	return comm;
}

void lab_close(struct lab *lab, int sends, void *comm)
{
	if (sends)
		must(lab, plug_close_send(&lab->plug, comm), "closeSend");
	else
		must(lab, plug_close_recv(&lab->plug, comm), "closeRecv");
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

void *send_one(struct lab *lab, void *comm, void *data, size_t bytes, int tag, void *mhandle)
{
	void *request = NULL;

	while (!request)
		must(lab, plug_isend(&lab->plug, comm, data, bytes, tag, mhandle, &request), "isend");
	return request;
}

void *receive_one(struct lab *lab, void *comm, void *data, size_t bytes, int tag, void *mhandle)
{
	void *request = NULL;

	while (!request)
		must(lab, plug_irecv(&lab->plug, comm, 1, &data, &bytes, &tag, &mhandle, &request), "irecv");
	return request;
}

void await(struct lab *lab, void *request, int *sizes)
{
	int done = 0;

	while (!done)
		must(lab, plug_test(&lab->plug, request, &done, sizes), "test");
}

void *reg(struct lab *lab, void *comm, void *data, size_t bytes)
{
	void *mhandle = NULL;

	must(lab, plug_reg(&lab->plug, comm, data, bytes, GN_NCCL_PTR_HOST, &mhandle), "regMr of host memory");
	return mhandle;
}

void dereg(struct lab *lab, void *comm, void *mhandle)
{
	must(lab, plug_dereg(&lab->plug, comm, mhandle), "deregMr");
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

void within(struct lab *lab, double began_s, const char *what)
{
	const double limit_s = 6;

	if (now_s() - began_s > limit_s)
		fail(lab, "%s took %.1f s, more than %.0f", what, now_s() - began_s, limit_s);
}

void one_message(struct lab *lab, int sends, void *comm, size_t bytes, uint64_t seed)
{
	unsigned char *buffer = calloc(1, bytes);
	void *mhandle = reg(lab, comm, buffer, bytes);

	if (sends) {
		fill(buffer, bytes, seed);
		await(lab, send_one(lab, comm, buffer, bytes, 1, mhandle), NULL);
	} else {
		await(lab, receive_one(lab, comm, buffer, bytes, 1, mhandle), NULL);
		if (wrong(buffer, bytes, seed) >= 0)
			fail(lab, "a message is wrong, or another connection's");
	}
	dereg(lab, comm, mhandle);
	free(buffer);
}

void still_works(struct lab *lab)
{
	void *comm = lab_pair(lab, 1, 0);

	one_message(lab, lab->rank, comm, 5000, 5);
	meet(lab);
	lab_close(lab, lab->rank, comm);
	lab_unload(lab);
}
