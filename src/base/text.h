/* Sanitizes text from outside for terminals and logs: names from files, archives, manifests and command lines may hold bytes that
 * move the cursor, change colours or forge lines. Error texts and log lines are sanitized by gn_err_set() and gn_log_line(); other
 * code that prints a name calls gn_text_visible().
 *
 * Thread safety: pure functions. Nothing here fails or allocates.
 */
#ifndef GN_BASE_TEXT_H
#define GN_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Copies text into buffer (size_bytes > 0), always terminated, and returns buffer. Valid UTF-8 is copied; control characters (below
 * 0x20, 0x7f to 0x9f, and those that change the writing direction) and invalid bytes become \xNN. Text that does not fit is cut at
 * a character. Idempotent: a backslash is copied unchanged. */
const char *gn_text_visible(const char *text, char *buffer, size_t size_bytes);
/* The same, but characters that control a terminal stay: UTF-8 for JSON, with \xNN in place of invalid bytes. */
const char *gn_text_valid(const char *text, char *buffer, size_t size_bytes);
/* Two texts that differ, as messages need them: those that look alike, for one has a byte that is not ASCII, are followed by their bytes,
 * "\xc3\x84pfel". Writes text to buffer, and returns it. */
const char *gn_text_exact(const char *text, char *buffer, size_t size_bytes);
/* Length of the UTF-8 character at p, of which left > 0 bytes may be read, with its code point in *code; 0 for invalid bytes (RFC 3629: no
 * overlong forms, no surrogates, nothing above U+10FFFF). A terminator is no continuation byte, so that left may be SIZE_MAX there. */
size_t gn_text_decode(const unsigned char *p, size_t left, uint32_t *code);
/* "" for 1, else "s". */
const char *gn_text_plural(uint64_t count);
/* Whether ending ends text and is not all of it. */
int gn_text_ends_with(const char *text, const char *ending);

/* The search for the name that a misspelt word stands for: zeroed but for word, then every name is offered. */
struct gn_text_nearest {
	const char *word;
	const char *name; /* borrowed from the offers, name_len bytes; NULL: none is near */
	size_t name_len, distance;
};

/* A name is near when few letters differ (case, - and _ are alike), when it is the word's beginning up to a - or _ ("batch" of "batch_size"),
 * or its initials ("lr" of "learning-rate"). The first of equally near ones stays. */
void gn_text_offer(struct gn_text_nearest *n, const char *name, size_t name_len);

struct gn_strbuf;

/* Appends count host names in their order, in Slurm's hostlist form: n[1-4,7],login. Successive names that differ only in a trailing
 * number share brackets; consecutive numbers of equal width become a range. */
void gn_hostlist_append(struct gn_strbuf *out, const char *const *names, size_t count);

#endif
