#include "src/base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gn_strbuf_init(struct gn_strbuf *s)
{
	memset(s, 0, sizeof *s);
}

void gn_strbuf_release(struct gn_strbuf *s)
{
	free(s->text);
	gn_strbuf_init(s);
}

void gn_strbuf_clear(struct gn_strbuf *s)
{
	s->len = 0;
	if (s->text)
		s->text[0] = '\0';
}

static int reserve(struct gn_strbuf *s, size_t more)
{
	size_t need = s->len + more + 1, capacity = s->capacity ? s->capacity : 64;
	char *text;

	if (s->failed)
		return -1;
	if (need <= s->capacity)
		return 0;
	while (capacity < need)
		capacity *= 2;
	text = realloc(s->text, capacity);
	if (!text) {
		s->failed = 1;
		return -1;
	}
	s->text = text;
	s->capacity = capacity;
	return 0;
}

void gn_strbuf_append(struct gn_strbuf *s, const char *text, size_t len)
{
	if (reserve(s, len))
		return;
	memcpy(s->text + s->len, text, len);
	s->len += len;
	s->text[s->len] = '\0';
}

void gn_strbuf_puts(struct gn_strbuf *s, const char *text)
{
	gn_strbuf_append(s, text, strlen(text));
}

void gn_strbuf_printf(struct gn_strbuf *s, const char *format, ...)
{
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (len < 0 || reserve(s, (size_t)len))
		return;
	va_start(args, format);
	vsnprintf(s->text + s->len, (size_t)len + 1, format, args);
	va_end(args);
	s->len += (size_t)len;
}

int gn_strbuf_failed(const struct gn_strbuf *s)
{
	return s->failed;
}

const char *gn_strbuf_text(const struct gn_strbuf *s)
{
	return s->text ? s->text : "";
}
