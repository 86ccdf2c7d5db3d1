/* Detects the launcher and this process's place in the job from environment variables: PMIx, torchrun-like variables, or none.
 *
 * A pure function of a lookup of variables. It does not guess: conflicting variables are GN_ERR_USAGE that names both, because the
 * alternative is a single-rank run by accident. What only the launcher itself knows (the size under PMIx) is compared afterwards by
 * gn_launcher_confirm().
 *
 * Precedence: PMIX_NAMESPACE, then RANK and WORLD_SIZE, then OMPI_COMM_WORLD_*. Slurm's variables, LOCAL_RANK and LOCAL_WORLD_SIZE
 * are only compared with the result. A batch script (SLURM_JOB_ID without a step) is a single rank; job_name and job_count allow a
 * warning that the job is larger.
 *
 * Thread safety: any thread, if the lookup allows it.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_LAUNCHER_DETECT_H
#define GN_TRANSPORT_BOOTSTRAP_LAUNCHER_DETECT_H

#include "src/base/status.h"

enum gn_launcher_source { GN_LAUNCHER_SINGLE, GN_LAUNCHER_PMIX, GN_LAUNCHER_ENVIRONMENT };

#define GN_LAUNCHER_CLAIMS_MAX 8

/* The value of a variable; name is a string constant. */
struct gn_launcher_claim {
	const char *name;
	int value;
};

struct gn_launcher {
	enum gn_launcher_source source;
	int rank, size;	    /* size is 0 under PMIx: a query to PMIx gives it */
	int local_rank, local_size; /* LOCAL_RANK, LOCAL_WORLD_SIZE; -1: not set */
	char address[256];  /* environment: MASTER_ADDR, or of AZ_BATCH_MASTER_NODE; "" when size is 1 */
	int port;	    /* environment: where rank 0 listens */
	struct gn_launcher_claim ranks[GN_LAUNCHER_CLAIMS_MAX], sizes[GN_LAUNCHER_CLAIMS_MAX];
	int rank_count, size_count;
	const char *job_name; /* single rank outside of a step: SLURM_NTASKS or SLURM_NNODES if it is above 1, else NULL */
	int job_count;	      /* its value */
};

/* The value of a variable, or NULL: getenv() in programs, a table in tests. */
typedef const char *(*gn_launcher_lookup)(void *context, const char *name);
/* That of this process's own variables; context is not used. */
const char *gn_launcher_environ(void *context, const char *name);

/* GN_ERR_USAGE when a value is invalid, one of a pair is missing (RANK without WORLD_SIZE), variables conflict, or a Slurm step of
 * several tasks provides no PMIx. *out is set only on success. */
enum gn_status gn_launcher_detect(gn_launcher_lookup lookup, void *context, struct gn_launcher *out, struct gn_err *err);
/* Compares the variables with the rank and size that `who`, the launcher, reports. GN_ERR_USAGE names both when they differ. */
enum gn_status gn_launcher_confirm(const struct gn_launcher *d, const char *who, int rank, int size, struct gn_err *err);
/* The same for LOCAL_RANK and LOCAL_WORLD_SIZE, once the ranks of this host are known. */
enum gn_status gn_launcher_confirm_local(const struct gn_launcher *d, const char *host, int rank, int local_rank, int local_size,
					 struct gn_err *err);

#endif
