/* The table of distinct operations that a flight recorder has seen. Private to the recorder.
 *
 * A program repeats few distinct operations. Each is described once and gets a number, a kind, so that starting an operation stores
 * one word, and the description outlives the operation.
 *
 * Thread safety: none; the recorder's lock protects it.
 */
#ifndef GN_TRANSPORT_HEALTH_RECORDER_KINDS_H
#define GN_TRANSPORT_HEALTH_RECORDER_KINDS_H

#include "transport/health/recorder_op.h"

#define GN_RECORDER_KIND_BITS 22
#define GN_RECORDER_KINDS_MAX (1u << GN_RECORDER_KIND_BITS)

struct gn_recorder_kind;

/* Empty when zeroed. */
struct gn_recorder_kinds {
	void *tree; /* tsearch()'s, by the fields of the operation */
	struct gn_recorder_kind **all; /* [kind]; kind 0 is unused */
	uint32_t count, room;
};

/* The kind of an operation, the same for equal operations; 0 when memory or numbers are exhausted. */
uint32_t gn_recorder_kinds_add(struct gn_recorder_kinds *s, const struct gn_recorder_op *op);
/* The operation of a kind; an empty description for kind 0. */
void gn_recorder_kinds_get(const struct gn_recorder_kinds *s, uint32_t number, struct gn_recorder_op *op);
void gn_recorder_kinds_release(struct gn_recorder_kinds *s);

#endif
