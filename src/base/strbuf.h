/* A growing, always terminated string; {0} is an empty one. A failed allocation is remembered: callers check gn_strbuf_failed() once at
 * the end instead of after every append. Thread safety: a buffer belongs to one thread. */
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
/* Non-zero when an append ran out of memory: the text is incomplete. */
int gn_strbuf_failed(const struct gn_strbuf *s);
/* The text, "" when empty; borrowed, valid until the next change. */
const char *gn_strbuf_text(const struct gn_strbuf *s);

#endif
