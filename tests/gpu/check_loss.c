#include "kernels/backend.h"
#include "tests/gpu/fixture.h"

#include <math.h>
#include <stdlib.h>

struct variant {
	double smoothing, grad_scale;
	int mixed, unlabelled; /* every third image has no label; 2: none has */
};

struct batch {
	int32_t *labels, *pair_labels;
	float *lambdas;
	int counted;
};

static void draw_batch(struct fixture *b, int batch, int classes, const struct variant *v, struct batch *out)
{
	out->labels = calloc(batch, sizeof *out->labels);
	out->pair_labels = calloc(batch, sizeof *out->pair_labels);
	out->lambdas = calloc(batch, sizeof *out->lambdas);
	out->counted = 0;
	for (int i = 0; i < batch; i++) {
		out->labels[i] = (int32_t)(fixture_uniform(b) * classes);
		out->pair_labels[i] = (int32_t)(fixture_uniform(b) * classes);
		out->lambdas[i] = (float)fixture_uniform(b);
		if (v->unlabelled == 2 || (v->unlabelled && i % 3 == 1))
			out->labels[i] = -1;
		out->counted += out->labels[i] >= 0;
	}
}

static void release(struct batch *x)
{
	free(x->labels);
	free(x->pair_labels);
	free(x->lambdas);
}

/* Queues the loss and brings its numbers. */
static int run(struct fixture *b, enum gn_cuda_type type, int batch, int classes, const struct variant *v,
	       const struct batch *in, struct fixture_tensor *logits, struct fixture_tensor *dlogits, struct gn_loss *out, float *correct)
{
	const float half = 0.5;
	struct gn_cuda_loss_args a = {type,
				      batch,
				      classes,
				      logits->data,
				      fixture_bytes(b, in->labels, batch * sizeof *in->labels),
				      v->mixed ? fixture_bytes(b, in->pair_labels, batch * sizeof *in->pair_labels) : NULL,
				      v->mixed ? fixture_bytes(b, in->lambdas, batch * sizeof *in->lambdas) : NULL,
				      v->smoothing,
				      v->grad_scale,
				      dlogits->data,
				      fixture_bytes(b, NULL, 2 * (size_t)batch * sizeof(float)),
				      fixture_bytes(b, NULL, sizeof *out),
				      NULL,
				      fixture_bytes(b, &half, sizeof half),
				      0.25};

	if (b->why[0] || !fixture_ok(b, gn_cuda_softmax_cross_entropy(b->stream, &a, &b->err), "loss"))
		return 0;
	fixture_fetch(b, out, a.out, sizeof *out);
	fixture_fetch(b, correct, a.correct, sizeof *correct);
	return !b->why[0];
}

static double correct_share(const struct gn_targets *t, const double *logits, int batch, int classes)
{
	int counted = 0, correct = 0;

	for (int n = 0; n < batch; n++) {
		const double *row = logits + (size_t)n * classes;
		int target = t->pair_labels && t->lambdas[n] < 0.5f ? t->pair_labels[n] : t->labels[n], higher = 0;

		for (int k = 0; k < classes && t->labels[n] >= 0; k++)
			higher += row[k] > row[target];
		counted += t->labels[n] >= 0;
		correct += t->labels[n] >= 0 && !higher;
	}
	return counted ? (double)correct / counted : 0;
}

static void check(struct fixture *b, enum gn_cuda_type type, int batch, int classes, const struct variant *v)
{
	double *want = fixture_doubles((size_t)batch * classes), loss;
	struct fixture_tensor *logits, *dlogits;
	struct gn_loss out;
	struct batch in;
	float correct;

	fixture_begin(b);
	draw_batch(b, batch, classes, v, &in);
	logits = fixture_input(b, type, (size_t)batch * classes, 5, 3);
	dlogits = fixture_output(b, type, (size_t)batch * classes);
	if (!b->why[0] && run(b, type, batch, classes, v, &in, logits, dlogits, &out, &correct)) {
		struct gn_targets targets = {in.labels, v->mixed ? in.pair_labels : NULL, in.lambdas, NULL};

		loss = gn_ref_softmax_cross_entropy(batch, classes, logits->host, &targets, in.counted, v->smoothing,
						    want);
		for (size_t i = 0; i < (size_t)batch * classes; i++)
			want[i] *= v->grad_scale;
		if (fabs(correct - (0.5 + 0.25 * correct_share(&targets, logits->host, batch, classes))) > 1e-6)
			fixture_fail(b, "0.5 + a quarter of the correct share is %g", (double)correct);
		if (!(fabs(out.loss - loss) <= 1e-5 * (fabs(loss) + 0.1)) || out.counted != in.counted || out.bad != 0)
			fixture_fail(b, "loss %.9g over %d with %d bad, not %.9g over %d", out.loss, out.counted, out.bad,
				 loss, in.counted);
		fixture_compare(b, dlogits, want, 4 * fixture_tolerance(type), "gradient");
	}
	fixture_end(b, "loss %s %d x %d, smoothing %g%s%s, gradient times %g", gn_cuda_type_name(type), batch, classes,
		v->smoothing, v->mixed ? ", mixed" : "", v->unlabelled ? ", without some labels" : "", v->grad_scale);
	release(&in);
	free(want);
}

static void bad_labels(struct fixture *b)
{
	struct variant v = {0.1, 1, 1, 0};
	struct fixture_tensor *logits, *dlogits;
	struct gn_loss out;
	struct batch in;
	float correct;

	fixture_begin(b);
	draw_batch(b, 8, 10, &v, &in);
	in.labels[1] = 10;
	in.labels[4] = INT32_MAX;
	in.pair_labels[6] = -1;
	logits = fixture_input(b, GN_CUDA_F32, 80, 0, 1);
	dlogits = fixture_output(b, GN_CUDA_F32, 80);
	if (!b->why[0] && run(b, GN_CUDA_F32, 8, 10, &v, &in, logits, dlogits, &out, &correct)) {
		fixture_read(b, dlogits, "gradient");
		if (out.bad != 3 || !isfinite(out.loss))
			fixture_fail(b, "%d bad labels, loss %g", out.bad, out.loss);
		for (int i = 0; i < 80; i++)
			if (!isfinite(dlogits->host[i]) ||
			    ((i / 10 == 1 || i / 10 == 4 || i / 10 == 6) && dlogits->host[i] != 0))
				fixture_fail(b, "gradient %d of image %d is %g", i % 10, i / 10, dlogits->host[i]);
	}
	fixture_end(b, "loss counts labels that are no class");
	release(&in);
}

void check_loss(struct fixture *b)
{
	static const int shapes[][2] = {{16, 1000}, {5, 10}, {3, 1}, {7, 1001}, {140, 37}, {6, 8}, {3, 16}};
	static const struct variant variants[] = {
		{0, 1, 0, 0}, {0.1, 1, 0, 1}, {0.1, 128, 1, 0}, {0, 1, 1, 1}, {0.1, 1, 0, 2}};

	for (int type = GN_CUDA_F32; type <= GN_CUDA_F16; type++)
		for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
			for (size_t k = 0; k < sizeof variants / sizeof *variants; k++)
				check(b, type, shapes[i][0], shapes[i][1], &variants[k]);
	bad_labels(b);
}
