/* The file that names a folder's owner: who it can name, how it is made and read. Internal to src/train/checkpoint/owner*.c. */
#ifndef GN_TRAIN_CHECKPOINT_OWNER_INTERNAL_H
#define GN_TRAIN_CHECKPOINT_OWNER_INTERNAL_H

#include "src/train/checkpoint/owner.h"

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Who a file names. Numbers and texts that are not known are 0 and "". */
struct gn_owner_identity {
	char host[65], cluster[65], job[65], boot[65], nonce[GN_OWNER_NONCE];
	int64_t restart, pid, pid_start, pid_namespace;
};

/* What stands at a path. */
struct gn_owner_file {
	struct gn_owner_identity who; /* all empty when the file is no owner's: half written, or foreign */
	struct timespec beat;
	ino_t inode;
};

/* Of this process, with a nonce of its own. */
enum gn_status gn_owner_identify(struct gn_owner_identity *self, struct gn_err *err);
/* "process 4711 on n1, job 123 (restart 1)" */
const char *gn_owner_describe(const struct gn_owner_identity *who, char text[256]);
/* When the process began, in clock ticks since boot; 0: there is none, or it has ended and nobody has waited for it. */
int64_t gn_owner_start_of(int64_t pid);
/* A new file at path, open in *fd. GN_ERR_EXISTS: there is one. */
enum gn_status gn_owner_file_create(const char *path, const struct gn_owner_identity *who, int *fd, struct gn_err *err);
/* GN_ERR_NOT_FOUND: there is none. */
enum gn_status gn_owner_file_look(const char *path, struct gn_owner_file *out, struct gn_err *err);
/* Seconds since the heartbeat, by the clock that sets times of files in that folder: that of one that is made now, whose name has
 * the nonce in it. */
enum gn_status gn_owner_file_age(const struct gn_owner_file *f, const char *path, const char *nonce, double *seconds,
				 struct gn_err *err);

#endif
