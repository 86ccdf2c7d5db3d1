#include "src/train/loop/augment_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether text is count numbers with commas. */
static int parse_numbers(const char *text, int count, double *out)
{
	for (int i = 0; i < count; i++) {
		char *end;

		out[i] = strtod(text, &end);
		if (end == text || !isfinite(out[i]) || *end != (i + 1 < count ? ',' : '\0'))
			return 0;
		text = end + 1;
	}
	return 1;
}

static enum gn_status parse_randaugment(const char *text, struct gn_auto_augment *out, struct gn_err *err)
{
	enum { ops_max = 32 };
	double v[2];

	if (!parse_numbers(text, 2, v) || v[0] != floor(v[0]) || v[1] != floor(v[1]) || v[0] < 1 || v[0] > ops_max || v[1] < 0 ||
	    v[1] >= GN_POLICY_BINS)
		return gn_err_set(err, GN_ERR_USAGE, "--randaugment '%s': write N,M, the operations per image, 1 to %d, and their magnitude, "
				  "0 to %d, such as 2,9", text, ops_max, GN_POLICY_BINS - 1);
	out->policy = GN_POLICY_RAND;
	out->ops = (uint32_t)v[0];
	out->magnitude = (uint32_t)v[1];
	return GN_OK;
}

static enum gn_status parse_jitter(const char *text, double out[4], struct gn_err *err)
{
	int is_right = parse_numbers(text, 4, out);

	for (int i = 0; i < 4 && is_right; i++)
		is_right = out[i] >= 0 && out[i] <= (i < 3 ? 100 : 0.5);
	if (!is_right)
		return gn_err_set(err, GN_ERR_USAGE, "--color-jitter '%s': write B,C,S,H for brightness, contrast, saturation, each 0 to 100, "
				  "and hue, 0 to 0.5, such as 0.4,0.4,0.4,0.1", text);
	return GN_OK;
}

enum gn_status gn_augment_options_parse(const struct gn_train_options *o, struct gn_loader_options *out, struct gn_err *err)
{
	int is_auto = o->auto_augment && strcmp(o->auto_augment, "none");
	struct gn_auto_augment a = {.policy = GN_POLICY_NONE};
	enum gn_status status = GN_OK;

	if ((o->randaugment != NULL) + o->trivialaugment + is_auto > 1)
		return gn_err_set(err, GN_ERR_USAGE, "--randaugment, --trivialaugment and --auto-augment exclude each other: give one");
	if (o->randaugment)
		status = parse_randaugment(o->randaugment, &a, err);
	if (!status && o->color_jitter)
		status = parse_jitter(o->color_jitter, a.jitter, err);
	if (status)
		return status;
	if (o->trivialaugment)
		a.policy = GN_POLICY_TRIVIAL;
	if (is_auto)
		a.policy = GN_POLICY_IMAGENET;
	out->auto_augment = a;
	out->erasing = o->random_erasing;
	out->mixup = o->mixup;
	out->cutmix = o->cutmix;
	return GN_OK;
}
