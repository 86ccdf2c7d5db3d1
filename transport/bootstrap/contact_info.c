#include "transport/bootstrap/contact_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = "GNtree1";

void gn_contact_info_write(const struct gn_contact_info *c, struct gn_strbuf *out)
{
	gn_strbuf_append(out, magic, sizeof magic);
	gn_strbuf_append(out, (const char *)c->drawn.bytes, sizeof c->drawn.bytes);
	gn_strbuf_printf(out, "%d", c->port);
	for (uint32_t i = 0; i < c->addresses.count; i++)
		gn_strbuf_printf(out, " %s", c->addresses.text[i]);
}

/* Parses "PORT ADDRESS ADDRESS ..."; 0 when it is invalid. */
static int read_text(char *text, struct gn_contact_info *c)
{
	char *end, *rest = NULL, *word;
	long port = strtol(text, &end, 10);

	if (end == text || port <= 0 || port > 65535 || (*end && *end != ' '))
		return 0;
	c->port = (int)port;
	for (word = strtok_r(end, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
		if (c->addresses.count == GN_NET_ADDRESSES_MAX || strlen(word) >= GN_NET_ADDRESS_MAX)
			return 0;
		memcpy(c->addresses.text[c->addresses.count++], word, strlen(word) + 1);
	}
	return c->addresses.count > 0;
}

enum gn_status gn_contact_info_read(const void *data, size_t len_bytes, struct gn_contact_info *out, struct gn_err *err)
{
	const size_t fixed = sizeof magic + sizeof out->drawn.bytes;
	struct gn_contact_info c = {.port = 0};
	char text[GN_CONTACT_INFO_MAX + 1] = "";

	if (len_bytes > fixed && len_bytes <= GN_CONTACT_INFO_MAX && !memcmp(data, magic, sizeof magic)) {
		memcpy(c.drawn.bytes, (const char *)data + sizeof magic, sizeof c.drawn.bytes);
		memcpy(text, (const char *)data + fixed, len_bytes - fixed);
	}
	if (!read_text(text, &c))
		return gn_err_set(err, GN_ERR_MISMATCH, "invalid contact info of %zu bytes: do all ranks run the same build of "
				  "gannet?",
				  len_bytes);
	*out = c;
	return GN_OK;
}

void gn_contact_info_prefer(struct gn_contact_info *c, const char *address)
{
	struct gn_net_addresses *a = &c->addresses;

	if (a->count < GN_NET_ADDRESSES_MAX)
		a->count++;
	memmove(a->text[1], a->text[0], (a->count - 1) * sizeof a->text[0]);
	snprintf(a->text[0], sizeof a->text[0], "%s", address);
}
