#include "src/cmd/cmd.h"

#include "src/jobs/account.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct top_options {
	int json;
};

static void print_sparkline(const char *name, const double *values, int count)
{
	static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	double low = INFINITY, high = -INFINITY;

	for (int i = 0; i < count; i++) {
		low = values[i] < low ? values[i] : low;
		high = values[i] > high ? values[i] : high;
	}
	if (!isfinite(low) || !isfinite(high))
		return;
	printf("%-9s ", name);
	for (int i = 0; i < count; i++)
		fputs(isfinite(values[i]) ? bars[(int)(high > low ? (values[i] - low) / (high - low) * 7.999 : 3)] : " ", stdout);
	printf(" %.4g to %.4g\n", low, high);
}

static void print_left(const struct gn_account *a)
{
	double left = gn_account_left_s(a);
	unsigned long long s = isfinite(left) && left > 0 && left < 1e12 ? (unsigned long long)left : 0;

	if (!strcmp(a->state, "running") && isfinite(left))
		printf(", %llu:%02llu:%02llu to the end", s / 3600, s / 60 % 60, s % 60);
}

/* 80 columns, and a third of 24 lines. */
static void print_text(const struct gn_account *a, double now)
{
	static const char *const parts[] = {"data", "forward", "backward", "gradients", "optimizer"};
	double silent = now - a->last_time;

	printf("%s  %d rank%s on %d node%s%s%s  %s", a->model, a->ranks, gn_text_plural((uint64_t)a->ranks), a->nodes,
	       gn_text_plural((uint64_t)a->nodes), *a->job ? "  job " : "", a->job, a->state);
	if (!strcmp(a->state, "running"))
		printf(", last line %.0f s ago%s", silent,
		       silent > 60 && silent > 10 * a->interval_s ? ": silent" : "");
	printf("\nstep %llu of %llu (%.0f %%)  epoch %.2f", (unsigned long long)a->step, (unsigned long long)a->total_steps,
	       a->total_steps ? 100.0 * (double)a->step / (double)a->total_steps : 0, isfinite(a->epoch) ? a->epoch : 0);
	print_left(a);
	printf("\nloss %.4f  %.1f images/s  starts %d  checkpoints %llu", a->loss, a->images_per_s, a->starts,
	       (unsigned long long)a->checkpoints);
	if (isfinite(a->top1))
		printf("  top-1 %.2f %%", 100 * a->top1);
	printf("\n");
	print_sparkline("loss", a->recent_loss, a->recent);
	print_sparkline("images/s", a->recent_rate, a->recent);
	if (a->step_ms > 0) {
		printf("step %.4g ms, in %%:", a->step_ms);
		for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
			printf("%s %s %.0f", i ? "," : "", parts[i], 100 * a->part_ms[i] / a->step_ms);
		printf("\n");
	}
	if (a->slowest >= 0 && isfinite(a->compute_low_ms))
		printf("ranks compute %.4g to %.4g ms a step; slowest: rank %d on %.40s\n", a->compute_low_ms, a->compute_high_ms, a->slowest,
		       a->slowest_host);
	if (*a->reason)
		printf("%.78s\n", a->reason);
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct top_options *o = options;
	struct gn_account a;
	struct gn_err err;
	struct gn_json j;
	double now = (double)time(NULL);

	if (gn_account_read(positional->items[0], &a, &err))
		return gn_cmd_fail("top", &err);
	if (!o->json) {
		print_text(&a, now);
		return GN_EXIT_DONE;
	}
	gn_json_init(&j);
	gn_account_write_state(&a, positional->items[0], now, &j);
	puts(gn_json_text(&j));
	gn_json_release(&j);
	return GN_EXIT_DONE;
}

static const struct gn_option options_table[] = {
	{.name = "json", .kind = GN_OPTION_FLAG, .offset = offsetof(struct top_options, json), .help = "print one JSON object"},
};

static const struct gn_command command = {
	.name = "top",
	.summary = "print how a run is doing now",
	.positional = "LOG",
	.description =
		"Reads the log of a run (--log of gannet train, on a file system that both see) and prints its state once: step, loss and rate "
		"with the course of the last lines, time to the end, what a step is spent on, the slowest rank, restarts. Nothing runs on the "
		"nodes for it. With watch(1) it is a live view.\n\n"
		"A running job whose last line is older than a minute and ten intervals between lines is called silent.",
	.examples = "  gannet top run1.jsonl\n"
		    "  watch -n 5 gannet top run1.jsonl     # a live view\n",
	.options = options_table,
	.option_count = sizeof options_table / sizeof *options_table,
	.positional_min = 1,
	.positional_max = 1,
};

const struct gn_cmd gn_cmd_top = {&command, run, sizeof(struct top_options)};
