/* A rank for tests of allreduce, reduce-scatter and allgather on memory that is not the node's, among ranks of one node: the same bits as when everyone's
 * values are reduced one after the other, in the order of ranks.
 * usage: foreign_probe          sizes around everything that is cut, all types, in place and not, several in flight
 *        foreign_probe die      the last rank kills itself in the middle of operation after operation; exit codes as gannet's
 * Prints "rank R of N: W wrong". */
#include "src/base/log.h"
#include "src/base/philox.h"
#include "tests/transport/exit_code.h"
#include "transport/coll/comm_internal.h"
#include "transport/shm/shm_internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM ((GN_BOUNCE_BUFFERS + 2) * (size_t)GN_BOUNCE_BYTES)
#define GUARD 64
#define FLIGHT 5
#define VALUES 4096
#define RANKS 8

struct probe {
	struct gn_comm *comm;
	int rank, size;
	uint32_t round;
	char *in, *out, *sum, *theirs; /* with room for guards */
	float values[RANKS][VALUES];
};

static void make_values(float *values, int rank)
{
	for (uint32_t i = 0; i < VALUES; i++) {
		uint32_t counter[4] = {i, 0, (uint32_t)rank, 0}, key[2] = {1, 2}, out[4];

		gn_philox(counter, key, out);
		values[i] = (float)((double)out[0] / 4294967296.0 - 0.5);
	}
}

/* Sums of these depend on their order. */
static void fill(const struct probe *p, int rank, enum gn_dtype type, char *data, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float v = p->values[rank][(i + p->round * 37) % VALUES] * (float)(1 + i / VALUES);
		double wide = (double)v / 3;
		uint32_t bits;
		int32_t whole = (int32_t)(v * 1e6f);
		int64_t long_whole = whole * (int64_t)1000003;
		uint16_t upper, half;

		memcpy(&bits, &v, sizeof bits);
		upper = (uint16_t)(bits >> 16);
		/* some other number, of an exponent that sums can bear */
		half = (uint16_t)(0x3800 | (bits & 0x83ff));
		switch (type) {
		case GN_F32:
			memcpy(data + 4 * i, &v, 4);
			break;
		case GN_F64:
			memcpy(data + 8 * i, &wide, 8);
			break;
		case GN_I32:
			memcpy(data + 4 * i, &whole, 4);
			break;
		case GN_I64:
			memcpy(data + 8 * i, &long_whole, 8);
			break;
		case GN_F16:
			memcpy(data + 2 * i, &half, 2);
			break;
		case GN_BF16:
			memcpy(data + 2 * i, &upper, 2);
			break;
		default:
			data[i] = (char)(bits >> 8);
		}
	}
}

/* Wrong when anything differs from what one rank alone computes, or has been written beside the buffer. */
static int is_wrong(const struct probe *p, const struct gn_coll_args *a)
{
	size_t bytes = a->count * gn_dtype_bytes(a->type);
	const char *out = a->out;

	fill(p, 0, a->type, p->sum, a->count);
	for (int r = 1; r < p->size; r++) {
		fill(p, r, a->type, p->theirs, a->count);
		gn_reduce_of(a->type, a->reduction)(p->sum, p->theirs, a->count);
	}
	if (a->reduction == GN_AVERAGE)
		gn_reduce_divide(a->type, p->sum, a->count, p->size);
	for (int i = 0; i < GUARD; i++)
		if (out[-1 - i] != 0x55 || out[bytes + (size_t)i] != 0x55)
			return 1;
	return memcmp(out, p->sum, bytes) != 0;
}

static int check(struct probe *p, size_t bytes, enum gn_dtype type, enum gn_reduction reduction, struct gn_err *err)
{
	size_t element = gn_dtype_bytes(type);
	struct gn_coll_args a = {.what = GN_COLLECTIVE_ALLREDUCE, .out = p->out + GUARD + element, .type = type,
				 .reduction = reduction, .count = bytes / element};
	int wrong = 0;

	if (type == GN_BYTES && (reduction == GN_SUM || reduction == GN_AVERAGE))
		return 0;
	for (int in_place = 0; in_place < 2; in_place++) {
		p->round++;
		a.in = in_place ? NULL : p->in + GUARD;
		memset(p->out, 0x55, ROOM + 4 * GUARD);
		fill(p, p->rank, type, in_place ? a.out : p->in + GUARD, a.count);
		if (gn_comm_run(p->comm, &a, err))
			return -1;
		if (is_wrong(p, &a)) {
			fprintf(stderr, "rank %d: %zu bytes of %s, %s, %s: wrong\n", p->rank, bytes, gn_dtype_name(type),
				gn_reduction_name(reduction), in_place ? "in place" : "out of place");
			wrong++;
		}
	}
	return wrong;
}

static int check_sizes(struct probe *p, struct gn_err *err)
{
	static const size_t sizes[] = {GN_EAGER_BYTES + 8, GN_BOUNCE_SHARES_BYTES - 8, GN_BOUNCE_SHARES_BYTES,
				       GN_BOUNCE_SHARES_BYTES + 72, GN_BOUNCE_BYTES - 8, GN_BOUNCE_BYTES, GN_BOUNCE_BYTES + 8,
				       2 * GN_BOUNCE_BYTES + 200, (GN_BOUNCE_BUFFERS + 1) * (size_t)GN_BOUNCE_BYTES + 24};
	int wrong = 0, got = 0;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes && got >= 0; i++)
		for (int type = 0; type < GN_DTYPE_COUNT && got >= 0; type++)
			for (int red = 0; red < GN_REDUCTION_COUNT && got >= 0; red++)
				/* other reductions once are enough, and types of each size where it is long */
				if (sizes[i] == GN_BOUNCE_SHARES_BYTES || (!red && (sizes[i] < GN_BOUNCE_BYTES || type < GN_I32)) ||
				    (!red && sizes[i] == GN_BOUNCE_BYTES + 8))
					wrong += got = check(p, sizes[i], (enum gn_dtype)type, (enum gn_reduction)red, err);
	return got < 0 ? -1 : wrong;
}

/* Every block that comes to this rank is right: sums of a scatter, blocks of a gather. */
static int are_blocks_wrong(struct probe *p, const struct gn_coll_args *a)
{
	size_t each = a->count * gn_dtype_bytes(a->type), all = each * (size_t)p->size;
	int scatters = a->what == GN_COLLECTIVE_REDUCE_SCATTER, wrong = 0;
	const char *out = a->out;

	for (int r = 0; r < p->size; r++) {
		fill(p, r, a->type, p->theirs, scatters ? a->count * (size_t)p->size : a->count);
		if (!scatters)
			wrong |= memcmp(out + (size_t)r * each, p->theirs, each) != 0;
		else if (!r)
			memcpy(p->sum, p->theirs + (size_t)p->rank * each, each);
		else
			gn_reduce_of(a->type, a->reduction)(p->sum, p->theirs + (size_t)p->rank * each, a->count);
	}
	if (scatters && a->reduction == GN_AVERAGE)
		gn_reduce_divide(a->type, p->sum, a->count, p->size);
	for (int i = 0; i < GUARD; i++)
		wrong |= out[-1 - i] != 0x55 || out[(scatters ? each : all) + (size_t)i] != 0x55;
	return wrong || (scatters && memcmp(out, p->sum, each) != 0);
}

static int check_blocks(struct probe *p, size_t bytes, enum gn_dtype type, enum gn_collective what, int in_place, struct gn_err *err)
{
	size_t element = gn_dtype_bytes(type), blocks = (size_t)p->size;
	struct gn_coll_args a = {.what = what, .out = p->out + GUARD, .type = type, .count = bytes / element,
				 .reduction = type == GN_F32 && bytes % 3 ? GN_AVERAGE : GN_SUM};
	int scatters = what == GN_COLLECTIVE_REDUCE_SCATTER, wrong;
	struct gn_coll *coll = NULL;
	enum gn_status status;

	a.in = in_place ? NULL : p->in + GUARD;
	p->round++;
	memset(p->out, 0x55, ROOM + 4 * GUARD);
	fill(p, p->rank, type, in_place ? p->out + GUARD + (size_t)p->rank * a.count * element : p->in + GUARD, a.count * (scatters ? blocks : 1));
	status = gn_coll_prepare(p->comm, &a, &coll, err);
	/* these are to go through bounce buffers */
	if (!status && p->size > 1 && strcmp(coll->info.algorithm, "shared"))
		status = gn_err_set(err, GN_ERR_FAILED, "%zu bytes of blocks go by %s", bytes, coll->info.algorithm);
	if (!status)
		status = gn_coll_start(coll, NULL, err);
	if (!status)
		status = gn_coll_wait(coll, err);
	gn_coll_free(coll);
	wrong = status ? -1 : are_blocks_wrong(p, &a);
	if (wrong > 0)
		fprintf(stderr, "rank %d: %s of %zu bytes of %s: wrong\n", p->rank, gn_collective_name(what), bytes, gn_dtype_name(type));
	return wrong;
}

static int check_all_blocks(struct probe *p, struct gn_err *err)
{
	static const size_t sizes[] = {64u << 10, GN_BOUNCE_BYTES / 4 + 8, GN_BOUNCE_BYTES / 2, GN_BOUNCE_BYTES - 8, GN_BOUNCE_BYTES,
				       GN_BOUNCE_BYTES + 8, 2 * GN_BOUNCE_BYTES + 24};
	int wrong = 0, got = 0;

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes && got >= 0; i++)
		for (int type = 0; type < GN_DTYPE_COUNT && got >= 0; type++) {
			if (type != GN_BYTES)
				wrong += got = check_blocks(p, sizes[i], (enum gn_dtype)type, GN_COLLECTIVE_REDUCE_SCATTER, 0, err);
			for (int in_place = 0; in_place < 2 && got >= 0; in_place++)
				wrong += got = check_blocks(p, sizes[i], (enum gn_dtype)type, GN_COLLECTIVE_ALLGATHER, in_place, err);
		}
	return got < 0 ? -1 : wrong;
}

/* Long and short ones, and one in the node's memory, started one after the other, waited for in another order. */
static int check_flight(struct probe *p, struct gn_err *err)
{
	static const size_t counts[FLIGHT] = {300001, 700, 5000, 90000, 9001};
	struct gn_coll *coll[FLIGHT];
	char *data[FLIGHT];
	int wrong = 0;

	for (int i = 0; i < FLIGHT; i++) {
		struct gn_coll_args a = {.what = GN_COLLECTIVE_ALLREDUCE, .count = counts[i]};
		void *node = NULL;

		if (i == 3 && gn_comm_alloc(p->comm, counts[i] * 4 + (size_t)2 * GUARD, &node, err))
			return -1;
		data[i] = i == 3 ? node : malloc(counts[i] * 4 + (size_t)2 * GUARD);
		if (!data[i])
			abort();
		a.out = data[i] + GUARD;
		if (gn_coll_prepare(p->comm, &a, &coll[i], err))
			return -1;
	}
	for (int round = 0; round < 5; round++) {
		p->round++;
		for (int i = 0; i < FLIGHT; i++) {
			memset(data[i], 0x55, counts[i] * 4 + (size_t)2 * GUARD);
			fill(p, p->rank, GN_F32, data[i] + GUARD, counts[i]);
			if (gn_coll_start(coll[i], NULL, err))
				return -1;
		}
		for (int i = 0; i < FLIGHT; i++)
			if (gn_coll_wait(coll[(i * 2 + p->rank) % FLIGHT], err))
				return -1;
		for (int i = 0; i < FLIGHT; i++) {
			struct gn_coll_args a = {.count = counts[i], .out = data[i] + GUARD};

			wrong += is_wrong(p, &a);
		}
	}
	for (int i = 0; i < FLIGHT; i++) {
		gn_coll_free(coll[i]);
		if (i == 3)
			gn_comm_free(p->comm, data[i]);
		else
			free(data[i]);
	}
	return wrong;
}

/* Long enough to die in the middle of: the others must never see it end well. */
static int until_death(struct probe *p, struct gn_err *err)
{
	struct gn_coll_args a = {.what = GN_COLLECTIVE_ALLREDUCE, .out = p->out, .count = ROOM / 4};
	struct gn_coll *coll = NULL;
	enum gn_status status;

	memset(p->out, 0, ROOM);
	status = gn_coll_prepare(p->comm, &a, &coll, err);
	for (int i = 0; i < 1000 && !status; i++) {
		status = gn_coll_start(coll, NULL, err);
		/* some of it is done */
		if (i == 20 && p->rank == p->size - 1) {
			gn_comm_progress(p->comm);
			raise(SIGKILL);
		}
		if (!status)
			status = gn_coll_wait(coll, err);
	}
	gn_coll_free(coll);
	return status ? -1 : 0;
}

static int run(struct probe *p, int dies, struct gn_err *err)
{
	int wrong, more;

	if (gn_comm_size(p->comm) > RANKS) {
		gn_err_set(err, GN_ERR_USAGE, "%d ranks at most", RANKS);
		return -1;
	}
	p->rank = gn_comm_rank(p->comm);
	p->size = gn_comm_size(p->comm);
	p->in = malloc(ROOM + 4 * (size_t)GUARD);
	p->out = malloc(ROOM + 4 * (size_t)GUARD);
	for (int r = 0; r < p->size; r++)
		make_values(p->values[r], r);
	p->sum = malloc(ROOM);
	p->theirs = malloc(ROOM);
	if (!p->in || !p->out || !p->sum || !p->theirs)
		abort();
	if (dies) {
		wrong = until_death(p, err);
	} else {
		wrong = check_sizes(p, err);
		more = wrong < 0 ? -1 : check_flight(p, err);
		wrong = more < 0 ? -1 : wrong + more;
		more = wrong < 0 ? -1 : check_all_blocks(p, err);
		wrong = more < 0 ? -1 : wrong + more;
	}
	free(p->in);
	free(p->out);
	free(p->sum);
	free(p->theirs);
	return wrong;
}

int main(int argc, char **argv)
{
	struct probe p = {0};
	struct gn_world *world = NULL;
	struct gn_log *log = NULL;
	struct gn_err err = {0};
	int wrong = -1;

	gn_log_create(2, GN_LOG_WARN, &log, NULL);
	if (!gn_world_create(NULL, log, &world, &err) && !gn_comm_create(world, NULL, log, &p.comm, &err))
		wrong = run(&p, argc > 1 && !strcmp(argv[1], "die"), &err);
	if (wrong >= 0)
		printf("rank %d of %d: %d wrong\n", p.rank, p.size, wrong);
	gn_comm_destroy(p.comm);
	gn_world_destroy(world);
	gn_log_destroy(log);
	return wrong < 0 ? exit_code(&err) : wrong != 0;
}
