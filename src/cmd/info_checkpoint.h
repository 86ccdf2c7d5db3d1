/* The part of `gannet info` that tells about checkpoints. */
#ifndef GN_CMD_INFO_CHECKPOINT_H
#define GN_CMD_INFO_CHECKPOINT_H

/* Whether path is a checkpoint or a folder of them. */
int gn_info_is_checkpoint(const char *path);
/* Verifies and prints the newest whole one. Returns an enum gn_exit. */
int gn_info_checkpoint(const char *path, int json);

#endif
