/* Runs other programs (sbatch, squeue, tar) and takes what they print. Blocks until they have ended. Thread safety: one thread. */
#ifndef GN_JOBS_PROGRAM_H
#define GN_JOBS_PROGRAM_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

/* argv ends with NULL and is searched in PATH. Standard output is appended to text, unless that is NULL. quiet: what it prints on
 * standard error is dropped. GN_ERR_FAILED when its exit code is not 0. */
enum gn_status gn_program_run(const char *const *argv, int quiet, struct gn_strbuf *text, struct gn_err *err);
/* Whether execvp() can start a program. GN_ERR_NOT_FOUND: it is not there, or may not be run; GN_ERR_USAGE: it is a script, and its
 * interpreter, or what env is to start for it, is not there. Blocks on the file system. */
enum gn_status gn_program_check(const char *name, struct gn_err *err);

#endif
