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

/* A job's folder and its submission: what gannet submit and gannet sweep do with that script.
 *
 * Blocks on the file system, and on cp, tar and sbatch, whose messages go to standard error. Thread safety: one thread.
 */

/* path, from the present folder where it does not begin with a slash. */
enum gn_status gn_submit_absolute(const char *path, char *out, size_t size, struct gn_err *err);

/* One more file of the job's folder. */
struct gn_submit_file {
	const char *name, *text;
};

/* Makes s->directory, which must not be there, with script, policy, snapshot (a folder; NULL: none) and files, and calls sbatch. id:
 * the job's. When that fails the folder is removed again, unless sbatch has succeeded without a job's number: a job may be there then. */
enum gn_status gn_submit_job(const struct gn_submit *s, const char *snapshot, const struct gn_submit_file *files, size_t file_count,
			     char id[64], struct gn_err *err);
/* Submits the script of such a folder once more, for these tasks of its array. */
enum gn_status gn_submit_again(const char *directory, const char *array, char id[64], struct gn_err *err);

#endif
