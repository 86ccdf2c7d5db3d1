/* What parameter servers follow: which server has which part of the parameters, and which worker may go on when.
 *
 * Modes. sync: a step's gradients of all workers are added in rank order and applied once. async: every worker's gradients are applied
 * as they come (Dean et al. 2012, "Large scale distributed deep networks"). ssp: the same, and a worker is at most `bound` clocks ahead of
 * the slowest one (Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server"). A clock is one
 * step of one worker.
 *
 * Pure functions. Internal to src/train.
 */
#ifndef GN_TRAIN_PARALLEL_SERVER_RULE_H
#define GN_TRAIN_PARALLEL_SERVER_RULE_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum gn_update_mode { GN_UPDATE_ALLREDUCE, GN_UPDATE_SYNC, GN_UPDATE_ASYNC, GN_UPDATE_SSP };

struct gn_server_spec {
	enum gn_update_mode mode;
	uint64_t bound; /* of ssp */
	int servers;	/* the last so many ranks; 0 with is_shared: every rank serves a part and trains, too */
	int is_shared;
};

/* update: "allreduce", "sync", "async", "ssp:N"; servers: "none", "shared", or a number from 1 on; NULL: the first of each.
 * GN_ERR_USAGE: anything else, and one of them without the other. */
enum gn_status gn_server_parse(const char *update, const char *servers, struct gn_server_spec *out, struct gn_err *err);
/* Of so many ranks; without servers all of them. At most 0: there are none. */
int gn_server_workers(const struct gn_server_spec *s, int ranks);
/* The world ranks of servers are first .. first + count - 1. */
int gn_server_count(const struct gn_server_spec *s, int ranks);
int gn_server_first(const struct gn_server_spec *s, int ranks);

/* Elements begin to end. */
struct gn_server_part {
	size_t begin, end;
};

/* Of server number index of `servers`: parts lie one behind the other, cover all elements, begin at multiples of 16 elements (a line of
 * memory), and differ by at most 16. One may be empty. */
struct gn_server_part gn_server_part(size_t elements, int servers, int index);
/* Whether a worker that has finished `clock` steps may begin the next one when the slowest that counts has finished `slowest`. Not of
 * sync. */
int gn_server_may_go(const struct gn_server_spec *s, uint64_t clock, uint64_t slowest);

#endif
