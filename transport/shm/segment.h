/* Memory that all ranks of one node map: buffers that peers read and write directly.
 *
 * Each rank makes an anonymous file (memfd) and maps its own and, through /proc/PID/fd, those of its neighbours. No name
 * exists anywhere, so nothing survives a crash, and only processes of the same user that may trace each other get in.
 * Where the system does not allow that (other process-id namespaces, hardened kernels) creation is GN_ERR_UNSUPPORTED on all
 * ranks of the world alike.
 *
 * Thread safety: a segment is memory; who writes where is the users' agreement.
 */
#ifndef GN_TRANSPORT_SHM_SEGMENT_H
#define GN_TRANSPORT_SHM_SEGMENT_H

#include "transport/bootstrap/world.h"

#include <stddef.h>

struct gn_segment;

/* Collective over the world; both lengths must be the same on the ranks of a node. The memory is zeroed. The first
 * committed_bytes (at least 1) of each part are committed here, GN_ERR_NO_MEMORY where there are none, and never raise SIGBUS.
 * What follows up to len_bytes takes no memory until its owner commits it; before that nobody may touch it, not even to read.
 * With more than eight ranks on a node a rank maps its neighbours' pages when it touches them: what it never looks at is not
 * resident in it. */
enum gn_status gn_segment_create(struct gn_world *world, size_t len_bytes, size_t committed_bytes, struct gn_segment **out,
				 struct gn_err *err);
/* Local: commits [offset, offset + len_bytes) of this rank's own part; what is committed already stays as it is. Neighbours may
 * touch it as soon as this rank has told them. A system call: not in a loop. GN_ERR_NO_MEMORY as above. */
enum gn_status gn_segment_commit(struct gn_segment *s, size_t offset, size_t len_bytes, struct gn_err *err);
/* Local: unmaps. Neighbours keep their view of this rank's memory until they destroy theirs. */
void gn_segment_destroy(struct gn_segment *s);

/* The part of the local rank `index` (0 .. local size - 1) of this node. */
void *gn_segment_part(const struct gn_segment *s, int index);
size_t gn_segment_len(const struct gn_segment *s);
/* How far neighbouring parts lie apart: whole pages, at least len_bytes and less than 64 pages more, and, where there is such a
 * distance, so that of any eight parts in a row no two get in each other's way in AMD's first-level cache, but in one place of 4096. */
size_t gn_segment_stride(size_t len_bytes, int parts);

#endif
