#include "data/pack/labels.h"

#include "data/shard/names.h"
#include "data/shard/shard.h"
#include "src/base/alloc.h"
#include "src/base/file.h"

#include <stdlib.h>
#include <string.h>

#define FILE_MAX_BYTES (1u << 30)

struct gn_labels {
	struct gn_names *images, *classes;
	uint32_t *class_ids; /* by image */
	size_t capacity;
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
	if (gn_array_grow(&l->class_ids, &l->capacity, gn_names_count(l->images), sizeof *l->class_ids))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "%s: no memory for line %u", path, line);
	status = gn_names_add(l->images, image, &id, err);
	if (!status)
		status = gn_names_add(l->classes, class_name, &l->class_ids[id], err);
	return status;
}

/* A field of RFC 4180 without the blanks around it, from *at to out; *at becomes what ends it: a comma, a line end or the end. Returns 0,
 * or -1 for one that is too long, or malformed quotes. */
static int read_field(const char **at, const char *end, char out[GN_SHARD_NAME_MAX])
{
	const char *p = *at;
	size_t len = 0;
	int is_quoted, is_closed = 0;

	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	is_quoted = p < end && *p == '"';
	for (p += is_quoted; p < end && *p != '\n' && (is_quoted || *p != ','); p++) {
		is_closed = is_quoted && *p == '"' && (++p == end || *p != '"');
		if (is_closed)
			break;
		if (len + 1 == GN_SHARD_NAME_MAX || !*p)
			return -1;
		out[len++] = *p;
	}
	if (is_quoted && !is_closed)
		return -1;
	for (; p < end && is_quoted && (*p == ' ' || *p == '\t'); p++)
		;
	while (!is_quoted && len && (out[len - 1] == ' ' || out[len - 1] == '\t'))
		len--;
	out[len] = '\0';
	*at = p;
	return p == end || *p == ',' || *p == '\n' ? 0 : -1;
}

/* *at: the begin of a row; becomes that of the next one. */
static enum gn_status add_row(struct gn_labels *l, const char **at, const char *end, const char *path, uint32_t line, struct gn_err *err)
{
	char fields[2][GN_SHARD_NAME_MAX], more[GN_SHARD_NAME_MAX];
	int count = 0, failed = 0;

	do {
		*at += count && *at < end;
		failed = read_field(at, end, count < 2 ? fields[count] : more);
		count++;
	} while (!failed && *at < end && **at == ',');
	if (failed)
		return gn_err_set(err, GN_ERR_DATA, "%s, line %u: field %d has more than %d bytes, a zero byte, or quotes that do not end it", path, line, count,
				  GN_SHARD_NAME_MAX - 1);
	*at += *at < end;
	if (count == 1 && !fields[0][0])
		return gn_err_set(err, GN_ERR_DATA, "%s, line %u is empty", path, line);
	if (count != 2)
		return gn_err_set(err, GN_ERR_DATA, "%s, line %u has %d field%s, not NAME,CLASS (a name with a comma needs quotes: \"a,b.jpg\",cat)",
				  path, line, count, count == 1 ? "" : "s");
	if (!fields[0][0] || !fields[1][0])
		return gn_err_set(err, GN_ERR_DATA, "%s, line %u is not NAME,CLASS: '%s,%s'", path, line, fields[0], fields[1]);
	if (line == 1 && !strcmp(fields[0], "name") && !strcmp(fields[1], "class")) {
		l->first_line = 2;
		return GN_OK;
	}
	return add(l, fields[0], fields[1], path, line, err);
}

enum gn_status gn_labels_parse(const char *text, size_t len_bytes, const char *path, struct gn_labels **out,
			       struct gn_err *err)
{
	const char *end = text + len_bytes;
	struct gn_labels *l = calloc(1, sizeof *l);
	enum gn_status status;

	if (!l)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for labels");
	l->first_line = 1;
	status = gn_names_create(&l->images, err);
	if (!status)
		status = gn_names_create(&l->classes, err);
	for (uint32_t line = 1; !status && text < end; line++)
		status = add_row(l, &text, end, path, line, err);
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
	enum gn_status status = gn_file_load_text(path, FILE_MAX_BYTES, &text, &len, err);

	if (!status) {
		status = gn_labels_parse(text, len, path, out, err);
		free(text);
	}
	return status ? gn_err_prefix(err, "--labels") : GN_OK;
}
