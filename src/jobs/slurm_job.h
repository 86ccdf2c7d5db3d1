/* What Slurm says of a job: its state and why it waits, the log of its training, and from accounting what it has used.
 *
 * scontrol answers for a job that is queued, runs, or ended some minutes ago; sacct for those before, where the site has accounting.
 * Each question is one call with a limit of 10 s. The parsers are pure functions. Thread safety: one thread.
 */
#ifndef GN_JOBS_SLURM_JOB_H
#define GN_JOBS_SLURM_JOB_H

#include "src/base/json.h"
#include "src/base/status.h"

#include <stddef.h>

/* Times are seconds since 1970, 0: not known. */
struct gn_slurm_job {
	char id[64];	       /* "12", or "12_3" of an array */
	char state[32];	       /* "PENDING"; "" when nothing is known */
	char reason[128];      /* why it waits, "Resources"; "" for none */
	char script[1024], name[128], nodes[256]; /* script: "" when it is not known */
	double submit_time, start_time; /* start: of the last start, or when a waiting job is expected to */
	double memory_bytes;   /* asked for on each node; 0: not known */
	int restarts, node_count, cpus;

	/* of accounting, over all starts */
	int accounted;	       /* the fields below are known */
	double waited_s;       /* from when it could have started, or was queued again, to its start */
	double elapsed_s, core_s, cpu_s; /* core_s: processors of the job times elapsed; cpu_s: user and system time of all steps */
	double max_rss_bytes;  /* of a task */
	double node_rss_bytes; /* of a step: its largest task times tasks on a node; an upper bound when tasks differ */
};

/* Whether text is a job's number and not a file's name. */
int gn_slurm_is_job(const char *text);
/* GN_ERR_NOT_FOUND: neither scontrol nor sacct knows it, or there is no Slurm here. accounting: ask sacct in any case. */
enum gn_status gn_slurm_job_find(const char *id, int accounting, struct gn_slurm_job *out, struct gn_err *err);
/* The log that the job's script of gannet submit names. GN_ERR_NOT_FOUND: it names none. */
enum gn_status gn_slurm_job_log(const struct gn_slurm_job *job, char *out, size_t size, struct gn_err *err);

/* One JSON object under key. */
void gn_slurm_job_write(const struct gn_slurm_job *job, const char *key, struct gn_json *out);

/* Of `scontrol show job --oneliner`; 0 when it has no job. */
int gn_slurm_job_parse(const char *text, struct gn_slurm_job *out);
/* Of `sacct --duplicates --parsable2 --noheader --format=GN_SLURM_SACCT_FORMAT`; adds to *out; 0 when it has no job. Tasks of an array
 * add up; each has its own starts. */
int gn_slurm_job_account(const char *text, struct gn_slurm_job *out);
#define GN_SLURM_SACCT_FORMAT "JobID,State,Submit,Eligible,Start,End,ElapsedRaw,AllocCPUS,NNodes,ReqMem,TotalCPU,MaxRSS,NTasks,JobName,SubmitLine"

#endif
