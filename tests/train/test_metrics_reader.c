#include "tests/test.h"

#include "src/base/file.h"
#include "src/train/metrics/chart.h"
#include "src/train/metrics/report_internal.h"
#include "src/train/metrics/report_page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

/* The log's only run. */
static void read_one(struct gn_curve **curves)
{
	struct gn_err err;
	size_t count;

	assert_ok(gn_curves_read(path, curves, &count, &err));
	assert_int_equal(count, 1);
}

static void write_log(const char *text)
{
	assert_int_equal(gn_file_replace(path, text, strlen(text), NULL), GN_OK);
}

/* Killed at step 3 in the middle of a line, resumed from step 2: the curve is 1, 2, then the new 3. */
static void test_resume_drops_what_was_lost(void **state)
{
	struct gn_curve *curve;

	(void)state;
	write_log("{\"event\": \"start\", \"model\": \"lenet\", \"ranks\": 4, \"global_batch\": 64}\n"
		  "{\"event\": \"step\", \"step\": 1, \"epoch\": 0.1, \"loss\": 2.0, \"time_ms\": {\"data\": 3}}\n"
		  "{\"event\": \"step\", \"step\": 2, \"epoch\": 0.2, \"loss\": 1.5}\n"
		  "{\"event\": \"step\", \"step\": 3, \"epoch\": 0.3, \"loss\": 1.1}\n"
		  "{\"event\": \"step\", \"st\n"
		  "{\"event\": \"resume\", \"step\": 2}\n"
		  "{\"event\": \"step\", \"step\": 3, \"epoch\": 0.3, \"loss\": 1.2}\n"
		  "{\"event\": \"eval\", \"step\": 3, \"epoch\": 0.3, \"top1\": 0.5, \"top5\": 0.9, \"loss\": 1}\n");
	read_one(&curve);
	assert_int_equal(curve->step_count, 3);
	assert_true(curve->steps[2].loss == 1.2);
	assert_true(curve->steps[0].ms[GN_PART_DATA] == 3);
	assert_int_equal(curve->eval_count, 1);
	assert_int_equal(curve->resumes, 1);
	assert_int_equal(curve->bad_lines, 1);
	assert_string_equal(curve->label, "lenet, 4 ranks, global batch 64");
	gn_curves_free(curve, 1);
}

/* A rank is lost, and then one joins. */
static void test_worlds(void **state)
{
	struct gn_curve *curve;
	struct gn_strbuf text;

	(void)state;
	write_log("{\"event\": \"start\", \"time\": \"2026-11-24T10:00:00Z\", \"ranks\": 4}\n"
		  "{\"event\": \"step\", \"time\": \"2026-11-24T10:00:10Z\", \"step\": 10, \"time_ms\": {\"step\": 1000}}\n"
		  "{\"event\": \"resume\", \"step\": 14, \"world\": 2, \"ranks\": 3}\n"
		  "{\"event\": \"recovered\", \"step\": 14, \"world\": 2, \"ranks\": 3, \"ranks_before\": 4, \"seconds\": 2, \"unlogged_seconds\": 4}\n"
		  "{\"event\": \"resume\", \"step\": 14, \"world\": 3, \"ranks\": 4}\n"
		  "{\"event\": \"recovered\", \"step\": 14, \"world\": 3, \"ranks\": 4, \"ranks_before\": 3, \"seconds\": 1}\n"
		  "{\"event\": \"step\", \"time\": \"2026-11-24T10:00:25Z\", \"step\": 20, \"time_ms\": {\"step\": 1000}}\n");
	read_one(&curve);
	assert_int_equal(curve->world_count, 2);
	assert_int_equal(curve->losses, 1);
	gn_strbuf_init(&text);
	gn_report_losses(curve, &text);
	assert_non_null(strstr(gn_strbuf_text(&text), "Losses of ranks: 1, 3.00 s between worlds. Goodput: 80.0 %"));
	gn_strbuf_release(&text);
	gn_curves_free(curve, 1);
}

/* Three starts, of which the second came to no step; the third run was resumed once. No run has anything of another. */
static void test_starts_begin_runs(void **state)
{
	struct gn_curve *runs;
	struct gn_strbuf page;
	struct gn_err err;
	size_t count;

	(void)state;
	write_log("{\"event\": \"start\", \"model\": \"lenet\", \"ranks\": 1, \"options\": \"lr=0.1\"}\n"
		  "{\"event\": \"step\", \"step\": 1, \"epoch\": 0.1, \"loss\": 2.0}\n"
		  "{\"event\": \"step\", \"step\": 2, \"epoch\": 0.2, \"loss\": 1.5}\n"
		  "{\"event\": \"eval\", \"step\": 2, \"epoch\": 0.2, \"top1\": 0.9, \"top5\": 0.9, \"loss\": 1}\n"
		  "{\"event\": \"start\", \"model\": \"vgg16\", \"options\": \"lr=9\"}\n"
		  "{\"event\": \"start\", \"model\": \"resnet18\", \"options\": \"lr=0.2\"}\n"
		  "{\"event\": \"step\", \"step\": 1, \"epoch\": 0.1, \"loss\": 3.0}\n"
		  "{\"event\": \"resume\", \"step\": 0, \"model\": \"resnet18\", \"options\": \"lr=0.2\"}\n"
		  "{\"event\": \"step\", \"step\": 1, \"epoch\": 0.1, \"loss\": 2.9}\n"
		  "{\"event\": \"eval\", \"step\": 1, \"epoch\": 0.1, \"top1\": 0.5, \"top5\": 0.9, \"loss\": 1}\n");
	assert_ok(gn_curves_read(path, &runs, &count, &err));
	assert_int_equal(count, 2);
	assert_int_equal(runs[0].step_count, 2);
	assert_string_equal(runs[0].label, "lenet, 1 rank, global batch 0");
	assert_string_equal(runs[0].options, "lr=0.1");
	assert_true(runs[0].evals[0].top1 == 0.9);
	assert_int_equal(runs[1].step_count, 1);
	assert_true(runs[1].steps[0].loss == 2.9);
	assert_int_equal(runs[1].eval_count, 1);
	assert_true(runs[1].evals[0].top1 == 0.5);
	assert_int_equal(runs[1].resumes, 1);
	assert_string_equal(runs[1].options, "lr=0.2");
	gn_strbuf_init(&page);
	gn_report_page(runs, count, "", NULL, &page);
	assert_non_null(strstr(gn_strbuf_text(&page), " (run 1 of 2)"));
	assert_non_null(strstr(gn_strbuf_text(&page), " (run 2 of 2)"));
	assert_null(strstr(gn_strbuf_text(&page), "vgg16"));
	gn_strbuf_release(&page);
	gn_curves_free(runs, count);
}

/* Names of many runs stay beside each other: ends of those that are too long, of whole letters. */
static void test_svg_names(void **state)
{
	struct gn_curve_step step = {.epoch = 1, .loss = 1};
	struct gn_curve runs[6] = {{.run = 0}};
	struct gn_strbuf svg;

	(void)state;
	for (int i = 0; i < 6; i++)
		runs[i] = (struct gn_curve){.label = "lenet on \xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9 three rank", .steps = &step, .step_count = 1};
	gn_strbuf_init(&svg);
	gn_curve_svg(runs, 1, &svg);
	assert_non_null(strstr(gn_strbuf_text(&svg), ">lenet on "));
	gn_strbuf_clear(&svg);
	gn_curve_svg(runs, 6, &svg);
	assert_non_null(strstr(gn_strbuf_text(&svg), "<text x='597' y='18'"));
	assert_null(strstr(gn_strbuf_text(&svg), ">lenet on "));
	assert_non_null(strstr(gn_strbuf_text(&svg), " three rank<"));
	gn_strbuf_release(&svg);
}

static void test_svg_is_drawn(void **state)
{
	struct gn_curve *curve;
	struct gn_strbuf svg;

	(void)state;
	write_log("{\"event\": \"step\", \"step\": 1, \"epoch\": 0.5, \"loss\": 2.0}\n"
		  "{\"event\": \"step\", \"step\": 2, \"epoch\": 1, \"loss\": 1.0}\n");
	read_one(&curve);
	gn_strbuf_init(&svg);
	gn_curve_svg(curve, 1, &svg);
	assert_false(gn_strbuf_failed(&svg));
	/* Axes from 0 to 1 epochs over 62..704 and 0 to 2 of loss over 220..30 pixels. */
	assert_non_null(strstr(gn_strbuf_text(&svg), "points='383.0,30.0 704.0,125.0"));
	gn_strbuf_release(&svg);
	gn_curves_free(curve, 1);
}

/* What newer logs say of ranks, and what is not there, is NaN. */
static void test_ranks(void **state)
{
	struct gn_curve *curve;

	(void)state;
	write_log("{\"event\": \"start\", \"model\": \"lenet\", \"ranks\": 2, \"options\": \"lr=0.1 x=a b y=\"}\n"
		  "{\"event\": \"step\", \"step\": 1, \"epoch\": 0.1, \"loss\": 2, \"skipped\": 1, \"ranks\": {\"compute\": "
		  "[1, 2, 3], \"slowest\": 1, \"slowest_host\": \"n2\", \"each_compute\": [1, 3]}, \"efficiency\": "
		  "{\"measured\": 0.5}}\n"
		  "{\"event\": \"exchange\", \"buckets\": 3, \"overlap\": true, \"tried\": [{\"buckets\": 1, \"overlap\": "
		  "false, \"step_ms\": 5}, {\"buckets\": 3, \"overlap\": true, \"step_ms\": 4}]}\n"
		  "{\"event\": \"step\", \"step\": 2, \"epoch\": 0.2, \"loss\": 1.5}\n"
		  "{\"event\": \"eval\", \"step\": 2, \"epoch\": 0.2, \"top1\": 0.5, \"ema\": {\"top1\": 0.75}}\n");
	read_one(&curve);
	assert_true(curve->steps[0].compute_high_ms == 3 && curve->steps[0].efficiency == 0.5);
	assert_true(isnan(curve->steps[0].predicted) && isnan(curve->steps[1].compute_mean_ms));
	assert_int_equal(curve->steps[0].slowest, 1);
	assert_int_equal(curve->steps[1].slowest, -1);
	assert_int_equal(curve->steps[0].each_count, 2);
	assert_true(curve->each[curve->steps[0].each + 1] == 3);
	assert_string_equal(curve->hosts[1], "n2");
	assert_int_equal(curve->way_count, 2);
	assert_int_equal(curve->chosen, 1);
	assert_true(curve->skipped == 1 && curve->evals[0].average_top1 == 0.75);
	assert_string_equal(curve->options, "lr=0.1 x=a b y=");
	gn_curves_free(curve, 1);
}

/* A run that diverged: its steps without an update are there, without a loss, and the axis is that of the other run. */
static void test_diverged(void **state)
{
	struct gn_axis y = {0, 0, 100, 0, 0};
	struct gn_curve *runs;
	struct gn_strbuf page;
	struct gn_err err;
	size_t count;

	(void)state;
	write_log("{\"event\": \"start\"}\n"
		  "{\"event\": \"step\", \"step\": 1, \"epoch\": 0.1, \"loss\": 2.0, \"grad_norm\": 1.5}\n"
		  "{\"event\": \"step\", \"step\": 2, \"epoch\": 0.2, \"loss\": 1.5, \"grad_norm\": 1}\n"
		  "{\"event\": \"start\"}\n"
		  "{\"event\": \"step\", \"step\": 1, \"epoch\": 0.1, \"loss\": 2.0, \"grad_norm\": 1.5}\n"
		  "{\"event\": \"step\", \"step\": 2, \"epoch\": 0.2, \"loss\": 4e13, \"grad_norm\": 1e18}\n"
		  "{\"event\": \"step\", \"step\": 3, \"epoch\": 0.3, \"loss\": null, \"grad_norm\": null, \"skipped\": 7}\n"
		  "{\"event\": \"failed\", \"step\": 3, \"reason\": \"not <finite>\"}\n");
	assert_ok(gn_curves_read(path, &runs, &count, &err));
	assert_int_equal(count, 2);
	assert_int_equal(runs[1].step_count, 3);
	assert_true(isnan(runs[1].steps[2].loss) && runs[1].steps[2].skipped == 7 && runs[1].skipped == 7);
	assert_string_equal(runs[1].ended, "failed");
	assert_int_equal(gn_curve_axis(runs, count, offsetof(struct gn_curve_step, loss), 0, &y), 1);
	assert_true(y.low == 0 && y.high == 2 && !y.logarithmic);
	assert_int_equal(gn_curve_axis(runs, count, offsetof(struct gn_curve_step, grad_norm), 1, &y), 1);
	assert_true(y.high <= 10);
	gn_strbuf_init(&page);
	gn_report_page(runs, count, "", NULL, &page);
	assert_non_null(strstr(gn_strbuf_text(&page), "Failed: not &lt;finite&gt;</p>"));
	assert_non_null(strstr(gn_strbuf_text(&page), "1 point beyond the axis"));
	/* 0 to 0.3 epochs over 62..704: the line ends where it leaves the axis, and is marked. */
	assert_non_null(strstr(gn_strbuf_text(&page), "points='276.0,30.0 276.0,30 '/>\n<path d='M276.0 23l4 7h-8z'"));
	assert_non_null(strstr(gn_strbuf_text(&page), "Steps without an update"));
	gn_strbuf_release(&page);
	gn_curves_free(runs, count);
}

/* Whatever stands in a log, axes have an end. */
static void test_strange_numbers(void **state)
{
	static const char *const values[] = {"0", "-1", "1e308", "-1e308", "5e-324", "1e17", "null", "\"x\"", "[]"};

	(void)state;
	for (size_t i = 0; i < sizeof values / sizeof *values; i++)
		for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
			struct gn_curve *curve;
			struct gn_strbuf out;
					char text[1024];

			snprintf(text, sizeof text, "{\"event\": \"step\", \"epoch\": 0, \"loss\": 1, \"ranks\": {\"slowest\": 3}}\n"
				 "{\"event\": \"step\", \"step\": %s, \"epoch\": %s, \"loss\": 2, \"lr\": %s, \"grad_norm\": %s, "
				 "\"images_per_s\": %s, \"time_ms\": {\"data\": %s}, \"ranks\": {\"compute\": [%s, %s, %s], \"slowest\": "
				 "%s, \"slowest_host\": %s, \"each_compute\": [%s, %s]}, \"efficiency\": {\"measured\": %s}}\n"
				 "{\"event\": \"eval\", \"top1\": %s, \"loss\": %s}\n",
				 values[i], values[k], values[i], values[k], values[i], values[k], values[i], values[k], values[i],
				 values[k], values[i], values[k], values[i], values[k], values[i], values[k]);
			write_log(text);
			read_one(&curve);
			gn_strbuf_init(&out);
			gn_report_page(curve, 1, "", NULL, &out);
			gn_curve_svg(curve, 1, &out);
			assert_false(gn_strbuf_failed(&out));
			assert_true(out.len < 1 << 20);
			assert_null(strstr(gn_strbuf_text(&out), "nan,"));
			assert_null(strstr(gn_strbuf_text(&out), ",nan"));
			assert_null(strstr(gn_strbuf_text(&out), "'nan'"));
			gn_strbuf_release(&out);
			gn_curves_free(curve, 1);
		}
}

static void test_not_a_log(void **state)
{
	struct gn_curve *curve;
	struct gn_err err;
	size_t count;

	(void)state;
	write_log("hello\n");
	assert_int_equal(gn_curves_read(path, &curve, &count, &err), GN_ERR_DATA);
	assert_int_equal(gn_curves_read("/nonexistent", &curve, &count, &err), GN_ERR_NOT_FOUND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resume_drops_what_was_lost),
		cmocka_unit_test(test_worlds),
		cmocka_unit_test(test_starts_begin_runs),
		cmocka_unit_test(test_svg_names),
		cmocka_unit_test(test_svg_is_drawn),
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_diverged),
		cmocka_unit_test(test_strange_numbers),
		cmocka_unit_test(test_not_a_log),
	};
	int failed;

	snprintf(path, sizeof path, "/tmp/gannet-curve.%ld", (long)getpid());
	failed = cmocka_run_group_tests_name("train/curve", tests, NULL, NULL);
	unlink(path);
	return failed;
}
