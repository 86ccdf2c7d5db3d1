/* The operations that a flight recorder has seen, each once, by number: private to recorder*.c.
 *
 * A program starts a few operations time and again; describing each once, ahead, leaves one word to write at a start, and
 * the description outlives the operation.
 *
 * Thread safety: none; the recorder has a lock.
 */
#ifndef GN_TRANSPORT_HEALTH_RECORDER_KINDS_H
#define GN_TRANSPORT_HEALTH_RECORDER_KINDS_H

#include "transport/health/recorder_op.h"

#define GN_RECORDER_KIND_BITS 22
#define GN_RECORDER_KINDS_MAX (1u << GN_RECORDER_KIND_BITS)

struct gn_recorder_kind;

/* All zero: empty. */
struct gn_recorder_kinds {
	void *tree;
	struct gn_recorder_kind **all; /* by number; none has 0 */
	uint32_t count, room;
};

/* Its number, the same for the same operation; 0 when there is no memory, or no number left. */
uint32_t gn_recorder_kinds_add(struct gn_recorder_kinds *s, const struct gn_recorder_op *op);
/* 0 is an operation of which nothing is known. */
void gn_recorder_kinds_get(const struct gn_recorder_kinds *s, uint32_t number, struct gn_recorder_op *op);
void gn_recorder_kinds_release(struct gn_recorder_kinds *s);

#endif
