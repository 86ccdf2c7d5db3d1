/* What the processes of a program have to agree on before it starts: where rank 0 is reached, by an address that was tried from every
 * node, and on a free port; an address and a port of each; network devices that connect all nodes; which GPUs and processors are whose.
 *
 * Collective. Whatever would give a wrong world is an error on all ranks, with the same text, which names the rank and its host: the
 * program is missing there, MASTER_ADDR leads elsewhere or does not resolve, MASTER_PORT is taken, ranks were given different ones.
 */
#ifndef GN_JOBS_EXEC_MEET_H
#define GN_JOBS_EXEC_MEET_H

#include "src/base/status.h"
#include "src/jobs/exec_environment.h"
#include "transport/bootstrap/world.h"

#include <sched.h>

struct gn_exec_request {
	const char *program;	/* looked for in PATH when it has no slash */
	const char *ifnames;	/* interfaces of rank 0 to try, as gn_net_ifname_matches() reads them; NULL: all */
	const char *master_addr; /* as the user has set them, NULL: not */
	const char *master_port;
	int per_node, ps, horovod; /* horovod: a port for its key-value store is wanted */
};

struct gn_exec_meeting {
	struct gn_exec_place place; /* its texts are the meeting's */
	cpu_set_t cores;	    /* this rank's share of the processors near its GPU; none: as they are */
	int horovod_listener;	    /* rank 0: where the store listens; -1: none */
	char master_addr[256], address[64], ifname[64], ucx_devices[512], gpus[256];
	char **endpoints;
};

/* At most some seconds, and what gn_ucx_tried_devices() takes; the join limit of the world while other ranks are missing. *out is released by
 * gn_exec_meeting_release(). GN_ERR_USAGE: the world would be a wrong one; other codes: a rank was lost, no memory. */
enum gn_status gn_exec_meet(struct gn_world *world, const struct gn_exec_request *request, struct gn_exec_meeting *out,
			    struct gn_err *err);
void gn_exec_meeting_release(struct gn_exec_meeting *m);

/* The key-value store over HTTP by which Horovod's Gloo processes find each other: what horovodrun would serve.
 *
 * PUT, GET and DELETE of /SCOPE/KEY; a key that is not there yet is 404, and Horovod asks again. Keys are kept until the end.
 * At most 64 MiB in all. A thread of its own. Like horovodrun's, it is open to whoever reaches the port. */

struct gn_exec_horovod;

/* listener is borrowed, and listens. */
enum gn_status gn_exec_horovod_start(int listener, struct gn_exec_horovod **out, struct gn_err *err);
/* NULL is fine. */
void gn_exec_horovod_stop(struct gn_exec_horovod *h);

#endif
