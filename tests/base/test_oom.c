/* What a control group leaves to its processes: in one that this test makes, where it may. */
#include "tests/test.h"

#include "src/base/oom.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT = 256 << 20, TAKEN = 64 << 20, SLACK = 16 << 20 };

static int put(const char *folder, const char *file, long value)
{
	char path[4400];
	FILE *out;
	int ok;

	snprintf(path, sizeof path, "%s/%s", folder, file);
	out = fopen(path, "we");
	ok = out && fprintf(out, "%ld", value) > 0;
	return out && !fclose(out) && ok;
}

/* Below this process's own; returns 0 where none can be made. */
static int make_group(char *path, size_t size)
{
	char line[4096], *at;
	FILE *in = fopen("/proc/self/cgroup", "re");
	int made = 0;

	while (in && !made && fgets(line, sizeof line, in)) {
		line[strcspn(line, "\n")] = 0;
		at = strstr(line, ":memory:");
		at = at ? at + 8 : !strncmp(line, "0::", 3) ? line + 3 : NULL;
		if (!at)
			continue;
		snprintf(path, size, "/sys/fs/cgroup%s%s/gn-oom-%ld", strstr(line, ":memory:") ? "/memory" : "", strcmp(at, "/") ? at : "", (long)getpid());
		made = !mkdir(path, 0755) && (put(path, "memory.limit_in_bytes", LIMIT) || put(path, "memory.max", LIMIT));
		if (!made)
			rmdir(path);
	}
	if (in)
		fclose(in);
	return made;
}

/* In the group: 0 where what is left is as it should be, before and after memory was taken. */
static int measure(const char *group)
{
	uint64_t before, after;
	char *taken;

	if (!put(group, "cgroup.procs", (long)getpid()))
		return 2;
	before = gn_oom_room_bytes();
	taken = malloc(TAKEN);
	if (!taken)
		return 3;
	for (size_t i = 0; i < TAKEN; i += 4096)
		((volatile char *)taken)[i] = 1;
	after = gn_oom_room_bytes();
	free(taken);
	if (gn_oom_limit_bytes() != LIMIT || before > LIMIT || before < LIMIT - SLACK)
		return 4;
	return after + TAKEN > before + SLACK || after + TAKEN + SLACK < before ? 5 : 0;
}

static void test_room(void **state)
{
	char group[4300];
	int status = 0;
	pid_t pid;

	(void)state;
	if (!make_group(group, sizeof group))
		skip();
	pid = fork();
	if (!pid)
		_exit(measure(group));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	rmdir(group);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_room)};

	return cmocka_run_group_tests_name("base/oom", tests, NULL, NULL);
}
