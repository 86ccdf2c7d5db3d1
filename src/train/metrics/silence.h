/* The status file with the ranks of which rank 0 hears nothing: while training waits for such a rank, nobody else would write.
 *
 * A thread looks once a second at what the heartbeats have told (gn_world_heard_ns()) and writes the last status again when ranks have
 * become silent, or are no longer. It adds to the object of run_status.h:
 *
 *     "silent": [{"rank", "host", "since": seconds since 1970}, ...], "silent_count"
 *     silent: the ranks without a message for GN_SILENCE_S, the first GN_SILENCE_LISTED; since: their last message
 *
 * Thread safety: one thread.
 */
#ifndef GN_TRAIN_METRICS_SILENCE_H
#define GN_TRAIN_METRICS_SILENCE_H

#include "transport/bootstrap/world.h"

#define GN_SILENCE_S 2.5 /* a rank sends a message each second */
#define GN_SILENCE_LISTED 8

struct gn_silence;

/* Rank 0. path is copied; world is borrowed. */
enum gn_status gn_silence_create(const char *path, const struct gn_world *world, struct gn_silence **out, struct gn_err *err);
/* Ends the thread. NULL is fine. */
void gn_silence_destroy(struct gn_silence *s);
/* Replaces the file. object: the text of a JSON object; copied. Blocks on its file system. */
enum gn_status gn_silence_write(struct gn_silence *s, const char *object, struct gn_err *err);

#endif
