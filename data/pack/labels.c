#include "data/pack/labels.h"

#include "data/shard/names.h"
#include "data/shard/shard.h"
#include "src/base/file.h"

#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES (1u << 30)

struct gn_labels {
	struct gn_names *images, *classes;
	uint32_t *class_ids; /* by image */
	uint32_t capacity;
	uint32_t first_line;
};

uint32_t gn_labels_count(const struct gn_labels *l)
{
	return gn_names_count(l->images);
}

int gn_labels_find(const struct gn_labels *l, const char *image, uint32_t *index)
{
	return gn_names_find(l->images, image, index);
}

const char *gn_labels_image(const struct gn_labels *l, uint32_t index)
{
	return gn_names_get(l->images, index);
}

const char *gn_labels_class(const struct gn_labels *l, uint32_t index)
{
	return gn_names_get(l->classes, l->class_ids[index]);
}

uint32_t gn_labels_line(const struct gn_labels *l, uint32_t index)
{
	return l->first_line + index;
}

void gn_labels_destroy(struct gn_labels *l)
{
	if (!l)
		return;
	gn_names_destroy(l->images);
	gn_names_destroy(l->classes);
	free(l->class_ids);
	free(l);
}

static enum gn_status add(struct gn_labels *l, const char *image, const char *class_name, const char *path, uint32_t line,
			  struct gn_err *err)
{
	uint32_t id;
	enum gn_status status;

	if (gn_names_find(l->images, image, &id))
		return gn_err_set(err, GN_ERR_DATA, "%s, line %u repeats image '%s' (first in line %u)", path, line,
				  image, gn_labels_line(l, id));
	if (gn_names_count(l->images) == l->capacity) {
		uint32_t capacity = l->capacity ? l->capacity * 2 : 1024;
		uint32_t *class_ids = realloc(l->class_ids, capacity * sizeof *class_ids);

		if (!class_ids)
			return gn_err_set(err, GN_ERR_NO_MEMORY, "%s: no memory for line %u", path, line);
		l->class_ids = class_ids;
		l->capacity = capacity;
	}
	status = gn_names_add(l->images, image, &id, err);
	if (!status)
		status = gn_names_add(l->classes, class_name, &l->class_ids[id], err);
	return status;
}

static enum gn_status add_line(struct gn_labels *l, const char *text, size_t len, const char *path, uint32_t line,
			       struct gn_err *err)
{
	char buffer[2 * GN_SHARD_NAME_MAX], *comma;

	if (len && text[len - 1] == '\r')
		len--;
	if (len >= sizeof buffer || memchr(text, '\0', len))
		return gn_err_set(err, GN_ERR_DATA, "%s, line %u %s", path, line,
				  len >= sizeof buffer ? "is too long" : "holds a zero byte");
	memcpy(buffer, text, len);
	buffer[len] = '\0';
	if (line == 1 && !strcmp(buffer, "name,class")) {
		l->first_line = 2;
		return GN_OK;
	}
	comma = strchr(buffer, ',');
	if (!comma || comma == buffer || !comma[1])
		return gn_err_set(err, GN_ERR_DATA, "%s, line %u is not NAME,CLASS: '%s'", path, line, buffer);
	*comma = '\0';
	if (comma - buffer >= GN_SHARD_NAME_MAX || strlen(comma + 1) >= GN_SHARD_NAME_MAX)
		return gn_err_set(err, GN_ERR_DATA, "%s, line %u: names may have at most %d bytes", path, line,
				  GN_SHARD_NAME_MAX - 1);
	return add(l, buffer, comma + 1, path, line, err);
}

enum gn_status gn_labels_parse(const char *text, size_t len_bytes, const char *path, struct gn_labels **out,
			       struct gn_err *err)
{
	static const char byte_order_mark[3] = {'\xef', '\xbb', '\xbf'};
	const char *end = text + len_bytes;
	struct gn_labels *l = calloc(1, sizeof *l);
	enum gn_status status;

	if (!l)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for labels");
	l->first_line = 1;
	if (len_bytes >= sizeof byte_order_mark && !memcmp(text, byte_order_mark, sizeof byte_order_mark))
		text += sizeof byte_order_mark;
	status = gn_names_create(&l->images, err);
	if (!status)
		status = gn_names_create(&l->classes, err);
	for (uint32_t line = 1; !status && text < end; line++) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));

		status = add_line(l, text, (size_t)((stop ? stop : end) - text), path, line, err);
		text = stop ? stop + 1 : end;
	}
	if (!status && !gn_labels_count(l))
		status = gn_err_set(err, GN_ERR_DATA, "%s names no images: one line NAME,CLASS per image", path);
	if (status)
		gn_labels_destroy(l);
	else
		*out = l;
	return status;
}

enum gn_status gn_labels_load(const char *path, struct gn_labels **out, struct gn_err *err)
{
	char *text;
	size_t len;
	enum gn_status status = gn_file_load(path, FILE_MAX_BYTES, &text, &len, err);

	if (!status) {
		status = gn_labels_parse(text, len, path, out, err);
		free(text);
	}
	return status ? gn_err_prefix(err, "--labels") : GN_OK;
}
