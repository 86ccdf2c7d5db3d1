/* Vaswani et al. 2017, "Attention is all you need", section 3.2; Dosovitskiy et al. 2021 for the tokens. */
#include "kernels/ref/ref.h"

#include <math.h>

void gn_ref_tokens_forward(int n, int c, size_t count, const double *x, const double *token, const double *position, double *y)
{
	for (size_t map = 0; map < (size_t)n * c; map++)
		for (size_t i = 0; i <= count; i++)
			y[map * (count + 1) + i] = (i ? x[map * count + i - 1] : token[map % c]) + position[i * c + map % c];
}

void gn_ref_tokens_backward(int n, int c, size_t count, const double *dy, double *dx, double *dtoken, double *dposition)
{
	for (size_t k = 0; k < (count + 1) * c; k++)
		dposition[k] = 0;
	for (size_t map = 0; map < (size_t)n * c; map++)
		for (size_t i = 0; i <= count; i++) {
			dposition[i * c + map % c] += dy[map * (count + 1) + i];
			if (i && dx)
				dx[map * count + i - 1] = dy[map * (count + 1) + i];
		}
	for (int k = 0; k < c; k++)
		dtoken[k] = dposition[k];
}

/* Row i of softmax(q k^T / sqrt(size)); q and k are [size][count]. */
static void probabilities(int size, size_t count, const double *q, const double *k, size_t i, double *p)
{
	double most = -INFINITY, sum = 0;

	for (size_t j = 0; j < count; j++) {
		p[j] = 0;
		for (int d = 0; d < size; d++)
			p[j] += q[d * count + i] * k[d * count + j];
		p[j] /= sqrt(size);
		most = p[j] > most ? p[j] : most;
	}
	for (size_t j = 0; j < count; j++)
		sum += p[j] = exp(p[j] - most);
	for (size_t j = 0; j < count; j++)
		p[j] /= sum;
}

void gn_ref_attention_forward(int n, int heads, int size, size_t count, const double *x, double *y, double *room)
{
	size_t head = (size_t)size * count, all = heads * head;

	for (int image = 0; image < n; image++)
		for (int h = 0; h < heads; h++) {
			const double *q = x + image * 3 * all + h * head, *k = q + all, *v = k + all;

			for (size_t i = 0; i < count; i++) {
				probabilities(size, count, q, k, i, room);
				for (int d = 0; d < size; d++) {
					double sum = 0;

					for (size_t j = 0; j < count; j++)
						sum += room[j] * v[d * count + j];
					y[image * all + h * head + d * count + i] = sum;
				}
			}
		}
}

/* Of row i: adds to dk and dv, sets dq. */
static void row_backward(int size, size_t count, const double *q, const double *k, const double *v, const double *dy, size_t i, double *dq,
			 double *dk, double *dv, double *p)
{
	double *ds = p + count, dot = 0;

	probabilities(size, count, q, k, i, p);
	for (size_t j = 0; j < count; j++) {
		ds[j] = 0;
		for (int d = 0; d < size; d++) {
			ds[j] += dy[d * count + i] * v[d * count + j];
			dv[d * count + j] += p[j] * dy[d * count + i];
		}
		dot += p[j] * ds[j];
	}
	for (size_t j = 0; j < count; j++)
		ds[j] = p[j] * (ds[j] - dot) / sqrt(size);
	for (int d = 0; d < size; d++)
		for (size_t j = 0; j < count; j++) {
			dq[d * count + i] += ds[j] * k[d * count + j];
			dk[d * count + j] += ds[j] * q[d * count + i];
		}
}

void gn_ref_attention_backward(int n, int heads, int size, size_t count, const double *x, const double *dy, double *dx, double *room)
{
	size_t head = (size_t)size * count, all = heads * head;

	for (size_t k = 0; k < 3 * n * all; k++)
		dx[k] = 0;
	for (int image = 0; image < n; image++)
		for (int h = 0; h < heads; h++) {
			size_t at = image * 3 * all + h * head;

			for (size_t i = 0; i < count; i++)
				row_backward(size, count, x + at, x + at + all, x + at + 2 * all, dy + image * all + h * head, i, dx + at,
					     dx + at + all, dx + at + 2 * all, room);
		}
}
