#include "src/lib/lib_internal.h"

#include "src/base/log.h"
#include "src/base/version.h"
#include "transport/bootstrap/world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define IDLE_S 1800

struct lib_memory {
	void *memory;
	struct lib_memory *next;
};

static struct {
	struct gn_log *log;
	struct gn_world *world;
	gannet_group *groups;
	int finalized;
	int wake_fd; /* an eventfd, while there is a world */
	atomic_int idle, woken;
} lib;

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "a value of the interface")
SAME(GANNET_ANY_SOURCE, GN_P2P_ANY);
SAME(GANNET_OK, GN_OK);
SAME(GANNET_FAILED, GN_ERR_FAILED);
SAME(GANNET_USAGE, GN_ERR_USAGE);
SAME(GANNET_PEER_LOST, GN_ERR_PEER_LOST);
SAME(GANNET_NO_MEMORY, GN_ERR_NO_MEMORY);
SAME(GANNET_IO, GN_ERR_IO);
SAME(GANNET_UNSUPPORTED, GN_ERR_UNSUPPORTED);
SAME(GANNET_MISMATCH, GN_ERR_MISMATCH);
SAME(GANNET_STALL, GN_ERR_STALL);

static _Thread_local char error_text[GN_ERR_TEXT_MAX];

const char *gannet_error(void)
{
	return error_text;
}

const char *gannet_version(void)
{
	return gn_version();
}

gannet_status gn_lib_result(enum gn_status status, const struct gn_err *err)
{
	if (status)
		snprintf(error_text, sizeof error_text, "%s", err->text);
	switch (status) {
	case GN_ERR_DATA:
	case GN_ERR_STOPPED:
	case GN_ERR_EXISTS:
		return GANNET_FAILED;
	case GN_ERR_NO_SPACE:
	case GN_ERR_NOT_FOUND:
		return GANNET_IO;
	default: /* the others have the same values */
		return (gannet_status)status;
	}
}

gannet_status gn_lib_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(error_text, sizeof error_text, format, args);
	va_end(args);
	return GANNET_USAGE;
}

gannet_status gn_lib_check_size(const char *name, size_t size_bytes, size_t most_bytes)
{
	if (size_bytes < sizeof(size_t) || size_bytes > most_bytes)
		return gn_lib_usage("%s of %zu bytes, of another version than this library (%s)", name, size_bytes, gn_version());
	return GANNET_OK;
}

int gn_lib_has(const gannet_group *group)
{
	for (const gannet_group *g = lib.groups; g; g = g->next)
		if (g == group)
			return 1;
	gn_lib_usage(lib.finalized ? "gannet_finalize() has ended this process's part in the job" : "no such group: call gannet_init() first");
	return 0;
}

static gannet_group *group_of(struct gn_comm *comm, struct gn_err *err)
{
	gannet_group *g = calloc(1, sizeof *g);

	if (!g) {
		gn_comm_destroy(comm);
		gn_err_set(err, GN_ERR_NO_MEMORY, "out of memory for a group");
		return NULL;
	}
	g->comm = comm;
	g->next = lib.groups;
	lib.groups = g;
	return g;
}

enum gn_status gn_lib_log(const char *level_name, struct gn_log **out, struct gn_err *err)
{
	enum gn_log_level level = GN_LOG_WARN;
	enum gn_status status = GN_OK;

	if (!level_name)
		level_name = getenv("GANNET_LOG");
	if (level_name)
		status = gn_log_level_parse(level_name, &level, err);
	return status ? status : gn_log_create(STDERR_FILENO, level, out, err);
}

static enum gn_status open_world(const gannet_options *o, struct gn_comm **comm, struct gn_err *err)
{
	const struct gn_world_options world = {.ifnames = o->ifnames, .rendezvous = o->rendezvous, .rank = o->rank, .size = o->size,
					       .keep_going = o->keep_going};
	const struct gn_comm_options options = {.transport = o->transport ? o->transport : "auto"};
	enum gn_status status = gn_lib_log(o->log_level, &lib.log, err);

	lib.wake_fd = status ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!status && lib.wake_fd < 0)
		status = gn_err_errno(err, errno, "cannot create an event descriptor");
	if (!status)
		status = gn_world_create(&world, lib.log, &lib.world, err);
	if (!status)
		status = gn_comm_create(lib.world, &options, lib.log, comm, err);
	if (!status)
		gn_world_set_phase(lib.world, "computing", (o->idle_s > 0 ? o->idle_s : IDLE_S) * 1000);
	return status;
}

static void close_world(void)
{
	gn_world_destroy(lib.world);
	gn_log_destroy(lib.log);
	if (lib.wake_fd >= 0)
		close(lib.wake_fd);
	lib.world = NULL;
	lib.log = NULL;
}

gannet_status gannet_init(const gannet_options *options, gannet_group **world)
{
	gannet_options o = {0};
	struct gn_comm *comm = NULL;
	struct gn_err err = {0};
	enum gn_status status;
	gannet_group *g = NULL;

	if (lib.world || lib.finalized)
		return gn_lib_usage("gannet_init() was called before: a process has one world");
	if (options && gn_lib_check_size("gannet_options", options->size_bytes, sizeof o))
		return GANNET_USAGE;
	if (options)
		memcpy(&o, options, options->size_bytes);
	status = open_world(&o, &comm, &err);
	if (!status && !(g = group_of(comm, &err)))
		status = GN_ERR_NO_MEMORY;
	if (!status)
		*world = g;
	else
		close_world();
	return gn_lib_result(status, &err);
}

static void free_group(gannet_group *g)
{
	while (g->ops)
		gannet_op_free(g->ops);
	while (g->memory)
		gannet_release(g, g->memory->memory);
	gn_comm_destroy(g->comm);
	for (gannet_group **at = &lib.groups; *at; at = &(*at)->next)
		if (*at == g) {
			*at = g->next;
			break;
		}
	free(g);
}

void gannet_finalize(void)
{
	while (lib.groups)
		free_group(lib.groups);
	if (lib.world)
		close_world();
	lib.finalized = 1;
}

void gannet_progress(void)
{
	if (lib.groups)
		gn_comm_poll(lib.groups->comm);
}

/* idle and woken: each side writes its own and then reads the other's, so that one of them sees the other. */
int gannet_idle(int timeout_ms)
{
	uint64_t count;
	int slept;

	if (!lib.groups || timeout_ms <= 0)
		return 0;
	atomic_store(&lib.idle, 1);
	slept = gn_comm_idle(lib.groups->comm, &lib.woken, lib.wake_fd, (uint64_t)timeout_ms * 1000000u);
	atomic_store(&lib.idle, 0);
	atomic_store(&lib.woken, 0);
	/* empty unless it was woken */
	if (read(lib.wake_fd, &count, sizeof count) < 0)
		return slept;
	return 1;
}

void gannet_wake(void)
{
	uint64_t one = 1;

	atomic_store(&lib.woken, 1);
	if (!atomic_load(&lib.idle))
		return;
	gn_comm_interrupt(lib.groups->comm);
	/* fails only if the counter is full, and then it is readable */
	if (write(lib.wake_fd, &one, sizeof one) < 0)
		return;
}

int gannet_rank(const gannet_group *group)
{
	return gn_comm_rank(group->comm);
}

int gannet_size(const gannet_group *group)
{
	return gn_comm_size(group->comm);
}

int gannet_local_rank(const gannet_group *group)
{
	return gn_world_local_rank(gn_comm_world(group->comm));
}

int gannet_local_size(const gannet_group *group)
{
	return gn_world_local_size(gn_comm_world(group->comm));
}

const char *gannet_host(const gannet_group *group, int rank)
{
	if (rank < 0 || rank >= gn_comm_size(group->comm))
		return NULL;
	return gn_world_host_of(gn_comm_world(group->comm), gn_comm_world_rank(group->comm, rank));
}

/* comm NULL: this rank is in no group */
static gannet_status made(enum gn_status status, struct gn_comm *comm, struct gn_err *err, gannet_group **out)
{
	gannet_group *g = NULL;

	if (!status && comm && !(g = group_of(comm, err)))
		status = GN_ERR_NO_MEMORY;
	if (!status)
		*out = g;
	return gn_lib_result(status, err);
}

gannet_status gannet_split(gannet_group *parent, int color, int key, const char *name, gannet_group **group)
{
	struct gn_comm *comm = NULL;
	struct gn_err err = {0};
	enum gn_status status;

	if (!gn_lib_has(parent))
		return GANNET_USAGE;
	status = gn_comm_split(parent->comm, color, key, name, &comm, &err);
	return made(status, comm, &err, group);
}

gannet_status gannet_group_of(gannet_group *parent, const int *ranks, int count, const char *name, gannet_group **group)
{
	struct gn_comm *comm = NULL;
	struct gn_err err = {0};
	enum gn_status status;

	if (!gn_lib_has(parent))
		return GANNET_USAGE;
	status = gn_comm_of_ranks(parent->comm, ranks, count, name, &comm, &err);
	return made(status, comm, &err, group);
}

void gannet_group_free(gannet_group *group)
{
	if (group && gn_lib_has(group) && group->next)
		free_group(group);
}

gannet_status gannet_alloc(gannet_group *group, size_t len_bytes, void **memory)
{
	struct lib_memory *m;
	struct gn_err err = {0};
	enum gn_status status;

	if (!gn_lib_has(group))
		return GANNET_USAGE;
	m = malloc(sizeof *m);
	status = m ? gn_comm_alloc(group->comm, len_bytes, &m->memory, &err) : gn_err_set(&err, GN_ERR_NO_MEMORY, "out of memory");
	if (status) {
		free(m);
		return gn_lib_result(status, &err);
	}
	m->next = group->memory;
	group->memory = m;
	*memory = m->memory;
	return GANNET_OK;
}

void gannet_release(gannet_group *group, void *memory)
{
	if (!memory || !gn_lib_has(group))
		return;
	for (struct lib_memory **at = &group->memory, *m; (m = *at); at = &m->next)
		if (m->memory == memory) {
			*at = m->next;
			gn_comm_free(group->comm, memory);
			free(m);
			return;
		}
}
