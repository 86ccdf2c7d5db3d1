/* What a rank has sent leaves while it makes no calls, when a thread makes progress for it.
 * usage: tail_probe    two ranks over tcp; the second receives slowly, so that sockets are full when the first is done, and then
 * waits; the first calls nothing until then. Exit code 1 when it waits in vain, or anything fails. */
#include "src/base/log.h"
#include "transport/coll/p2p.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* LIMIT_MS: only against what hangs */
enum { ROUNDS = 40, BYTES = 1000000, MORE = 12503, SLOW_MS = 20, LIMIT_MS = 250000 };

static void nap(void)
{
	nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Returns 1 when it never comes. */
static int receive(struct gn_p2p *p, struct gn_err *err)
{
	int done = 0;

	for (int ms = 0; !done && ms < LIMIT_MS; ms++) {
		for (int turn = 0; !done && turn < (ms < SLOW_MS ? 1 : 100); turn++)
			if (gn_p2p_test(p, &done, err))
				return -1;
		nap();
	}
	return !done;
}

/* The world's barrier is not the communicator's business. */
static int one_round(struct gn_world *world, struct gn_comm *comm, char *data, size_t bytes, struct gn_err *err)
{
	int rank = gn_comm_rank(comm), late = 0;
	struct gn_p2p *p;
	struct gn_p2p_args args = {.peer = !rank, .data = data, .len_bytes = bytes};

	if ((rank ? gn_p2p_prepare_receive(comm, &args, &p, err) : gn_p2p_prepare_send(comm, &args, &p, err)) ||
	    gn_p2p_start(p, NULL, err))
		return -1;
	if (!rank && gn_p2p_wait(p, err))
		return -1;
	if (rank)
		late = receive(p, err);
	if (late < 0 || gn_world_barrier(world, err) || gn_p2p_wait(p, err))
		return -1;
	gn_p2p_free(p);
	return late;
}

int main(void)
{
	struct gn_comm_options options = {.transport = "tcp", .tuning = "none"};
	struct gn_world *world = NULL;
	struct gn_comm *comm = NULL;
	struct gn_log *log = NULL;
	struct gn_err err = {0};
	char *data = calloc(1, BYTES + ROUNDS * MORE);
	int late = 0, got = -1;

	gn_log_create(2, GN_LOG_INFO, &log, NULL);
	if (!data)
		abort();
	if (!gn_world_create(NULL, log, &world, &err))
		options.progress = gn_world_rank(world) ? "caller" : "thread";
	if (world && !gn_comm_create(world, &options, log, &comm, &err))
		got = 0;
	for (int i = 0; i < ROUNDS && got >= 0; i++) {
		got = one_round(world, comm, data, (size_t)BYTES + (size_t)i * MORE, &err);
		late += got > 0;
	}
	if (got < 0)
		fprintf(stderr, "failed: %s\n", err.text);
	else
		printf("rank %d: %d late\n", gn_comm_rank(comm), late);
	gn_comm_destroy(comm);
	gn_world_destroy(world);
	gn_log_destroy(log);
	free(data);
	return got < 0 || late > 0;
}
