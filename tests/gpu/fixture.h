/* What the checks of kernels share: guarded device memory, random inputs, comparison with the oracle, TAP.
 *
 * Inputs are random numbers rounded to the tensor's type, so that the oracle gets in double exactly what the kernel
 * gets. Outputs are NaN before a kernel runs, and have a guard of NaN on both sides that must be there afterwards. A
 * comparison passes when
 * ||got - want|| / ||want|| and the largest single difference, measured in the mean size of `want`, are small enough.
 */
#ifndef GN_TESTS_GPU_FIXTURE_H
#define GN_TESTS_GPU_FIXTURE_H

#include "kernels/cuda/kernels.h"

#define BED_PIECES_MAX 48

struct fixture_tensor {
	enum gn_cuda_type type;
	size_t count, bytes;
	char *base;   /* device, with the guards */
	void *data;   /* device */
	double *host; /* inputs: what it holds; outputs: after fixture_read what came */
};

struct fixture {
	struct gn_cuda_device *device;
	struct gn_cuda_stream *stream;
	struct gn_cuda_arena *arena;
	struct fixture_tensor pieces[BED_PIECES_MAX];
	int used;
	int misaligned; /* tensors begin one element off an aligned address */
	uint64_t random;
	int points, failed;
	char why[512]; /* the first thing that went wrong in the current point */
	struct gn_err err;
};

/* GN_ERR_NOT_FOUND and GN_ERR_UNSUPPORTED: no GPU to run on. */
enum gn_status fixture_open(struct fixture *b, int ordinal, size_t bytes, struct gn_err *err);
void fixture_close(struct fixture *b);

/* A point begins by emptying the fixture, and ends with its line of TAP. */
void fixture_begin(struct fixture *b);
void fixture_end(struct fixture *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fixture_fail(struct fixture *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* For calls that return gn_status with &b->err; nonzero when it worked. */
int fixture_ok(struct fixture *b, enum gn_status status, const char *what);

double fixture_uniform(struct fixture *b); /* in 0..1 */
double fixture_normal(struct fixture *b);  /* mean 0, deviation 1, about */
/* NULL when there is no room: the point has failed. */
struct fixture_tensor *fixture_output(struct fixture *b, enum gn_cuda_type type, size_t count);
/* mean + deviation * normal. */
struct fixture_tensor *fixture_input(struct fixture *b, enum gn_cuda_type type, size_t count, double mean, double deviation);
/* Rounds t->host to the type and brings it to the device. */
void fixture_write(struct fixture *b, struct fixture_tensor *t);
/* Waits for the stream, brings the tensor to t->host, looks at the guards. */
void fixture_read(struct fixture *b, struct fixture_tensor *t, const char *what);
/* Reads and compares. */
void fixture_compare(struct fixture *b, struct fixture_tensor *t, const double *want, double tolerance, const char *what);
/* Bytes as they are, likewise guarded. */
void *fixture_bytes(struct fixture *b, const void *from, size_t bytes);
void fixture_fetch(struct fixture *b, void *to, const void *from, size_t bytes);

/* For one rounding of a result to the type, and float arithmetic before it. */
double fixture_tolerance(enum gn_cuda_type type);
/* [n][hw][c] to [n][c][hw], and back. */
void fixture_to_planes(const double *from, int n, int c, size_t hw, double *to);
void fixture_from_planes(const double *from, int n, int c, size_t hw, double *to);
/* count doubles, zeroed; ends the program when there is no memory. */
double *fixture_doubles(size_t count);

void check_types(struct fixture *b);
void check_batch_norm(struct fixture *b);
void check_pool(struct fixture *b);
void check_loss(struct fixture *b);
void check_optim(struct fixture *b);
void check_pointwise(struct fixture *b);
void check_image(struct fixture *b);

#endif
