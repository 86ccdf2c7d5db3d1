/* Where a relay reads: a folder or a file of a file system, or a file of a web server. Private to data/stage/relay*.
 *
 * A file of a web server is a tree of one entry, whose modification time has in its nanoseconds what the server says of its version: a
 * copy of another version is another tree. Each leader reads ranges. From a server without ranges rank 0's leader reads the file once,
 * from its begin to its end, into the copy in the making, and chunks come from there when they are complete.
 *
 * Thread safety: gn_relay_source_read() from any thread. Blocks.
 */
#ifndef GN_DATA_STAGE_RELAY_SOURCE_H
#define GN_DATA_STAGE_RELAY_SOURCE_H

#include "data/stage/http.h"
#include "data/stage/tree_target.h"

struct gn_relay_source;

/* from and http (NULL: from is a path) are borrowed. Nothing is looked at yet. */
enum gn_status gn_relay_source_create(const char *from, const struct gn_http_options *http, struct gn_relay_source **out, struct gn_err *err);
/* What is being read from a server, or will be, fails with GN_ERR_STOPPED. Any thread. */
void gn_relay_source_stop(struct gn_relay_source *s);
/* Stops what still reads, which uses the target. NULL is fine. */
void gn_relay_source_destroy(struct gn_relay_source *s);
/* On rank 0. *everywhere: each node can read it, as far as is known; 0: this one alone. */
enum gn_status gn_relay_source_list(struct gn_relay_source *s, struct gn_log *log, struct gn_tree *out, int *everywhere, struct gn_err *err);
/* Reads a chunk, of gn_tree_chunk_len() bytes. GN_ERR_DATA: it is not what was listed. */
enum gn_status gn_relay_source_read(struct gn_relay_source *s, const struct gn_tree *tree, struct gn_tree_target *target, uint32_t chunk,
				    void *data, struct gn_err *err);

#endif
