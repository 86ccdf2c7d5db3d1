#include "tests/test.h"

#include "src/base/file.h"
#include "src/train/metrics/metrics_log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Files may grow to so many bytes. */
static void limit_files(rlim_t bytes)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void put_line(struct gn_metrics_log *log, const char *event)
{
	struct gn_err err;

	assert_non_null(gn_metrics_log_begin(log, event));
	assert_ok(gn_metrics_log_end(log, &err));
}

/* A disk that is full for a while: lines are lost, whole ones before and after are not, and both is told once. */
static void test_full_disk(void **state)
{
	char folder[] = "/tmp/gannet-runlog.XXXXXX", path[64], *text, *said;
	struct gn_metrics_log *runlog;
	struct gn_log *log;
	struct gn_err err;
	int pipes[2];
	ssize_t len;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/log.jsonl", folder);
	assert_int_equal(pipe(pipes), 0);
	assert_ok(gn_log_create(pipes[1], GN_LOG_WARN, &log, &err));
	signal(SIGXFSZ, SIG_IGN);
	assert_ok(gn_metrics_log_open(path, 0, log, &runlog, &err));
	put_line(runlog, "one");
	limit_files(80);
	put_line(runlog, "torn");
	put_line(runlog, "lost");
	limit_files(RLIM_INFINITY);
	put_line(runlog, "two");
	put_line(runlog, "three");
	gn_metrics_log_close(runlog);
	gn_log_destroy(log);
	close(pipes[1]);

	assert_ok(gn_file_load(path, 4096, &text, NULL, &err));
	assert_non_null(strstr(text, "\n{\"event\": \"two\""));
	assert_non_null(strstr(text, "\n{\"event\": \"three\""));
	assert_memory_equal(text, "{\"event\": \"one\"", 15);
	assert_null(strstr(text, "lost"));
	free(text);
	said = calloc(1, 4096);
	assert_non_null(said);
	while ((len = read(pipes[0], said + strlen(said), 4095 - strlen(said))) > 0)
		;
	close(pipes[0]);
	assert_non_null(strstr(said, "lines are lost until it is writable again"));
	assert_non_null(strstr(said, "is writable again: 2 lines are lost"));
	assert_int_equal(strstr(said, "loses") != NULL && strstr(strstr(said, "loses") + 1, "loses") != NULL, 0);
	free(said);
	assert_ok(gn_remove_tree(folder, &err));
}

/* Of two runs the last one counts, without an evaluation that a resume went back behind. */
static enum gn_status refuse(void *context, struct gn_err *err)
{
	(void)context;
	return gn_err_set(err, GN_ERR_PEER_LOST, "out");
}

/* A process that is out of its run. */
static void test_guard(void **state)
{
	char path[] = "/tmp/gannet-guard.XXXXXX", *text;
	struct gn_metrics_log *log;
	struct gn_err err;

	(void)state;
	close(mkstemp(path));
	assert_ok(gn_metrics_log_open(path, 0, NULL, &log, &err));
	put_line(log, "one");
	gn_metrics_log_set_guard(log, refuse, NULL);
	assert_non_null(gn_metrics_log_begin(log, "two"));
	assert_int_equal(gn_metrics_log_end(log, &err), GN_ERR_PEER_LOST);
	gn_metrics_log_set_guard(log, NULL, NULL);
	put_line(log, "three");
	gn_metrics_log_close(log);
	assert_ok(gn_file_load(path, 4096, &text, NULL, &err));
	assert_non_null(strstr(text, "\n{\"event\": \"three\""));
	assert_null(strstr(text, "two"));
	free(text);
	unlink(path);
}

static void test_best_top1(void **state)
{
	static const char text[] = "{\"event\": \"start\", \"step\": 0}\n{\"event\": \"eval\", \"step\": 5, \"top1\": 0.99}\n"
				   "{\"event\": \"start\", \"step\": 0}\n{\"event\": \"eval\", \"step\": 5, \"top1\": 0.5}\n"
				   "{\"event\": \"eval\", \"step\": 9, \"top1\": 0.9}\n{\"event\": \"resume\", \"step\": 7}\n"
				   "{\"event\": \"eval\", \"step\": 9, \"top1\": 0.25}\n{\"event\": \"resume\", \"step\": 9}\n{\"eval";
	char folder[] = "/tmp/gannet-runlog.XXXXXX", path[64];
	struct gn_err err;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/log.jsonl", folder);
	assert_true(gn_metrics_log_best_top1(path) < 0);
	assert_ok(gn_file_replace(path, text, sizeof text - 1, &err));
	assert_true(gn_metrics_log_best_top1(path) == 0.5);
	assert_true(gn_metrics_log_best_top1(NULL) < 0);
	assert_ok(gn_remove_tree(folder, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_full_disk), cmocka_unit_test(test_guard), cmocka_unit_test(test_best_top1)};

	return cmocka_run_group_tests_name("train/runlog", tests, NULL, NULL);
}
