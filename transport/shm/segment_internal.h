/* A segment: shared memory in which each rank of a group that is on this node has a part, and which all of them map.
 *
 * Each rank creates an anonymous file (memfd) and maps its own and, through /proc/PID/fd, those of the other ranks. The files have
 * no names, so that nothing survives a crash, and only processes of the same user that may trace each other can open them. Where
 * the system does not allow that (different PID namespaces, hardened kernels) creation is GN_ERR_UNSUPPORTED on all ranks of the
 * group.
 *
 * Thread safety: a segment does not change after creation; its users synchronise accesses to the memory.
 */
#ifndef GN_TRANSPORT_SHM_SEGMENT_INTERNAL_H
#define GN_TRANSPORT_SHM_SEGMENT_INTERNAL_H

#include "transport/shm/shm_members.h"

struct gn_segment;

/* Collective over the members; blocks. The lengths are the same on all ranks of a node. The memory is zeroed. The first
 * committed_bytes (at least 1) of each part are committed here: they never raise SIGBUS, and without memory for them the call is
 * GN_ERR_NO_MEMORY. A failure of one rank fails the call
 * on all. The rest up to len_bytes takes no memory until its owner commits it, and nobody may access it before. With more
 * than eight ranks on a node pages of other ranks are mapped on first access, so that pages never accessed are not resident. */
enum gn_status gn_segment_create(const struct gn_shm_members *members, size_t len_bytes, size_t committed_bytes,
				 struct gn_segment **out, struct gn_err *err);
/* Local: commits [offset, offset + len_bytes) of this rank's own part; memory that is committed is left as it is. Other ranks may
 * access it once this rank has told them. A system call. GN_ERR_NO_MEMORY as above. */
enum gn_status gn_segment_commit(struct gn_segment *s, size_t offset, size_t len_bytes, struct gn_err *err);
/* Local: unmaps all parts; other ranks keep their mappings. NULL is fine. */
void gn_segment_destroy(struct gn_segment *s);

/* The part of local rank `index`, in the order of the group; the part of a rank of the world, NULL if it has none. */
void *gn_segment_part(const struct gn_segment *s, int index);
void *gn_segment_part_of(const struct gn_segment *s, int world_rank);
/* Differs from that of any other segment of this host that exists; the same on all ranks that map it. Not 0. */
uint64_t gn_segment_id(const struct gn_segment *s);
size_t gn_segment_len(const struct gn_segment *s);
/* The distance between adjacent parts in bytes: whole pages, from len_bytes to less than 64 pages more. If such a distance exists,
 * no two of any eight adjacent parts conflict in the L1 cache of AMD processors, except in one of 4096 places. */
size_t gn_segment_stride(size_t len_bytes, int parts);

#endif
