/* Who may write into a checkpoint folder: one run at a time, which a file DIR/owner names.
 *
 *     {"format": "gannet-owner", "host": "n1", "cluster": "c", "job": "123", "restart": 1, "pid": 4711, "pid_start": ...,
 *      "pid_namespace": ..., "boot": "...", "nonce": "0123456789abcdef", "since": "2026-01-31T12:00:00Z"}
 *
 * Its time of modification is the owner's heartbeat: a thread sets it every GN_OWNER_BEAT_S. A run that finds the file
 *   - of a process of this host, boot and pid namespace, asks the kernel whether that is alive;
 *   - of an earlier start of its own Slurm job, takes over: Slurm starts a job again only when the last start has ended;
 *   - of anyone else, takes over when the heartbeat is older than GN_OWNER_DEAD_S by the file system's own clock, which makes hosts'
 *     clocks irrelevant. A younger one it watches until then, and gives up as soon as it sees a beat.
 * Creation is exclusive, and a dead owner's file is locked and looked at again before it is removed: of several heirs one wins. An
 * owner that was suspended for too long finds out by gn_owner_check and must not write any more.
 *
 * Thread safety: one thread. Reading checkpoints needs no ownership.
 */
#ifndef GN_TRAIN_CHECKPOINT_OWNER_H
#define GN_TRAIN_CHECKPOINT_OWNER_H

#include "src/base/log.h"

#include <signal.h>

#define GN_OWNER_BEAT_S 30
#define GN_OWNER_DEAD_S 300
#define GN_OWNER_NONCE 17 /* 16 hexadecimal digits and the end of the string */

struct gn_owner;

/* directory exists. Blocks for GN_OWNER_DEAD_S at most. GN_ERR_EXISTS names the owner that is alive and this run; GN_ERR_STOPPED:
 * *stop was set while waiting. */
enum gn_status gn_owner_claim(const char *directory, const volatile sig_atomic_t *stop, struct gn_log *log,
			      struct gn_owner **out, struct gn_err *err);
/* Makes names of temporary files unique to this run. Borrowed. */
const char *gn_owner_nonce(const struct gn_owner *o);
/* Whether the folder is still this run's; a file that somebody removed is made again. GN_ERR_EXISTS names the new owner and this
 * run. */
enum gn_status gn_owner_check(struct gn_owner *o, struct gn_err *err);
/* Removes the file if it is still this run's. NULL is fine. */
void gn_owner_release(struct gn_owner *o);

#endif
