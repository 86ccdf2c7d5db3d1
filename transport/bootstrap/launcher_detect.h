/* Which starter do the environment's signs speak of: PMIx, torchrun-like variables, or nobody?
 *
 * A pure function of a look-up of environment variables. It never guesses: signs that contradict each other are
 * GN_ERR_USAGE that names both, because the alternative is a world of one by accident. What only the starter itself knows
 * (the size under PMIx) is held against the signs afterwards by gn_detect_confirm().
 *
 * Precedence: PMIX_NAMESPACE, then RANK and WORLD_SIZE, then OMPI_COMM_WORLD_*; Slurm's variables are never a source, only
 * a claim to agree with, as are LOCAL_RANK and LOCAL_WORLD_SIZE. A batch script (SLURM_JOB_ID without a step) is a world of one;
 * job_name and job_count are for a warning that the job is larger.
 */
#ifndef GN_TRANSPORT_DETECT_H
#define GN_TRANSPORT_DETECT_H

#include "src/base/status.h"

enum gn_detect_source { GN_DETECT_ALONE, GN_DETECT_PMIX, GN_DETECT_ENVIRONMENT };

#define GN_DETECT_CLAIMS_MAX 8

/* One variable's word about a number; name is a string constant. */
struct gn_detect_claim {
	const char *name;
	int value;
};

struct gn_detect {
	enum gn_detect_source source;
	int rank, size;	    /* size is 0 under PMIx, which must be asked */
	int local_rank, local_size; /* LOCAL_RANK, LOCAL_WORLD_SIZE; -1: not set */
	char address[256];  /* environment: MASTER_ADDR, or of AZ_BATCH_MASTER_NODE; "" when size is 1 */
	int port;	    /* environment: where rank 0 listens */
	struct gn_detect_claim ranks[GN_DETECT_CLAIMS_MAX], sizes[GN_DETECT_CLAIMS_MAX];
	int rank_count, size_count;
	const char *job_name; /* alone: SLURM_NTASKS or SLURM_NNODES, where it gives more than one and there is no step; or NULL */
	int job_count;	      /* what it gives */
};

/* Returns the value of a variable, or NULL; getenv() in programs, a table in tests. */
typedef const char *(*gn_detect_lookup)(void *context, const char *name);

/* GN_ERR_USAGE on garbage, on halves (RANK without WORLD_SIZE), on contradictions, and on a Slurm step of several tasks
 * that offers no PMIx. */
enum gn_status gn_detect(gn_detect_lookup lookup, void *context, struct gn_detect *out, struct gn_err *err);
/* Do the claims agree with what the starter called who said? GN_ERR_USAGE naming both when one does not. */
enum gn_status gn_detect_confirm(const struct gn_detect *d, const char *who, int rank, int size, struct gn_err *err);
/* The same for LOCAL_RANK and LOCAL_WORLD_SIZE, once it is known who is on this host. */
enum gn_status gn_detect_confirm_local(const struct gn_detect *d, const char *host, int rank, int local_rank, int local_size,
				       struct gn_err *err);

#endif
