/* What an account says, as JSON, and what could be done about it. */
#include "src/jobs/account.h"

#include "src/base/text.h"

#include <math.h>
#include <string.h>

static void write_worlds(const struct gn_account *a, struct gn_json *j)
{
	gn_json_put(j, "losses %d worlds [", a->losses);
	for (int i = 0; i < a->world_count; i++) {
		const struct gn_account_world *w = &a->worlds[i];

		gn_json_put(j, "{ world %lu step %lu ranks %d ranks_before %d seconds %.3f steps_redone %lu after %s }", w->world, w->step,
			    w->ranks, w->before, w->seconds, w->redone, w->after);
	}
	gn_json_end(j);
}

static void write_pipeline(const struct gn_account *a, struct gn_json *j)
{
	if (!a->stages)
		return;
	gn_json_put(j, "pipeline { bubble_formula %.4f stages [", a->bubble_formula);
	for (int i = 0; i < a->stages; i++)
		gn_json_put(j, "{ bubble %.4f sent_bytes %.0f }", a->bubble[i], a->stage_bytes[i]);
	gn_json_put(j, "] }");
}

static void write_run(const struct gn_account *a, const char *path, struct gn_json *j)
{
	gn_json_put(j, "log %s model %s job %s hosts %s ranks %d nodes %d state %s", path, a->model, a->job, a->hosts, a->ranks, a->nodes,
		    a->state);
	if (a->reason[0])
		gn_json_string(j, "reason", a->reason);
	if (a->patience[0])
		gn_json_string(j, "patience", a->patience);
	gn_json_put(j, "starts %d step %lu total_steps %lu epoch %.4f loss %g images_per_s %.1f top1 %g checkpoints %lu evaluations %lu "
		    "goodput %g", a->starts, a->step, a->total_steps, a->epoch, a->loss, a->images_per_s, a->top1, a->checkpoints,
		    a->evaluations, gn_account_goodput(a));
	write_worlds(a, j);
	write_pipeline(a, j);
}

void gn_account_write_summary(const struct gn_account *a, const char *path, struct gn_json *j)
{
	write_run(a, path, j);
	gn_json_put(j, "wall_s %.3f training_s %.3f data_s %.3f communication_s %.3f lost_s %.3f evaluation_s %.3f checkpoint_s %.3f "
		    "between_starts_s %.3f starting_s %.3f recovery_s %.3f other_s %.3f usage_starts %d", a->wall_s, a->training_s,
		    a->data_s, a->communication_s, a->lost_s, a->evaluation_s, a->checkpoint_s, a->between_s, a->starting_s, a->recovery_s,
		    a->other_s, a->usage_starts);
	if (a->usage_starts) {
		gn_json_bool(j, "usage_partial", a->is_usage_partial);
		if (!a->is_usage_partial)
			gn_json_put(j, "processors %d core_hours %g core_hours_used %g efficiency %g", a->processors, a->available_s / 3600,
				    a->cpu_s / 3600, a->available_s > 0 ? a->cpu_s / a->available_s : NAN);
		gn_json_put(j, "max_rss_bytes %.0f max_rss_rank %d", a->max_rss_bytes, a->max_rss_rank);
	}
}

static void write_recent(const char *key, const double *values, int count, struct gn_json *j)
{
	gn_json_array(j, key);
	for (int i = 0; i < count; i++)
		gn_json_double(j, NULL, values[i]);
	gn_json_end(j);
}

void gn_account_write_state(const struct gn_account *a, const char *path, double silent_s, struct gn_json *j)
{
	static const char *const parts[] = {"data", "forward", "backward", "communication_exposed", "optimizer"};

	write_run(a, path, j);
	gn_json_put(j, "silent_s %.0f left_s %g lr %g time_ms { step %.3f", silent_s,
		    strcmp(a->state, "running") ? NAN : gn_account_left_s(a), a->lr, a->step_ms);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		gn_json_fixed(j, parts[i], a->part_ms[i], 3);
	gn_json_put(j, "} compute_low_ms %.3f compute_high_ms %.3f", a->compute_low_ms, a->compute_high_ms);
	if (a->slowest >= 0)
		gn_json_put(j, "slowest %d slowest_host %s", a->slowest, a->slowest_host);
	write_recent("recent_loss", a->recent_loss, a->recent, j);
	write_recent("recent_images_per_s", a->recent_rate, a->recent, j);
}

/* See the header. Percent; 0: not known, or not worth a line. */
static double fewer_nodes(const struct gn_account *a, int *nodes)
{
	double n = a->nodes, m = (a->nodes + 1) / 2, share = a->training_s > 0 ? a->communication_s / a->training_s : 0, cheaper;

	if (a->nodes < 2 || share < 0.1 || share > 1 || (a->nodes == 2 && a->ranks > 2))
		return 0;
	cheaper = share * (1 - (1 - 1 / m) / (1 - 1 / n));
	*nodes = (int)m;
	return cheaper >= 0.03 ? 100 * cheaper : 0;
}

/* What makes a run save more or less often. */
static const char *saving_options(const struct gn_account *a)
{
	if (a->saves_by_epochs)
		return "--checkpoint-epochs";
	if (a->saves_by_steps)
		return a->saves_by_minutes ? "--checkpoint-every and -minutes" : "--checkpoint-every";
	return "--checkpoint-minutes";
}

void gn_account_advise(const struct gn_account *a, struct gn_strbuf *out)
{
	double wall = a->wall_s > 0 ? a->wall_s : 1, training = a->training_s > 0 ? a->training_s : 1;
	double cheaper;
	int nodes = 0;

	/* 80 columns */
	if (a->data_s > 0.05 * training)
		gn_strbuf_printf(out, "data: steps waited %.0f %% of their time for images; raise --loader-threads, or\n"
				 "  copy the data to local disks (gannet stage); gannet bench decode and bench io\n  tell which\n", 100 * a->data_s / training);
	cheaper = fewer_nodes(a, &nodes);
	if (cheaper > 0)
		gn_strbuf_printf(out, "gradients: steps waited %.0f %% of their time for them; on %d node%s an epoch\n"
				 "  would cost at least %.0f %% fewer node hours, and last %.1f times as long\n", 100 * a->communication_s / training, nodes,
				 gn_text_plural((uint64_t)nodes), cheaper, (double)a->nodes / nodes * (1 - cheaper / 100));
	else if (a->ranks > 1 && a->communication_s > 0.1 * training)
		gn_strbuf_printf(out, "gradients: steps waited %.0f %% of their time for them; fewer ranks would need\n"
				 "  at most %.0f %% less processor time an epoch\n", 100 * a->communication_s / training, 100 * a->communication_s / training);
	if (a->lost_s > 0.05 * wall)
		gn_strbuf_printf(out, "restarts: steps that had to be done again took %.0f %% of the time;\n  %s %s\n", 100 * a->lost_s / wall,
				 a->saves_by_epochs ? "set" : "lower", a->saves_by_epochs ? "--checkpoint-minutes" : saving_options(a));
	if (a->checkpoint_s > 0.05 * wall)
		gn_strbuf_printf(out, "checkpoints: training stood still for them %.0f %% of the time;\n  raise %s\n", 100 * a->checkpoint_s / wall,
				 saving_options(a));
	if (a->evaluation_s > 0.15 * wall)
		gn_strbuf_printf(out, "evaluation: it took %.0f %% of the time; evaluate less often (--eval-every)\n", 100 * a->evaluation_s / wall);
	if (!a->usage_starts || a->is_usage_partial || !(a->available_s > 0))
		return;
	if (a->waiting > 0.1)
		gn_strbuf_printf(out, "processors: ranks waited %.0f %% of their time for one, which other programs had,\n"
				 "  or more threads than there are: srun --exclusive gives a job its own\n", 100 * a->waiting);
	else if (a->cpu_s < 0.5 * a->available_s)
		gn_strbuf_printf(out, "processors: %.1f of %d were in use; ask for fewer, or raise --threads\n",
				 a->cpu_s / a->available_s * a->processors, a->processors);
}
