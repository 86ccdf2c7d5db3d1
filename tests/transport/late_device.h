/* A device (src/device/device.h) whose memory is the host's own, and which does what is queued as late as it may: some of it at some of the
 * looks at an event, each piece not before its pause is over. Who takes a result too early gets a wrong one. For tests of collectives with
 * real ranks. */
#ifndef GN_TESTS_TRANSPORT_LATE_DEVICE_H
#define GN_TESTS_TRANSPORT_LATE_DEVICE_H

#include "transport/coll/coll_device.h"

struct late_device_options {
	uint64_t seed;	  /* of how late */
	int pause_max_us; /* before each piece of work, up to that much; 0: none */
	void (*slow)(void); /* called at each piece of work; NULL: nothing is */
	int64_t fail_at;  /* the work of this number, from 1 on, fails when its turn comes; 0: none */
	int unpinned;	  /* memory of the host cannot be pinned */
};

enum gn_status late_device_create(const struct late_device_options *options, struct gn_device **out, struct gn_err *err);
/* Reductions of every type, for struct gn_comm_device. */
enum gn_status late_device_reduce(struct gn_stream *s, enum gn_dtype type, enum gn_reduction reduction, void *to, const void *from,
				  size_t count, struct gn_err *err);
/* How much was done so far. */
uint64_t late_device_works(const struct gn_device *d);

#endif
