/* A job's folder and its submission: what gannet submit and gannet sweep do with a script of submit.h.
 *
 * Blocks on the file system, and on cp, tar and sbatch, whose messages go to standard error. Thread safety: one thread.
 */
#ifndef GN_JOBS_SUBMIT_JOB_H
#define GN_JOBS_SUBMIT_JOB_H

#include "src/jobs/submit.h"

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
