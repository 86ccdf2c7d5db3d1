/* A copier (transport/coll/copy_engine.h) whose device is ordinary memory and whose copies are memcpy in threads, one for each way, so
 * that they take their time and overlap with everything else as a GPU's do. For tests of staging with real ranks. */
#ifndef GN_TESTS_TRANSPORT_COPIER_HOST_H
#define GN_TESTS_TRANSPORT_COPIER_HOST_H

#include "transport/coll/copy_engine.h"

#include <stdint.h>

struct copier_host_options {
	uint64_t seed;	   /* of the pauses before copies */
	int pause_us;	   /* before each copy, and up to that much more: */
	int pause_max_us;  /* 0: none */
	int64_t fail_at;   /* the copy of this number, from 1 on, fails when polled; 0: none */
	int unpinned;	   /* pin says that it cannot */
};

enum gn_status copier_host_create(const struct copier_host_options *options, struct gn_copy_engine **out, struct gn_err *err);

#endif
