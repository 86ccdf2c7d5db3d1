/* Diagnosis of a job from the flight records of its ranks: whether it can continue, and if not, which ranks are the cause; and
 * after the loss of a rank, the states of the others.
 *
 * Pure functions. Ranks disagree when they have started different operations under one number. A job has stalled when on every rank
 * nothing has progressed for longer than the limit of what that rank does.
 *
 * Thread safety: any thread.
 */
#ifndef GN_TRANSPORT_HEALTH_DIAGNOSIS_H
#define GN_TRANSPORT_HEALTH_DIAGNOSIS_H

#include "transport/health/recorder.h"

struct gn_diagnosis_input {
	int size;
	const struct gn_record *records; /* [rank], all for the same operation */
	const unsigned char *present;	 /* [rank]: whether it has a record; ranks that have left or are lost have none */
	const char *const *hosts;	 /* [rank] names, or NULL */
	uint64_t number;		 /* of the operation that some rank waits in */
	const unsigned char *lost;	 /* [rank]: why it has no record: it is lost, else it has left; NULL: none is lost */
};

/* GN_OK: no stall. GN_ERR_MISMATCH or GN_ERR_STALL with one sentence in text, truncated to size bytes. */
enum gn_status gn_diagnose(const struct gn_diagnosis_input *in, char *text, size_t size);
/* The states of the other ranks after the loss of rank `lost`, grouped: "ranks 0-1 and 3 were in operation number 812, allreduce of
 * 64 MiB (...), 2 of them waiting for it". Empty when no rank has a record. */
void gn_diagnose_loss(const struct gn_diagnosis_input *in, int lost, char *text, size_t size);

#endif
