#include "kernels/backend.h"

#include <math.h>
#include <string.h>

/* The target of one image; pair_label equals label without mixup. */
struct target {
	int label, pair_label;
	double lambda, smoothing;
};

/* Double precision throughout (a batch of logits is small), so that the mean over ranks equals the loss of a single rank. */
static double one_image(int classes, const float *logits, const struct target *t, double scale, float *dlogits)
{
	double sum = 0, shifted = 0, rest = t->smoothing / classes, own = (1 - t->smoothing) * t->lambda;
	double mixed = (1 - t->smoothing) * (1 - t->lambda), log_sum;
	float top = logits[0];

	for (int k = 1; k < classes; k++)
		top = logits[k] > top ? logits[k] : top;
	for (int k = 0; k < classes; k++) {
		sum += exp((double)logits[k] - top);
		shifted += (double)logits[k] - top;
	}
	log_sum = log(sum);
	for (int k = 0; k < classes; k++)
		dlogits[k] = (float)((exp((double)logits[k] - top - log_sum) - rest) * scale);
	dlogits[t->label] -= (float)(own * scale);
	dlogits[t->pair_label] -= (float)(mixed * scale);
	return log_sum - own * ((double)logits[t->label] - top) - mixed * ((double)logits[t->pair_label] - top) - (rest > 0 ? rest * shifted : 0);
}

/* The same with a weight of each class: the target's parts are multiplied by it, and no longer add up to 1. */
static double one_weighted(int classes, const float *logits, const struct target *t, const double *weights, double scale, float *dlogits)
{
	const double rest = t->smoothing / classes, own = (1 - t->smoothing) * t->lambda, mixed = (1 - t->smoothing) * (1 - t->lambda);
	double sum = 0, whole = 0, loss = 0, log_sum;
	float top = logits[0];

	for (int k = 1; k < classes; k++)
		top = logits[k] > top ? logits[k] : top;
	for (int k = 0; k < classes; k++)
		sum += exp((double)logits[k] - top);
	log_sum = log(sum);
	for (int k = 0; k < classes; k++) {
		double target = weights[k] * (rest + (k == t->label ? own : 0) + (k == t->pair_label ? mixed : 0));

		whole += target;
		loss += target * (log_sum - ((double)logits[k] - top));
		dlogits[k] = (float)(-target * scale);
	}
	for (int k = 0; k < classes; k++)
		dlogits[k] += (float)(whole * exp((double)logits[k] - top - log_sum) * scale);
	return loss;
}

double gn_host_softmax_cross_entropy(int batch, int classes, const float *logits, const struct gn_targets *targets,
				     int counted, double smoothing, float *dlogits)
{
	const int32_t *labels = targets->labels;
	double loss = 0;

	for (int n = 0; n < batch; n++) {
		size_t row = (size_t)n * classes;
		struct target t = {labels[n], labels[n], 1, smoothing};

		if (targets->pair_labels) {
			t.pair_label = targets->pair_labels[n];
			t.lambda = targets->lambdas[n];
		}

		if (labels[n] < 0)
			memset(dlogits + row, 0, classes * sizeof *dlogits);
		else if (targets->class_weights)
			loss += one_weighted(classes, logits + row, &t, targets->class_weights, 1.0 / counted, dlogits + row);
		else
			loss += one_image(classes, logits + row, &t, 1.0 / counted, dlogits + row);
	}
	return counted ? loss / counted : 0;
}
