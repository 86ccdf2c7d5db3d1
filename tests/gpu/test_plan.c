/* Plans on a GPU: reference networks as gannet selftest has them, plans against those of the oracle, and steps that are queued against
 * steps call by call. Prints TAP. usage: test_plan [REFERENCE.json...] */
#include "src/device/cuda.h"
#include "src/base/file.h"
#include "src/train/plan/golden.h"
#include "tests/gpu/plan_net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- reference networks --- */

struct tally {
	int rows, rounding, failed;
	struct gn_golden_row worst;
};

static void take_row(void *context, const struct gn_golden_row *row)
{
	struct tally *t = context;

	t->rows++;
	t->rounding += row->verdict == GN_GOLDEN_ROUNDING;
	t->failed += row->verdict == GN_GOLDEN_FAIL;
	if (row->deviation / row->bound > t->worst.deviation / (t->worst.bound > 0 ? t->worst.bound : 1))
		t->worst = *row;
}

static void check_reference(const char *path, const struct net_precision *p)
{
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	struct gn_plan_options on = net_on_gpu(p);
	struct tally t = {0};
	struct gn_golden *g;
	struct gn_err err;
	char *text;
	size_t len;
	enum gn_status status = gn_file_load(path, 64 << 20, &text, &len, &err);

	if (!status)
		status = gn_golden_parse(text, len, path, &g, &err);
	if (!status) {
		status = gn_golden_run(g, &on, take_row, &t, &err);
		gn_golden_destroy(g);
		free(text);
	}
	/* what rounds more than fp32 is measured here, and fails only where it is off by more than rounding explains */
	net_point(!status && !t.failed && t.rows > 0, "%s, %s: %d quantities, %d explained by rounding, %d not; most: %s %s %.1e of %.0e",
	      name, p->name, t.rows, t.rounding, t.failed, t.worst.quantity ? t.worst.quantity : "", t.worst.name ? t.worst.name : "",
	      t.worst.deviation, t.worst.bound);
	if (status)
		printf("# %s\n", err.text);
}

static double worst_gradient(const struct net *a, const struct net *b)
{
	double worst = 0;

	for (int i = 0; i < gn_model_param_count(a->model); i++) {
		const struct gn_param *p = gn_model_param(a->model, i);
		double d = net_distance(a->grads + p->offset, b->grads + p->offset, p->count);

		worst = d > worst ? d : worst;
	}
	return worst;
}

static void check_plan(const char *model, int batch, int side, const struct net_precision *p)
{
	struct gn_plan_options gpu = net_on_gpu(p), ref = {.backend = GN_BACKEND_REF, .training = 1, .label_smoothing = 0.1};
	struct net a, b;
	const float *x, *y;
	double loss_a = 0, loss_b = 0, logits = 0, grads = 0, buffers = 0;
	enum gn_status status;

	gpu.training = 1;
	gpu.label_smoothing = 0.1;
	gpu.drop_path = ref.drop_path = 0.4;
	gpu.seed = ref.seed = 5;
	status = net_make(&a, model, batch, side, gpu);
	if (!status)
		status = net_pass(&a, &loss_a, &x);
	if (net_make(&b, model, batch, side, ref) || net_pass(&b, &loss_b, &y))
		printf("# the oracle: %s\n", b.err.text);
	if (!status) {
		logits = net_distance(x, y, (size_t)batch * 10);
		gn_weight_layouts_out(a.layouts, a.grads);
		gn_weight_layouts_out(b.layouts, b.grads);
		grads = worst_gradient(&a, &b);
		buffers = net_distance(a.buffers, b.buffers, gn_model_buffer_elements(a.model));
	}
	net_point(!status && logits < p->tolerance && buffers < p->tolerance && grads < p->gradients &&
		      fabs(loss_a - loss_b) < p->tolerance * fabs(loss_b),
	      "%s, %s against the oracle: loss %.6f and %.6f, logits off by %.1e, gradients by %.1e, statistics by %.1e", model,
	      p->name, loss_a, loss_b, logits, grads, buffers);
	if (status)
		printf("# %s\n", a.err.text);
	net_destroy(&a);
	net_destroy(&b);
}

/* Inference with batch norm folded, and not. */
static void check_inference(const char *model, int batch, int side, const struct net_precision *p)
{
	struct gn_plan_options folded = net_on_gpu(p), gpu = net_on_gpu(p), ref = {.backend = GN_BACKEND_REF};
	struct net nets[3];
	const float *logits[3] = {NULL, NULL, NULL};
	struct gn_plan_options all[3] = {folded, gpu, ref};
	int ok = 1;

	all[0].frozen = 1;
	for (int i = 0; i < 3; i++) {
		int made = !net_make(&nets[i], model, batch, side, all[i]);

		if (!made || net_send(&nets[i]) || gn_plan_freeze(nets[i].plan, &nets[i].err) ||
		    gn_plan_forward(nets[i].plan, nets[i].images, 0, &logits[i], &nets[i].err)) {
			printf("# %s\n", nets[i].err.text);
			ok = 0;
		}
	}
	net_point(ok && net_distance(logits[0], logits[2], (size_t)batch * 10) < 2 * p->tolerance &&
		      net_distance(logits[1], logits[2], (size_t)batch * 10) < 2 * p->tolerance,
	      "%s, %s, inference: logits off by %.1e with batch norm folded, %.1e without", model, p->name,
	      ok ? net_distance(logits[0], logits[2], (size_t)batch * 10) : 0, ok ? net_distance(logits[1], logits[2], (size_t)batch * 10) : 0);
	for (int i = 0; i < 3; i++)
		net_destroy(&nets[i]);
}

int main(int argc, char **argv)
{
	struct gn_err err;
	int devices;
	enum gn_status status = gn_cuda_device_count(&devices, &err);

	if (status == GN_ERR_NOT_FOUND || status == GN_ERR_UNSUPPORTED) {
		printf("ok 1 - plans on a GPU # SKIP %s\n1..1\n", err.text);
		return 0;
	}
	for (size_t i = 0; i < NET_PRECISIONS; i++) {
		check_plan("lenet", 5, 28, &net_precisions[i]);
		check_plan("resnet20", 3, 15, &net_precisions[i]);
		check_plan("small_vit", 3, 16, &net_precisions[i]);
		check_plan("small_mobile", 5, 14, &net_precisions[i]);
		check_inference("resnet20", 2, 19, &net_precisions[i]);
		check_inference("small_vit", 2, 12, &net_precisions[i]);
		check_inference("small_mobile", 2, 14, &net_precisions[i]);
		check_runs(&net_precisions[i]);
	}
	check_skip();
	for (int i = 1; i < argc; i++)
		for (size_t k = 0; k < NET_PRECISIONS; k++)
			check_reference(argv[i], &net_precisions[k]);
	printf("1..%d\n", net_points);
	return net_failed != 0;
}
