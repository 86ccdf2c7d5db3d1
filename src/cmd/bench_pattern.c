#include "src/cmd/bench_pattern.h"

#include <string.h>

#define PERIOD 61

static float given(int rank, size_t i)
{
	return (float)((i * 7 + (size_t)rank * 13) % PERIOD) - 30.0f;
}

void gn_pattern_fill(float *data, size_t count, int rank)
{
	size_t done = count < PERIOD ? count : PERIOD, more;

	for (size_t i = 0; i < done; i++)
		data[i] = given(rank, i);
	/* whole periods double until the end */
	for (; done < count; done += more) {
		more = count - done < done ? count - done : done;
		memcpy(data + done, data, more * sizeof *data);
	}
}

int64_t gn_pattern_wrong_sums(const float *data, size_t count, int size)
{
	float sums[PERIOD] = {0};
	int64_t wrong = 0;

	for (size_t i = 0; i < PERIOD; i++)
		for (int r = 0; r < size; r++)
			sums[i] += given(r, i);
	for (size_t at = 0; at < count; at += PERIOD) {
		size_t n = count - at < PERIOD ? count - at : PERIOD;

		/* values, not bits: a sum may be minus zero */
		for (size_t i = 0; i < n; i++)
			wrong += data[at + i] != sums[i];
	}
	return wrong;
}
