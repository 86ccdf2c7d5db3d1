/* A rank that exchanges gradients of a network: of the host's memory, and of a device's (tests/transport/late_device.h), with and without overlap, with gradients that never become ready. Sums are exact.
 * usage: exchange_probe      Exit codes as gannet's; 99: a wrong sum. */
#include "tests/transport/exit_code.h"
#include "tests/transport/late_device.h"
#include "src/train/parallel/reducer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRONG 99
#define STEPS 4
#define TAIL 5

static float given(int rank, size_t i, int step)
{
	return (float)((i * 7 + (size_t)rank * 13 + (size_t)step * 5) % 101) - 50;
}

static enum gn_status one_step(struct gn_reducer *x, const struct gn_model *model, struct gn_comm *comm, float *flat,
			       size_t count, int step, struct gn_err *err)
{
	int params = gn_model_param_count(model), rank = gn_comm_rank(comm), size = gn_comm_size(comm);
	enum gn_status status;

	for (size_t i = 0; i < count; i++)
		flat[i] = given(rank, i, step);
	gn_reducer_begin(x);
	/* each rank misses others, which leave at the end */
	for (int p = params - 1; p >= 0; p--)
		if (step < 2 || (p + rank) % 7)
			gn_reducer_ready(x, p, NULL);
	status = gn_reducer_wait(x, err);
	for (size_t i = 0; !status && i < count; i++) {
		float sum = 0;

		for (int r = 0; r < size; r++)
			sum += given(r, i, step);
		if (flat[i] == sum)
			continue;
		fprintf(stderr, "WRONG: element %zu of %zu in step %d is %g, not %g\n", i, count, step,
			(double)flat[i], (double)sum);
		_exit(WRONG);
	}
	return status;
}

static enum gn_status steps(struct gn_reducer *x, const struct gn_model *model, struct gn_comm *comm, float *flat,
			    size_t count, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	for (int step = 0; step < STEPS && !status; step++)
		status = one_step(x, model, comm, flat, count, step, err);
	if (!status)
		printf("rank %d: %zu buckets are right\n", gn_comm_rank(comm), gn_reducer_buckets(x));
	gn_reducer_destroy(x);
	return status;
}

static enum gn_status run(struct gn_comm *comm, const struct gn_model *model, float *flat, struct gn_err *err)
{
	size_t count = gn_model_param_elements(model) + TAIL;
	enum gn_status status = GN_OK;

	for (int overlap = 0; overlap < 2 && !status; overlap++) {
		struct gn_reducer_config config = {100000, overlap};
		struct gn_sharing_options o = {.comm = comm, .model = model, .flat = flat, .tail_elements = TAIL, .algo = "auto"};
		struct gn_reducer *x;

		status = gn_reducer_create(&o, &config, &x, err);
		if (!status)
			status = steps(x, model, comm, flat, count, err);
		if (!status)
			o.memory = GN_MEMORY_DEVICE, status = gn_reducer_create(&o, &config, &x, err);
		if (!status)
			status = steps(x, model, comm, flat, count, err);
	}
	return status;
}

int main(void)
{
	struct late_device_options lo = {.seed = 3, .pause_max_us = 100};
	struct gn_comm_options options = {.transport = "auto", .tuning = "none"};
	struct gn_comm_device how = {.how = "staged", .chunk_bytes = 30000, .slots = 3};
	struct gn_world *world = NULL;
	struct gn_comm *comm = NULL;
	struct gn_model *model = NULL;
	struct gn_device *device = NULL;
	float *flat = NULL;
	struct gn_err err;
	enum gn_status status = gn_world_create(NULL, NULL, &world, &err);

	if (!status)
		status = gn_comm_create(world, &options, NULL, &comm, &err);
	if (!status)
		status = gn_model_create("resnet20", 10, 3, 32, &model, &err);
	if (!status)
		flat = malloc((gn_model_param_elements(model) + TAIL) * sizeof *flat);
	if (!status && !flat)
		status = gn_err_set(&err, GN_ERR_NO_MEMORY, "no memory");
	if (!status)
		status = late_device_create(&lo, &device, &err);
	how.device = device;
	if (!status)
		status = gn_comm_attach(comm, &how, NULL, &err);
	if (!status)
		status = run(comm, model, flat, &err);
	free(flat);
	gn_model_destroy(model);
	gn_comm_destroy(comm);
	gn_device_close(device);
	gn_world_destroy(world);
	return status ? exit_code(&err) : 0;
}
