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

#endif
