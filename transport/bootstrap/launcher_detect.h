/* Which starter do the environment's signs speak of: PMIx, torchrun-like variables, or nobody?
 *
 * A pure function of a look-up of environment variables. It never guesses: signs that contradict each other are
 * GN_ERR_USAGE that names both, because the alternative is a world of one by accident. What only the starter itself knows
 * (the size under PMIx) is held against the signs afterwards by gn_launcher_confirm().
 *
 * Precedence: PMIX_NAMESPACE, then RANK and WORLD_SIZE, then OMPI_COMM_WORLD_*; Slurm's variables are never a source, only
 * a claim to agree with, as are LOCAL_RANK and LOCAL_WORLD_SIZE. A batch script (SLURM_JOB_ID without a step) is a world of one;
 * job_name and job_count are for a warning that the job is larger.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_LAUNCHER_DETECT_H
#define GN_TRANSPORT_BOOTSTRAP_LAUNCHER_DETECT_H

#include "src/base/status.h"

enum gn_launcher_source { GN_LAUNCHER_ALONE, GN_LAUNCHER_PMIX, GN_LAUNCHER_ENVIRONMENT };

#define GN_LAUNCHER_CLAIMS_MAX 8

/* One variable's word about a number; name is a string constant. */
struct gn_launcher_claim {
	const char *name;
	int value;
};

struct gn_launcher {
	enum gn_launcher_source source;
	int rank, size;	    /* size is 0 under PMIx, which must be asked */
	int local_rank, local_size; /* LOCAL_RANK, LOCAL_WORLD_SIZE; -1: not set */
	char address[256];  /* environment: MASTER_ADDR, or of AZ_BATCH_MASTER_NODE; "" when size is 1 */
	int port;	    /* environment: where rank 0 listens */
	struct gn_launcher_claim ranks[GN_LAUNCHER_CLAIMS_MAX], sizes[GN_LAUNCHER_CLAIMS_MAX];
	int rank_count, size_count;
	const char *job_name; /* alone: SLURM_NTASKS or SLURM_NNODES, where it gives more than one and there is no step; or NULL */
	int job_count;	      /* what it gives */
};

/* Returns the value of a variable, or NULL; getenv() in programs, a table in tests. */
typedef const char *(*gn_launcher_lookup)(void *context, const char *name);

/* GN_ERR_USAGE on garbage, on halves (RANK without WORLD_SIZE), on contradictions, and on a Slurm step of several tasks
 * that offers no PMIx. */
enum gn_status gn_launcher(gn_launcher_lookup lookup, void *context, struct gn_launcher *out, struct gn_err *err);
/* Do the claims agree with what the starter called who said? GN_ERR_USAGE naming both when one does not. */
enum gn_status gn_launcher_confirm(const struct gn_launcher *d, const char *who, int rank, int size, struct gn_err *err);
/* The same for LOCAL_RANK and LOCAL_WORLD_SIZE, once it is known who is on this host. */
enum gn_status gn_launcher_confirm_local(const struct gn_launcher *d, const char *host, int rank, int local_rank, int local_size,
				       struct gn_err *err);

#endif
