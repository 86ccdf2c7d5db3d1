/* A file of labels: which class each image of a set without class folders belongs to (ImageNet's validation images).
 *
 * One line an image, NAME,CLASS: the image's path inside its source, a comma, the class's name, taken as they are; the name
 * ends at the first comma. A first line that is exactly "name,class" is a heading. A UTF-8 byte order mark at the start is skipped. Empty lines, lines without a comma or
 * with an empty half, names that come twice and zero bytes are GN_ERR_DATA, naming file and line.
 *
 * Thread safety: read-only once loaded.
 */
#ifndef GN_DATA_PACK_LABELS_H
#define GN_DATA_PACK_LABELS_H

#include "src/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct gn_labels;

/* Reads path. Blocks on the file system; on success *out is the caller's to destroy. */
enum gn_status gn_labels_load(const char *path, struct gn_labels **out, struct gn_err *err);
/* The same for a text in memory, which need not end in zero; path is for messages. */
enum gn_status gn_labels_parse(const char *text, size_t len_bytes, const char *path, struct gn_labels **out,
			       struct gn_err *err);
void gn_labels_destroy(struct gn_labels *l);

uint32_t gn_labels_count(const struct gn_labels *l);
/* Non-zero when image has a line; then *index (0 .. count - 1, in the file's order) is its number. */
int gn_labels_find(const struct gn_labels *l, const char *image, uint32_t *index);
/* Borrowed. */
const char *gn_labels_image(const struct gn_labels *l, uint32_t index);
const char *gn_labels_class(const struct gn_labels *l, uint32_t index);
/* Of the file, from 1. */
uint32_t gn_labels_line(const struct gn_labels *l, uint32_t index);

#endif
