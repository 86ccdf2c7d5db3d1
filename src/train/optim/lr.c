#include "src/train/optim/lr.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN_MAX = 256 };

enum gn_status gn_lr_shape_parse(const char *text, enum gn_lr_shape *out, struct gn_err *err)
{
	static const char *const names[] = {"constant", "step", "cosine", "polynomial"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		if (!strcmp(text, names[i])) {
			*out = (enum gn_lr_shape)i;
			return GN_OK;
		}
	}
	return gn_err_set(err, GN_ERR_USAGE, "schedule '%s' is none of constant, step, cosine, polynomial", text);
}

enum gn_status gn_lr_milestones_parse(const char *text, struct gn_lr *out, struct gn_err *err)
{
	double found[GN_LR_MILESTONES_MAX];
	size_t count = 0;
	const char *p = text;

	while (*p) {
		char *end;
		double epoch = strtod(p, &end);

		if (end == p || (*end && *end != ',') || !(epoch > (count ? found[count - 1] : 0)) || !isfinite(epoch))
			return gn_err_set(err, GN_ERR_USAGE, "milestones '%s': write rising epochs such as 30,60,80",
					  text);
		if (count == GN_LR_MILESTONES_MAX)
			return gn_err_set(err, GN_ERR_USAGE, "more than %d milestones", GN_LR_MILESTONES_MAX);
		found[count++] = epoch;
		p = *end ? end + 1 : end;
	}
	memcpy(out->milestones, found, sizeof found);
	out->milestone_count = count;
	return GN_OK;
}

/* Of a run that is as long as a schedule's, or shorter. */
static double share(double epochs, double published)
{
	return published > 0 && epochs < published ? epochs / published : 1;
}

void gn_lr_shrink(struct gn_lr *lr, double warmup_of, double milestones_of)
{
	lr->warmup_epochs *= share(lr->epochs, warmup_of);
	for (size_t i = 0; i < lr->milestone_count; i++)
		lr->milestones[i] *= share(lr->epochs, milestones_of);
}

enum gn_status gn_lr_fit(struct gn_lr *lr, double warmup_of, double milestones_of, struct gn_err *err)
{
	double warmup = lr->warmup_epochs * share(lr->epochs, warmup_of);

	if (lr->epochs > 0 && warmup > 0 && warmup >= lr->epochs)
		return gn_err_set(err, GN_ERR_USAGE, "--warmup-epochs %g is not below the length of the run, %.4g epochs: lower it, or raise "
				  "--epochs or --steps", warmup, lr->epochs);
	gn_lr_shrink(lr, warmup_of, milestones_of);
	return GN_OK;
}

static double after_warmup(const struct gn_lr *lr, double peak, double epoch)
{
	const double pi = 3.14159265358979323846;
	double span = lr->epochs - lr->warmup_epochs;
	double t = span > 0 ? fmin(fmax((epoch - lr->warmup_epochs) / span, 0), 1) : 1;
	double rate = peak;

	switch (lr->shape) {
	case GN_LR_CONSTANT:
		return peak;
	case GN_LR_STEP:
		for (size_t i = 0; i < lr->milestone_count && epoch >= lr->milestones[i]; i++)
			rate *= lr->factor;
		return rate;
	case GN_LR_COSINE:
		return lr->final_lr + (peak - lr->final_lr) * (1 + cos(pi * t)) / 2;
	case GN_LR_POLYNOMIAL:
		return lr->final_lr + (peak - lr->final_lr) * pow(1 - t, lr->power);
	}
	return peak;
}

double gn_lr_at(const struct gn_lr *lr, double global_batch, double epoch)
{
	double peak = lr->reference_batch > 0 ? lr->lr * global_batch / lr->reference_batch : lr->lr;
	double start = lr->start >= 0 ? lr->start : peak > lr->lr ? lr->lr : peak / 8;

	if (epoch < lr->warmup_epochs)
		return start + (peak - start) * epoch / lr->warmup_epochs;
	return after_warmup(lr, peak, epoch);
}

/* --- learning rates of their own for some tensors --- */

/* Cuts at the last equals sign: a pattern may have one. */
static enum gn_status cut(const char *entry, char pattern[PATTERN_MAX], double *factor, struct gn_err *err)
{
	const char *equals = strrchr(entry, '=');
	size_t len = equals ? (size_t)(equals - entry) : 0;

	if (!len || len >= PATTERN_MAX || gn_parse_real(equals + 1, factor, NULL) || !(*factor > 0 && *factor <= 1000))
		return gn_err_set(err, GN_ERR_USAGE, "--lr-scale %s: give PATTERN=X, X above 0 and at most 1000, such as 'layer1.*=0.1'; to "
				  "keep parameters as they are, use --freeze PATTERN", entry);
	memcpy(pattern, entry, len);
	pattern[len] = '\0';
	return GN_OK;
}

enum gn_status gn_lr_scale_check(const struct gn_text_list *entries, struct gn_err *err)
{
	char pattern[PATTERN_MAX];
	enum gn_status status = GN_OK;
	double factor;

	for (size_t i = 0; i < entries->count && !status; i++)
		status = cut(entries->items[i], pattern, &factor, err);
	return status;
}

double gn_lr_scale_of(const struct gn_text_list *entries, const char *name)
{
	char pattern[PATTERN_MAX];
	double factor, result = 1;

	for (size_t i = 0; entries && i < entries->count; i++)
		if (!cut(entries->items[i], pattern, &factor, NULL) && !fnmatch(pattern, name, 0))
			result = factor;
	return result;
}

enum gn_status gn_lr_scale_match(const struct gn_text_list *entries, const struct gn_model *m, struct gn_log *log, struct gn_err *err)
{
	int count = gn_model_param_count(m);
	char pattern[PATTERN_MAX];
	double factor;

	for (size_t i = 0; entries && i < entries->count; i++) {
		enum gn_status status = cut(entries->items[i], pattern, &factor, err);
		int matched = 0;

		for (int k = 0; k < count && !status; k++)
			matched += !fnmatch(pattern, gn_model_param(m, k)->name, 0);
		if (status)
			return status;
		if (!matched)
			return gn_err_set(err, GN_ERR_USAGE, "--lr-scale '%s' matches no parameter of %s, such as %s", pattern,
					  gn_model_name(m), gn_model_param(m, 0)->name);
		gn_log_info(log, "learning rate times %g for %d of %d tensors, '%s'", factor, matched, count, pattern);
	}
	return GN_OK;
}
