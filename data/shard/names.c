#include "data/shard/names.h"

#include "src/base/crc32c.h"

#include <stdlib.h>
#include <string.h>

struct gn_names {
	char **texts;
	uint32_t *slots; /* id + 1, or 0 for a free slot; open addressing, at most half full */
	uint32_t count, slot_count;
};

enum gn_status gn_names_create(struct gn_names **out, struct gn_err *err)
{
	struct gn_names *n = calloc(1, sizeof *n);

	if (!n)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a table of names");
	*out = n;
	return GN_OK;
}

void gn_names_destroy(struct gn_names *n)
{
	if (!n)
		return;
	for (uint32_t i = 0; i < n->count; i++)
		free(n->texts[i]);
	free(n->texts);
	free(n->slots);
	free(n);
}

/* The slot that holds text, or the free slot for it. */
static uint32_t slot_of(const struct gn_names *n, const char *text)
{
	uint32_t mask = n->slot_count - 1;
	uint32_t i = gn_crc32c(0, text, strlen(text)) & mask;

	while (n->slots[i] && strcmp(n->texts[n->slots[i] - 1], text))
		i = (i + 1) & mask;
	return i;
}

static int grow(struct gn_names *n)
{
	uint32_t slot_count = n->slot_count ? n->slot_count * 2 : 64;
	uint32_t *slots = slot_count ? calloc(slot_count, sizeof *slots) : NULL;
	char **texts = slots ? realloc(n->texts, slot_count / 2 * sizeof *texts) : NULL;

	if (!texts) {
		free(slots);
		return -1;
	}
	free(n->slots);
	n->slots = slots;
	n->texts = texts;
	n->slot_count = slot_count;
	for (uint32_t i = 0; i < n->count; i++)
		n->slots[slot_of(n, n->texts[i])] = i + 1;
	return 0;
}

enum gn_status gn_names_add(struct gn_names *n, const char *text, uint32_t *id, struct gn_err *err)
{
	uint32_t slot;

	if (gn_names_find(n, text, id))
		return GN_OK;
	if (n->count == n->slot_count / 2 && grow(n))
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for another name besides %u", n->count);
	slot = slot_of(n, text);
	n->texts[n->count] = strdup(text);
	if (!n->texts[n->count])
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for another name besides %u", n->count);
	if (id)
		*id = n->count;
	n->slots[slot] = ++n->count;
	return GN_OK;
}

int gn_names_find(const struct gn_names *n, const char *text, uint32_t *id)
{
	uint32_t found = n->slot_count ? n->slots[slot_of(n, text)] : 0;

	if (found && id)
		*id = found - 1;
	return found != 0;
}

uint32_t gn_names_count(const struct gn_names *n)
{
	return n->count;
}

const char *gn_names_get(const struct gn_names *n, uint32_t id)
{
	return n->texts[id];
}
