/* gannet selftest: compares the results of this build, on this processor with this oneDNN, with reference results. */
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/cmd/cmd.h"
#include "src/train/plan/device.h"
#include "src/train/plan/golden.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char gn_golden_resnet18_b4_s64[], gn_golden_resnet18_b4_s64_end[];
extern const char gn_golden_resnet50_b4_s96[], gn_golden_resnet50_b4_s96_end[];
extern const char gn_golden_resnet50_b2_s224[], gn_golden_resnet50_b2_s224_end[];
extern const char gn_golden_mobilenet_v2_b3_s96[], gn_golden_mobilenet_v2_b3_s96_end[];
extern const char gn_golden_mobilenet_v3_large_b3_s96[], gn_golden_mobilenet_v3_large_b3_s96_end[];
extern const char gn_golden_efficientnet_b0_b3_s96[], gn_golden_efficientnet_b0_b3_s96_end[];
extern const char gn_golden_convnext_tiny_b3_s96[], gn_golden_convnext_tiny_b3_s96_end[];
extern const char gn_golden_vit_b_16_b2_s64[], gn_golden_vit_b_16_b2_s64_end[];

static const struct bundled {
	const char *name, *begin, *end;
	int host_only; /* GPUs lack an operator of the network */
} bundle[] = {
	{"resnet18-b4-s64-c10.json", gn_golden_resnet18_b4_s64, gn_golden_resnet18_b4_s64_end, 0},
	{"resnet50-b4-s96-c1000.json", gn_golden_resnet50_b4_s96, gn_golden_resnet50_b4_s96_end, 0},
	{"resnet50-b2-s224-c1000.json", gn_golden_resnet50_b2_s224, gn_golden_resnet50_b2_s224_end, 0},
	{"mobilenet_v2-b3-s96-c7.json", gn_golden_mobilenet_v2_b3_s96, gn_golden_mobilenet_v2_b3_s96_end, 1},
	{"mobilenet_v3_large-b3-s96-c7.json", gn_golden_mobilenet_v3_large_b3_s96, gn_golden_mobilenet_v3_large_b3_s96_end, 1},
	{"efficientnet_b0-b3-s96-c7.json", gn_golden_efficientnet_b0_b3_s96, gn_golden_efficientnet_b0_b3_s96_end, 1},
	{"convnext_tiny-b3-s96-c7.json", gn_golden_convnext_tiny_b3_s96, gn_golden_convnext_tiny_b3_s96_end, 1},
	{"vit_b_16-b2-s64-c10.json", gn_golden_vit_b_16_b2_s64, gn_golden_vit_b_16_b2_s64_end, 1},
};

struct options {
	const char *device, *precision, *convolution;
	struct gn_text_list golden;
	int brief, json, strict;
};

static const struct gn_option table[] = {
	{.name = "device",
	 .kind = GN_OPTION_CHOICE,
	 .offset = offsetof(struct options, device),
	 .value_name = "NAME",
	 .initial = "host",
	 .choices = GN_DEVICE_CHOICES,
	 .help = "host: oneDNN; cuda: a GPU; auto: cuda if present, else host; ref: the double-precision reference"},
	{.name = "precision",
	 .kind = GN_OPTION_CHOICE,
	 .offset = offsetof(struct options, precision),
	 .value_name = "NAME",
	 .initial = "fp32",
	 .choices = GN_PRECISION_CHOICES,
	 .help = "type of activations; each has its own bounds, and larger deviations are compared with those of perturbed "
		 "parameters"},
	{.name = "convolution",
	 .kind = GN_OPTION_CHOICE,
	 .offset = offsetof(struct options, convolution),
	 .value_name = "HOW",
	 .initial = "auto",
	 .choices = GN_CONVOLUTION_CHOICES,
	 .help = "as --convolution of gannet train, with the same bounds"},
	{.name = "golden",
	 .kind = GN_OPTION_LIST,
	 .offset = offsetof(struct options, golden),
	 .value_name = "FILE",
	 .help = "reference file instead of the bundled ones"},
	{.name = "brief",
	 .kind = GN_OPTION_FLAG,
	 .offset = offsetof(struct options, brief),
	 .help = "print only the largest deviation of each kind, and failures"},
	{.name = "json",
	 .kind = GN_OPTION_FLAG,
	 .offset = offsetof(struct options, json),
	 .help = "print one JSON object per deviation"},
	{.name = "strict",
	 .kind = GN_OPTION_FLAG,
	 .offset = offsetof(struct options, strict),
	 .help = "fail on deviations that rounding explains, too"},
};

static const struct gn_command command = {
	.name = "selftest",
	.summary = "recompute reference networks and print the deviations",
	.positional = "",
	.description =
		"Recomputes reference files: networks whose losses, logits, gradients, statistics and parameters over a few "
		"training steps were computed in double precision by torchvision. Prints for every quantity its deviation, the "
		"bound, and ok or FAIL.\n\n"
		"All deviations are relative. The bounds of single precision are: loss at step one 1e-5, at later steps 1e-3; "
		"logits 1e-4 of their norm; norm of every gradient 1e-3, its first values 1e-3 of that norm; running statistics "
		"after step one and parameters after the last step 1e-4 of their norm; norm of the evaluation logits 1e-3. With "
		"--precision bf16 the bounds are: loss 3e-2, later 2e-1; logits 5e-2; gradients 2e-1; statistics 1e-2, parameters "
		"1e-1; evaluation logits 1e-1; with fp16 and tf32 a quarter of these.\n\n"
		"Some networks amplify rounding errors at their initial values beyond these bounds: a relu unit near zero flips, "
		"or a variance is taken over few values. When a bound is exceeded, everything is computed three more times with "
		"parameters perturbed by four times the rounding of one convolution in single precision (other precisions: by one "
		"rounding). A deviation of up to twice the resulting change is reported as rounding: it cannot show whether the "
		"build is right. The exit code is 1 when a deviation is larger than that (or, with --strict, than its bound), 3 "
		"when a file cannot be used.",
	.examples = "  gannet selftest   # the bundled networks on this processor\n"
		    "  gannet selftest --golden my.json --brief   # another one\n",
	GN_OPTIONS(table),
};

struct printer {
	const struct options *o;
	const char *file;
	char shown[PATH_MAX]; /* directory for display, with control characters escaped */
	struct gn_golden_row worst[32]; /* the worst row of each kind of quantity */
	int kinds;
	int rounding, failed;
};

static const char *const verdicts[] = {"ok", "rounding", "FAIL"};

static void print_json(const struct printer *p, const struct gn_golden_row *row)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_string(&j, "file", p->file);
	gn_json_string(&j, "quantity", row->quantity);
	gn_json_string(&j, "name", row->name);
	gn_json_double(&j, "deviation", row->deviation);
	gn_json_double(&j, "bound", row->bound);
	gn_json_double(&j, "rounding", row->rounding);
	gn_json_string(&j, "verdict", verdicts[row->verdict]);
	gn_cmd_print_json(&j);
}

static void print_row(const struct printer *p, const struct gn_golden_row *row)
{
	if (p->o->json)
		print_json(p, row);
	else if (row->rounding > 0)
		printf("%-22s %-32s %9.2e  %6.0e  %8.1e  %s\n", row->quantity, row->name, row->deviation, row->bound,
		       row->rounding, verdicts[row->verdict]);
	else
		printf("%-22s %-32s %9.2e  %6.0e  %8s  %s\n", row->quantity, row->name, row->deviation, row->bound, "-",
		       verdicts[row->verdict]);
}

static void take_row(void *context, const struct gn_golden_row *row)
{
	struct printer *p = context;
	int i = 0;

	p->rounding += row->verdict == GN_GOLDEN_ROUNDING;
	p->failed += row->verdict == GN_GOLDEN_FAIL;
	if (!p->o->brief || row->verdict == GN_GOLDEN_FAIL) {
		print_row(p, row);
		return;
	}
	while (i < p->kinds && (strcmp(p->worst[i].quantity, row->quantity) || p->worst[i].bound != row->bound))
		i++;
	if (i == p->kinds && i < (int)(sizeof p->worst / sizeof *p->worst))
		p->worst[p->kinds++] = *row;
	else if (i < p->kinds && !(row->deviation <= p->worst[i].deviation))
		p->worst[i] = *row;
}

static void print_sum(const struct printer *p)
{
	for (int i = 0; i < p->kinds; i++)
		print_row(p, &p->worst[i]);
	if (p->o->json)
		return;
	if (p->failed)
		printf("%s: FAILED, %d deviations exceed bound and rounding\n\n", p->shown, p->failed);
	else if (p->rounding)
		printf("%s: %d deviations exceed their bounds, but are no larger than this network makes rounding "
		       "errors\n\n",
		       p->shown, p->rounding);
	else
		printf("%s: within all bounds\n\n", p->shown);
}

static enum gn_status check(const struct options *o, const char *text, size_t len_bytes, const char *file, int *failed,
			    struct gn_err *err)
{
	struct gn_plan_options on = {0};
	struct printer p = {.o = o, .file = file};
	struct gn_golden *g;
	enum gn_status s = gn_device_choose(o->device, o->precision, 0, &on, err);

	if (!s)
		s = gn_golden_parse(text, len_bytes, file, &g, err);
	if (s)
		return s;
	on.convolution = gn_convolution_of(o->convolution);
	on.tune = 0; /* only the numbers matter here, not the time */
	gn_text_visible(file, p.shown, sizeof p.shown);
	if (!o->json)
		printf("%s: %s, %s, %s\n%-22s %-32s %9s  %6s  %8s\n", p.shown, gn_golden_title(g), o->device,
		       gn_device_precision(&on), "quantity", "of",
		       "deviation", "bound", "rounding");
	s = gn_golden_run(g, &on, take_row, &p, err);
	if (s)
		gn_err_prefix(err, "%s", file);
	else
		print_sum(&p);
	gn_golden_destroy(g);
	*failed += p.failed + (o->strict ? p.rounding : 0);
	return s;
}

static enum gn_status check_file(const struct options *o, const char *path, int *failed, struct gn_err *err)
{
	char *text;
	size_t len_bytes;
	enum gn_status s = gn_file_load(path, 64 << 20, &text, &len_bytes, err);

	if (s)
		return s;
	s = check(o, text, len_bytes, path, failed, err);
	free(text);
	return s;
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct options *o = options;
	struct gn_err err;
	enum gn_status s = GN_OK;
	int failed = 0;

	(void)positional;
	for (size_t i = 0; !s && i < o->golden.count; i++)
		s = check_file(o, o->golden.items[i], &failed, &err);
	for (size_t i = 0; !s && !o->golden.count && i < sizeof bundle / sizeof *bundle; i++) {
		s = check(o, bundle[i].begin, bundle[i].end - bundle[i].begin, bundle[i].name, &failed, &err);
		if (s != GN_ERR_UNSUPPORTED || !bundle[i].host_only)
			continue;
		fprintf(stderr, "gannet selftest: skipped: %s\n", err.text);
		s = GN_OK;
	}
	if (s)
		return gn_cmd_fail("selftest", &err);
	if (failed)
		fprintf(stderr, "gannet selftest: %d deviations exceed their bounds\n", failed);
	return failed ? GN_EXIT_FAILED : GN_EXIT_DONE;
}

const struct gn_cmd gn_cmd_selftest = {.command = &command, .run = run, .options_size = sizeof(struct options)};
