/* A set of strings, numbered from 0 in the order in which they were first added.
 *
 * Packing uses it for class names and for the folders of an archive, where each image needs a lookup. Thread safety: one thread at
 * a time.
 */
#ifndef GN_DATA_SHARD_NAMES_H
#define GN_DATA_SHARD_NAMES_H

#include "src/base/status.h"

#include <stdint.h>

struct gn_names;

enum gn_status gn_names_create(struct gn_names **out, struct gn_err *err);
void gn_names_destroy(struct gn_names *n);
/* Adds text unless present; *id (may be NULL) is its number. GN_ERR_NO_MEMORY. */
enum gn_status gn_names_add(struct gn_names *n, const char *text, uint32_t *id, struct gn_err *err);
/* Whether text is present; then *id (may be NULL) is its number. */
int gn_names_find(const struct gn_names *n, const char *text, uint32_t *id);
uint32_t gn_names_count(const struct gn_names *n);
/* Borrowed, valid as long as n. */
const char *gn_names_get(const struct gn_names *n, uint32_t id);

#endif
