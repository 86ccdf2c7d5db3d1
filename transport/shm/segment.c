#include "transport/shm/shm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* With up to so many parts all pages are mapped at creation (MAP_POPULATE). Sums of 256 KiB to 1 MiB by two ranks take 10 to 20 %
 * longer on pages that were mapped by faults (AMD EPYC). With more parts a rank accesses its share only, and mapping all of them in
 * each rank took gigabytes. */
#define POPULATE_PARTS 8

struct gn_segment {
	size_t len, committed;
	uint64_t id;
	int parts;
	void **part;
	int *ranks;  /* of the world, for each part */
	void *range; /* the address range of all parts; NULL: not reserved */
	size_t range_len, stride;
	int fd; /* of this rank's own part, if it is not all committed; else -1 */
};

/* A rank's part of the exchange: its file. device and inode verify that /proc/PID/fd/FD is that file. */
struct record {
	int64_t pid, fd;
	uint64_t device, inode, len;
	int32_t failed;
};

/* Allocates the pages: the first access to a page that is not allocated raises SIGBUS when memory is exhausted. */
static enum gn_status commit(int fd, size_t offset, size_t len, struct gn_err *err)
{
	int failed;

	do
		failed = posix_fallocate(fd, (off_t)offset, (off_t)len);
	while (failed == EINTR);
	return failed ? gn_err_set(err, GN_ERR_NO_MEMORY, "cannot allocate %zu bytes of shared memory: %s; is this host's memory, or the "
				   "job's memory limit, exhausted?", len, gn_errno_text(failed)) : GN_OK;
}

static enum gn_status make_file(size_t len, size_t committed, int *out, struct record *record, struct gn_err *err)
{
	struct stat info;
	enum gn_status status;
	int fd = memfd_create("gannet", MFD_CLOEXEC);

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot create shared memory");
	/* memfd_create() uses mode 0777 */
	if (fchmod(fd, 0600) || ftruncate(fd, (off_t)len) || fstat(fd, &info))
		status = gn_err_errno(err, errno, "cannot create %zu bytes of shared memory", len);
	else
		status = commit(fd, 0, committed, err);
	if (status) {
		close(fd);
		return status;
	}
	*record = (struct record){getpid(), fd, info.st_dev, info.st_ino, len, 0};
	*out = fd;
	return GN_OK;
}

/* --- addresses of the parts --- */

/* The L1 way predictor of AMD Zen hashes address bits 12 to 27 and keeps one line for each hash in a set, so that two streams with
 * the same hash evict each other: parts 0x4002000 bytes apart are summed five times slower than others. The hash is that of Lipp et
 * al., "Take A Way", 2020; of its eight bits, 12^27 and 13^26 were confirmed by measurement, the others were not tried. */
static unsigned way_hash(uint64_t page)
{
	static const int pairs[8][2] = {{0, 15}, {1, 14}, {2, 13}, {3, 8}, {4, 9}, {5, 10}, {6, 11}, {7, 12}};
	unsigned hash = 0;

	for (int i = 0; i < 8; i++)
		hash |= (unsigned)((page >> pairs[i][0] ^ page >> pairs[i][1]) & 1) << i;
	return hash;
}

/* Samples every seventh of 65536 pages; returns how many have the same hash as the page `pages` pages further on. */
static unsigned count_conflicts(uint64_t pages)
{
	unsigned count = 0;

	for (uint64_t at = 0; at < 65536; at += 7)
		count += way_hash(at) == way_hash(at + pages);
	return count;
}

/* The smallest distance of adjacent parts, in pages, without conflicts among the first eight. */
static uint64_t find_stride(uint64_t pages, int parts)
{
	for (uint64_t stride = pages; stride < pages + 64; stride++) {
		unsigned count = 0;

		for (int k = 1; k < parts && k < 8 && !count; k++)
			count = count_conflicts(stride * (uint64_t)k);
		if (!count)
			return stride;
	}
	return pages;
}

size_t gn_segment_stride(size_t len_bytes, int parts)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = len_bytes / page + (len_bytes % page != 0);

	return (size_t)find_stride(pages, parts) * page;
}

static enum gn_status reserve(struct gn_segment *s, struct gn_err *err)
{
	s->stride = gn_segment_stride(s->len, s->parts);
	s->range_len = s->stride * (size_t)s->parts;
	s->range = mmap(NULL, s->range_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (s->range != MAP_FAILED)
		return GN_OK;
	s->range = NULL;
	return gn_err_errno(err, errno, "cannot reserve addresses for %zu bytes of shared memory", s->range_len);
}

/* at: in the reserved range. */
static enum gn_status map(const struct gn_segment *s, int fd, int populate, void *at, struct gn_err *err)
{
	/* pages that are not committed must not be populated */
	size_t populated = populate ? s->committed : 0;
	void *memory = at;

	if (populated < s->len)
		memory = mmap(at, s->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (populated && memory != MAP_FAILED)
		memory = mmap(at, populated, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0);
	return memory != MAP_FAILED ? GN_OK : gn_err_errno(err, errno, "cannot map %zu bytes of shared memory", s->len);
}

static enum gn_status map_peer(const struct gn_segment *s, const struct record *record, void *at, struct gn_err *err)
{
	char path[64];
	struct stat info;
	enum gn_status status;
	int fd;

	if (record->len != s->len)
		return gn_err_set(err, GN_ERR_MISMATCH, "another rank on this node shares %llu bytes, not %zu",
				  (unsigned long long)record->len, s->len);
	snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)record->pid, (long long)record->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "cannot open %s: %s", path, gn_errno_text(errno));
	if (fstat(fd, &info) || info.st_dev != record->device || info.st_ino != record->inode)
		status = gn_err_set(err, GN_ERR_UNSUPPORTED, "%s is not the file of the other rank: is it in another PID namespace?",
				    path);
	else
		status = map(s, fd, s->parts <= POPULATE_PARTS, at, err);
	close(fd);
	return status;
}

/* The members on this node, in the order of the group. */
static enum gn_status find_parts(struct gn_segment *s, const struct gn_shm_members *m, struct gn_err *err)
{
	int here = gn_world_node_of(m->world, gn_world_rank(m->world));

	s->part = calloc((size_t)m->size, sizeof *s->part);
	s->ranks = calloc((size_t)m->size, sizeof *s->ranks);
	if (!s->part || !s->ranks)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a shared segment");
	for (int r = 0; r < m->size; r++)
		if (gn_world_node_of(m->world, gn_shm_member(m, r)) == here)
			s->ranks[s->parts++] = gn_shm_member(m, r);
	return GN_OK;
}

/* records: of all members. */
static enum gn_status map_all(struct gn_segment *s, const struct gn_shm_members *m, int fd, const struct record *records,
			      struct gn_err *err)
{
	int rank = gn_world_rank(m->world), index = 0;
	enum gn_status status = reserve(s, err);

	for (int r = 0; index < s->parts && !status; r++) {
		if (gn_shm_member(m, r) != s->ranks[index])
			continue;
		if (!index)
			s->id = records[r].inode;
		s->part[index] = (char *)s->range + (size_t)index * s->stride;
		status = s->ranks[index] == rank ? map(s, fd, 1, s->part[index], err) : map_peer(s, &records[r], s->part[index], err);
		index++;
	}
	return status;
}

/* Collective: exchanges records. GN_ERR_UNSUPPORTED on all ranks when any record says that its rank failed. */
static enum gn_status exchange_records(const struct gn_shm_members *m, const struct record *mine, struct record *records,
				       struct gn_err *err)
{
	enum gn_status status = m->gather(m->argument, mine, sizeof *mine, records, err);

	for (int r = 0; r < m->size && !status; r++)
		if (records[r].failed)
			status = gn_err_set(err, GN_ERR_UNSUPPORTED, "rank %d on %s cannot share memory with its node",
					    gn_shm_member(m, r), gn_world_host_of(m->world, gn_shm_member(m, r)));
	return status;
}

/* records: memory for those of all members. */
static enum gn_status share(struct gn_segment *s, const struct gn_shm_members *m, struct record *records, struct gn_err *err)
{
	struct record mine = {.failed = 1};
	enum gn_status own = find_parts(s, m, err), status;
	int fd = -1;

	if (!own)
		own = make_file(s->len, s->committed, &fd, &mine, err);
	if (s->committed < s->len)
		s->fd = fd;
	status = exchange_records(m, &mine, records, own ? NULL : err);
	if (!status && !own)
		own = map_all(s, m, fd, records, err);
	/* a second exchange: files stay open until all ranks have mapped them, and one that failed fails all */
	mine.failed = own != GN_OK;
	if (!status)
		status = exchange_records(m, &mine, records, own ? NULL : err);
	if (fd >= 0 && s->fd < 0)
		close(fd);
	return own ? own : status;
}

enum gn_status gn_segment_create(const struct gn_shm_members *m, size_t len_bytes, size_t committed_bytes,
				 struct gn_segment **out, struct gn_err *err)
{
	struct gn_segment *s = calloc(1, sizeof *s);
	struct record *records = calloc((size_t)m->size, sizeof *records);
	enum gn_status status;

	if (!s || !records) {
		free(s);
		free(records);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a shared segment");
	}
	*s = (struct gn_segment){.len = len_bytes, .committed = committed_bytes, .fd = -1};
	status = share(s, m, records, err);
	free(records);
	if (status) {
		gn_segment_destroy(s);
		return status;
	}
	*out = s;
	return GN_OK;
}

void gn_segment_destroy(struct gn_segment *s)
{
	if (!s)
		return;
	if (s->range)
		munmap(s->range, s->range_len);
	if (s->fd >= 0)
		close(s->fd);
	free(s->part);
	free(s->ranks);
	free(s);
}

enum gn_status gn_segment_commit(struct gn_segment *s, size_t offset, size_t len_bytes, struct gn_err *err)
{
	if (s->fd < 0 || !len_bytes)
		return GN_OK;
	return commit(s->fd, offset, len_bytes, err);
}

void *gn_segment_part(const struct gn_segment *s, int index)
{
	return s->part[index];
}

void *gn_segment_part_of(const struct gn_segment *s, int world_rank)
{
	for (int i = 0; i < s->parts; i++)
		if (s->ranks[i] == world_rank)
			return s->part[i];
	return NULL;
}

uint64_t gn_segment_id(const struct gn_segment *s)
{
	return s->id;
}

size_t gn_segment_len(const struct gn_segment *s)
{
	return s->len;
}
