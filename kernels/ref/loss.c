#include "kernels/backend.h"

#include <math.h>
#include <string.h>

/* Subtracting the maximum keeps exp() in range; the loss is then log(sum) - (target . shifted logits) for targets of sum 1. */
double gn_ref_softmax_cross_entropy(int batch, int classes, const double *logits, const struct gn_targets *targets,
				    int counted, double smoothing, double *dlogits)
{
	const int32_t *labels = targets->labels;
	double loss = 0;

	memset(dlogits, 0, (size_t)batch * classes * sizeof *dlogits);
	for (int n = 0; n < batch; n++, logits += classes, dlogits += classes) {
		double top = logits[0], sum = 0, whole = 0;

		if (labels[n] < 0)
			continue;
		for (int k = 1; k < classes; k++)
			top = logits[k] > top ? logits[k] : top;
		for (int k = 0; k < classes; k++)
			sum += exp(logits[k] - top);
		for (int k = 0; k < classes; k++) {
			double lambda = targets->pair_labels ? targets->lambdas[n] : 1;
			double own = k == labels[n] ? lambda : 0;
			double mixed = targets->pair_labels && k == targets->pair_labels[n] ? 1 - lambda : 0;
			double weight = targets->class_weights ? targets->class_weights[k] : 1;
			double target = ((own + mixed) * (1 - smoothing) + smoothing / classes) * weight;

			loss += target > 0 ? target * (log(sum) - (logits[k] - top)) : 0;
			whole += target;
			dlogits[k] = -target / counted;
		}
		whole = targets->class_weights ? whole : 1;
		for (int k = 0; k < classes; k++)
			dlogits[k] += whole * exp(logits[k] - top) / sum / counted;
	}
	return counted ? loss / counted : 0;
}
