/* Trials of a sweep: combinations, draws, the script and the ledger; how trials are doing, and which is the best. */
#include "tests/test.h"

#include "src/base/file.h"
#include "src/jobs/sweep_status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void grid(void **state)
{
	const char *axes[] = {"lr=.1,.2", "batch=16,32,64"};
	struct gn_sweep s;
	struct gn_err err;

	(void)state;
	assert_ok(gn_sweep_plan(axes, 2, NULL, 0, 1, &s, &err));
	assert_int_equal(s.count, 6);
	assert_string_equal(s.trials[0].values[0], ".1");
	assert_string_equal(s.trials[0].values[1], "16");
	assert_string_equal(s.trials[1].values[1], "32");
	assert_string_equal(s.trials[3].values[0], ".2");
	assert_string_equal(s.trials[5].values[1], "64");
	gn_sweep_release(&s);
}

static void draws(void **state)
{
	const char *axes[] = {"lr=.1,.2"}, *random[] = {"wd=log(1e-5,1e-3):500", "side=int(4,6):500", "mix=uniform(-1,1):500"};
	struct gn_sweep s, same, other;
	struct gn_err err;
	int below = 0, seen[3] = {0}, differ = 0;

	(void)state;
	assert_ok(gn_sweep_plan(axes, 1, random, 3, 7, &s, &err));
	assert_ok(gn_sweep_plan(axes, 1, random, 3, 7, &same, &err));
	assert_ok(gn_sweep_plan(axes, 1, random, 3, 8, &other, &err));
	assert_int_equal(s.count, 1000);
	for (size_t t = 0; t < s.count; t++) {
		double wd = strtod(s.trials[t].values[1], NULL), side = strtod(s.trials[t].values[2], NULL),
		       mix = strtod(s.trials[t].values[3], NULL);

		assert_true(wd >= 1e-5 && wd <= 1e-3 && side >= 4 && side <= 6 && mix >= -1 && mix <= 1);
		below += wd < 1e-4;
		seen[(int)side - 4]++;
		assert_string_equal(s.trials[t].values[1], same.trials[t].values[1]);
		differ += strcmp(s.trials[t].values[1], other.trials[t].values[1]) != 0;
	}
	/* half of a logarithmic distribution lies below its geometric middle: 1,000 draws, six standard deviations */
	assert_in_range(below, 405, 595);
	for (int i = 0; i < 3; i++)
		assert_in_range(seen[i], 243, 423);
	assert_true(differ > 990);
	gn_sweep_release(&s);
	gn_sweep_release(&same);
	gn_sweep_release(&other);
}

static void refused(void **state)
{
	static const char *const grids[] = {"", "lr", "lr=", "=1", "--lr=1", "l r=1", "LR=1", "lr=1\n"};
	static const char *const randoms[] = {"a=log(0,1):3", "a=log(2,1):3", "a=uniform(1,2)", "a=uniform(1,2):0", "a=normal(0,1):3",
		"a=log(1,nan):3", "a=int(1,inf):3", "a=log(1,2):3x", "a=1,2", "a=uniform(1,2):100000"};
	const char *twice[] = {"lr=1", "lr=2"}, *counts[] = {"a=log(1,2):3", "b=log(1,2):4"};
	struct gn_sweep s;
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i + 1 < sizeof grids / sizeof *grids; i++)
		assert_int_equal(gn_sweep_plan(&grids[i], 1, NULL, 0, 1, &s, &err), GN_ERR_USAGE);
	for (size_t i = 0; i < sizeof randoms / sizeof *randoms; i++)
		assert_int_equal(gn_sweep_plan(NULL, 0, &randoms[i], 1, 1, &s, &err), GN_ERR_USAGE);
	assert_int_equal(gn_sweep_plan(twice, 2, NULL, 0, 1, &s, &err), GN_ERR_USAGE);
	assert_int_equal(gn_sweep_plan(NULL, 0, counts, 2, 1, &s, &err), GN_ERR_USAGE);
	assert_int_equal(gn_sweep_plan(NULL, 0, NULL, 0, 1, &s, &err), GN_ERR_USAGE);
}

static void put(const char *directory, const char *name, const char *text)
{
	char path[256];
	struct gn_err err;

	assert_ok(gn_path_join(path, sizeof path, directory, name, &err));
	assert_ok(gn_file_replace(path, text, strlen(text), &err));
}

#define LOG(loss, top1, end) \
	"{\"event\": \"start\", \"time\": \"2026-11-24T10:00:00Z\", \"step\": 0, \"total_steps\": 10}\n" \
	"{\"event\": \"step\", \"time\": \"2026-11-24T10:00:09Z\", \"step\": 10, \"loss\": " loss ", \"time_ms\": {\"step\": 1}}\n" \
	"{\"event\": \"eval\", \"time\": \"2026-11-24T10:00:09Z\", \"top1\": " top1 "}\n" end
#define END "{\"event\": \"end\", \"time\": \"2026-11-24T10:00:10Z\"}\n"

static void status(void **state)
{
	char directory[] = "/tmp/gn-sweep-XXXXXX";
	const char *axes[] = {"lr=.1,.2,it's,.4"};
	struct gn_sweep_state *s;
	struct gn_strbuf text;
	struct gn_sweep sweep;
	struct gn_err err;
	size_t count;

	(void)state;
	assert_non_null(mkdtemp(directory));
	assert_ok(gn_sweep_plan(axes, 1, NULL, 0, 1, &sweep, &err));
	gn_strbuf_init(&text);
	gn_sweep_script(&sweep, &text);
	assert_non_null(strstr(gn_strbuf_text(&text), "3) gannet_step+=(--lr='it'\\''s') ;;\n"));
	gn_strbuf_clear(&text);
	gn_sweep_ledger(&sweep, directory, &text);
	put(directory, "ledger.jsonl", gn_strbuf_text(&text));
	gn_sweep_release(&sweep);
	put(directory, "trial-1.jsonl", LOG("1.0", "0.7", END));
	put(directory, "trial-2.jsonl", LOG("0.5", "0.9", ""));
	put(directory, "trial-3.jsonl", LOG("0.9", "0.8", END));
	assert_ok(gn_sweep_read(directory, 0, &s, &count, &err));
	assert_int_equal(count, 4);
	assert_string_equal(s[0].state, "end");
	assert_string_equal(s[1].state, "running");
	assert_string_equal(s[3].state, "pending");
	assert_string_equal(s[2].parameters, "lr=it's");
	assert_string_equal(s[2].checkpoint + strlen(directory), "/trial-3");
	assert_true(isnan(s[3].loss));
	/* the one that runs does not count */
	assert_int_equal(gn_sweep_best(s, count), 2);
	/* of equals the lower loss, then the lower number */
	s[0].top1 = s[2].top1;
	assert_int_equal(gn_sweep_best(s, count), 2);
	s[2].loss = s[0].loss;
	assert_int_equal(gn_sweep_best(s, count), 0);
	assert_true(gn_sweep_compare(&s[0], &s[2]) < 0 && gn_sweep_compare(&s[2], &s[0]) > 0 && !gn_sweep_compare(&s[2], &s[2]));
	s[2].loss = 0.9;
	s[0].top1 = s[2].top1 = NAN;
	assert_int_equal(gn_sweep_best(s, count), 2);
	s[2].loss = NAN;
	assert_int_equal(gn_sweep_best(s, count), 0);
	assert_int_equal(gn_sweep_best(s + 3, 1), 1);
	free(s);
	put(directory, "ledger.jsonl", "{\"trial\": 1, \"parameters\": {}, \"log\": \"x\"}\ngarbage\n");
	assert_int_equal(gn_sweep_read(directory, 0, &s, &count, &err), GN_ERR_DATA);
	put(directory, "ledger.jsonl", "");
	assert_int_equal(gn_sweep_read(directory, 0, &s, &count, &err), GN_ERR_DATA);
	put(directory, "ledger.jsonl", "{\"trial\": 1, \"parameters\": {\"a\": 3}, \"log\": \"/nowhere/x\"}");
	assert_int_equal(gn_sweep_read(directory, 0, &s, &count, &err), GN_ERR_DATA);
	gn_strbuf_release(&text);
	assert_ok(gn_remove_tree(directory, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(grid), cmocka_unit_test(draws), cmocka_unit_test(refused), cmocka_unit_test(status)};

	return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}
