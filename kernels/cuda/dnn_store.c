/* Plans stored in a folder, or in memory, one file each: a text with everything that the plan depends on, then cuDNN's JSON, which contains
 * compiled code. A file with another text, of another user, or damaged is ignored. Files are written under a temporary name and
 * renamed. */
#include "kernels/cuda/dnn_internal.h"

#include "src/base/crc32c.h"
#include "src/base/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)32 << 20)

struct name {
	char text[128];
};

/* Plans kept in memory where there is no folder for them: the text that a file would hold, by the file's name. One table for the
 * process, since who plans the same again (another repeat, a plan for evaluation) does so in a gn_dnn of its own, often when the first
 * one is gone. It lasts as long as the process. */

/* A plan that cuDNN compiled takes about 90 KB, the 23 of ResNet-50's training step 2 MB. What comes when it is full is not kept. */
#define TABLE_BYTES_MAX ((size_t)64 << 20)

struct entry {
	struct entry *next;
	char *name, *text;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries; /* under lock */
static size_t total_bytes;    /* under lock */

static struct entry *find(const char *name)
{
	struct entry *e = entries;

	while (e && strcmp(e->name, name) != 0)
		e = e->next;
	return e;
}

/* A copy with a zero byte appended, freed by the caller; NULL: not stored. */
static char *dnn_memory_load(const char *name, size_t *out_bytes)
{
	const struct entry *e;
	char *text = NULL;

	pthread_mutex_lock(&lock);
	e = find(name);
	if (e && (text = malloc(e->bytes + 1))) {
		memcpy(text, e->text, e->bytes);
		text[e->bytes] = 0;
		*out_bytes = e->bytes;
	}
	pthread_mutex_unlock(&lock);
	return text;
}

static struct entry *add(const char *name)
{
	struct entry *e = calloc(1, sizeof *e);

	if (!e || !(e->name = strdup(name))) {
		free(e);
		return NULL;
	}
	e->next = entries;
	return entries = e;
}

/* Takes ownership of text, which is freed if it cannot be stored; replaces an entry of that name. */
static void dnn_memory_keep(const char *name, char *text, size_t bytes)
{
	struct entry *e;

	pthread_mutex_lock(&lock);
	e = find(name);
	if (!e && total_bytes + bytes <= TABLE_BYTES_MAX)
		e = add(name);
	if (e && total_bytes - e->bytes + bytes <= TABLE_BYTES_MAX) {
		char *old = e->text;

		total_bytes += bytes - e->bytes;
		e->text = text;
		e->bytes = bytes;
		text = old;
	}
	pthread_mutex_unlock(&lock);
	free(text);
}

/* Belongs to this user and is writable by nobody else. */
static int is_own(int fd, mode_t kind, size_t *out_bytes)
{
	struct stat s;

	if (fstat(fd, &s) || (s.st_mode & S_IFMT) != kind || s.st_uid != geteuid() || s.st_mode & (S_IWGRP | S_IWOTH))
		return 0;
	*out_bytes = (size_t)s.st_size;
	return 1;
}

int gn_dnn_store_open(const char *folder)
{
	const char *last = strrchr(folder, '/');
	char *parent = last > folder ? strndup(folder, (size_t)(last - folder)) : NULL;
	size_t unused;
	int fd;

	/* a folder that could not be created fails to open */
	if (parent)
		(void)gn_make_dirs(parent, NULL);
	(void)mkdir(folder, 0700);
	free(parent);
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0 && !is_own(fd, S_IFDIR, &unused)) {
		close(fd);
		return -1;
	}
	return fd;
}

void gn_dnn_store_identify(struct gn_dnn *d, const char *device)
{
	const struct gn_dnn_options *o = &d->options;

	/* a long device description may be truncated; its checksum covers all of it */
	snprintf(d->identity, sizeof d->identity, "cuDNN %zu\ntf32 %d, deterministic %d, workspace %zu, %s\ndevice %08" PRIx32 " %.256s\n",
		 d->api.cudnnGetVersion(), o->tf32, o->deterministic, o->workspace_limit_bytes, o->tune ? "fastest" : "first",
		 gn_crc32c(0, device, strlen(device)), device);
}

/* Writes the text that the plan depends on; returns its length. */
static size_t describe(const struct gn_dnn_plan *p, char *out, size_t size)
{
	const struct gn_dnn_conv *c = &p->conv;

	char groups[32] = "";

	if (c->groups)
		snprintf(groups, sizeof groups, ", %d groups", c->groups);
	return (size_t)snprintf(out, size, "Gannet, a plan of a convolution, 2\n%s%s, %s, %d %d %d %d to %d %d %d, %d %d %d%s\n",
				p->dnn->identity, gn_dnn_pass_name(p->pass), gn_cuda_type_name(c->type), c->n, c->c, c->h, c->w, c->out_c,
				c->out_h, c->out_w, c->kernel, c->stride, c->pad, groups);
}

/* Names are for humans; two plans with the same name would overwrite each other, which is harmless. */
static struct name name_of(const struct gn_dnn_plan *p, const char *description)
{
	const struct gn_dnn_conv *c = &p->conv;
	struct name n;

	snprintf(n.text, sizeof n.text, "%s-%dx%dx%dx%d-%d-%d-%d-%d-%08" PRIx32 ".plan", gn_cuda_type_name(c->type), c->n, c->c, c->h, c->w,
		 c->out_c, c->kernel, c->stride, (int)p->pass, gn_crc32c(0, description, strlen(description)));
	return n;
}

/* Reads a whole file and appends a zero byte; the caller frees it. NULL: not usable. */
static char *load(int folder, const char *name, size_t *out_bytes)
{
	int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char *text = NULL;
	size_t bytes;

	if (fd < 0)
		return NULL;
	if (is_own(fd, S_IFREG, &bytes) && bytes <= FILE_BYTES_MAX && (text = malloc(bytes + 1))) {
		if (gn_pread_full(fd, text, bytes, 0, name, NULL)) {
			free(text);
			text = NULL;
		} else {
			text[bytes] = 0;
			*out_bytes = bytes;
		}
	}
	close(fd);
	return text;
}

/* The start of the JSON in the file's text; NULL when anything differs from what was written. */
static const char *check(const char *text, size_t bytes, const char *description, int64_t *engine, double *ms)
{
	size_t head = strlen(description), json_bytes;
	const char *json;
	uint32_t crc;
	int more = 0;

	if (bytes < head || memcmp(text, description, head) || strlen(text) != bytes ||
	    sscanf(text + head, "engine %" SCNd64 ", %lf ms, %zu bytes, %" SCNx32 "%n", engine, ms, &json_bytes, &crc, &more) != 4 ||
	    text[head + (size_t)more] != '\n')
		return NULL;
	json = text + head + more + 1;
	return strlen(json) == json_bytes && gn_crc32c(0, json, json_bytes) == crc ? json : NULL;
}

int gn_dnn_store_restore(struct gn_dnn_plan *p)
{
	const struct gn_cudnn *api = &p->dnn->api;
	char description[1024], *text;
	cudnnBackendDescriptor_t plan;
	const char *json;
	struct name name;
	int64_t engine;
	size_t bytes;

	(void)describe(p, description, sizeof description);
	name = name_of(p, description);
	text = p->dnn->folder < 0 ? dnn_memory_load(name.text, &bytes) : load(p->dnn->folder, name.text, &bytes);
	if (!text)
		return 0;
	json = check(text, bytes, description, &engine, &p->ms);
	if (json && (plan = gn_dnn_plan_begin(p))) {
		if (api->cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
						  (int64_t)strlen(json) + 1, json))
			(void)api->cudnnBackendDestroyDescriptor(plan);
		else
			(void)gn_dnn_plan_finish(p, plan, engine);
	}
	free(text);
	return p->count > 0;
}

/* The file's text for the chosen candidate; the caller frees it. NULL: cuDNN cannot serialise this plan. */
static char *serialise(const struct gn_dnn_plan *p, const char *description, size_t *out_bytes)
{
	const struct gn_cudnn *api = &p->dnn->api;
	cudnnBackendDescriptor_t plan = p->plans[p->chosen];
	size_t head = strlen(description) + 120, json_bytes;
	int64_t count = 0;
	char *text, *json;
	int length;

	if (api->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, 0, &count, NULL) ||
	    count <= 0 || (size_t)count > FILE_BYTES_MAX - head || !(text = calloc(1, head + (size_t)count + 1)))
		return NULL;
	json = text + head;
	if (api->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, count, &count, json)) {
		free(text);
		return NULL;
	}
	json_bytes = strlen(json);
	length = snprintf(text, head, "%sengine %" PRId64 ", %.6f ms, %zu bytes, %08" PRIx32 "\n", description, p->engines[p->chosen], p->ms, json_bytes,
			  gn_crc32c(0, json, json_bytes));
	memmove(text + length, json, json_bytes);
	*out_bytes = (size_t)length + json_bytes;
	return text;
}

void gn_dnn_store_keep(const struct gn_dnn_plan *p)
{
	char description[1024], *text, temporary[160];
	struct name name;
	size_t bytes;
	int fd, ok;

	(void)describe(p, description, sizeof description);
	name = name_of(p, description);
	if (!(text = serialise(p, description, &bytes)))
		return;
	if (p->dnn->folder < 0) {
		dnn_memory_keep(name.text, text, bytes);
		return;
	}
	/* another process has another pid; another node may use the same: the last rename wins */
	snprintf(temporary, sizeof temporary, "%s.%ld", name.text, (long)getpid());
	fd = openat(p->dnn->folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0) {
		ok = !gn_write_full(fd, text, bytes, name.text, NULL);
		ok = !close(fd) && ok;
		if (!ok || renameat(p->dnn->folder, temporary, p->dnn->folder, name.text))
			(void)unlinkat(p->dnn->folder, temporary, 0);
	}
	free(text);
}
