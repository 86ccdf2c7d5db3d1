#include "data/sample/options.h"

#include <math.h>
#include <string.h>

static int normal_floats(const float *v, uint32_t count, int positive)
{
	for (uint32_t i = 0; i < count; i++)
		if (!isfinite(v[i]) || (positive && v[i] <= 0))
			return 0;
	return 1;
}

const char *gn_interpolation_name(enum gn_interpolation interpolation)
{
	return interpolation == GN_BICUBIC ? "bicubic" : "bilinear";
}

enum gn_status gn_interpolation_parse(const char *text, enum gn_interpolation *out, struct gn_err *err)
{
	int is_bicubic = !strcmp(text, "bicubic");

	if (!is_bicubic && strcmp(text, "bilinear"))
		return gn_err_set(err, GN_ERR_USAGE, "interpolation '%s' is neither bilinear nor bicubic", text);
	*out = is_bicubic ? GN_BICUBIC : GN_BILINEAR;
	return GN_OK;
}

size_t gn_loader_sample_bytes(const struct gn_loader_options *o)
{
	static const size_t value_bytes[] = {[GN_SAMPLE_F32] = 4, [GN_SAMPLE_BF16] = 2, [GN_SAMPLE_U8] = 1};

	return o->crops ? gn_crop_room_bytes(o->height, o->width) : (size_t)o->channels * o->height * o->width * value_bytes[o->type];
}

int gn_loader_mixes(const struct gn_loader_options *o)
{
	return o->mixup > 0 || o->cutmix > 0;
}

int gn_loader_needs_floats(const struct gn_loader_options *o)
{
	return gn_loader_mixes(o) || o->erasing > 0;
}

enum gn_status gn_loader_options_check(const struct gn_loader_options *o, struct gn_err *err)
{
	enum { side_max = 16384, threads_max = 1024 };

	if (o->channels != 1 && o->channels != 3)
		return gn_err_set(err, GN_ERR_USAGE, "loader: %u channels; only 1 and 3 are supported", o->channels);
	if (o->height < 1 || o->width < 1 || o->height > side_max || o->width > side_max)
		return gn_err_set(err, GN_ERR_USAGE, "loader: samples of %ux%u; sides are 1 to %d", o->height, o->width,
				  side_max);
	if ((unsigned)o->augment > GN_AUGMENT_SHIFT_FLIP)
		return gn_err_set(err, GN_ERR_USAGE, "loader: augmentation %d is unknown", (int)o->augment);
	if (o->pad >= o->height || o->pad >= o->width)
		return gn_err_set(err, GN_ERR_USAGE, "loader: padding of %u exceeds a sample of %ux%u",
				  o->pad, o->height, o->width);
	if (o->resize_shorter > side_max)
		return gn_err_set(err, GN_ERR_USAGE, "loader: resizing to %u; %d is the limit", o->resize_shorter,
				  side_max);
	if (!normal_floats(o->mean, o->channels, 0) || !normal_floats(o->deviation, o->channels, 1))
		return gn_err_set(err, GN_ERR_USAGE, "loader: mean must be finite and deviation above 0");
	if (!(o->mixup >= 0 && o->mixup <= 1e6))
		return gn_err_set(err, GN_ERR_USAGE, "loader: mixup of %g; the range is 0 to 1e6", o->mixup);
	if (!(o->cutmix >= 0 && o->cutmix <= 1e6))
		return gn_err_set(err, GN_ERR_USAGE, "loader: cutmix of %g; the range is 0 to 1e6", o->cutmix);
	if (o->crops && (gn_loader_needs_floats(o) || o->channels != 3 || !o->training))
		return gn_err_set(err, GN_ERR_USAGE, "loader: crops need training, three channels, and no mixup, cutmix or erasing");
	if ((o->crops && (o->type || o->channels_last)) || (o->type == GN_SAMPLE_U8 && gn_loader_needs_floats(o)))
		return gn_err_set(err, GN_ERR_USAGE, "loader: mixup, cutmix and random erasing change normalised samples: ask for these, not for bytes");
	if (!(o->erasing >= 0 && o->erasing <= 1))
		return gn_err_set(err, GN_ERR_USAGE, "loader: random erasing with probability %g; the range is 0 to 1", o->erasing);
	if (o->auto_augment.magnitude >= GN_POLICY_BINS)
		return gn_err_set(err, GN_ERR_USAGE, "loader: RandAugment of magnitude %u; the range is 0 to %d", o->auto_augment.magnitude,
				  GN_POLICY_BINS - 1);
	if (o->threads < 1 || o->threads > threads_max)
		return gn_err_set(err, GN_ERR_USAGE, "loader: %d threads; the range is 1 to %d", o->threads,
				  threads_max);
	return GN_OK;
}
