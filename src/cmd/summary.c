#include "src/cmd/cmd.h"

#include "src/jobs/account.h"
#include "src/jobs/slurm_job.h"

#include <math.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

struct summary_options {
	int json;
};

static void print_duration(double s)
{
	unsigned long long whole = s > 0 ? (unsigned long long)(s + 0.5) : 0;

	if (s < 60)
		printf("%9.1f s", s);
	else
		printf("%3llu:%02llu:%02llu  ", whole / 3600, whole / 60 % 60, whole % 60);
}

static void print_part(const char *name, double s, double of_s, const char *note)
{
	printf("  %-26s ", name);
	print_duration(s);
	printf(" %6.1f %%%s\n", of_s > 0 ? 100 * s / of_s : 0, note);
}

/* The epochs of membership of a run with --elastic. 80 columns, but for the loss itself. */
static void print_worlds(const struct gn_account *a)
{
	for (int i = 0; i < a->world_count; i++) {
		const struct gn_account_world *w = &a->worlds[i];

		printf("world %llu from step %llu: %d rank%s after %d, in %.2f s; %llu finished step%s redone\n  %s\n", (unsigned long long)w->world,
		       (unsigned long long)w->step, w->ranks, gn_text_plural((uint64_t)w->ranks), w->before, w->seconds,
		       (unsigned long long)w->redone, gn_text_plural(w->redone), w->after);
	}
}

static void print_stages(const struct gn_account *a)
{
	for (int i = 0; i < a->stages; i++)
		printf("stage %d of %d: waited %.0f %% of its steps, by formula %.0f %%; sent %.4g MB a step\n", i, a->stages, 100 * a->bubble[i],
		       100 * a->bubble_formula, a->stage_bytes[i] * 1e-6);
}

/* Of numbers of any size, what can be read: 0.024, 1.35, 13.5, 135. */
static int decimals(double hours)
{
	return hours < 0.1 ? 3 : hours < 10 ? 2 : hours < 100;
}

/* 80 columns. */
static void print_text(const struct gn_account *a, const char *path)
{
	struct gn_strbuf advice = {0};
	double now = (double)time(NULL);
	char shown[256], state[64];

	snprintf(state, sizeof state, "%s", a->state);
	if (gn_account_is_dead(a, now))
		snprintf(state, sizeof state, "stopped: no line for %.0f minutes", (now - a->last_time) / 60);
	printf("%s\n%s, %d rank%s on %d node%s, %d start%s, step %llu of %llu, %s\n", gn_text_visible(path, shown, sizeof shown), a->model,
	       a->ranks, gn_text_plural((uint64_t)a->ranks), a->nodes, gn_text_plural((uint64_t)a->nodes), a->starts,
	       gn_text_plural((uint64_t)a->starts), (unsigned long long)a->step, (unsigned long long)a->total_steps, state);
	if (a->patience[0])
		printf("ended by --patience:\n  %s\n", a->patience);
	print_part("wall", a->wall_s, a->wall_s, "");
	print_part("training", a->training_s, a->wall_s, "   goodput");
	print_part("  waiting for data", a->data_s, a->wall_s, "");
	print_part("  waiting for gradients", a->communication_s, a->wall_s, "");
	print_part("steps lost to restarts", a->lost_s, a->wall_s, "");
	print_part("evaluation", a->evaluation_s, a->wall_s, "");
	print_part("checkpoints", a->checkpoint_s, a->wall_s, "");
	print_part("between starts", a->between_s, a->wall_s, "");
	print_part("from start to first step", a->starting_s, a->wall_s, "");
	if (a->world_count)
		print_part("between worlds", a->recovery_s, a->wall_s, "");
	print_part("other", a->other_s, a->wall_s, "");
	print_worlds(a);
	print_stages(a);
	if (a->usage_starts && a->is_usage_partial) {
		printf("core hours: not in the log, which has the usage of the first worker only\n");
		printf("peak memory %.3g GB, of the first worker\n", a->max_rss_bytes / 1e9);
	} else if (a->usage_starts) {
		printf("%.*f core hours of %d processor%s, %.*f used (%.0f %%)%s\n", decimals(a->available_s / 3600), a->available_s / 3600, a->processors,
		       gn_text_plural((uint64_t)a->processors), decimals(a->cpu_s / 3600), a->cpu_s / 3600,
		       a->available_s > 0 ? 100 * a->cpu_s / a->available_s : 0,
		       a->usage_starts < a->starts ? "; not of every start" : "");
		printf("peak memory %.3g GB, of rank %d\n", a->max_rss_bytes / 1e9, a->max_rss_rank);
	} else {
		printf("core hours and memory: not in the log\n");
	}
	gn_account_advise(a, &advice);
	fputs(gn_strbuf_text(&advice), stdout);
	gn_strbuf_release(&advice);
}

/* What was asked for, and what Slurm counted. 80 columns. */
static void print_job(const struct gn_slurm_job *j, const struct gn_account *a)
{
	double peak = j->node_rss_bytes, nodes = j->node_count > 0 ? j->node_count : 1;

	printf("job %s, %s, %d node%s, %d processor%s, queued again %d time%s\n", j->id, j->state, j->node_count,
	       gn_text_plural((uint64_t)j->node_count), j->cpus, gn_text_plural((uint64_t)j->cpus), j->restarts, gn_text_plural((uint64_t)j->restarts));
	if (j->accounted) {
		print_part("  waiting in the queue", j->waited_s, j->waited_s + j->elapsed_s, "   of waiting and running");
		printf("  %.*f core hours, %.*f used by all steps (%.0f %%), by sacct\n", decimals(j->core_s / 3600), j->core_s / 3600,
		       decimals(j->cpu_s / 3600), j->cpu_s / 3600,
		       j->core_s > 0 ? 100 * j->cpu_s / j->core_s : 0);
	}
	/* ranks are spread over the nodes evenly */
	if (a && a->usage_starts && a->max_rss_bytes * a->ranks / nodes > peak)
		peak = a->max_rss_bytes * a->ranks / nodes;
	if (!(j->memory_bytes > 0) || !(peak > 0))
		return;
	printf("  memory of a node: asked for %.3g GB, %.3g GB used at most (%.0f %%)\n", j->memory_bytes / 1e9, peak / 1e9,
	       100 * peak / j->memory_bytes);
	if (peak < 0.25 * j->memory_bytes)
		printf("memory: ask for less, --mem=%.0fM would be twice the peak\n", ceil(2 * peak / 1048576));
}

/* Of a log, or of a job (job not NULL) with its log where it has one. */
static enum gn_status print(const char *log, const struct gn_slurm_job *job, int as_json, struct gn_err *err)
{
	struct gn_account a;
	struct gn_json j;
	enum gn_status status = log ? gn_account_read(log, &a, err) : GN_OK;

	if (status)
		return status;
	if (!as_json) {
		if (log)
			print_text(&a, log);
		if (job)
			print_job(job, log ? &a : NULL);
		return GN_OK;
	}
	gn_json_begin(&j);
	if (log)
		gn_account_write_summary(&a, log, &j);
	if (job)
		gn_slurm_job_write(job, "slurm", &j);
	gn_cmd_print_json(&j);
	return GN_OK;
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct summary_options *o = options;
	struct gn_slurm_job job;
	char log[4096];
	struct gn_err err;
	enum gn_status status = GN_OK;

	for (size_t i = 0; i < positional->count && !status; i++) {
		const char *name = positional->items[i];

		if (!access(name, F_OK) || !gn_slurm_is_job(name)) {
			status = print(name, NULL, o->json, &err);
			continue;
		}
		status = gn_slurm_job_find(name, 1, &job, &err);
		if (!status)
			status = print(gn_slurm_job_log(&job, log, sizeof log, NULL) || access(log, F_OK) ? NULL : log, &job, o->json, &err);
	}
	return status ? gn_cmd_fail("summary", &err) : GN_EXIT_DONE;
}

static const struct gn_option options_table[] = {
	GN_OPT_FLAG("json", offsetof(struct summary_options, json), "print one JSON object for each"),
};

static const struct gn_command command = {
	.name = "summary",
	.summary = "print what a run cost and where its time went",
	.positional = "JOB|LOG...",
	.description =
		"Reads logs of gannet train (--log) and prints of each the last run: wall time, the share of useful steps (goodput), what "
		"was lost to restarts, evaluation, checkpoints, waiting for data and for gradients; core hours by the processor time of all "
		"ranks; peak memory; and what could be done about it. Steps count as lost when a later start went back behind them.\n\n"
		"JOB is a job's number: the log is the one that its script (gannet submit) names, and sacct, where the site has it, adds how long "
		"the job waited, and core hours and memory of all its steps against what was asked for. Of a job of another program that is all.\n\n"
		"Core hours and memory come from the log's last line that has them. Of a start that was killed, the time after that line "
		"is missing.",
	.examples = "  gannet summary run1.jsonl\n"
		    "  gannet summary --json run1.jsonl run2.jsonl\n"
		    "  gannet summary 4711\n",
	GN_OPTIONS(options_table),
	.positional_min = 1,
	.positional_max = SIZE_MAX,
};

const struct gn_cmd gn_cmd_summary = {.command = &command, .run = run, .options_size = sizeof(struct summary_options)};
