/* An operation as the flight recorder writes it down: as a text for people, and as one number for the traffic check, by which ranks
 * find out that they started different ones.
 *
 * Thread safety: no state.
 */
#ifndef GN_TRANSPORT_HEALTH_RECORDER_OP_H
#define GN_TRANSPORT_HEALTH_RECORDER_OP_H

#include <stddef.h>
#include <stdint.h>

/* What all ranks must agree on. Texts are string constants, NULL where there is none. */
struct gn_recorder_op {
	const char *name, *algorithm, *type, *reduction;
	uint64_t count, bytes; /* 0: has none, or ranks may differ */
	int root;	       /* -1: none */
};

/* "allreduce of 64 MiB (16777216 f32, sum, ring)" */
void gn_recorder_op_text(const struct gn_recorder_op *op, char *text, size_t size);
/* A number that differs, all but surely, when anything that ranks must agree on does. Never 0. */
uint64_t gn_recorder_op_signature(const struct gn_recorder_op *op);

#endif
