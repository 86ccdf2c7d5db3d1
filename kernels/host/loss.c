#include "kernels/op_internal.h"

#include <math.h>
#include <string.h>

/* A batch of logits is small: in double throughout, so that the loss of every rank adds up to that of one. */
static double one_image(int classes, const float *logits, int label, double smoothing, double scale, float *dlogits)
{
	double sum = 0, shifted = 0, rest = smoothing / classes, log_sum;
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
	dlogits[label] -= (float)((1 - smoothing) * scale);
	return log_sum - (1 - smoothing) * ((double)logits[label] - top) - rest * shifted;
}

double gn_host_softmax_cross_entropy(int batch, int classes, const float *logits, const int32_t *labels, int counted,
				     double smoothing, float *dlogits)
{
	double loss = 0;

	for (int n = 0; n < batch; n++) {
		size_t row = (size_t)n * classes;

		if (labels[n] < 0)
			memset(dlogits + row, 0, classes * sizeof *dlogits);
		else
			loss += one_image(classes, logits + row, labels[n], smoothing, 1.0 / counted, dlogits + row);
	}
	return counted ? loss / counted : 0;
}
