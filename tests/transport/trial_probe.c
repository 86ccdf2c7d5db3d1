/* The bytes that gn_tune_trials() sends, with links that have a burst of so many bytes: it is used up before each timing.
 * usage: trial_probe BURST-BYTES */
#include "src/base/log.h"
#include "transport/coll/comm.h"
#include "transport/tune/tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static enum gn_status run(struct gn_comm *comm, double burst_bytes, struct gn_err *err)
{
	struct gn_cost cost = *gn_comm_cost(comm);
	uint64_t before, after, other;
	enum gn_status status;

	cost.link.burst_bytes = burst_bytes;
	gn_comm_sent_bytes(comm, &before, &other);
	status = gn_tune_trials(comm, 0.01, 4096, &cost, err);
	gn_comm_sent_bytes(comm, &after, &other);
	if (!status && gn_comm_rank(comm) == 0)
		printf("%" PRIu64 "\n", after - before);
	return status;
}

int main(int argc, char **argv)
{
	struct gn_comm_options options = {.transport = "tcp", .tuning = "none"};
	struct gn_world *world = NULL;
	struct gn_comm *comm = NULL;
	struct gn_log *log = NULL;
	struct gn_err err = {.text = ""};
	enum gn_status status = gn_log_create(2, GN_LOG_WARN, &log, &err);

	if (!status)
		status = gn_world_create(NULL, log, &world, &err);
	if (!status)
		status = gn_comm_create(world, &options, log, &comm, &err);
	if (!status)
		status = run(comm, argc > 1 ? atof(argv[1]) : 0, &err);
	if (status)
		fprintf(stderr, "%s\n", err.text);
	gn_comm_destroy(comm);
	gn_world_destroy(world);
	gn_log_destroy(log);
	return status != GN_OK;
}
