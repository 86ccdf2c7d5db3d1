/* The flight recorder: what this rank's last collective operations were, and how far the present one has come.
 *
 * Always on. The program's thread writes two words at each operation's start and one at its end, without locks, clocks or
 * system calls; the watch's thread reads them four times a second and so knows since when nothing has moved, even while the
 * program is elsewhere. Operations are numbered from 1 in the order of their start, which is the same on all ranks, so that
 * records of several ranks can be laid side by side (transport/health/diagnosis.h).
 *
 * Thread safety: calls marked "program" from the one thread that uses the world, or another that makes progress for it, one at
 * a time per operation; "watch" from the watch's; the rest from any.
 */
#ifndef GN_TRANSPORT_HEALTH_RECORDER_H
#define GN_TRANSPORT_HEALTH_RECORDER_H

#include "src/base/status.h"
#include "transport/health/recorder_op.h"

#include <stddef.h>
#include <stdint.h>

struct gn_recorder;

#define GN_RECORD_OP_MAX 144
#define GN_RECORD_PHASE_MAX 48
#define GN_RECORD_RAILS_MAX 8
#define GN_RECORD_RAIL_MAX 24

enum gn_record_state { GN_RECORD_NEVER, GN_RECORD_RUNNING, GN_RECORD_DONE, GN_RECORD_FORGOTTEN };

/* One rank's account; travels between ranks as it is. */
struct gn_record {
	uint64_t number; /* of the operation asked about */
	uint64_t started, oldest; /* the last one started; the first one in flight, 0: none */
	uint32_t idle_ms;  /* nothing has moved for this long */
	uint32_t limit_ms; /* how long that may be for what the rank is doing */
	int32_t waits_rank; /* in the oldest one: for whom, -1: unknown */
	uint32_t waits_message;
	char waits_by[GN_RECORD_RAIL_MAX]; /* the one rail that it has to come by; "" where there is no choice */
	uint8_t state;	  /* enum gn_record_state of `number` */
	uint8_t inside;	  /* it waits within the library */
	uint8_t suspects; /* it has been waiting for longer than usual */
	char op[GN_RECORD_OP_MAX], oldest_op[GN_RECORD_OP_MAX];
	char phase[GN_RECORD_PHASE_MAX]; /* announced; "" when nothing is */
};

/* limit_ms: how long an operation may stand still. */
enum gn_status gn_recorder_create(int limit_ms, struct gn_recorder **out, struct gn_err *err);
void gn_recorder_destroy(struct gn_recorder *r);

/* What is to be started, by a number: made once, for any number of starts; the same operation has the same. 0, of which nothing
 * is told, when there is no memory for it. Any thread; takes a lock. */
uint32_t gn_recorder_kind(struct gn_recorder *r, const struct gn_recorder_op *op);
/* Program: an operation of this kind begins; returns its number. */
uint64_t gn_recorder_start(struct gn_recorder *r, uint32_t kind);
/* Program: it is complete. */
void gn_recorder_done(struct gn_recorder *r, uint64_t number);
/* Program: it waits within the library; moved: something has happened since the last call. To be called now and then while
 * waiting, a few times in a second at least. */
void gn_recorder_waiting(struct gn_recorder *r, int moved);
/* Program: something has happened while it was elsewhere. */
void gn_recorder_moved(struct gn_recorder *r);
/* Program: whom operation `number` waits for, for which of its messages, and by which rail that has to come; -1: by no one
 * rail. */
void gn_recorder_waits_for(struct gn_recorder *r, uint64_t number, int rank, uint32_t message, int rail);
/* What to call rail number `rail` from now on: copied, cut to GN_RECORD_RAIL_MAX - 1 characters. Without one, rails are not
 * told of. */
void gn_recorder_name_rail(struct gn_recorder *r, int rail, const char *name);
/* Program: outside of collectives it may take up to limit_ms from here on, or from its last operation; what says with what
 * ("writing a checkpoint"). NULL: nothing special any more. */
void gn_recorder_announce(struct gn_recorder *r, const char *what, int limit_ms);

/* Watch: to be called several times a second. */
void gn_recorder_sample(struct gn_recorder *r, uint64_t now_ns);
/* Watch: the last absent_ns do not count: this process did not run. */
void gn_recorder_forgive(struct gn_recorder *r, uint64_t absent_ns, uint64_t now_ns);
/* Watch: the account, for operation `number`. */
void gn_recorder_tell(struct gn_recorder *r, uint64_t number, uint64_t now_ns, struct gn_record *out);

/* "in operation number 812, allreduce of 64 MiB (...), waiting for rank 3, training", or what it did last; the end is what was
 * announced. */
void gn_recorder_describe(struct gn_recorder *r, char *text, size_t size);

#endif
