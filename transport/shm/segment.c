#include "transport/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of so many parts all are mapped at once, page by page. Sums of 256 KiB to 1 MiB by two ranks take a tenth to a fifth longer on pages
 * that came one fault at a time (AMD EPYC). Of more parts a rank touches its share, and all of them in each rank were gigabytes. */
#define POPULATE_PARTS 8

struct gn_segment {
	size_t len, committed;
	int parts;
	void **part;
	void *place; /* of all parts; NULL: not reserved */
	size_t place_len, stride;
	int fd; /* of this rank's own part, while some of it may still have to be committed; -1: all is */
};

/* What a rank tells the others of its file. device and inode make sure that the file found is the one meant. */
struct card {
	int64_t pid, fd;
	uint64_t device, inode, len;
	int32_t failed;
};

/* Pages that a file only promises are a SIGBUS for whoever touches them first when there are none left. */
static enum gn_status commit(int fd, size_t offset, size_t len, struct gn_err *err)
{
	int failed;

	do
		failed = posix_fallocate(fd, (off_t)offset, (off_t)len);
	while (failed == EINTR);
	return failed ? gn_err_set(err, GN_ERR_NO_MEMORY, "no %zu bytes of shared memory: %s; has this machine, or the job's "
				   "share of it, no memory left?", len, strerror(failed)) : GN_OK;
}

static enum gn_status make_file(size_t len, size_t committed, int *out, struct card *card, struct gn_err *err)
{
	struct stat info;
	enum gn_status status;
	int fd = memfd_create("gannet", MFD_CLOEXEC);

	if (fd < 0)
		return gn_err_errno(err, errno, "cannot make shared memory");
	/* made with mode 0777 */
	if (fchmod(fd, 0600) || ftruncate(fd, (off_t)len) || fstat(fd, &info))
		status = gn_err_errno(err, errno, "cannot make %zu bytes of shared memory", len);
	else
		status = commit(fd, 0, committed, err);
	if (status) {
		close(fd);
		return status;
	}
	*card = (struct card){getpid(), fd, info.st_dev, info.st_ino, len, 0};
	*out = fd;
	return GN_OK;
}

/* --- where parts lie --- */

/* AMD's Zen finds a line in its first-level cache by a hash of the address' bits 12 to 27, and keeps one line for each hash in
 * a set: two streams with the same one throw each other out. Parts that lie 0x4002000 bytes apart are summed five times slower
 * than others. The hash is that of Lipp et al., "Take A Way", 2020; of its eight bits 12^27 and 13^26 were seen here, the
 * others were not tried. */
static unsigned way_hash(uint64_t page)
{
	static const int pairs[8][2] = {{0, 15}, {1, 14}, {2, 13}, {3, 8}, {4, 9}, {5, 10}, {6, 11}, {7, 12}};
	unsigned hash = 0;

	for (int i = 0; i < 8; i++)
		hash |= (unsigned)((page >> pairs[i][0] ^ page >> pairs[i][1]) & 1) << i;
	return hash;
}

/* Of a seventh of all places that a page can have, how many bring it into conflict with the one so many pages on. */
static unsigned conflicts(uint64_t pages)
{
	unsigned count = 0;

	for (uint64_t at = 0; at < 65536; at += 7)
		count += way_hash(at) == way_hash(at + pages);
	return count;
}

/* The least distance of neighbouring parts, in pages, without conflicts between any of the first few. */
static uint64_t good_stride(uint64_t pages, int parts)
{
	for (uint64_t stride = pages; stride < pages + 64; stride++) {
		unsigned count = 0;

		for (int k = 1; k < parts && k < 8 && !count; k++)
			count = conflicts(stride * (uint64_t)k);
		if (!count)
			return stride;
	}
	return pages;
}

size_t gn_segment_stride(size_t len_bytes, int parts)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = len_bytes / page + (len_bytes % page != 0);

	return (size_t)good_stride(pages, parts) * page;
}

static enum gn_status reserve(struct gn_segment *s, struct gn_err *err)
{
	s->stride = gn_segment_stride(s->len, s->parts);
	s->place_len = s->stride * (size_t)s->parts;
	s->place = mmap(NULL, s->place_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (s->place != MAP_FAILED)
		return GN_OK;
	s->place = NULL;
	return gn_err_errno(err, errno, "no room for %zu bytes of shared memory", s->place_len);
}

/* at: a place that is reserved. */
static enum gn_status map(const struct gn_segment *s, int fd, int populate, void *at, struct gn_err *err)
{
	/* of what is not committed no page may be touched, not even by the system */
	size_t populated = populate ? s->committed : 0;
	void *memory = at;

	if (populated < s->len)
		memory = mmap(at, s->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (populated && memory != MAP_FAILED)
		memory = mmap(at, populated, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0);
	return memory != MAP_FAILED ? GN_OK : gn_err_errno(err, errno, "cannot map %zu bytes of shared memory", s->len);
}

static enum gn_status map_neighbour(const struct gn_segment *s, const struct card *card, void *at, struct gn_err *err)
{
	char path[64];
	struct stat info;
	enum gn_status status;
	int fd;

	if (card->len != s->len)
		return gn_err_set(err, GN_ERR_MISMATCH, "a neighbour shares %llu bytes, not %zu",
				  (unsigned long long)card->len, s->len);
	snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)card->pid, (long long)card->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return gn_err_set(err, GN_ERR_UNSUPPORTED, "cannot open %s: %s", path, strerror(errno));
	if (fstat(fd, &info) || info.st_dev != card->device || info.st_ino != card->inode)
		status = gn_err_set(err, GN_ERR_UNSUPPORTED, "%s is not the neighbour's memory: another namespace?", path);
	else
		status = map(s, fd, s->parts <= POPULATE_PARTS, at, err);
	close(fd);
	return status;
}

static enum gn_status map_all(struct gn_segment *s, const struct gn_world *w, int fd, const struct gn_gathered *cards,
			      struct gn_err *err)
{
	int rank = gn_world_rank(w), index = 0;
	enum gn_status status = reserve(s, err);

	for (int r = 0; r < gn_world_size(w) && !status; r++) {
		struct card card;

		if (gn_world_node_of(w, r) != gn_world_node_of(w, rank))
			continue;
		memcpy(&card, cards->items[r], sizeof card);
		s->part[index] = (char *)s->place + (size_t)index * s->stride;
		status = r == rank ? map(s, fd, 1, s->part[index], err) : map_neighbour(s, &card, s->part[index], err);
		index++;
	}
	return status;
}

/* Everyone's card; a rank that had none to give fails all. */
static enum gn_status collect(struct gn_world *w, const struct card *mine, struct gn_gathered *cards, struct gn_err *err)
{
	enum gn_status status = gn_world_exchange(w, mine, sizeof *mine, cards, err);

	for (int r = 0; r < gn_world_size(w) && !status; r++) {
		struct card card;

		if (cards->lens[r] == sizeof card)
			memcpy(&card, cards->items[r], sizeof card);
		if (cards->lens[r] != sizeof card || card.failed)
			status = gn_err_set(err, GN_ERR_UNSUPPORTED, "rank %d on %s cannot share memory with its node", r,
					    gn_world_host_of(w, r));
	}
	return status;
}

enum gn_status gn_segment_create(struct gn_world *world, size_t len_bytes, size_t committed_bytes, struct gn_segment **out,
				 struct gn_err *err)
{
	int fd = -1;
	struct gn_segment *s = calloc(1, sizeof *s);
	struct gn_gathered cards = {0}, verdicts = {0};
	struct card mine = {.failed = 1};
	enum gn_status status = GN_OK, own = GN_OK;

	if (s) {
		s->fd = -1;
		s->part = calloc((size_t)gn_world_local_size(world), sizeof *s->part);
	}
	if (!s || !s->part) {
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to share memory");
		goto done;
	}
	s->len = len_bytes;
	s->committed = committed_bytes;
	s->parts = gn_world_local_size(world);
	own = make_file(len_bytes, committed_bytes, &fd, &mine, err);
	if (committed_bytes < len_bytes)
		s->fd = fd;
	status = collect(world, &mine, &cards, own ? NULL : err);
	if (!status && !own)
		own = map_all(s, world, fd, &cards, err);
	/* A second round: files must stay open until all have mapped them, and one that could not fails all. */
	mine.failed = own != GN_OK;
	if (!status)
		status = collect(world, &mine, &verdicts, own ? NULL : err);
done:
	gn_gathered_release(&cards);
	gn_gathered_release(&verdicts);
	if (fd >= 0 && s->fd < 0)
		close(fd);
	if (status || own) {
		gn_segment_destroy(s);
		return own ? own : status;
	}
	*out = s;
	return GN_OK;
}

void gn_segment_destroy(struct gn_segment *s)
{
	if (!s)
		return;
	if (s->place)
		munmap(s->place, s->place_len);
	if (s->fd >= 0)
		close(s->fd);
	free(s->part);
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

size_t gn_segment_len(const struct gn_segment *s)
{
	return s->len;
}
