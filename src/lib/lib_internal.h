/* What the files of libgannet share: groups and operations, each in a list of what there is, and the way from gn_err to gannet_error(). */
#ifndef GN_LIB_INTERNAL_H
#define GN_LIB_INTERNAL_H

#include "src/base/log.h"
#include "src/base/status.h"
#include "src/lib/gannet.h"
#include "transport/coll/comm.h"
#include "transport/coll/p2p.h"

struct gannet_group {
	struct gn_comm *comm;
	gannet_op *ops;		   /* of this group, newest first */
	struct lib_memory *memory; /* from gannet_alloc() */
	gannet_group *next;	   /* newest first; the world is the last */
};

struct gannet_op {
	struct gn_coll *coll; /* or p2p */
	struct gn_p2p *p2p;
	gannet_group *group;
	gannet_op *next, *before;
};

/* Keeps err's text for gannet_error() when status is none of GN_OK; returns the status as the interface has it. */
gannet_status gn_lib_result(enum gn_status status, const struct gn_err *err);
/* GANNET_USAGE with a text. */
gannet_status gn_lib_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* GANNET_USAGE for a structure of the caller's that is of a later version: longer than this library's; earlier ones are shorter. */
gannet_status gn_lib_check_size(const char *name, size_t size_bytes, size_t most_bytes);
/* A log on standard error; level_name NULL: that of GANNET_LOG, else warnings. */
enum gn_status gn_lib_log(const char *level_name, struct gn_log **out, struct gn_err *err);
/* Whether the group exists; else gannet_error() says so. */
int gn_lib_has(const gannet_group *group);

#endif
