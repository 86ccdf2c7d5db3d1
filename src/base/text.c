#include "src/base/text.h"

#include "src/base/strbuf.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t gn_text_decode(const unsigned char *p, size_t left, uint32_t *code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = p[0] < 0x80 ? 1 : (p[0] & 0xe0) == 0xc0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : (p[0] & 0xf8) == 0xf0 ? 4 : 0;
	uint32_t value = len == 1 ? p[0] : p[0] & (0x7fu >> len);

	for (size_t i = 1; i < len; i++) {
		if (i == left || (p[i] & 0xc0) != 0x80)
			return 0;
		value = value << 6 | (p[i] & 0x3f);
	}
	if (!len || value < least[len] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
		return 0;
	*code = value;
	return len;
}

static int is_control(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
	       (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

/* least: code points from which on characters are escaped. */
static const char *escape(const char *text, int keep_controls, uint32_t least, char *buffer, size_t size_bytes)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = (const unsigned char *)text;
	size_t used = 0;

	while (*p) {
		uint32_t code = 0;
		size_t len = gn_text_decode(p, SIZE_MAX, &code);
		int is_escaped = !len || code >= least || (!keep_controls && is_control(code));

		len = len ? len : 1;
		if ((is_escaped ? 4 * len : len) >= size_bytes - used)
			break;
		if (!is_escaped)
			memcpy(buffer + used, p, len);
		for (size_t i = 0; is_escaped && i < len; i++)
			memcpy(buffer + used + 4 * i, (char[]){'\\', 'x', digits[p[i] >> 4], digits[p[i] & 15]}, 4);
		used += is_escaped ? 4 * len : len;
		p += len;
	}
	buffer[used] = '\0';
	return buffer;
}

const char *gn_text_visible(const char *text, char *buffer, size_t size_bytes)
{
	return escape(text, 0, UINT32_MAX, buffer, size_bytes);
}

const char *gn_text_valid(const char *text, char *buffer, size_t size_bytes)
{
	return escape(text, 1, UINT32_MAX, buffer, size_bytes);
}

const char *gn_text_exact(const char *text, char *buffer, size_t size_bytes)
{
	char bytes[256];

	escape(text, 0, 0x80, bytes, sizeof bytes);
	snprintf(buffer, size_bytes, strchr(bytes, '\\') ? "'%s' (%s)" : "'%s'", text, bytes);
	return buffer;
}

const char *gn_text_plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

int gn_text_ends_with(const char *text, const char *ending)
{
	size_t len = strlen(text), ending_len = strlen(ending);

	return len > ending_len && !strcmp(text + len - ending_len, ending);
}

static int same_letter(char a, char b)
{
	return tolower((unsigned char)(a == '_' ? '-' : a)) == tolower((unsigned char)(b == '_' ? '-' : b));
}

/* Letters to add, leave out or change (Levenshtein). */
static size_t edit_distance(const char *word, const char *name, size_t name_len)
{
	enum { LONGEST = 40 };
	size_t row[LONGEST + 1];

	if (name_len > LONGEST)
		return LONGEST;
	for (size_t j = 0; j <= name_len; j++)
		row[j] = j;
	for (size_t i = 1; word[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= name_len; j++) {
			size_t best = diagonal + !same_letter(word[i - 1], name[j - 1]);

			diagonal = row[j];
			best = row[j] + 1 < best ? row[j] + 1 : best;
			row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
		}
	}
	return row[name_len];
}

/* Whether name is the word's beginning up to a - or _, begins with the word, or has the initials of its parts. */
static int abbreviates(const char *word, const char *name, size_t name_len)
{
	size_t initials = 0, same = 0;

	while (same < name_len && word[same] && same_letter(word[same], name[same]))
		same++;
	for (const char *p = word; *p && initials <= name_len; p++)
		if (p == word || same_letter(p[-1], '-'))
			initials = initials < name_len && same_letter(*p, name[initials]) ? initials + 1 : name_len + 1;
	return (same == name_len && same_letter(word[same], '-')) || (same > 3 && !word[same]) || initials == name_len;
}

void gn_text_offer(struct gn_text_nearest *n, const char *name, size_t name_len)
{
	size_t len = strlen(n->word), distance = edit_distance(n->word, name, name_len), most = len < 9 ? (len + 1) / 3 : 3;

	if (len > 2 && name_len > 1 && abbreviates(n->word, name, name_len))
		distance = distance && most ? 1 : distance;
	if (distance <= most && (!n->name || distance < n->distance)) {
		n->name = name;
		n->name_len = name_len;
		n->distance = distance;
	}
}

/* Length of name without its trailing number, which has at most 9 digits. */
static size_t prefix_of(const char *name)
{
	size_t len = strlen(name), n = len;

	while (n > 0 && len - n < 9 && isdigit((unsigned char)name[n - 1]))
		n--;
	return n;
}

static int shares_prefix(const char *a, const char *b)
{
	size_t n = prefix_of(a);

	return n == prefix_of(b) && a[n] && b[n] && !memcmp(a, b, n);
}

/* Whether b's number is a's plus one, with the same width; a number without leading zeros may get wider. */
static int follows(const char *a, const char *b)
{
	const char *x = a + prefix_of(a), *y = b + prefix_of(b);

	return shares_prefix(a, b) && atol(y) == atol(x) + 1 && (strlen(x) == strlen(y) || (*x != '0' && *y != '0'));
}

/* Appends the range that starts with names[0]. Returns the number of names in it. */
static size_t append_range(struct gn_strbuf *out, const char *const *names, size_t count)
{
	size_t last = 0;

	while (last + 1 < count && follows(names[last], names[last + 1]))
		last++;
	gn_strbuf_puts(out, names[0] + prefix_of(names[0]));
	if (last)
		gn_strbuf_printf(out, "-%s", names[last] + prefix_of(names[last]));
	return last + 1;
}

void gn_hostlist_append(struct gn_strbuf *out, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count;) {
		size_t end = i + 1;

		while (end < count && shares_prefix(names[i], names[end]))
			end++;
		gn_strbuf_puts(out, i ? "," : "");
		if (end == i + 1) {
			gn_strbuf_puts(out, names[i++]);
			continue;
		}
		gn_strbuf_append(out, names[i], prefix_of(names[i]));
		for (const char *mark = "["; i < end; mark = ",") {
			gn_strbuf_puts(out, mark);
			i += append_range(out, names + i, end - i);
		}
		gn_strbuf_puts(out, "]");
	}
}
