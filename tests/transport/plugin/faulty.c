/* A plugin with one deliberate fault, around a right one, for tests/transport/plugin/faults.t: what conform must find. Version 11 only.
 * GN_FAULTY_PLUGIN names the right one, GN_FAULT the fault. */
#include "transport/nccl/plugin/abi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 4096 };

/* What a request is about, since requests are the right plugin's. */
struct slot {
	void *request, *data[8];
	size_t sizes[8];
	int count, receives;
};

static struct {
	void *library;
	const struct gn_nccl_net_v11 *net;
	const char *fault;
	pthread_mutex_t lock;
	struct slot slots[SLOTS];
	int inits, dead;
	void *late_data;
} f = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int is(const char *fault)
{
	return f.fault && !strcmp(f.fault, fault);
}

static struct slot *slot_of(void *request)
{
	struct slot *found = NULL;

	pthread_mutex_lock(&f.lock);
	for (int i = 0; i < SLOTS && !found; i++)
		if (f.slots[i].request == request)
			found = &f.slots[i];
	pthread_mutex_unlock(&f.lock);
	return found;
}

static void remember(void *request, int receives, int count, void **data, const size_t *sizes)
{
	struct slot *s = request ? slot_of(NULL) : NULL;

	if (!s)
		return;
	s->count = count;
	s->receives = receives;
	for (int i = 0; i < count; i++) {
		s->data[i] = data[i];
		s->sizes[i] = sizes[i];
	}
	s->request = request;
}

static void *run_on(void *argument)
{
	(void)argument;
	for (volatile unsigned turns = 0;; turns++)
		if (turns % 1000 == 0)
			usleep(100);
	return NULL;
}

static enum gn_nccl_result init(void **context, uint64_t id, struct gn_nccl_config *config, gn_nccl_logger *logger,
				gn_nccl_profiler *profiler)
{
	const char *path = getenv("GN_FAULTY_PLUGIN");
	pthread_t thread;

	f.fault = getenv("GN_FAULT");
	if (!f.library && path)
		f.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	f.net = f.library ? dlsym(f.library, "ncclNetPlugin_v11") : NULL;
	if (!f.net)
		return GN_NCCL_SYSTEM_ERROR;
	if (is("second-init") && f.inits++)
		return GN_NCCL_INTERNAL_ERROR;
	if (is("thread") && !f.inits++)
		pthread_create(&thread, NULL, run_on, NULL);
	return f.net->init(context, id, config, logger, profiler);
}

static enum gn_nccl_result devices(int *count)
{
	return f.net ? f.net->devices(count) : GN_NCCL_SYSTEM_ERROR;
}

static enum gn_nccl_result get_properties(int device, struct gn_nccl_properties_v11 *out)
{
	enum gn_nccl_result rc = f.net->get_properties(device, out);

	if (is("properties"))
		out->speed = -1;
	return rc;
}

static enum gn_nccl_result listen_(void *context, int device, void *handle, void **comm)
{
	enum gn_nccl_result rc = f.net->listen(context, device, handle, comm);

	if (is("handle"))
		((char *)handle)[GN_NCCL_HANDLE_BYTES] ^= 1;
	if (is("descriptor"))
		(void)!open("/dev/null", O_RDONLY | O_CLOEXEC);
	return rc;
}

static enum gn_nccl_result connect_(void *context, int device, void *handle, void **comm, struct gn_nccl_device_handle **d)
{
	enum { MARK_AT = GN_NCCL_HANDLE_BYTES - 1, MARK = 0x77 };
	static int under_way;
	unsigned char *bytes = handle;
	enum gn_nccl_result rc;

	/* as a plugin does that keeps its progress in the handle, and loses it with it */
	if (is("handle-state") && under_way && bytes[MARK_AT] != MARK)
		return GN_NCCL_SUCCESS;
	under_way = 1;
	bytes[MARK_AT] = MARK;
	rc = f.net->connect(context, device, handle, comm, d);
	if (is("slow"))
		nanosleep(&(struct timespec){.tv_nsec = 600000000}, NULL);
	while (is("block") && !rc && !*comm)
		rc = f.net->connect(context, device, handle, comm, d);
	return rc;
}

static enum gn_nccl_result accept_(void *listen_comm, void **comm, struct gn_nccl_device_handle **d)
{
	if (is("stranger")) {
		*comm = listen_comm;
		return GN_NCCL_SUCCESS;
	}
	return f.net->accept(listen_comm, comm, d);
}

static enum gn_nccl_result reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
	return f.net->reg_mr(comm, data, size, is("any-memory") ? GN_NCCL_PTR_HOST : type, mhandle);
}

static enum gn_nccl_result dereg_mr(void *comm, void *mhandle)
{
	if (is("keep-memory"))
		return GN_NCCL_SUCCESS;
	return f.net->dereg_mr(comm, mhandle);
}

static enum gn_nccl_result isend(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	static char lost;
	enum gn_nccl_result rc;

	if (is("deaf") && f.dead) {
		*request = NULL;
		return GN_NCCL_SUCCESS;
	}
	if (is("too-long") && size > 1000)
		size = 1000;
	rc = f.net->isend(comm, data, size, is("tags") ? tag ^ 1 : tag, mhandle, phandle, request);
	if (rc && is("deaf")) {
		f.dead = 1;
		return GN_NCCL_SUCCESS;
	}
	if (is("lose") && !rc && !*request)
		*request = &lost;
	else
		remember(*request, 0, 1, &data, &size);
	return rc;
}

static enum gn_nccl_result irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles,
				 void **request)
{
	static int under_way;
	enum gn_nccl_result rc;

	if (is("optional") && *request == (void *)(uintptr_t)GN_NCCL_OPTIONAL_RECV)
		return GN_NCCL_SUCCESS;
	if (is("shallow") && ++under_way > 8) {
		*request = NULL;
		return GN_NCCL_SUCCESS;
	}
	rc = f.net->irecv(comm, n, data, sizes, tags, mhandles, phandles, request);
	f.late_data = data[0];
	remember(*request, 1, n, data, sizes);
	return rc;
}

static enum gn_nccl_result iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	static char never;

	if (is("flush")) {
		*request = &never;
		return GN_NCCL_SUCCESS;
	}
	return f.net->iflush(comm, n, data, sizes, mhandles, request);
}

/* A done reception, spoiled. */
static void spoil(const struct slot *s, int *sizes)
{
	for (int i = 0; sizes && i < s->count; i++)
		if (is("posted-size"))
			sizes[i] = (int)s->sizes[i];
	if (is("group-sizes") && sizes && s->count > 1)
		sizes[1] = sizes[0];
	if (is("too-long") && sizes)
		sizes[0] = 4000;
	if (is("extra-size") && sizes)
		sizes[s->count] = 0;
	if (is("corrupt") && s->sizes[0] > 5000)
		((char *)s->data[0])[5000 - 1] ^= 1;
	if (is("overrun"))
		((char *)s->data[0])[s->sizes[0]] ^= 1;
}

static enum gn_nccl_result test(void *request, int *done, int *sizes)
{
	struct slot *s = slot_of(request);
	enum gn_nccl_result rc;

	if (!s || (is("deaf") && f.dead)) {
		/* lost, a flush that never ends, or the dead */
		*done = is("lose");
		if (sizes && is("lose"))
			sizes[0] = 3000;
		return GN_NCCL_SUCCESS;
	}
	if (is("crash"))
		abort();
	if (is("early") && s->receives) {
		*done = 1;
		for (int i = 0; sizes && i < s->count; i++)
			sizes[i] = (int)s->sizes[i];
		return GN_NCCL_SUCCESS;
	}
	rc = f.net->test(request, done, sizes);
	if (rc && is("deaf")) {
		f.dead = 1;
		*done = 0;
		return GN_NCCL_SUCCESS;
	}
	if (!rc && *done) {
		if (s->receives)
			spoil(s, sizes);
		s->request = NULL;
	}
	return rc;
}

static enum gn_nccl_result close_send(void *comm)
{
	while (is("hang"))
		poll(NULL, 0, 100);
	if (is("patient"))
		poll(NULL, 0, 2000);
	return f.net->close_send(comm);
}

static void *write_late(void *data)
{
	poll(NULL, 0, 100);
	memset(data, 0, 64);
	return NULL;
}

static enum gn_nccl_result close_recv(void *comm)
{
	enum gn_nccl_result rc;
	pthread_t thread;

	while (is("hang"))
		poll(NULL, 0, 100);
	rc = f.net->close_recv(comm);
	if (is("late-write") && f.late_data && !pthread_create(&thread, NULL, write_late, f.late_data))
		pthread_detach(thread);
	f.late_data = NULL;
	return rc;
}

static enum gn_nccl_result close_listen(void *comm)
{
	return f.net->close_listen(comm);
}

static enum gn_nccl_result finalize(void *context)
{
	if (is("finalize") && !context)
		return GN_NCCL_INTERNAL_ERROR;
	return f.net && !is("abandon") ? f.net->finalize(context) : GN_NCCL_SUCCESS;
}

static void __attribute__((destructor)) unload(void)
{
	while (is("linger"))
		poll(NULL, 0, 100);
}

extern const struct gn_nccl_net_v11 ncclNetPlugin_v11;
__attribute__((visibility("default"))) const struct gn_nccl_net_v11 ncclNetPlugin_v11 = {
	.name = "Gannet",
	.init = init,
	.devices = devices,
	.get_properties = get_properties,
	.listen = listen_,
	.connect = connect_,
	.accept = accept_,
	.reg_mr = reg_mr,
	.dereg_mr = dereg_mr,
	.isend = isend,
	.irecv = irecv,
	.iflush = iflush,
	.test = test,
	.close_send = close_send,
	.close_recv = close_recv,
	.close_listen = close_listen,
	.finalize = finalize,
};
