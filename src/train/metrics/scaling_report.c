#include "src/train/metrics/scaling_report.h"

#include "src/base/text.h"
#include "transport/coll/agree.h"

#include <math.h>
#include <stdlib.h>

static const char *const names[GN_SCALING_REPORT_PARTS] = {"data",	"forward", "backward", "communication_exposed",
							   "optimizer", "step",	   "compute"};
/* with more ranks the line would be too long */
enum { LISTED_MAX = 64 };
/* ratio to the mean compute time above which a slow rank is reported */
#define SLOW 1.25

static void fold(struct gn_scaling_report *out, const float *all)
{
	for (int p = 0; p < GN_SCALING_REPORT_PARTS; p++) {
		out->min[p] = out->max[p] = (double)all[p];
		out->mean[p] = 0;
	}
	for (int r = 0; r < out->ranks; r++)
		for (int p = 0; p < GN_SCALING_REPORT_PARTS; p++) {
			double value = (double)all[r * GN_SCALING_REPORT_PARTS + p];

			if (p == GN_SCALING_REPORT_COMPUTE && value > out->max[p])
				out->slowest = r;
			out->min[p] = fmin(out->min[p], value);
			out->max[p] = fmax(out->max[p], value);
			out->mean[p] += value / out->ranks;
		}
	for (int r = 0; r < out->ranks; r++)
		out->compute[r] = all[r * GN_SCALING_REPORT_PARTS + GN_SCALING_REPORT_COMPUTE];
}

enum gn_status gn_scaling_report_gather(struct gn_comm *comm, const struct gn_interval *sums, const struct gn_processors *processors,
					struct gn_scaling_report *out, struct gn_err *err)
{
	double steps = (double)sums->steps, parts[GN_SCALING_REPORT_PARTS] = {sums->data,
									      sums->forward,
									      sums->backward,
									      sums->exposed,
									      sums->optimizer,
									      sums->step,
									      sums->step - sums->exposed};
	float mine[GN_SCALING_REPORT_PARTS], *all;
	struct gn_scaling_report report = {.ranks = gn_comm_size(comm), .processors = *processors};
	enum gn_status status;

	for (int p = 0; p < GN_SCALING_REPORT_PARTS; p++)
		mine[p] = (float)(parts[p] / steps);
	all = calloc((size_t)report.ranks, sizeof mine);
	report.compute = calloc((size_t)report.ranks, sizeof *report.compute);
	if (!all || !report.compute)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the times of %d ranks", report.ranks);
	else
		status = gn_agree_gather(comm, mine, sizeof mine, all, err);
	if (!status) {
		fold(&report, all);
		report.measured = report.mean[GN_SCALING_REPORT_COMPUTE] / report.mean[GN_SCALING_REPORT_STEP];
		if (sums->predicted > 0)
			report.predicted = sums->predicted_compute / sums->predicted;
		*out = report;
	} else {
		gn_scaling_report_release(&report);
	}
	free(all);
	return status;
}

void gn_scaling_report_release(struct gn_scaling_report *report)
{
	free(report->compute);
	report->compute = NULL;
}

static void put_sharing(const struct gn_processors *p, struct gn_strbuf *out)
{
	gn_strbuf_printf(out, "%d threads of %d rank%s share %d processor%s", p->threads, p->ranks, gn_text_plural((uint64_t)p->ranks),
			 p->processors, gn_text_plural((uint64_t)p->processors));
}

void gn_scaling_report_json(const struct gn_scaling_report *report, const struct gn_world *world, const char *source,
			    struct gn_json *j)
{
	struct gn_strbuf why = {0};

	gn_json_object(j, "ranks");
	for (int p = 0; p < GN_SCALING_REPORT_PARTS; p++) {
		if (p == GN_SCALING_REPORT_STEP)
			continue;
		gn_json_array(j, names[p]);
		gn_json_fixed(j, NULL, report->min[p] * 1e3, 3);
		gn_json_fixed(j, NULL, report->mean[p] * 1e3, 3);
		gn_json_fixed(j, NULL, report->max[p] * 1e3, 3);
		gn_json_end(j);
	}
	gn_json_put(j, "slowest %d slowest_host %s", report->slowest, gn_world_host_of(world, report->slowest));
	if (report->ranks <= LISTED_MAX) {
		gn_json_array(j, "each_compute");
		for (int r = 0; r < report->ranks; r++)
			gn_json_fixed(j, NULL, (double)report->compute[r] * 1e3, 3);
		gn_json_end(j);
	}
	gn_json_put(j, "} efficiency { measured %.4f", report->measured);
	if (report->predicted > 0) {
		gn_json_put(j, "predicted %.4f costs %s", report->predicted, source);
	} else if (gn_processors_shared(&report->processors)) {
		put_sharing(&report->processors, &why);
		gn_json_string(j, "unpredicted", gn_strbuf_text(&why));
		gn_strbuf_release(&why);
	}
	gn_json_end(j);
}

void gn_scaling_report_text(const struct gn_scaling_report *report, const struct gn_world *world, const char *source,
			    struct gn_strbuf *out)
{
	double slowest = report->max[GN_SCALING_REPORT_COMPUTE] / report->mean[GN_SCALING_REPORT_COMPUTE];

	gn_strbuf_printf(out, ", efficiency %.0f %%", 100 * report->measured);
	if (report->predicted > 0)
		gn_strbuf_printf(out, " (predicted %.0f %%, costs %s)", 100 * report->predicted, source);
	else if (gn_processors_shared(&report->processors)) {
		gn_strbuf_puts(out, " (not predicted: ");
		put_sharing(&report->processors, out);
		gn_strbuf_puts(out, ")");
	}
	if (slowest > SLOW)
		gn_strbuf_printf(out, ", rank %d on %s computes %.0f %% longer", report->slowest,
				 gn_world_host_of(world, report->slowest), 100 * (slowest - 1));
}
