/* The owner file of a checkpoint folder: contents, creation and reading. Private to src/train/checkpoint/owner*.c. */
#ifndef GN_TRAIN_CHECKPOINT_OWNER_INTERNAL_H
#define GN_TRAIN_CHECKPOINT_OWNER_INTERNAL_H

#include "src/train/checkpoint/owner.h"

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* The identity of a run. Unknown numbers and strings are 0 and "". */
struct gn_owner_identity {
	char host[65], cluster[65], job[65], boot[65], nonce[GN_OWNER_NONCE];
	int64_t restart, pid, pid_start, pid_namespace;
	char run[GN_OWNER_NONCE]; /* "": it ends with any loss */
	int64_t world;
};

/* An owner file that was read. */
struct gn_owner_file {
	struct gn_owner_identity who; /* empty if the file is no owner file: incomplete, or of another program */
	struct timespec beat;
	ino_t inode;
};

/* The identity of this process, with a new nonce. */
enum gn_status gn_owner_identify(struct gn_owner_identity *self, struct gn_err *err);
/* "process 4711 on n1, job 123 (restart 1)" */
const char *gn_owner_describe(const struct gn_owner_identity *who, char text[256]);
/* Start time of a process in clock ticks since boot; 0 if it does not exist or is a zombie. */
int64_t gn_owner_start_of(int64_t pid);
/* Creates path, open in *fd. GN_ERR_EXISTS if it exists. */
enum gn_status gn_owner_file_create(const char *path, const struct gn_owner_identity *who, int *fd, struct gn_err *err);
/* GN_ERR_NOT_FOUND if the file does not exist. */
enum gn_status gn_owner_file_look(const char *path, struct gn_owner_file *out, struct gn_err *err);
/* Seconds since the heartbeat by the clock of the file system: compares with a file created now, whose name contains the nonce. */
enum gn_status gn_owner_file_age(const struct gn_owner_file *f, const char *path, const char *nonce, double *seconds,
				 struct gn_err *err);

#endif
