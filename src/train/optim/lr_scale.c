#include "src/train/optim/lr_scale.h"

#include <fnmatch.h>
#include <string.h>

enum { PATTERN_MAX = 256 };

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
