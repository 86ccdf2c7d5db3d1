#include "data/pack/pictures.h"

#include "data/pack/source.h"
#include "data/sample/image.h"
#include "data/shard/dataset.h"
#include "data/shard/folders.h"
#include "data/shard/manifest.h"
#include "src/base/file.h"
#include "src/base/file_kind.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { LISTING_THREADS = 2 };

struct walk {
	const struct gn_picture_sink *sink;
	const char *source, *key_file;
	struct gn_thread_pool *pool;
};

static enum gn_status take_file(void *context, const struct gn_source_file *file, struct gn_err *err)
{
	struct walk *w = context;
	const int wanted = w->sink->wants(w->sink->context);
	struct gn_picture p = {.in_file = !file->bytes, .bytes = wanted ? file->bytes : NULL, .len_bytes = file->len_bytes,
			       .problem = file->same_as ? "a hard link: the file that it names is predicted" : file->problem};
	char name[PATH_MAX];
	enum gn_status status = gn_path_join(name, sizeof name, w->source, file->name, err);

	if (!wanted || status)
		free(file->bytes);
	p.name = name;
	return status ? status : w->sink->picture(w->sink->context, &p, err);
}

static enum gn_status walk_sample(struct walk *w, const struct gn_dataset *d, uint64_t index, struct gn_err *err)
{
	char inside[PATH_MAX], name[PATH_MAX];
	struct gn_picture p = {.name = name};
	struct gn_sample sample;
	struct gn_err failure;
	enum gn_status status;

	gn_dataset_sample(d, index, &sample);
	gn_dataset_sample_name(d, index, inside, sizeof inside);
	status = gn_path_join(name, sizeof name, w->source, inside, err);
	if (status)
		return status;
	if (w->sink->wants(w->sink->context)) {
		p.len_bytes = sample.length_bytes;
		p.bytes = malloc(sample.stored_bytes + 1);
		if (!p.bytes)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for an image of %u bytes", sample.length_bytes);
		if (gn_dataset_read(d, index, p.bytes, &failure))
			p.problem = failure.text;
	}
	return w->sink->picture(w->sink->context, &p, err);
}

static enum gn_status walk_dataset(struct walk *w, struct gn_err *err)
{
	struct gn_dataset *d;
	enum gn_status status = gn_dataset_open(w->source, &d, err);

	if (status)
		return status;
	status = gn_dataset_unlock(d, w->key_file, err);
	for (uint64_t i = 0; i < gn_dataset_count(d) && !status; i++)
		status = walk_sample(w, d, i, err);
	gn_dataset_close(d);
	return status;
}

/* By its content; a file that has lost it, by its name. */
static int is_image(const char *path)
{
	static const char *const endings[] = {".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff"};
	const char *dot = strrchr(path, '.'), *kind = gn_file_kind_at(path);

	if (kind && strstr(kind, " image"))
		return 1;
	for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
		if (!strcasecmp(dot, endings[i]))
			return 1;
	return 0;
}

static enum gn_status walk_source(struct walk *w, struct gn_err *err)
{
	uint64_t passed = 0;
	const struct gn_source_sink sink = {w, take_file, NULL, &passed};
	struct gn_picture p = {.name = w->source, .in_file = 1};
	enum gn_status status;
	struct stat info;

	if (gn_folders_count(w->source) > 1)
		return walk_dataset(w, err);
	if (stat(w->source, &info))
		return gn_err_errno(err, errno, "cannot read source %s", w->source);
	if (S_ISREG(info.st_mode) && is_image(w->source)) {
		w->sink->wants(w->sink->context);
		return w->sink->picture(w->sink->context, &p, err);
	}
	if (S_ISDIR(info.st_mode) && gn_manifest_is_there(w->source))
		return walk_dataset(w, err);
	if (S_ISDIR(info.st_mode) && (status = gn_manifest_check_parent(w->source, err)))
		return status;
	return gn_source_walk(w->source, w->pool, &sink, err);
}

enum gn_status gn_pictures_walk(const char *const *sources, size_t count, const struct gn_picture_sink *sink, const char *key_file,
				struct gn_err *err)
{
	struct walk w = {.sink = sink, .key_file = key_file};
	enum gn_status status = gn_thread_pool_create(LISTING_THREADS, (size_t)4 * LISTING_THREADS, &w.pool, err);

	for (size_t i = 0; i < count && !status; i++) {
		w.source = sources[i];
		status = walk_source(&w, err);
	}
	gn_thread_pool_destroy(w.pool);
	return status;
}

static void replace(unsigned char **bytes, size_t *len_bytes, unsigned char *jpeg, size_t len, int *converted)
{
	free(*bytes);
	*bytes = jpeg;
	*len_bytes = len;
	if (converted)
		*converted = 1;
}

enum gn_status gn_picture_to_jpeg(unsigned char **bytes, size_t *len_bytes, int quality, int exif_rotate, int *converted,
				  struct gn_err *err)
{
	enum gn_image_kind kind = gn_image_sniff(*bytes, *len_bytes);
	int orientation = exif_rotate ? gn_image_orientation(*bytes, *len_bytes) : 1;
	unsigned char *jpeg;
	size_t len;
	enum gn_status status = GN_OK;

	if (converted)
		*converted = 0;
	if (*len_bytes && kind != GN_IMAGE_PNG && kind != GN_IMAGE_JPEG)
		return gn_image_not_jpeg(*bytes, *len_bytes, err);
	if (kind == GN_IMAGE_PNG || gn_image_is_cmyk(*bytes, *len_bytes)) {
		status = kind == GN_IMAGE_PNG ? gn_image_png_to_jpeg(*bytes, *len_bytes, quality, &jpeg, &len, err)
					      : gn_image_cmyk_to_jpeg(*bytes, *len_bytes, quality, &jpeg, &len, err);
		if (!status)
			replace(bytes, len_bytes, jpeg, len, converted);
	}
	if (!status && orientation > 1) {
		status = gn_image_turn_jpeg(*bytes, *len_bytes, orientation, quality, &jpeg, &len, err);
		if (!status)
			replace(bytes, len_bytes, jpeg, len, converted);
	}
	return status;
}
