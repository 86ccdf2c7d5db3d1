/* A growing string. The text is always terminated; a failed allocation is remembered and reported once, at the end, by
 * gn_strbuf_failed(), so that builders need not check every append. */
#ifndef GN_BASE_STRBUF_H
#define GN_BASE_STRBUF_H

#include <stddef.h>

struct gn_strbuf {
	char *text;
	size_t len;
	size_t capacity;
	int failed;
};

void gn_strbuf_init(struct gn_strbuf *s);
void gn_strbuf_release(struct gn_strbuf *s);
void gn_strbuf_clear(struct gn_strbuf *s);
void gn_strbuf_append(struct gn_strbuf *s, const char *text, size_t len);
void gn_strbuf_puts(struct gn_strbuf *s, const char *text);
void gn_strbuf_printf(struct gn_strbuf *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Non-zero when some append found no memory: the text is then incomplete. */
int gn_strbuf_failed(const struct gn_strbuf *s);
/* The text, "" when empty; borrowed, valid until the next change. */
const char *gn_strbuf_text(const struct gn_strbuf *s);
/* Hands the text to the caller, who frees it, and empties s; NULL when an append had failed. */
char *gn_strbuf_detach(struct gn_strbuf *s);

#endif
