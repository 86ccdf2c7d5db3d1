/* Ownership of a checkpoint folder: one run at a time may write there, named by the file DIR/owner.
 *
 *     {"format": "gannet-owner", "host": "n1", "cluster": "c", "job": "123", "restart": 1, "pid": 4711, "pid_start": ...,
 *      "pid_namespace": ..., "boot": "...", "nonce": "0123456789abcdef", "since": "2026-01-31T12:00:00Z"}
 *
 * and "run", "world" of a run that goes on after losses.
 *
 * Its modification time is the owner's heartbeat: a thread sets it every GN_OWNER_BEAT_S. A run that finds the file
 * - of a process of this host, boot and pid namespace: asks the kernel whether that process is alive;
 * - of an earlier start of its own Slurm job: takes over, because Slurm restarts a job only after its last start has ended;
 * - of any other run: takes over when the heartbeat is older than GN_OWNER_DEAD_S by the file system's clock, independent of the
 * clocks of hosts. It waits for a younger one to reach that age, and gives up at the next heartbeat.
 * Creation is exclusive. A dead owner's file is locked and read again before it is removed, so that only one of several waiting
 * runs takes over. An owner that was suspended for too long detects that by gn_owner_check() and must not write any more.
 *
 * Thread safety: one thread. Reading checkpoints needs no ownership.
 */
#ifndef GN_TRAIN_CHECKPOINT_OWNER_H
#define GN_TRAIN_CHECKPOINT_OWNER_H

#include "src/base/log.h"

#include <signal.h>
#include <stdint.h>

#define GN_OWNER_BEAT_S 30
#define GN_OWNER_DEAD_S 300
#define GN_OWNER_NONCE 17 /* 16 hexadecimal digits and the terminator */

struct gn_owner;

/* Of a run whose processes go on after losses: what its present rank 0 knows of those before it, which may live on, unreachable or stopped, but are
 * no longer part of the run, as its other processes have agreed. */
struct gn_owner_heir {
	const char *predecessor; /* the nonce of the last owner that all know of; "": there was none yet */
	uint64_t run;		 /* random, the same for all processes of the run */
	uint64_t world;		 /* worlds since the start */
};

/* directory must exist. Blocks for at most GN_OWNER_DEAD_S. heir: NULL for a run that ends with any loss; else takes
 * over without waiting from its predecessor and from an owner in an earlier world of the run. GN_ERR_EXISTS names the live owner and this run;
 * GN_ERR_PEER_LOST: an owner of a later world of the run; GN_ERR_STOPPED: *stop was set while waiting. */
enum gn_status gn_owner_claim(const char *directory, const struct gn_owner_heir *heir, const volatile sig_atomic_t *stop, struct gn_log *log,
			      struct gn_owner **out, struct gn_err *err);
/* Makes the names of temporary files unique to this run. Borrowed. */
const char *gn_owner_nonce(const struct gn_owner *o);
/* Whether the folder still belongs to this run. A removed owner file is created again, unless processes of the run may go on without this one,
 * which may have ended: GN_ERR_EXISTS then, too. GN_ERR_EXISTS names the new owner and this run; GN_ERR_PEER_LOST: it is of a later world. */
enum gn_status gn_owner_check(struct gn_owner *o, struct gn_err *err);
/* Removes the file if it still belongs to this run. NULL is fine. */
void gn_owner_release(struct gn_owner *o);
/* Leaves the file, without a heartbeat, to those of the run who go on without this process: gn_owner_claim(). NULL is fine. */
void gn_owner_leave(struct gn_owner *o);
/* Removes such a file, if it still has this nonce, and what gn_owner_settle() has left; of a run that has ended. */
void gn_owner_remove(const char *directory, const char *nonce);
/* Parts of a run whose owner has this nonce, and which cannot reach each other, ask which of them succeeds it: keeps the len bytes at `mine`
 * in DIR/owner.NONCE.next unless there is such a file, and returns what it holds, the same for all that ever ask. That file has its name
 * when it is complete (link(2), which one process alone can do), and is removed by the claim that succeeds the owner. GN_ERR_EXISTS: the
 * folder does not belong to that owner any more, or is no folder that the parts share. */
enum gn_status gn_owner_settle(const char *directory, const char *nonce, const void *mine, size_t len, void *kept, size_t room,
			       size_t *kept_len, struct gn_err *err);

#endif
