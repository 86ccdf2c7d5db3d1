/* gannet bench io: random reads as the loader makes them, of a packed dataset's samples or of blocks in a file of its own. */
#include "src/cmd/bench.h"

#include "data/sample/order.h"
#include "data/shard/dataset.h"
#include "data/shard/manifest.h"
#include "src/base/clock.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"
#include "src/base/json.h"
#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct io_bench {
	const struct gn_bench_options *o;
	struct gn_dataset *dataset; /* NULL: blocks of fd */
	int fd;
	uint32_t *crc32c; /* of each block */
	uint64_t count;	  /* samples or blocks, each read once at most */
	uint32_t max_bytes;
	struct gn_order order;
	atomic_uint_fast64_t next;
	double *took_us; /* [count] by position; 0: not read */
	double until_s, elapsed_s;
	double cached; /* share of the pages that were in memory at the start; < 0: the kernel does not tell */
};

struct reader {
	pthread_t thread;
	struct io_bench *b;
	char *buffer;
	uint64_t bytes;
	enum gn_status status;
	struct gn_err err;
};

/* --- what is read --- */

static void fill_block(uint64_t index, uint32_t *words, size_t count)
{
	struct gn_rng rng;

	gn_rng_init(&rng, 1, GN_RNG_TEST, (uint32_t)index, 0);
	for (size_t i = 0; i < count; i++)
		words[i] = gn_rng_u32(&rng);
}

static enum gn_status write_blocks(struct io_bench *b, const char *path, struct gn_err *err)
{
	size_t block = b->max_bytes;
	uint32_t *words = malloc(block);
	enum gn_status status = words ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a block of %zu bytes", block);

	for (uint64_t i = 0; i < b->count && !status; i++) {
		fill_block(i, words, block / sizeof *words);
		b->crc32c[i] = gn_crc32c(0, words, block);
		status = gn_write_full(b->fd, words, block, path, err);
	}
	free(words);
	if (!status && fsync(b->fd))
		return gn_err_set(err, GN_ERR_IO, "%s: %s", path, gn_errno_text(errno));
	return status;
}

/* The file has no name any more when it is written: nothing is left, however this ends. */
static enum gn_status make_file(struct io_bench *b, struct gn_err *err)
{
	char path[PATH_MAX];
	uint64_t room;
	enum gn_status status = gn_path_join(path, sizeof path, b->o->data, "gannet-bench-io.XXXXXX", err);

	if (!status)
		status = gn_free_bytes(b->o->data, &room, err);
	if (status)
		return status;
	b->max_bytes = (uint32_t)b->o->block_bytes & ~3u;
	b->count = (uint64_t)b->o->file_bytes / b->max_bytes;
	if (!b->count)
		return gn_err_set(err, GN_ERR_USAGE, "--file-bytes is less than a block (--block-bytes)");
	if (room < b->count * b->max_bytes)
		return gn_err_set(err, GN_ERR_NO_SPACE, "%s has %.1f GB free, and the test file would take %.1f: lower --file-bytes",
				  b->o->data, (double)room * 1e-9, (double)b->count * b->max_bytes * 1e-9);
	b->crc32c = malloc(b->count * sizeof *b->crc32c);
	if (!b->crc32c)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %llu checksums", (unsigned long long)b->count);
	b->fd = mkostemp(path, O_CLOEXEC);
	if (b->fd < 0)
		return gn_err_set(err, GN_ERR_IO, "%s: %s", path, gn_errno_text(errno));
	unlink(path);
	return write_blocks(b, path, err);
}

static enum gn_status open_source(struct io_bench *b, struct gn_err *err)
{
	enum gn_status status;

	if (!b->o->data)
		return gn_err_set(err, GN_ERR_USAGE, "bench io needs --data DIR: a dataset written by gannet pack, or a folder to write a test "
				  "file to");
	if (gn_manifest_is_there(b->o->data)) {
		status = gn_dataset_open(b->o->data, &b->dataset, err);
		if (!status)
			status = gn_dataset_unlock(b->dataset, b->o->key_file, err);
		if (status)
			return status;
		b->count = gn_dataset_count(b->dataset);
		b->max_bytes = gn_dataset_max_length(b->dataset);
	} else {
		status = make_file(b, err);
		if (status)
			return status;
	}
	b->order = (struct gn_order){.seed = (uint64_t)gn_clock_ns(), .count = b->count, .ranks = 1, .batch = 1, .shuffled = 1, .drops = 1};
	b->took_us = calloc(b->count, sizeof *b->took_us);
	if (!b->took_us)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %llu timings", (unsigned long long)b->count);
	return gn_order_check(&b->order, err);
}

/* --- the page cache --- */

/* Adds to *resident and *pages. Only for the owner of a file, or who can write to it, does the kernel tell which pages are in memory. */
static int count_resident(int fd, uint64_t *resident, uint64_t *pages)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), count;
	unsigned char *map = MAP_FAILED, *in_memory = NULL;
	struct stat s;
	int known = 0;

	if (fstat(fd, &s) || !s.st_size || (s.st_uid != geteuid() && geteuid() != 0))
		return 0;
	count = ((size_t)s.st_size + page - 1) / page;
	map = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_SHARED, fd, 0);
	in_memory = malloc(count);
	if (map != MAP_FAILED && in_memory && !mincore(map, (size_t)s.st_size, in_memory)) {
		known = 1;
		for (size_t i = 0; i < count; i++)
			*resident += in_memory[i] & 1;
		*pages += count;
	}
	free(in_memory);
	if (map != MAP_FAILED)
		munmap(map, (size_t)s.st_size);
	return known;
}

static enum gn_status drop_dataset(struct io_bench *b, int *known, uint64_t *resident, uint64_t *pages, struct gn_err *err)
{
	struct gn_manifest m;
	char path[PATH_MAX];
	enum gn_status status = gn_manifest_load(b->o->data, &m, err);

	if (status)
		return status;
	for (uint32_t i = 0; i < m.shard_count && !status; i++) {
		int fd;

		status = gn_path_join(path, sizeof path, b->o->data, m.shards[i].file, err);
		fd = status ? -1 : open(path, O_RDONLY | O_CLOEXEC);
		if (!status && fd < 0)
			status = gn_err_set(err, GN_ERR_IO, "%s: %s", path, gn_errno_text(errno));
		if (status)
			break;
		if (!b->o->warm)
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		*known &= count_resident(fd, resident, pages);
		close(fd);
	}
	gn_manifest_release(&m);
	return status;
}

/* Removes the data from the page cache, unless --warm, and notes what stayed. */
static enum gn_status drop_cache(struct io_bench *b, struct gn_err *err)
{
	uint64_t resident = 0, pages = 0;
	int known = 1;
	enum gn_status status = GN_OK;

	if (b->dataset) {
		status = drop_dataset(b, &known, &resident, &pages, err);
	} else {
		if (!b->o->warm)
			posix_fadvise(b->fd, 0, 0, POSIX_FADV_DONTNEED);
		known = count_resident(b->fd, &resident, &pages);
	}
	b->cached = known && pages ? (double)resident / (double)pages : -1;
	return status;
}

/* --- reading --- */

static enum gn_status read_one(const struct io_bench *b, uint64_t index, char *buffer, uint64_t *bytes, struct gn_err *err)
{
	struct gn_sample s;
	enum gn_status status;

	if (b->dataset) {
		gn_dataset_sample(b->dataset, index, &s);
		*bytes += s.length_bytes;
		return gn_dataset_read(b->dataset, index, buffer, err);
	}
	*bytes += b->max_bytes;
	status = gn_pread_full(b->fd, buffer, b->max_bytes, index * b->max_bytes, "the test file", err);
	if (!status && gn_crc32c(0, buffer, b->max_bytes) != b->crc32c[index])
		return gn_err_set(err, GN_ERR_DATA, "block %llu of the test file in %s differs from what was written: its disk or file system "
				  "loses data", (unsigned long long)index, b->o->data);
	return status;
}

static void *read_many(void *argument)
{
	struct reader *r = argument;
	struct io_bench *b = r->b;
	double before = gn_clock_s();
	uint64_t position;

	while (!r->status && before < b->until_s && (position = atomic_fetch_add(&b->next, 1)) < b->count) {
		double after;

		r->status = read_one(b, gn_order_sample(&b->order, 0, position), r->buffer, &r->bytes, &r->err);
		after = gn_clock_s();
		b->took_us[position] = 1e6 * (after - before);
		before = after;
	}
	return NULL;
}

static enum gn_status read_all(struct io_bench *b, uint64_t *bytes, struct gn_err *err)
{
	int threads = (int)b->o->loader_threads, started = 0;
	struct reader *readers = calloc((size_t)threads, sizeof *readers);
	double begin = gn_clock_s();
	enum gn_status status = readers ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d threads", threads);

	b->until_s = begin + (double)b->o->seconds;
	for (; started < threads && !status; started++) {
		struct reader *r = &readers[started];

		r->b = b;
		r->buffer = malloc((size_t)b->max_bytes + 1);
		if (!r->buffer || gn_thread_start(&r->thread, read_many, r)) {
			free(r->buffer);
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d threads", threads);
			break;
		}
	}
	for (int i = 0; i < started; i++) {
		pthread_join(readers[i].thread, NULL);
		*bytes += readers[i].bytes;
		if (!status && readers[i].status) {
			status = readers[i].status;
			*err = readers[i].err;
		}
		free(readers[i].buffer);
	}
	b->elapsed_s = gn_clock_s() - begin;
	free(readers);
	return status;
}

/* --- output --- */

/* Moves the times of what was read to the front, sorted. */
static void summarise(struct io_bench *b, struct gn_timing *t)
{
	int64_t n = 0;

	for (uint64_t i = 0; i < b->count; i++)
		if (b->took_us[i] > 0)
			b->took_us[n++] = b->took_us[i];
	if (n)
		gn_timing_summarise(b->took_us, n, 0, t);
}

static double most_us(const struct io_bench *b, const struct gn_timing *t)
{
	return t->iters ? b->took_us[t->iters - 1] : 0;
}

static void print_json(const struct io_bench *b, const struct gn_timing *t, uint64_t bytes)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "op io path %s of %s threads %ld reads %ld bytes %lu seconds %.4f mb_per_s %.1f samples_per_s %.1f p50_us %.1f "
		    "p99_us %.1f max_us %.1f", b->o->data, b->dataset ? "dataset" : "file", b->o->loader_threads, t->iters, bytes,
		    b->elapsed_s, (double)bytes * 1e-6 / b->elapsed_s, (double)t->iters / b->elapsed_s, t->p50_us, t->p99_us,
		    most_us(b, t));
	if (b->cached >= 0)
		gn_json_fixed(&j, "cached", b->cached, 4);
	gn_cmd_print_json(&j);
}

static void print(const struct io_bench *b, const struct gn_timing *t, uint64_t bytes)
{
	char path[PATH_MAX], cached[64] = "of which the kernel does not tell what was in memory";

	if (b->cached >= 0)
		snprintf(cached, sizeof cached, "%.1f %% in memory at the start", 100 * b->cached);
	printf("# %s: %llu %s%s of %.0f bytes in random order, %lld thread%s, each checked; %s\n%10s %12s %10s %10s %10s\n"
	       "%10.1f %12.1f %10.1f %10.1f %10.1f\n", gn_text_visible(b->o->data, path, sizeof path), (unsigned long long)t->iters,
	       b->dataset ? "sample" : "block", t->iters == 1 ? "" : "s", t->iters ? (double)bytes / (double)t->iters : 0, (long long)b->o->loader_threads,
	       gn_text_plural((uint64_t)b->o->loader_threads), cached, "MB/s", "samples/s", "p50 us", "p99 us", "most us",
	       (double)bytes * 1e-6 / b->elapsed_s, (double)t->iters / b->elapsed_s, t->p50_us, t->p99_us,
	       most_us(b, t));
	if (b->cached > 0.05 && !b->o->warm)
		fprintf(stderr, "gannet bench io: part of the data stayed in memory (a memory file system, or pages in use by others): a disk "
			"is slower\n");
}

int gn_bench_io(const struct gn_bench_options *o)
{
	struct io_bench b = {.o = o, .fd = -1};
	struct gn_timing timing = {0};
	uint64_t bytes = 0;
	struct gn_err err;
	enum gn_status status = open_source(&b, &err);

	if (!status)
		status = drop_cache(&b, &err);
	if (!status)
		status = read_all(&b, &bytes, &err);
	if (!status) {
		summarise(&b, &timing);
		if (o->json)
			print_json(&b, &timing, bytes);
		else
			print(&b, &timing, bytes);
	}
	gn_dataset_close(b.dataset);
	if (b.fd >= 0)
		close(b.fd);
	free(b.crc32c);
	free(b.took_us);
	return status ? gn_cmd_fail("bench", &err) : GN_EXIT_DONE;
}
