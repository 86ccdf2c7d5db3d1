#include "src/base/oom.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In version 1 a limit that is not set is the largest number of pages. */
#define UNLIMITED (UINT64_C(1) << 60)

struct place {
	char path[4096]; /* of the control group in the file system; "": none */
	size_t root_len; /* of the part that is the mount */
	int version;
};

/* A line of /proc/self/cgroup: NUMBER:CONTROLLERS:PATH, in version 2 without controllers. */
static int read_line(char *line, struct place *out)
{
	char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
	const char *mount;

	if (!path)
		return 0;
	*path++ = 0;
	path[strcspn(path, "\n")] = 0;
	controllers++;
	if (*controllers && strcmp(controllers, "memory"))
		return 0;
	mount = *controllers ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup";
	out->version = *controllers ? 1 : 2;
	out->root_len = strlen(mount);
	snprintf(out->path, sizeof out->path, "%s%s", mount, strcmp(path, "/") ? path : "");
	return 1;
}

static uint64_t read_value(const char *folder, const char *file, const char *key)
{
	char path[4200], line[256], *end;
	uint64_t value = 0;
	size_t len = strlen(key);
	FILE *in;

	snprintf(path, sizeof path, "%s/%s", folder, file);
	in = fopen(path, "re");
	while (in && fgets(line, sizeof line, in))
		if (!strncmp(line, key, len) && (!len || line[len] == ' ')) {
			value = strtoull(line + len, &end, 10);
			break;
		}
	if (in)
		fclose(in);
	return value;
}

/* Version 1 where the memory controller is one of its own. */
static int find(struct place *out)
{
	FILE *in = fopen("/proc/self/cgroup", "re");
	struct place p;
	char line[4096];
	int found = 0;

	while (in && fgets(line, sizeof line, in))
		if (read_line(line, &p) && (!found || p.version == 1)) {
			*out = p;
			found = 1;
		}
	if (in)
		fclose(in);
	return found;
}

uint64_t gn_oom_kills(void)
{
	struct place p;

	if (!find(&p))
		return 0;
	return read_value(p.path, p.version == 1 ? "memory.oom_control" : "memory.events", "oom_kill");
}

static uint64_t limit_of(const struct place *p)
{
	uint64_t limit = read_value(p->path, p->version == 1 ? "memory.limit_in_bytes" : "memory.max", "");

	return limit < UNLIMITED ? limit : 0;
}

/* To the group above. Returns 0 at the top. */
static int go_up(struct place *p)
{
	char *slash = strrchr(p->path, '/');

	if (!slash || (size_t)(slash - p->path) < p->root_len)
		return 0;
	*slash = 0;
	return 1;
}

uint64_t gn_oom_limit_bytes(void)
{
	uint64_t lowest = 0, limit;
	struct place p;

	if (!find(&p))
		return 0;
	do {
		limit = limit_of(&p);
		if (limit && (!lowest || limit < lowest))
			lowest = limit;
	} while (go_up(&p));
	return lowest;
}

uint64_t gn_oom_room_bytes(void)
{
	uint64_t least = UINT64_MAX, limit, used, files, room;
	struct place p;

	if (!find(&p))
		return UINT64_MAX;
	do {
		limit = limit_of(&p);
		used = read_value(p.path, p.version == 1 ? "memory.usage_in_bytes" : "memory.current", "");
		files = read_value(p.path, "memory.stat", p.version == 1 ? "total_inactive_file" : "inactive_file");
		used -= files < used ? files : used;
		room = limit > used ? limit - used : 0;
		if (limit && room < least)
			least = room;
	} while (go_up(&p));
	return least;
}

const char *gn_oom_describe(uint64_t before, int was_killed, char *text, size_t size_bytes)
{
	uint64_t limit = gn_oom_kills() > before ? gn_oom_limit_bytes() : 0;
	int used = 0;

	text[0] = 0;
	if (gn_oom_kills() > before)
		used = snprintf(text, size_bytes, "%s", was_killed ? ": out of memory" : "; the kernel ended a process of its cgroup: out of memory");
	if (limit && used > 0 && (size_t)used < size_bytes)
		snprintf(text + used, size_bytes - (size_t)used, ", its cgroup's limit is %.2f GiB", (double)limit / (1 << 30));
	return text;
}
