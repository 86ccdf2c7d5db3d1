/* What several ranks' records say together: nothing yet, or that the job cannot go on, and because of whom; or, when a rank is
 * lost, what the others were in.
 *
 * Pure functions, so that every case can be tested. Ranks that started the same operation as different things disagree.
 * A job has stalled when nothing has moved on any rank for longer than what that rank does may take.
 */
#ifndef GN_TRANSPORT_HEALTH_DIAGNOSIS_H
#define GN_TRANSPORT_HEALTH_DIAGNOSIS_H

#include "transport/health/recorder.h"

struct gn_diagnosis_input {
	int size;
	const struct gn_record *records; /* of each rank, for the same number */
	const unsigned char *present;	 /* whether a rank has a record; those that left have none */
	const char *const *hosts;	 /* names, or NULL */
	uint64_t number;		 /* of the operation that someone waits in */
};

/* GN_OK: go on. GN_ERR_MISMATCH or GN_ERR_STALL with one sentence in text. */
enum gn_status gn_diagnose(const struct gn_diagnosis_input *in, char *text, size_t size);
/* "ranks 0-1 and 3 were in operation number 812, allreduce of 64 MiB (...), 2 of them waiting for it", group by group; it is rank
 * lost. Empty when nobody has a record. */
void gn_diagnose_loss(const struct gn_diagnosis_input *in, int lost, char *text, size_t size);

#endif
