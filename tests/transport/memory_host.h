/* A memory (transport/coll/reduce_executor.h) that is the host's own, and does what is queued as late as it may: a piece of it at some of the
 * looks at a mark. Who takes a result too early gets a wrong one. For tests of collectives with real ranks. */
#ifndef GN_TESTS_TRANSPORT_MEMORY_HOST_H
#define GN_TESTS_TRANSPORT_MEMORY_HOST_H

#include "transport/coll/reduce_executor.h"

#include <stdint.h>

struct memory_host_options {
	uint64_t seed;	 /* of how late */
	int64_t fail_at; /* the work of this number, from 1 on, fails when its turn comes; 0: none */
};

/* Of events: happened at the look of this number. */
struct memory_host_event {
	int looks;
};

enum gn_status memory_host_create(const struct memory_host_options *options, struct gn_reduce_executor **out, struct gn_err *err);
/* How much was done so far. */
uint64_t memory_host_works(const struct gn_reduce_executor *m);

#endif
