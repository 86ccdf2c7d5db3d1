/* The flight recorder: the last collective operations of this rank and the progress of those in flight.
 *
 * Always on. The program's thread stores two words when an operation starts and one when it completes, without locks, clocks or
 * system calls. The heartbeat thread samples them four times a second, and so knows how long nothing has progressed, even while the
 * program's thread is busy elsewhere. The operations of a group of ranks are numbered from 1 in the order of their start, which is the
 * same on all its ranks: records of several ranks can be compared by the number of group and operation (transport/health/diagnosis.h).
 *
 * Thread safety: "Program" marks calls for the thread that uses the world, or for another that progresses it, one at a time for
 * each operation; "Heartbeat" marks calls for the heartbeat thread; the others are for any thread. No call blocks; some take a
 * short lock.
 */
#ifndef GN_TRANSPORT_HEALTH_RECORDER_H
#define GN_TRANSPORT_HEALTH_RECORDER_H

#include "src/base/status.h"
#include "transport/health/recorder_op.h"

#include <stddef.h>
#include <stdint.h>

struct gn_recorder;

/* Groups have numbers below this; number 0 is the world. */
#define GN_RECORDER_GROUPS 1024
#define GN_RECORDER_GROUP_NAME_MAX 48

/* The number of an operation in records: its group in the upper bits, its number within the group in the lower. Those of the world are
 * plain numbers. */
#define GN_RECORD_GROUP_SHIFT 40
#define GN_RECORD_NUMBER(number) ((number) & ((UINT64_C(1) << GN_RECORD_GROUP_SHIFT) - 1))

/* Set in the number of a message between two ranks, which is the rank's own: rank (20 bits), count (19). */
#define GN_RECORD_MESSAGE (UINT64_C(1) << (GN_RECORD_GROUP_SHIFT - 1))

#define GN_RECORD_OP_MAX 144
#define GN_RECORD_PHASE_MAX 48
#define GN_RECORD_RAILS_MAX 8
#define GN_RECORD_RAIL_MAX 24

enum gn_record_state {
	GN_RECORD_NEVER, /* not started */
	GN_RECORD_RUNNING,
	GN_RECORD_DONE,
	GN_RECORD_FORGOTTEN /* started and overwritten by later operations */
};

/* The state of one rank with regard to one operation; sent between ranks as it is in memory. */
struct gn_record {
	uint64_t number; /* of the operation queried */
	uint64_t started, oldest; /* the last operation started of the same group; the oldest in flight of any, 0: none */
	uint32_t idle_ms;  /* time without progress */
	uint32_t limit_ms; /* the limit for that time in the present phase */
	int32_t waits_rank; /* the rank that the oldest operation waits for, -1: unknown */
	uint32_t waits_message; /* of a message between two ranks: its tag */
	char waits_by[GN_RECORD_RAIL_MAX]; /* the only rail by which that message can come; "" when there are several */
	uint8_t state;	  /* enum gn_record_state of `number` */
	uint8_t inside;	  /* the program waits inside the library */
	uint8_t suspects; /* it has been waiting long enough to suspect a stall */
	uint8_t outside;  /* this rank is not in the group of the operation queried */
	char op[GN_RECORD_OP_MAX], oldest_op[GN_RECORD_OP_MAX];
	char phase[GN_RECORD_PHASE_MAX]; /* "" when none is set */
};

/* limit_ms: how long an operation may make no progress. */
enum gn_status gn_recorder_create(int limit_ms, struct gn_recorder **out, struct gn_err *err);
void gn_recorder_destroy(struct gn_recorder *r);

/* The kind of an operation, for gn_recorder_start(): computed once for any number of starts; equal operations have the same kind.
 * 0, an operation without a description, when memory is exhausted. Takes a lock. */
uint32_t gn_recorder_kind(struct gn_recorder *r, const struct gn_recorder_op *op);
/* Program: records the start of an operation of the world of this kind; returns a number for the calls below, which is this rank's
 * own. */
uint64_t gn_recorder_start(struct gn_recorder *r, uint32_t kind);
/* Program: the same for an operation of a group. */
uint64_t gn_recorder_start_in(struct gn_recorder *r, int group, uint32_t kind);
/* Program: the same for a message between this rank, of this number in the world, and another; other ranks have no such operation. */
uint64_t gn_recorder_start_message(struct gn_recorder *r, int group, int rank, uint32_t kind);
/* Program: this rank is in the group of this number from now on, or with name NULL no longer. Groups that share a number differ in
 * color. name is copied. */
void gn_recorder_set_group(struct gn_recorder *r, int group, int color, const char *name);
/* Program: records its completion. */
void gn_recorder_done(struct gn_recorder *r, uint64_t number);
/* Program: it waits inside the library; moved: there was progress since the last call. To be called a few times a second during a
 * wait. */
void gn_recorder_waiting(struct gn_recorder *r, int moved);
/* Program: there was progress outside of a wait. */
void gn_recorder_moved(struct gn_recorder *r);
/* Program: the rank and message that operation `number` waits for, and the only rail by which that message can come; -1:
 * several. */
void gn_recorder_waits_for(struct gn_recorder *r, uint64_t number, int rank, uint32_t message, int rail);
/* The name of a rail in records; copied, truncated to GN_RECORD_RAIL_MAX - 1 characters. Rails without a name are not reported. */
void gn_recorder_name_rail(struct gn_recorder *r, int rail, const char *name);
/* Program: the present phase outside of collectives ("writing a checkpoint"; copied) and how long it may take, in ms from now or
 * from the last operation. NULL: no phase; the limit of gn_recorder_create() holds. */
void gn_recorder_set_phase(struct gn_recorder *r, const char *what, int limit_ms);

/* Heartbeat: samples the program's counters; to be called several times a second. */
void gn_recorder_sample(struct gn_recorder *r, uint64_t now_ns);
/* Heartbeat: excludes the last absent_ns, in which this process did not run, from the time without progress. */
void gn_recorder_exclude(struct gn_recorder *r, uint64_t absent_ns, uint64_t now_ns);
/* Heartbeat: the record for operation `number`; 0: none in particular. */
void gn_recorder_report(struct gn_recorder *r, uint64_t number, uint64_t now_ns, struct gn_record *out);

/* The present state as a text: "in operation number 812, allreduce of 64 MiB (...), waiting for rank 3, training", or the last
 * operation when none is in flight. Ends with the phase. */
void gn_recorder_describe(struct gn_recorder *r, char *text, size_t size);

#endif
