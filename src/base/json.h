/* Writes JSON text (RFC 8259) into a string buffer. The writer adds commas, quotes and escapes; the caller decides the order.
 *
 * Numbers read back exactly. NaN and infinities, which JSON lacks, become null. Bytes that are not UTF-8 (file names) become
 * U+FFFD, so that the output always parses. Jansson reads JSON; this module only writes it.
 *
 *     gn_json_begin(&j); gn_json_int(&j, "step", 3); gn_json_end(&j);      ->  {"step": 3}
 *     gn_json_put(&j, "step %d loss %.2f", 3, 0.5);                        ->  "step": 3, "loss": 0.50
 *
 * Thread safety: a writer belongs to one thread.
 */
#ifndef GN_BASE_JSON_H
#define GN_BASE_JSON_H

#include "src/base/status.h"
#include "src/base/strbuf.h"

#include <stdint.h>

struct gn_json {
	struct gn_strbuf text;
	int depth;
	unsigned char first[32]; /* no element written yet at this depth */
	char closer[32];
};

void gn_json_init(struct gn_json *j);
/* gn_json_init, and the outermost value is an object, which gn_json_end ends. */
void gn_json_begin(struct gn_json *j);
void gn_json_release(struct gn_json *j);
void gn_json_clear(struct gn_json *j);

/* key is NULL for array elements and for the outermost value. At most 31 levels; deeper nesting makes gn_json_failed() non-zero. */
void gn_json_object(struct gn_json *j, const char *key);
void gn_json_array(struct gn_json *j, const char *key);
void gn_json_end(struct gn_json *j);
void gn_json_string(struct gn_json *j, const char *key, const char *value);
void gn_json_string_n(struct gn_json *j, const char *key, const char *value, size_t len);
void gn_json_int(struct gn_json *j, const char *key, int64_t value);
void gn_json_uint(struct gn_json *j, const char *key, uint64_t value);
void gn_json_double(struct gn_json *j, const char *key, double value);
/* value with a fixed number of digits after the point, for rates and seconds */
void gn_json_fixed(struct gn_json *j, const char *key, double value, int digits);
void gn_json_bool(struct gn_json *j, const char *key, int value);
void gn_json_null(struct gn_json *j, const char *key);
/* Members of an object by a format of words: a key of at most 63 bytes and the conversion of its value as in printf. %s, %d, %ld, %u, %lu and
 * %zu are as gn_json_string(), gn_json_int() and gn_json_uint(), %g as gn_json_double(), %.3f as gn_json_fixed() with 3 digits. A key that
 * ends in '?' takes %d as gn_json_bool(); a word in place of a conversion is a string. "KEY {", "KEY [" and, in arrays, "{" open what "}" and
 * "]" end, in the same format or in another. */
void gn_json_put(struct gn_json *j, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Borrowed, valid until the next change. */
const char *gn_json_text(const struct gn_json *j);
/* Non-zero when memory ran out, nesting was too deep, or an object or array is still open. */
int gn_json_failed(const struct gn_json *j);
/* Replaces the file by the text and a line end, and releases j. */
enum gn_status gn_json_save(struct gn_json *j, const char *path, struct gn_err *err);

#endif
