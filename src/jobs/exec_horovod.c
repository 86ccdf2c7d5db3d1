#include "src/jobs/exec_meet.h"

#include "src/base/clock.h"
#include "src/base/thread.h"
#include "transport/auth/net.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define HEAD_MAX 8192
#define STORE_MAX (64u << 20)
#define PATIENCE_MS 2000

struct entry {
	char *path;
	void *data;
	size_t len;
	struct entry *next;
};

struct gn_exec_horovod {
	pthread_t thread;
	int listener, stop;
	struct entry *entries;
	size_t bytes;
};

static struct entry *find(struct gn_exec_horovod *h, const char *path)
{
	struct entry *e = h->entries;

	while (e && strcmp(e->path, path))
		e = e->next;
	return e;
}

static int put(struct gn_exec_horovod *h, const char *path, void *data, size_t len)
{
	struct entry *e = find(h, path);

	if (!e) {
		e = calloc(1, sizeof *e);
		if (!e || !(e->path = strdup(path))) {
			free(e);
			return 0;
		}
		e->next = h->entries;
		h->entries = e;
	}
	h->bytes += len - e->len;
	free(e->data);
	e->data = data;
	e->len = len;
	return 1;
}

static void answer(int fd, int code, const void *data, size_t len)
{
	char head[160];
	int n = snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", code,
			 code == 200 ? "OK" : code == 404 ? "Not Found" : "Bad Request", len);

	if (!gn_net_send_all(fd, head, (size_t)n, PATIENCE_MS) && len)
		gn_net_send_all(fd, data, len, PATIENCE_MS);
}

/* The request's first lines, up to an empty one; byte by byte, they are short. Whoever dawdles holds up the others for so long. */
static int read_head(int fd, char *head)
{
	uint64_t until = gn_clock_ns() + PATIENCE_MS * UINT64_C(1000000);
	size_t len = 0;

	while (len < HEAD_MAX - 1) {
		if (gn_net_receive_all(fd, head + len, 1, gn_net_left_ms(until, PATIENCE_MS)))
			return 0;
		head[++len] = 0;
		if (len >= 4 && !strcmp(head + len - 4, "\r\n\r\n"))
			return 1;
	}
	return 0;
}

static size_t content_length(const char *head)
{
	for (const char *line = head; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncasecmp(line, "content-length:", 15))
			return strtoul(line + 15, NULL, 10);
	}
	return 0;
}

static void serve_put(struct gn_exec_horovod *h, int fd, const char *path, size_t len)
{
	void *data = len <= STORE_MAX - h->bytes && h->bytes <= STORE_MAX ? malloc(len + 1) : NULL;

	if (data && !gn_net_receive_all(fd, data, len, PATIENCE_MS) && put(h, path, data, len)) {
		answer(fd, 200, NULL, 0);
		return;
	}
	free(data);
	answer(fd, 400, NULL, 0);
}

static void serve(struct gn_exec_horovod *h, int fd)
{
	char head[HEAD_MAX], method[8], path[1024];
	const struct entry *e;

	if (!read_head(fd, head) || sscanf(head, "%7s %1023s", method, path) != 2)
		return;
	e = find(h, path);
	if (!strcmp(method, "PUT"))
		serve_put(h, fd, path, content_length(head));
	else if (!strcmp(method, "GET") && e)
		answer(fd, 200, e->data, e->len);
	else if (!strcmp(method, "GET"))
		answer(fd, 404, NULL, 0);
	else
		/* DELETE: a rank that has finished; others may still ask */
		answer(fd, strcmp(method, "DELETE") ? 400 : 200, NULL, 0);
}

static void *run(void *argument)
{
	struct gn_exec_horovod *h = argument;
	struct pollfd p[2] = {{.fd = h->stop, .events = POLLIN}, {.fd = h->listener, .events = POLLIN}};
	int fd;

	while (poll(p, 2, -1) >= 0 || errno == EINTR) {
		if (p[0].revents)
			break;
		while (p[1].revents && (fd = gn_net_accept(h->listener)) >= 0) {
			serve(h, fd);
			close(fd);
		}
	}
	return NULL;
}

enum gn_status gn_exec_horovod_start(int listener, struct gn_exec_horovod **out, struct gn_err *err)
{
	struct gn_exec_horovod *h = calloc(1, sizeof *h);
	int failure;

	if (!h)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for Horovod's key-value store");
	h->listener = listener;
	h->stop = eventfd(0, EFD_CLOEXEC);
	failure = h->stop < 0 ? errno : gn_thread_start(&h->thread, run, h);
	if (failure) {
		if (h->stop >= 0)
			close(h->stop);
		free(h);
		return gn_err_errno(err, failure, "cannot start Horovod's key-value store");
	}
	*out = h;
	return GN_OK;
}

void gn_exec_horovod_stop(struct gn_exec_horovod *h)
{
	const uint64_t one = 1;

	if (!h)
		return;
	if (write(h->stop, &one, sizeof one) == (ssize_t)sizeof one)
		pthread_join(h->thread, NULL);
	close(h->stop);
	while (h->entries) {
		struct entry *e = h->entries;

		h->entries = e->next;
		free(e->path);
		free(e->data);
		free(e);
	}
	free(h);
}
