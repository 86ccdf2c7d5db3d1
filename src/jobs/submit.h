/* The batch script of gannet submit: what sbatch is asked for, the check of the snapshot, and the command; how the job is queued again is
 * slurm/jobs/train.sbatch's, of which the script sources a copy.
 *
 * A pure function. Thread safety: any thread.
 */
#ifndef GN_JOBS_SUBMIT_H
#define GN_JOBS_SUBMIT_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

#include <stddef.h>
#include <stdint.h>

struct gn_submit {
	const char *name, *directory; /* of the job; absolute, for the script, its output and the snapshot */
	const char *gannet;	      /* the program, absolute */
	int64_t nodes, tasks_per_node, retries;
	const char *time, *partition, *array, *after; /* as sbatch takes them; NULL: not given */
	const char *const *extra;	/* more options of sbatch, "--mem=4G" */
	size_t extra_count;
	int snapshot;			/* the job runs in directory/snapshot, after a check */
	const char *work;		/* where it runs otherwise, absolute */
	int preflight;			/* on the job's nodes, before the program */
	int exclude_bad;		/* the same, and bad nodes are excluded while enough others are there */
	const char *trials;		/* file of the job's folder that is sourced before the command; it may add to gannet_step. NULL: none */
	const char *const *command;	/* "train" or "exec", and arguments */
	size_t command_count;
};

/* Appends the script. GN_ERR_USAGE: a time or a list that sbatch does not take, a text with a line break where there can be none, a command that is neither train nor exec, train
 * without --checkpoint, from which a job that is queued again would go on. */
enum gn_status gn_submit_script(const struct gn_submit *s, struct gn_strbuf *out, struct gn_err *err);
/* Appends text as one word of a shell, whatever it holds. */
void gn_submit_quote(const char *text, struct gn_strbuf *out);

#endif
