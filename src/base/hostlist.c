#include "src/base/hostlist.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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
