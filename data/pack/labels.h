/* A labels file: the class of each image of a set without class folders (ImageNet's validation images).
 *
 * One line per image, NAME,CLASS: the image's path inside its source, a comma, the class name, in RFC 4180's form: a field may stand in
 * quotes, and needs them where it has a comma. Blanks around fields do not count. A first line "name,class" is a heading. Empty lines,
 * lines of one field or more than two, empty fields, malformed quotes and repeated names are GN_ERR_DATA, naming file and line.
 *
 * Thread safety: read-only once loaded.
 */
#ifndef GN_DATA_PACK_LABELS_H
#define GN_DATA_PACK_LABELS_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct gn_labels;

/* Reads path. Blocks on the file system. The caller destroys *out. */
enum gn_status gn_labels_load(const char *path, struct gn_labels **out, struct gn_err *err);
/* Parses a text in memory that need not end in a zero byte; path is for messages. */
enum gn_status gn_labels_parse(const char *text, size_t len_bytes, const char *path, struct gn_labels **out,
			       struct gn_err *err);
void gn_labels_destroy(struct gn_labels *l);

uint32_t gn_labels_count(const struct gn_labels *l);
/* Non-zero when image has a line; then *index is its number, 0 .. count - 1 in the order of the file. */
int gn_labels_find(const struct gn_labels *l, const char *image, uint32_t *index);
/* Borrowed. */
const char *gn_labels_image(const struct gn_labels *l, uint32_t index);
const char *gn_labels_class(const struct gn_labels *l, uint32_t index);
/* line number in the file, from 1 */
uint32_t gn_labels_line(const struct gn_labels *l, uint32_t index);

#endif
