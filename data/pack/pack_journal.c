#include "data/pack/pack_journal.h"

#include "data/pack/pack_parts_internal.h"
#include "data/sample/image.h"
#include "data/shard/shard.h"
#include "src/base/alloc.h"
#include "src/base/crc32c.h"
#include "src/base/file.h"
#include "src/base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOURNAL_NAME "journal"
#define FORMAT "gannet-pack-journal 1"
#define JOURNAL_MAX_BYTES ((size_t)1 << 36)
#define PAYLOAD_MAX GN_SHARD_NAME_MAX

enum kind { KIND_BEGIN = 1, KIND_IMAGE, KIND_ORDER, KIND_SHARD };

/* The header of a record, in native byte order, followed by payload_bytes: a digest, an image's name, or a struct
 * gn_manifest_shard. */
struct record {
	uint32_t crc32c; /* of the rest of the record and the payload */
	uint16_t kind, payload_bytes;
	uint32_t number; /* source or shard index */
	uint32_t in_crc32c;
	uint64_t in_bytes;
	uint64_t spool_offset;
	uint32_t length_bytes;
	uint32_t out_crc32c;
	uint16_t width, height;
	uint8_t converted, warned, unused[2];
};
_Static_assert(sizeof(struct record) == 48, "a record has no holes");

struct known_shard {
	uint32_t index;
	struct gn_manifest_shard entry;
};

struct gn_pack_journal {
	char path[PATH_MAX];
	int fd;
	pthread_mutex_t lock; /* for writing */
	/* of an earlier pack; read-only once open, except for the order, which is set before shards are looked up */
	struct gn_names *keys; /* "SOURCE/NAME" */
	struct gn_pack_done *images; /* indexed by the number of the key */
	size_t image_capacity;
	char order[GN_SHA256_HEX];
	struct known_shard *shards;
	size_t shard_count, shard_room;
};

static uint32_t checksum(const struct record *r, const void *payload)
{
	uint32_t crc = gn_crc32c(0, (const char *)r + sizeof r->crc32c, sizeof *r - sizeof r->crc32c);

	return gn_crc32c(crc, payload, r->payload_bytes);
}

/* Writes a record with one write(2): after a kill only the last record can be incomplete. */
static enum gn_status append(struct gn_pack_journal *j, struct record *r, const void *payload, size_t len, struct gn_err *err)
{
	char buffer[sizeof *r + PAYLOAD_MAX];
	enum gn_status status;

	if (len > PAYLOAD_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "%s: a record of %zu bytes", j->path, len);
	r->payload_bytes = (uint16_t)len;
	r->crc32c = checksum(r, payload);
	memcpy(buffer, r, sizeof *r);
	memcpy(buffer + sizeof *r, payload, len);
	pthread_mutex_lock(&j->lock);
	status = gn_write_full(j->fd, buffer, sizeof *r + len, j->path, err);
	pthread_mutex_unlock(&j->lock);
	return status;
}

static void key_of(uint32_t source, const char *name, char out[PAYLOAD_MAX + 16])
{
	snprintf(out, PAYLOAD_MAX + 16, "%u/%s", source, name);
}

const struct gn_pack_done *gn_pack_journal_find(const struct gn_pack_journal *j, uint32_t source, const char *name)
{
	char key[PAYLOAD_MAX + 16];
	uint32_t id;

	if (!gn_names_count(j->keys))
		return NULL;
	key_of(source, name, key);
	return gn_names_find(j->keys, key, &id) ? &j->images[id] : NULL;
}

enum gn_status gn_pack_journal_add(struct gn_pack_journal *j, uint32_t source, const char *name,
				   const struct gn_pack_done *done, struct gn_err *err)
{
	struct record r = {
		.kind = KIND_IMAGE, .number = source, .in_crc32c = done->in_crc32c, .in_bytes = done->in_bytes,
		.spool_offset = done->spool_offset, .length_bytes = done->length_bytes, .out_crc32c = done->crc32c,
		.width = done->width, .height = done->height, .converted = done->converted, .warned = done->warned,
	};

	return append(j, &r, name, strlen(name), err);
}

enum gn_status gn_pack_journal_order(struct gn_pack_journal *j, const char *digest, struct gn_err *err)
{
	struct record r = {.kind = KIND_ORDER};

	if (!strcmp(j->order, digest))
		return GN_OK;
	snprintf(j->order, sizeof j->order, "%s", digest);
	j->shard_count = 0;
	return append(j, &r, digest, strlen(digest), err);
}

const struct gn_manifest_shard *gn_pack_journal_shard(const struct gn_pack_journal *j, uint32_t index)
{
	for (size_t i = 0; i < j->shard_count; i++)
		if (j->shards[i].index == index)
			return &j->shards[i].entry;
	return NULL;
}

enum gn_status gn_pack_journal_add_shard(struct gn_pack_journal *j, uint32_t index, const struct gn_manifest_shard *entry,
					 struct gn_err *err)
{
	struct record r = {.kind = KIND_SHARD, .number = index};

	return append(j, &r, entry, sizeof *entry, err);
}

static enum gn_status take_image(struct gn_pack_journal *j, const struct record *r, const char *name, struct gn_err *err)
{
	char text[PAYLOAD_MAX + 1], key[PAYLOAD_MAX + 16];
	enum gn_status status;
	uint32_t id;

	memcpy(text, name, r->payload_bytes);
	text[r->payload_bytes] = '\0';
	if (!r->length_bytes || r->length_bytes > GN_IMAGE_MAX_BYTES || !r->width || !r->height ||
	    r->width > GN_IMAGE_MAX_SIDE || r->height > GN_IMAGE_MAX_SIDE)
		return GN_OK;
	key_of(r->number, text, key);
	status = gn_names_add(j->keys, key, &id, err);
	if (status)
		return status;
	if (gn_array_grow(&j->images, &j->image_capacity, id, sizeof *j->images))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", j->path);
	j->images[id] = (struct gn_pack_done){
		.in_crc32c = r->in_crc32c, .in_bytes = r->in_bytes, .spool_offset = r->spool_offset,
		.length_bytes = r->length_bytes, .crc32c = r->out_crc32c, .width = r->width, .height = r->height,
		.converted = r->converted, .warned = r->warned,
	};
	return GN_OK;
}

static enum gn_status take_shard(struct gn_pack_journal *j, const struct record *r, const char *payload, struct gn_err *err)
{
	if (r->payload_bytes != sizeof j->shards->entry)
		return GN_OK;
	if (gn_array_grow(&j->shards, &j->shard_room, j->shard_count, sizeof *j->shards))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", j->path);
	j->shards[j->shard_count].index = r->number;
	memcpy(&j->shards[j->shard_count++].entry, payload, sizeof j->shards->entry);
	return GN_OK;
}

/* Sets *good to the length of the complete records at the start. */
static enum gn_status take_records(struct gn_pack_journal *j, const char *text, size_t len, const char *digest, size_t *good,
				   struct gn_err *err)
{
	enum gn_status status = GN_OK;
	struct record r;

	*good = 0;
	while (!status && len - *good >= sizeof r) {
		const char *payload = text + *good + sizeof r;

		memcpy(&r, text + *good, sizeof r);
		if (r.payload_bytes > PAYLOAD_MAX || len - *good - sizeof r < r.payload_bytes || checksum(&r, payload) != r.crc32c)
			break;
		if (!*good != (r.kind == KIND_BEGIN) ||
		    (!*good && (r.payload_bytes != strlen(digest) || memcmp(payload, digest, r.payload_bytes))))
			break;
		if (r.kind == KIND_IMAGE) {
			status = take_image(j, &r, payload, err);
		} else if (r.kind == KIND_SHARD) {
			status = take_shard(j, &r, payload, err);
		} else if (r.kind == KIND_ORDER && r.payload_bytes < sizeof j->order) {
			memcpy(j->order, payload, r.payload_bytes);
			j->order[r.payload_bytes] = '\0';
			j->shard_count = 0;
		}
		*good += sizeof r + r.payload_bytes;
	}
	return status;
}

static int is_ours(const char *path, mode_t type)
{
	struct stat info;

	return !lstat(path, &info) && (info.st_mode & S_IFMT) == type && info.st_uid == geteuid();
}

/* Reads the journal of an earlier pack; *good is 0 when nothing of it is usable. */
static enum gn_status load(struct gn_pack_journal *j, const char *folder, const char *digest, size_t *good,
			   const struct gn_pack_options *options, struct gn_err *err)
{
	char *text;
	size_t len;
	enum gn_status status;

	*good = 0;
	if (!is_ours(folder, S_IFDIR) || !is_ours(j->path, S_IFREG))
		return GN_OK;
	status = gn_file_load(j->path, JOURNAL_MAX_BYTES, &text, &len, err);
	if (status)
		return status;
	status = take_records(j, text, len, digest, good, err);
	free(text);
	if (status)
		return status;
	if (*good)
		gn_log_info(options->log, "resuming an earlier pack: %u images are done",
			    gn_names_count(j->keys));
	else
		gn_log_warn(options->log, "%s belongs to a pack with other arguments, or its sources have changed: starting from "
			    "the beginning",
			    folder);
	return GN_OK;
}

static void digest_text(struct gn_sha256 *s, const char *text)
{
	gn_sha256_update(s, text, strlen(text) + 1);
}

/* Files of a folder are compared one by one; an archive by size and modification time. */
static enum gn_status digest_source(struct gn_sha256 *s, const char *path, struct gn_err *err)
{
	char real[PATH_MAX];
	struct stat info;

	if (stat(path, &info) || !realpath(path, real))
		return gn_err_errno(err, errno, "cannot read source %s", path);
	digest_text(s, real);
	if (S_ISREG(info.st_mode)) {
		const uint64_t numbers[] = {(uint64_t)info.st_size, (uint64_t)info.st_mtim.tv_sec, (uint64_t)info.st_mtim.tv_nsec};

		gn_sha256_update(s, numbers, sizeof numbers);
	}
	return GN_OK;
}

/* Digest of everything that determines the bytes of an image or a shard. skip_bad does not: the order record says which images
 * there are. */
static enum gn_status digest_all(const struct gn_pack_options *o, const struct gn_data_key *key_id, const struct gn_names *classes,
				 char digest[GN_SHA256_HEX], struct gn_err *err)
{
	const uint64_t numbers[] = {
		o->source_count, o->synthetic_count, o->synthetic_classes, o->synthetic_height, o->synthetic_width,
		o->shard_bytes, o->seed, (uint64_t)o->refuse_png, (uint64_t)o->quality, (uint64_t)o->exif_rotate,
		o->classes_file != NULL, o->labels_file != NULL, gn_names_count(classes),
	};
	char labels[GN_SHA256_HEX];
	struct gn_sha256 *s;
	enum gn_status status = gn_sha256_create(&s, err);

	if (status)
		return status;
	digest_text(s, FORMAT);
	digest_text(s, o->split ? o->split : "");
	gn_sha256_update(s, numbers, sizeof numbers);
	for (uint32_t i = 0; i < gn_names_count(classes); i++)
		digest_text(s, gn_names_get(classes, i));
	if (key_id)
		gn_sha256_update(s, key_id->bytes, sizeof key_id->bytes);
	for (size_t i = 0; i < o->source_count && !status; i++)
		status = digest_source(s, o->sources[i], err);
	if (!status && o->labels_file) {
		status = gn_sha256_file(o->labels_file, labels, NULL, err);
		if (status)
			gn_err_prefix(err, "--labels");
		else
			digest_text(s, labels);
	}
	gn_sha256_finish(s, digest);
	gn_sha256_destroy(s);
	return status;
}

/* Starts a new journal, or truncates an incomplete record of the old one. */
static enum gn_status begin(struct gn_pack_journal *j, const char *folder, const char *digest, size_t good, struct gn_err *err)
{
	struct record r = {.kind = KIND_BEGIN};
	enum gn_status status = good ? GN_OK : gn_pack_output_sweep(folder, err);

	if (status)
		return status;
	j->fd = open(j->path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | (good ? 0 : O_CREAT | O_EXCL), 0666);
	if (j->fd < 0)
		return gn_err_errno(err, errno, "cannot create %s", j->path);
	if (good && ftruncate(j->fd, (off_t)good))
		return gn_err_errno(err, errno, "cannot write %s", j->path);
	return good ? GN_OK : append(j, &r, digest, strlen(digest), err);
}

enum gn_status gn_pack_journal_open(struct gn_pack_journal **out, const char *folder, const struct gn_pack_options *options,
				    const struct gn_data_key *key_id, const struct gn_names *classes, int *going_on, struct gn_err *err)
{
	struct gn_pack_journal *j = calloc(1, sizeof *j);
	char digest[GN_SHA256_HEX];
	size_t good = 0;
	enum gn_status status;

	if (!j)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a journal");
	j->fd = -1;
	pthread_mutex_init(&j->lock, NULL);
	status = gn_names_create(&j->keys, err);
	if (!status)
		status = gn_path_join(j->path, sizeof j->path, folder, JOURNAL_NAME, err);
	if (!status)
		status = digest_all(options, key_id, classes, digest, err);
	if (!status)
		status = load(j, folder, digest, &good, options, err);
	if (!status)
		status = begin(j, folder, digest, good, err);
	if (status) {
		gn_pack_journal_close(j);
		return status;
	}
	*going_on = good > 0;
	*out = j;
	return GN_OK;
}

void gn_pack_journal_close(struct gn_pack_journal *j)
{
	if (!j)
		return;
	if (j->fd >= 0)
		close(j->fd);
	gn_names_destroy(j->keys);
	free(j->images);
	free(j->shards);
	pthread_mutex_destroy(&j->lock);
	free(j);
}

enum gn_status gn_pack_journal_remove(struct gn_pack_journal *j, struct gn_err *err)
{
	return unlink(j->path) ? gn_err_errno(err, errno, "cannot remove %s", j->path) : GN_OK;
}
