#include "src/base/json.h"

#include "src/base/file.h"
#include "src/base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gn_json_init(struct gn_json *j)
{
	memset(j, 0, sizeof *j);
	j->first[0] = 1;
}

void gn_json_release(struct gn_json *j)
{
	gn_strbuf_release(&j->text);
	gn_json_init(j);
}

void gn_json_clear(struct gn_json *j)
{
	gn_strbuf_clear(&j->text);
	j->depth = 0;
	j->first[0] = 1;
}

static void append_quoted(struct gn_strbuf *s, const char *value, size_t len)
{
	const unsigned char *p = (const unsigned char *)value, *end = p + len;
	uint32_t code;

	gn_strbuf_puts(s, "\"");
	while (p < end) {
		size_t n = gn_text_decode(p, (size_t)(end - p), &code);

		if (*p == '"' || *p == '\\')
			gn_strbuf_printf(s, "\\%c", *p);
		else if (*p < 0x20 || *p == 0x7f)
			gn_strbuf_printf(s, "\\u%04x", *p);
		else if (n)
			gn_strbuf_append(s, (const char *)p, n);
		else
			gn_strbuf_puts(s, "\xef\xbf\xbd");
		p += n ? n : 1;
	}
	gn_strbuf_puts(s, "\"");
}

static void begin_value(struct gn_json *j, const char *key)
{
	if (!j->first[j->depth])
		gn_strbuf_puts(&j->text, ", ");
	j->first[j->depth] = 0;
	if (key) {
		append_quoted(&j->text, key, strlen(key));
		gn_strbuf_puts(&j->text, ": ");
	}
}

static void open_level(struct gn_json *j, const char *key, const char *opener, char closer)
{
	begin_value(j, key);
	gn_strbuf_puts(&j->text, opener);
	if (j->depth + 1 >= (int)sizeof j->first) {
		j->text.failed = 1;
		return;
	}
	j->depth++;
	j->first[j->depth] = 1;
	j->closer[j->depth] = closer;
}

void gn_json_object(struct gn_json *j, const char *key)
{
	open_level(j, key, "{", '}');
}

void gn_json_begin(struct gn_json *j)
{
	gn_json_init(j);
	gn_json_object(j, NULL);
}

void gn_json_array(struct gn_json *j, const char *key)
{
	open_level(j, key, "[", ']');
}

void gn_json_end(struct gn_json *j)
{
	if (j->depth > 0)
		gn_strbuf_append(&j->text, &j->closer[j->depth--], 1);
}

void gn_json_string_n(struct gn_json *j, const char *key, const char *value, size_t len)
{
	begin_value(j, key);
	append_quoted(&j->text, value, len);
}

void gn_json_string(struct gn_json *j, const char *key, const char *value)
{
	gn_json_string_n(j, key, value, strlen(value));
}

void gn_json_int(struct gn_json *j, const char *key, int64_t value)
{
	begin_value(j, key);
	gn_strbuf_printf(&j->text, "%" PRId64, value);
}

void gn_json_uint(struct gn_json *j, const char *key, uint64_t value)
{
	begin_value(j, key);
	gn_strbuf_printf(&j->text, "%" PRIu64, value);
}

void gn_json_double(struct gn_json *j, const char *key, double value)
{
	char text[32];

	if (!isfinite(value)) {
		gn_json_null(j, key);
		return;
	}
	begin_value(j, key);
	/* the shortest form that reads back as the same number */
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	gn_strbuf_puts(&j->text, text);
}

void gn_json_fixed(struct gn_json *j, const char *key, double value, int digits)
{
	if (!isfinite(value)) {
		gn_json_null(j, key);
		return;
	}
	begin_value(j, key);
	gn_strbuf_printf(&j->text, "%.*f", digits, value);
}

void gn_json_bool(struct gn_json *j, const char *key, int value)
{
	begin_value(j, key);
	gn_strbuf_puts(&j->text, value ? "true" : "false");
}

void gn_json_null(struct gn_json *j, const char *key)
{
	begin_value(j, key);
	gn_strbuf_puts(&j->text, "null");
}

/* One value by its conversion, without the '%'. */
static void put(struct gn_json *j, const char *key, const char *conversion, va_list *values)
{
	switch (*conversion) {
	case 's':
		gn_json_string(j, key, va_arg(*values, const char *));
		break;
	case 'd':
		gn_json_int(j, key, va_arg(*values, int));
		break;
	case 'u':
		gn_json_uint(j, key, va_arg(*values, unsigned));
		break;
	case 'l':
		if (conversion[1] == 'd')
			gn_json_int(j, key, va_arg(*values, long));
		else
			gn_json_uint(j, key, va_arg(*values, unsigned long));
		break;
	case 'z':
		gn_json_uint(j, key, va_arg(*values, size_t));
		break;
	case '.':
		gn_json_fixed(j, key, va_arg(*values, double), atoi(conversion + 1));
		break;
	default:
		gn_json_double(j, key, va_arg(*values, double));
	}
}

void gn_json_put(struct gn_json *j, const char *format, ...)
{
	char key[64], word[64];
	int read;
	va_list values;

	va_start(values, format);
	for (; sscanf(format, "%63s%n", key, &read) == 1; format += read) {
		size_t last = strlen(key) - 1;

		if (*key == '{' || *key == '}' || *key == ']') {
			if (*key == '{')
				gn_json_object(j, NULL);
			else
				gn_json_end(j);
			continue;
		}
		format += read;
		if (sscanf(format, "%63s%n", word, &read) != 1)
			break;
		if (*word == '{') {
			gn_json_object(j, key);
		} else if (*word == '[') {
			gn_json_array(j, key);
		} else if (*word != '%') {
			gn_json_string(j, key, word);
		} else if (key[last] == '?') {
			key[last] = 0;
			gn_json_bool(j, key, va_arg(values, int));
		} else {
			put(j, key, word + 1, &values);
		}
	}
	va_end(values);
}

const char *gn_json_text(const struct gn_json *j)
{
	return gn_strbuf_text(&j->text);
}

int gn_json_failed(const struct gn_json *j)
{
	return gn_strbuf_failed(&j->text) || j->depth != 0;
}

enum gn_status gn_json_save(struct gn_json *j, const char *path, struct gn_err *err)
{
	enum gn_status status;

	gn_strbuf_puts(&j->text, "\n");
	status = gn_file_replace_text(path, &j->text, GN_REPLACE_SYNCED, err);
	gn_json_release(j);
	return status;
}
