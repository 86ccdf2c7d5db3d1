/* Text from outside, made fit for a terminal: names from files, archives, manifests and command lines may hold bytes
 * that move the cursor, change colours or forge lines. What reaches a person goes through here: error texts and log
 * lines do so by themselves, whoever prints a name calls it.
 *
 * Thread safety: pure functions of their arguments. Nothing here fails or allocates.
 */
#ifndef GN_BASE_TEXT_H
#define GN_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Copies text into buffer of size_bytes > 0, always terminated, and returns buffer. UTF-8 stays as it is; control
 * characters (below 0x20, 0x7f to 0x9f, and those that turn the direction of writing) and bytes that are no UTF-8
 * become \xNN. What does not fit is left out, never half of a character. A second pass changes nothing more, as a
 * backslash stays one. */
const char *gn_text_visible(const char *text, char *buffer, size_t size_bytes);
/* "" for 1, else "s". */
const char *gn_text_plural(uint64_t count);

#endif
