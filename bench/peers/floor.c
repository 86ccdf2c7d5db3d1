/* The least that can be done between processes of one machine, for a bound and not for use: buffers that all share, one flag
 * a rank, each rank reduces its part from all buffers and writes the result into all. Small sums go by mail: each rank adds
 * up everyone's values for itself. No choice, no failure handling, no other transport. */
#include "bench/peers/peer.h"

#include <immintrin.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_MAX 64
#define MAIL_BYTES 2048
#define LINE 64

/* Flag and first values share a line: one transfer brings both. */
struct letter {
	_Alignas(LINE) _Atomic unsigned flag;
	float values[(LINE - 4) / 4 + MAIL_BYTES / 4];
};

struct shared {
	struct letter mail[2][RANKS_MAX];
	struct {
		_Alignas(LINE) _Atomic unsigned flag;
	} here[RANKS_MAX];
	double values[RANKS_MAX][1 << 20];
};

static struct shared *shared;
static char *buffers; /* in and out of each rank */
static size_t stride;
static unsigned sequence, meetings;
static int crowded;

static void await(const _Atomic unsigned *flag, unsigned value)
{
	for (unsigned spins = 0; (int)(atomic_load_explicit(flag, memory_order_acquire) - value) < 0; spins++) {
		if (crowded && spins >= 16)
			sched_yield();
		else
			_mm_pause();
	}
}

static void meet(const struct peer *p)
{
	atomic_store_explicit(&shared->here[p->rank].flag, ++meetings, memory_order_release);
	for (int r = 0; r < p->size; r++)
		await(&shared->here[r].flag, meetings);
}

static void bind(int rank, int size)
{
	cpu_set_t all, mine;

	if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < size) {
		crowded = 1;
		return;
	}
	CPU_ZERO(&mine);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && !rank--)
			CPU_SET(cpu, &mine);
	sched_setaffinity(0, sizeof mine, &mine);
}

void peer_open(int *argc, char ***argv, int ranks, size_t buffer_bytes, struct peer *p)
{
	(void)argc;
	(void)argv;
	stride = (buffer_bytes + 4095) / 4096 * 4096;
	if (ranks < 1 || ranks > RANKS_MAX)
		peer_fail("floor: from 1 to %d ranks", RANKS_MAX);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	buffers = mmap(NULL, 2 * stride * (size_t)ranks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || buffers == MAP_FAILED)
		peer_fail("floor: no shared memory");
	p->size = ranks;
	for (int r = 1; r < ranks && !p->rank; r++)
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			p->rank = r;
		}
	bind(p->rank, ranks);
	p->in = (float *)(buffers + 2 * stride * (size_t)p->rank);
	p->out = (float *)(buffers + 2 * stride * (size_t)p->rank + stride);
}

/* Rank 0's values first, on all ranks. */
static void by_mail(struct peer *p, const float *in, float *out, size_t count)
{
	struct letter *mail = shared->mail[++sequence % 2];

	memcpy(mail[p->rank].values, in, count * sizeof *in);
	atomic_store_explicit(&mail[p->rank].flag, sequence, memory_order_release);
	for (int r = 0; r < p->size; r++) {
		const float *theirs = mail[r].values;

		await(&mail[r].flag, sequence);
		if (!r) {
			memcpy(out, theirs, count * sizeof *out);
			continue;
		}
#pragma omp simd
		for (size_t i = 0; i < count; i++)
			out[i] += theirs[i];
	}
}

/* Two or four at a time, so that each value is read once and stays in a register until it is written to all. */
static void reduce_two(const float *a, const float *b, float *x, float *y, size_t n)
{
#pragma omp simd
	for (size_t i = 0; i < n; i++)
		x[i] = y[i] = a[i] + b[i];
}

static void reduce_four(const float *const *in, float *const *out, size_t n)
{
	const float *a = in[0], *b = in[1], *c = in[2], *d = in[3];
	float *w = out[0], *x = out[1], *y = out[2], *z = out[3];

#pragma omp simd
	for (size_t i = 0; i < n; i++)
		w[i] = x[i] = y[i] = z[i] = a[i] + b[i] + c[i] + d[i];
}

static void reduce_any(const struct peer *p, const float *const *in, float *const *out, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float sum = in[0][i];

		for (int r = 1; r < p->size; r++)
			sum += in[r][i];
		for (int r = 0; r < p->size; r++)
			out[r][i] = sum;
	}
}

static void directly(struct peer *p, size_t in_at, size_t count)
{
	size_t line = LINE / sizeof(float), share = (count / (size_t)p->size + line - 1) / line * line;
	size_t from = share * (size_t)p->rank < count ? share * (size_t)p->rank : count;
	size_t n = count - from < share ? count - from : share;
	const float *in[RANKS_MAX];
	float *out[RANKS_MAX];

	if (p->rank == p->size - 1)
		n = count - from;
	for (int r = 0; r < p->size; r++) {
		in[r] = (const float *)(buffers + 2 * stride * (size_t)r + in_at) + from;
		out[r] = (float *)(buffers + 2 * stride * (size_t)r + stride) + from;
	}
	meet(p);
	if (p->size == 2)
		reduce_two(in[0], in[1], out[0], out[1], n);
	else if (p->size == 4)
		reduce_four(in, out, n);
	else
		reduce_any(p, in, out, n);
	meet(p);
}

void peer_sum(struct peer *p, const float *in, float *out, size_t count)
{
	if (count * sizeof *out <= MAIL_BYTES)
		by_mail(p, in ? in : out, out, count);
	else
		directly(p, in ? 0 : stride, count);
}

void peer_max(struct peer *p, double *values, size_t count)
{
	if (count > sizeof shared->values[0] / sizeof *values)
		peer_fail("floor: too many times");
	memcpy(shared->values[p->rank], values, count * sizeof *values);
	meet(p);
	for (int r = 0; r < p->size; r++)
		for (size_t i = 0; i < count; i++)
			if (shared->values[r][i] > values[i])
				values[i] = shared->values[r][i];
	meet(p);
}

void peer_close(struct peer *p)
{
	meet(p);
	while (p->rank == 0 && wait(NULL) > 0)
		;
}
