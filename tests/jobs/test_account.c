/* Where a run's time went, from logs written by hand: one start, killed and gone on, two runs in a file, and what is no log. */
#include "tests/test.h"

#include "src/base/file.h"
#include "src/jobs/account.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define START(event, time, step) \
	"{\"event\": \"" event "\", \"time\": \"2026-11-24T" time "Z\", \"model\": \"lenet\", \"step\": " step \
	", \"total_steps\": 100, \"ranks\": 4, \"nodes\": 2, \"global_batch\": 64, \"images\": 640, \"hosts\": \"n[1-2]\", \"job\": \"7\"}\n"
#define STEP(time, step, loss) \
	"{\"event\": \"step\", \"time\": \"2026-11-24T" time "Z\", \"step\": " step ", \"epoch\": 1.5, \"loss\": " loss \
	", \"lr\": 0.1, \"images_per_s\": 64, \"time_ms\": {\"step\": 1000, \"data\": 100, \"forward\": 300, \"backward\": 300, " \
	"\"communication_exposed\": 200, \"optimizer\": 100}, \"ranks\": {\"compute\": [600, 700, 800], \"slowest\": 3, " \
	"\"slowest_host\": \"n2\"}}\n"
#define USED(time, step, cpu, age) \
	"{\"event\": \"step\", \"time\": \"2026-11-24T" time "Z\", \"step\": " step ", \"time_ms\": {\"step\": 1000}, \"usage\": {\"cpu_s\": " cpu \
	", \"age_s\": " age ", \"processors\": 4, \"max_rss_bytes\": 2e9, \"max_rss_rank\": 1}}\n"
#define EVAL(time) "{\"event\": \"eval\", \"time\": \"2026-11-24T" time "Z\", \"step\": 20, \"top1\": 0.5, \"seconds\": 4.0}\n"
#define SAVED(time, step) "{\"event\": \"checkpoint\", \"time\": \"2026-11-24T" time "Z\", \"step\": " step ", \"seconds\": 1.0}\n"
#define END(event, time) \
	"{\"event\": \"" event "\", \"time\": \"2026-11-24T" time "Z\", \"step\": 20, \"usage\": {\"cpu_s\": 60, \"age_s\": 30, " \
	"\"processors\": 4, \"max_rss_bytes\": 1e9, \"max_rss_rank\": 2}}\n"

static char path[] = "/tmp/gn-account-XXXXXX";

static enum gn_status account(const char *text, struct gn_account *out)
{
	struct gn_err err;

	assert_ok(gn_file_replace(path, text, strlen(text), &err));
	return gn_account_read(path, out, &err);
}

static void assert_s(double value, double wanted)
{
	if (fabs(value - wanted) > 1e-9)
		fail_msg("%g s, wanted %g", value, wanted);
}

/* A start that was killed counts up to its last line with usage, and no line counts twice. */
static void usage_of_a_killed_start(void **state)
{
	struct gn_account a;

	(void)state;
	assert_int_equal(account(START("start", "10:00:00", "0") USED("10:00:10", "10", "20", "11") USED("10:00:20", "20", "50", "21")
				 START("resume", "10:01:00", "20") USED("10:01:10", "30", "7", "11") END("stop", "10:01:30"), &a), GN_OK);
	assert_int_equal(a.usage_starts, 2);
	assert_s(a.cpu_s, 50 + 60);
	assert_s(a.available_s, 4 * (21 + 30));
	assert_s(a.max_rss_bytes, 2e9);
	assert_int_equal(a.max_rss_rank, 1);
}

/* Workers of parameter servers: the first one's line is of one rank of four. */
static void usage_of_one_rank(void **state)
{
	const char *line = "{\"event\": \"end\", \"time\": \"2026-11-24T10:00:30Z\", \"step\": 20, \"usage\": {\"ranks\": 1, \"cpu_s\": 60, "
			   "\"age_s\": 300, \"processors\": 4, \"max_rss_bytes\": 1e9, \"max_rss_rank\": 0}}\n";
	char text[2048];
	struct gn_account a;
	struct gn_strbuf advice;
	struct gn_json j;

	(void)state;
	snprintf(text, sizeof text, "%s%s", START("start", "10:00:00", "0") STEP("10:00:12", "10", "2.0"), line);
	assert_int_equal(account(text, &a), GN_OK);
	assert_true(a.is_usage_partial);
	gn_json_init(&j);
	gn_json_object(&j, NULL);
	gn_account_write_summary(&a, "log", &j);
	gn_json_end(&j);
	assert_null(strstr(gn_json_text(&j), "core_hours"));
	assert_non_null(strstr(gn_json_text(&j), "max_rss_bytes"));
	gn_json_release(&j);
	gn_strbuf_init(&advice);
	gn_account_advise(&a, &advice);
	assert_null(strstr(gn_strbuf_text(&advice), "processors"));
	gn_strbuf_release(&advice);
}

/* A log that ends without an end. */
static void dead(void **state)
{
	struct gn_account a;

	(void)state;
	assert_int_equal(account(START("start", "10:00:00", "0") STEP("10:00:12", "10", "2.0") STEP("10:02:12", "20", "2.0"), &a), GN_OK);
	assert_string_equal(a.state, "running");
	assert_false(gn_account_is_dead(&a, a.last_time + 601));
	assert_true(gn_account_is_dead(&a, a.last_time + 1201));
	strcpy(a.state, "end");
	assert_false(gn_account_is_dead(&a, a.last_time + 1201));
}

static void one_start(void **state)
{
	struct gn_account a;

	(void)state;
	assert_int_equal(account(START("start", "10:00:00", "0") STEP("10:00:12", "10", "2.0") STEP("10:00:22", "20", "1.0")
				 SAVED("10:00:23", "20") EVAL("10:00:27") END("end", "10:00:28"), &a), GN_OK);
	assert_s(a.wall_s, 28);
	assert_s(a.training_s, 20);
	assert_s(a.data_s, 2);
	assert_s(a.communication_s, 4);
	assert_s(a.starting_s, 2);
	assert_s(a.checkpoint_s, 1);
	assert_s(a.evaluation_s, 4);
	assert_s(a.other_s, 1);
	assert_s(a.lost_s + a.between_s, 0);
	assert_s(a.cpu_s, 60);
	assert_s(a.available_s, 120);
	assert_int_equal(a.max_rss_rank, 2);
	assert_string_equal(a.state, "end");
	assert_int_equal(a.recent, 2);
	assert_s(a.recent_loss[0], 2);
	assert_int_equal(a.slowest, 3);
	assert_string_equal(a.slowest_host, "n2");
}

/* Killed after step 20, whose last checkpoint was step 10: ten steps are done again, half a minute later. */
static void restarted(void **state)
{
	struct gn_account a;

	(void)state;
	assert_int_equal(account(START("start", "10:00:00", "0") STEP("10:00:11", "10", "2.0") SAVED("10:00:12", "10")
				 STEP("10:00:22", "20", "1.0") START("resume", "10:00:52", "10") STEP("10:01:05", "20", "1.1")
				 STEP("10:01:15", "30", "0.9"), &a), GN_OK);
	assert_int_equal(a.starts, 2);
	assert_s(a.wall_s, 75);
	assert_s(a.training_s, 30);
	assert_s(a.lost_s, 10);
	assert_s(a.between_s, 30);
	assert_s(a.starting_s, 1 + 3);
	assert_s(a.checkpoint_s, 1);
	assert_s(a.other_s, 0);
	assert_int_equal(a.step, 30);
	assert_int_equal(a.usage_starts, 0);
	assert_string_equal(a.state, "running");
	/* 70 steps of a second, and a thirtieth of that for checkpoints */
	assert_s(gn_account_left_s(&a), 70 * 31.0 / 30);
}

/* A rank is lost in step 15, 3 s before the resume; or steps are done again, for the run goes back to a checkpoint. */
#define LOST(time, step, redone, unlogged)                                                                                                  \
	"{\"event\": \"resume\", \"time\": \"2026-11-24T" time "Z\", \"step\": " step ", \"total_steps\": 100, \"ranks\": 3, \"nodes\": 2, "  \
	"\"world\": 2, \"after\": \"rank 1\"}\n"                                                                                                \
	"{\"event\": \"recovered\", \"time\": \"2026-11-24T" time "Z\", \"step\": " step ", \"world\": 2, \"ranks\": 3, \"ranks_before\": 4, "  \
	"\"seconds\": 3.0, \"steps_redone\": " redone ", \"unlogged_steps\": 4, \"unlogged_seconds\": " unlogged ", \"after\": \"rank 1\"}\n"

static void after_losses(void **state)
{
	struct gn_account a;

	(void)state;
	assert_int_equal(account(START("start", "10:00:00", "0") STEP("10:00:10", "10", "2.0") LOST("10:00:17", "14", "0", "4.0")
				 STEP("10:00:23", "20", "1.0") END("end", "10:00:23"), &a), GN_OK);
	assert_int_equal(a.starts, 1);
	assert_int_equal(a.losses, 1);
	assert_int_equal(a.ranks, 3);
	assert_s(a.recovery_s, 3);
	assert_s(a.training_s, 20);
	assert_s(a.wall_s, 23);
	assert_s(a.lost_s + a.between_s + a.starting_s + a.other_s, 0);
	assert_s(gn_account_goodput(&a), 20.0 / 23);
	assert_int_equal(a.worlds[0].world, 2);
	assert_int_equal(a.worlds[0].before, 4);
	assert_string_equal(a.worlds[0].after, "rank 1");
	assert_int_equal(account(START("start", "10:00:00", "0") STEP("10:00:10", "10", "2.0") STEP("10:00:20", "20", "2.0")
				 LOST("10:00:27", "10", "14", "4.0") STEP("10:00:37", "20", "1.0"), &a), GN_OK);
	assert_s(a.training_s, 20);
	assert_s(a.lost_s, 14);
	assert_int_equal(a.worlds[0].redone, 14);
	/* one that joins is no loss, and its cost is told all the same */
	assert_int_equal(account(START("start", "10:00:00", "0") STEP("10:00:10", "10", "2.0")
				 "{\"event\": \"recovered\", \"time\": \"2026-11-24T10:00:12Z\", \"step\": 10, \"world\": 2, \"ranks\": 5, "
				 "\"ranks_before\": 4, \"seconds\": 2.0, \"after\": \"taken in\"}\n", &a), GN_OK);
	assert_int_equal(a.losses, 0);
	assert_int_equal(a.world_count, 1);
	assert_s(a.recovery_s, 2);
	/* what a lost rank has used stays counted: of 4 ranks and processors a quarter */
	assert_int_equal(account(START("start", "10:00:00", "0")
				 "{\"event\": \"step\", \"time\": \"2026-11-24T10:00:10Z\", \"step\": 10, \"usage\": {\"ranks\": 4, \"cpu_s\": 36, "
				 "\"age_s\": 10, \"processors\": 4}}\n" LOST("10:00:17", "10", "0", "1.0")
				 "{\"event\": \"step\", \"time\": \"2026-11-24T10:00:27Z\", \"step\": 20, \"usage\": {\"ranks\": 3, \"cpu_s\": 60, "
				 "\"age_s\": 27, \"processors\": 3}}\n", &a), GN_OK);
	assert_s(a.cpu_s, 60 + 9);
	assert_s(a.available_s, 3 * 27 + 10);
	/* more than are kept */
	assert_int_equal(account(START("start", "10:00:00", "0") LOST("10:00:01", "1", "0", "1") LOST("10:00:02", "2", "0", "1")
				 LOST("10:00:03", "3", "0", "1") LOST("10:00:04", "4", "0", "1") LOST("10:00:05", "5", "0", "1")
				 LOST("10:00:06", "6", "0", "1") LOST("10:00:07", "7", "0", "1") LOST("10:00:08", "8", "0", "1")
				 LOST("10:00:09", "9", "0", "1") LOST("10:00:10", "10", "0", "1") LOST("10:00:11", "11", "0", "1")
				 LOST("10:00:12", "12", "0", "1") LOST("10:00:13", "13", "0", "1") LOST("10:00:14", "14", "0", "1")
				 LOST("10:00:15", "15", "0", "1") LOST("10:00:16", "16", "0", "1") LOST("10:00:17", "17", "0", "1"), &a), GN_OK);
	assert_int_equal(a.losses, 17);
	assert_int_equal(a.world_count, GN_ACCOUNT_WORLDS);
	assert_int_equal(a.worlds[GN_ACCOUNT_WORLDS - 1].step, 17);
}

/* The last checkpoint is in the middle of an interval, whose first half counts. */
static void restarted_within(void **state)
{
	struct gn_account a;

	(void)state;
	assert_int_equal(account(START("start", "10:00:00", "0") STEP("10:00:10", "10", "2.0") SAVED("10:00:15", "14") STEP("10:00:21", "20", "1.0")
				 START("resume", "10:00:51", "14") STEP("10:00:57", "20", "1.1"), &a), GN_OK);
	assert_s(a.lost_s, 6);
	assert_s(a.training_s, 20);
	assert_s(a.data_s, 2);
	/* and once more, before the first half */
	assert_int_equal(account(START("start", "10:00:00", "0") STEP("10:00:10", "10", "2.0") STEP("10:00:20", "20", "1.0")
				 START("resume", "10:00:50", "14") START("resume", "10:01:00", "4") STEP("10:01:06", "10", "1.1"), &a), GN_OK);
	assert_s(a.lost_s, 16);
	assert_s(a.training_s, 10);
}

static void several_runs(void **state)
{
	struct gn_account a;

	(void)state;
	assert_int_equal(account(START("start", "09:00:00", "0") STEP("09:00:12", "10", "2.0") END("end", "09:00:13")
				 START("start", "10:00:00", "0") STEP("10:00:10", "10", "null"), &a), GN_OK);
	assert_int_equal(a.starts, 1);
	assert_s(a.wall_s, 10);
	assert_true(isnan(a.loss));
	/* a resume without its start: the file was begun anew */
	assert_int_equal(account(START("resume", "10:00:00", "10") STEP("10:00:10", "20", "1"), &a), GN_OK);
	assert_s(a.training_s, 10);
}

/* A log that is followed: each update has what a whole reading has, also in the middle of a line. */
static void growing(void **state)
{
	static const char text[] = START("start", "10:00:00", "0") STEP("10:00:12", "10", "2.0") STEP("10:00:22", "20", "1.0");
	struct gn_account_log *log;
	struct gn_account a, whole;
	struct gn_err err;
	FILE *file = fopen(path, "w");

	(void)state;
	assert_non_null(file);
	assert_ok(gn_account_open(path, &log, &err));
	assert_int_equal(gn_account_update(log, &a, &err), GN_ERR_DATA);
	for (size_t at = 0, part = 97; at < sizeof text - 1; at += part) {
		part = part < sizeof text - 1 - at ? part : sizeof text - 1 - at;
		assert_int_equal(fwrite(text + at, 1, part, file), part);
		fflush(file);
		if (at + part < strcspn(text, "\n") + 1)
			continue;
		assert_ok(gn_account_update(log, &a, &err));
		assert_ok(gn_account_read(path, &whole, &err));
		assert_int_equal(a.step, whole.step);
		assert_int_equal(a.bad_lines, whole.bad_lines);
		assert_s(a.training_s, whole.training_s);
		assert_s(a.wall_s, whole.wall_s);
	}
	assert_int_equal(a.step, 20);
	assert_int_equal(a.bad_lines, 0);
	gn_account_close(log);
	fclose(file);
}

static void bad(void **state)
{
	static const char *const none[] = {"", "\n", "garbage\n", "[1, 2]\n", "{\"event\": \"step\", \"time\": \"2026-11-24T10:00:00Z\"}\n",
		"{\"event\": 3}\n", "{\"event\": \"start\", \"time\": \"yesterday\"}\n", "{\"event\": \"start\", \"time\": 7}\n"};
	struct gn_account a;
	struct gn_strbuf advice;
	struct gn_err err;
	char fifo[64];

	(void)state;
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		assert_int_equal(account(none[i], &a), GN_ERR_DATA);
	assert_int_equal(account(START("start", "10:00:00", "0") "half a li", &a), GN_OK);
	assert_int_equal(a.bad_lines, 1);
	/* numbers that are none, that are too large, steps that go back without a resume */
	assert_int_equal(account(START("start", "10:00:00", "-5") STEP("10:00:05", "1e300", "\"x\"") STEP("10:00:06", "3", "1e999")
				 "{\"event\": \"step\", \"time\": \"2026-11-24T09:00:00Z\", \"step\": [], \"time_ms\": 3, \"ranks\": []}\n"
				 "{\"event\": \"end\", \"time\": \"2026-11-24T09:00:00Z\", \"usage\": {\"cpu_s\": null, \"processors\": -1}}\n", &a),
			 GN_OK);
	assert_true(a.wall_s >= 0 && isfinite(a.training_s) && isfinite(a.other_s));
	gn_strbuf_init(&advice);
	gn_account_advise(&a, &advice);
	gn_strbuf_release(&advice);
	assert_int_equal(gn_account_read("/tmp", &a, &err), GN_ERR_DATA);
	assert_int_equal(gn_account_read("/tmp/nowhere/log", &a, &err), GN_ERR_NOT_FOUND);
	snprintf(fifo, sizeof fifo, "%s.fifo", path);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(gn_account_read(fifo, &a, &err), GN_ERR_DATA);
	unlink(fifo);
}

static void advice(void **state)
{
	struct gn_account a = {.ranks = 4, .wall_s = 100, .training_s = 50, .data_s = 10, .communication_s = 15, .lost_s = 20, .checkpoint_s = 10,
			       .evaluation_s = 20, .usage_starts = 1, .processors = 8, .cpu_s = 10, .available_s = 100};
	struct gn_strbuf text;
	int lines = 0;

	(void)state;
	gn_strbuf_init(&text);
	gn_account_advise(&a, &text);
	for (const char *at = gn_strbuf_text(&text); *at; at++)
		lines += *at == '\n';
	assert_int_equal(lines, 11);
	for (const char *at = gn_strbuf_text(&text); *at; at += strcspn(at, "\n") + 1)
		assert_true(strcspn(at, "\n") <= 80);
	assert_non_null(strstr(gn_strbuf_text(&text), "data: steps waited 20 % of their time for images;"));
	assert_non_null(strstr(gn_strbuf_text(&text), "fewer ranks would need\n  at most 30 % less processor time"));
	/* of 30 %, what 3/4 of the gradient is more than 1/2 */
	gn_strbuf_clear(&text);
	a.nodes = 4;
	gn_account_advise(&a, &text);
	assert_non_null(strstr(gn_strbuf_text(&text), "on 2 nodes an epoch\n  would cost at least 10 % fewer node hours, and last 1.8 times as long\n"));
	/* one node alone has no gradients to wait for if it has one rank, and otherwise nobody knows */
	gn_strbuf_clear(&text);
	a.nodes = a.ranks = 2;
	gn_account_advise(&a, &text);
	assert_non_null(strstr(gn_strbuf_text(&text), "on 1 node an epoch\n  would cost at least 30 % fewer node hours, and last 1.4 times as long\n"));
	gn_strbuf_clear(&text);
	a.ranks = 4;
	gn_account_advise(&a, &text);
	assert_non_null(strstr(gn_strbuf_text(&text), "fewer ranks would need\n  at most 30 % less processor time"));
	gn_strbuf_clear(&text);
	a = (struct gn_account){.ranks = 4, .wall_s = 100, .training_s = 95, .usage_starts = 1, .processors = 8, .cpu_s = 90, .available_s = 100};
	gn_account_advise(&a, &text);
	assert_string_equal(gn_strbuf_text(&text), "");
	/* what is idle was asked for in vain, but for processors that ranks would have had and other programs had */
	a.cpu_s = 30;
	gn_account_advise(&a, &text);
	assert_non_null(strstr(gn_strbuf_text(&text), "2.4 of 8 were in use; ask for fewer"));
	gn_strbuf_clear(&text);
	a.waiting = 0.4;
	gn_account_advise(&a, &text);
	assert_non_null(strstr(gn_strbuf_text(&text), "ranks waited 40 % of their time for one"));
	assert_null(strstr(gn_strbuf_text(&text), "fewer"));
	gn_strbuf_release(&text);
}

/* The advice on checkpoints of a run with these options. */
static void assert_saving_advice(const char *options, const char *wanted)
{
	char text[2048], start[512];
	struct gn_account a;
	struct gn_strbuf advice;

	snprintf(start, sizeof start, "{\"event\": \"start\", \"time\": \"2026-11-24T10:00:00Z\", \"options\": \"%s\"}\n", options);
	snprintf(text, sizeof text, "%s%s", start, STEP("10:00:03", "3", "2.0") SAVED("10:00:04", "3") SAVED("10:00:05", "3"));
	assert_int_equal(account(text, &a), GN_OK);
	a.lost_s = a.wall_s / 2;
	gn_strbuf_init(&advice);
	gn_account_advise(&a, &advice);
	if (!strstr(gn_strbuf_text(&advice), wanted))
		fail_msg("no '%s' in '%s'", wanted, gn_strbuf_text(&advice));
	gn_strbuf_release(&advice);
}

static void advice_names_what_is_set(void **state)
{
	(void)state;
	assert_saving_advice("options= checkpoint-epochs=1 checkpoint-every=0 checkpoint-minutes=0 keep=3", "raise --checkpoint-epochs\n");
	assert_saving_advice("options= checkpoint-epochs=1 checkpoint-every=0 checkpoint-minutes=0 keep=3", ";\n  set --checkpoint-minutes\n");
	assert_saving_advice("options= checkpoint-epochs=1 checkpoint-every=20 checkpoint-minutes=0 keep=3", "raise --checkpoint-every\n");
	assert_saving_advice("options= checkpoint-epochs=1 checkpoint-every=20 checkpoint-minutes=0 keep=3", "lower --checkpoint-every\n");
	assert_saving_advice("options= checkpoint-epochs=1 checkpoint-every=0 checkpoint-minutes=0.5 keep=3", "raise --checkpoint-minutes\n");
	assert_saving_advice("options= checkpoint-epochs=1 checkpoint-every=9 checkpoint-minutes=5 keep=3", "raise --checkpoint-every and -minutes\n");
}

static int begin(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	return fd < 0 || close(fd);
}

static int end(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(one_start),
		cmocka_unit_test(dead), cmocka_unit_test(usage_of_a_killed_start), cmocka_unit_test(usage_of_one_rank),
					   cmocka_unit_test(restarted), cmocka_unit_test(restarted_within),
					   cmocka_unit_test(after_losses), cmocka_unit_test(several_runs), cmocka_unit_test(growing), cmocka_unit_test(bad), cmocka_unit_test(advice),
					   cmocka_unit_test(advice_names_what_is_set)};

	return cmocka_run_group_tests_name("account", tests, begin, end);
}
