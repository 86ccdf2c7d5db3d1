/* The command that gannet submit and gannet sweep put into the queue, checked before: what the command itself would refuse once the job
 * starts is refused at once.
 *
 * Thread safety: one thread. Internal to src/cmd.
 */
#ifndef GN_CMD_JOB_COMMAND_H
#define GN_CMD_JOB_COMMAND_H

#include "src/base/status.h"
#include "src/jobs/sweep_status.h"

#include <stddef.h>
#include <stdint.h>

/* words: "train" or "exec", and arguments. ranks: of the job. task: what %a stands for; NULL: itself. snapshot: the folder that
 * relative paths are of; NULL: the present one. The error is the command's own, with its name before it. A file that is not here is only a
 * warning on standard error: the job's nodes may have it. */
enum gn_status gn_job_command_check(const char *const *words, size_t count, int64_t ranks, const char *task, const char *snapshot,
				    struct gn_err *err);
/* The same for each trial, with the options that the trial adds. Warns for the first one only. */
enum gn_status gn_job_command_check_trials(const char *const *words, size_t count, const struct gn_sweep *s, int64_t ranks,
					   const char *snapshot, struct gn_err *err);

#endif
