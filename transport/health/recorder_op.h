/* The description of a collective operation in the flight recorder: as a text for error messages, and as a signature by which ranks
 * detect that they have started different operations.
 *
 * Thread safety: any thread, no shared state.
 */
#ifndef GN_TRANSPORT_HEALTH_RECORDER_OP_H
#define GN_TRANSPORT_HEALTH_RECORDER_OP_H

#include <stddef.h>
#include <stdint.h>

/* What must be the same on all ranks. Texts are string constants, NULL when not applicable. */
struct gn_recorder_op {
	const char *name, *algorithm, *type, *reduction;
	uint64_t count, bytes; /* 0: not applicable, or may differ between ranks */
	int root;	       /* -1: none */
};

/* "allreduce of 64 MiB (16777216 f32, sum, ring)", truncated to size bytes */
void gn_recorder_op_text(const struct gn_recorder_op *op, char *text, size_t size);
/* A 64-bit hash of all fields (FNV-1a, then mixed). Never 0. */
uint64_t gn_recorder_op_signature(const struct gn_recorder_op *op);

/* The table of distinct operations that a flight recorder has seen. Private to the recorder.
 *
 * A program repeats few distinct operations. Each is described once and gets a number, a kind, so that starting an operation stores
 * one word, and the description outlives the operation.
 *
 * Thread safety: none; the recorder's lock protects it.
 */

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
