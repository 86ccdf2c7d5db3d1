#include "tests/test.h"

#include "src/train/plan/contention.h"
#include "src/train/plan/processors.h"

#include <dirent.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A rank that may run on processors first to last. */
static struct gn_processors_rank rank(const char *kernel, int first, int last, int threads)
{
	struct gn_processors_rank r;

	memset(&r, 0, sizeof r);
	snprintf(r.kernel, sizeof r.kernel, "%s", kernel);
	for (int cpu = first; cpu <= last; cpu++)
		CPU_SET((size_t)cpu, &r.allowed);
	r.threads = threads;
	return r;
}

/* Four ranks of "two nodes" that are one machine with two processors: the demo. */
static void test_one_kernel(void **state)
{
	const struct gn_processors_rank all[] = {rank("k", 0, 1, 1), rank("k", 0, 1, 1), rank("k", 0, 1, 1), rank("k", 0, 1, 1)};
	struct gn_processors p;

	(void)state;
	gn_processors_count(all, 4, &p);
	assert_int_equal(p.ranks, 4);
	assert_int_equal(p.threads, 4);
	assert_int_equal(p.processors, 2);
	assert_true(gn_processors_shared(&p));
	gn_processors_count(all, 2, &p);
	assert_false(gn_processors_shared(&p));
}

/* Two real nodes, ranks alternating, each bound to processors of its own: none is shared. */
static void test_two_kernels(void **state)
{
	const struct gn_processors_rank all[] = {rank("a", 0, 3, 4), rank("b", 0, 3, 4), rank("a", 4, 7, 4), rank("b", 4, 7, 4)};
	struct gn_processors p;

	(void)state;
	gn_processors_count(all, 4, &p);
	assert_int_equal(p.ranks, 2);
	assert_int_equal(p.threads, 8);
	assert_int_equal(p.processors, 8);
	assert_false(gn_processors_shared(&p));
}

/* The node that has too few is what counts, wherever it is in the order. */
static void test_worst_kernel(void **state)
{
	const struct gn_processors_rank all[] = {rank("a", 0, 7, 8), rank("b", 0, 1, 2), rank("b", 0, 1, 3), rank("c", 0, 3, 1)};
	struct gn_processors p;

	(void)state;
	gn_processors_count(all, 4, &p);
	assert_int_equal(p.ranks, 2);
	assert_int_equal(p.threads, 5);
	assert_int_equal(p.processors, 2);
	assert_true(gn_processors_shared(&p));
}

static int threads_here(void)
{
	DIR *d = opendir("/proc/self/task");
	int count = -2;

	assert_non_null(d);
	while (readdir(d))
		count++;
	closedir(d);
	return count;
}

static int is_warned(int fd)
{
	char text[2000] = "";

	return pread(fd, text, sizeof text - 1, 0) > 0 && strstr(text, "this host's 1 rank has 1 thread each; other programs use them");
}

/* On one processor, beside another process that never rests. */
static pid_t crowd_one(void)
{
	cpu_set_t allowed, one;
	pid_t child;
	size_t cpu = 0;

	assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
	while (!CPU_ISSET(cpu, &allowed))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
	child = fork();
	if (!child)
		for (prctl(PR_SET_PDEATHSIG, SIGKILL);;)
			;
	assert_true(child > 0);
	return child;
}

/* Idle threads make libgomp's spin less while others take the processor; a line says so, once it lasts; then they go. */
static void test_contention(void **state)
{
	const struct sched_param first = {.sched_priority = 1};
	FILE *file = tmpfile();
	struct gn_log *log = NULL;
	struct gn_err err;
	pid_t child;
	int before;

	(void)state;
	/* those who have set one keep what they chose */
	unsetenv("OMP_WAIT_POLICY");
	unsetenv("GOMP_SPINCOUNT");
	assert_non_null(file);
	assert_int_equal(gn_log_create(fileno(file), GN_LOG_INFO, &log, &err), GN_OK);
	child = crowd_one();
	omp_set_num_threads(1);
	before = threads_here();
	alarm(240);
	gn_contention_watch(1, log);
	while (threads_here() == before || !is_warned(fileno(file)))
		gn_contention_look();
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	/* others of this machine may keep it from resting otherwise */
	if (!sched_setscheduler(0, SCHED_FIFO, &first))
		while (threads_here() > before) {
			usleep(110000);
			gn_contention_look();
		}
	alarm(0);
	gn_contention_watch(1, NULL);
	gn_log_destroy(log);
	fclose(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_kernel),
		cmocka_unit_test(test_two_kernels),
		cmocka_unit_test(test_worst_kernel),
		cmocka_unit_test(test_contention),
	};

	return cmocka_run_group_tests_name("train/processors", tests, NULL, NULL);
}
