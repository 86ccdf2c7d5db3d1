#include "transport/bootstrap/gathered.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t gn_gathered_record_bytes(size_t len_bytes)
{
	return sizeof(uint64_t) + ((len_bytes + 7) & ~(size_t)7);
}

void gn_gathered_write(void *at, const void *data, size_t len_bytes)
{
	uint64_t len = len_bytes;
	char *to = at;

	memcpy(to, &len, sizeof len);
	if (len_bytes)
		memcpy(to + sizeof len, data, len_bytes);
	memset(to + sizeof len + len_bytes, 0, gn_gathered_record_bytes(len_bytes) - sizeof len - len_bytes);
}

/* Moves *at behind the record that begins there; 0 when the rest of the pack does not hold it. */
static int next(const char *pack, size_t pack_bytes, size_t *at, size_t *len_bytes)
{
	size_t left = pack_bytes - *at;
	uint64_t len;

	if (left < sizeof len)
		return 0;
	memcpy(&len, pack + *at, sizeof len);
	if (len > left - sizeof len || gn_gathered_record_bytes((size_t)len) > left)
		return 0;
	*len_bytes = (size_t)len;
	*at += gn_gathered_record_bytes((size_t)len);
	return 1;
}

int gn_gathered_is_pack(const void *pack, size_t pack_bytes, size_t ranks)
{
	size_t at = 0, len;

	for (size_t r = 0; r < ranks; r++)
		if (!next(pack, pack_bytes, &at, &len))
			return 0;
	return at == pack_bytes;
}

enum gn_status gn_gathered_take(void *pack, size_t pack_bytes, int size, struct gn_gathered *out, struct gn_err *err)
{
	struct gn_gathered t = {.size = (size_t)size, .pack = pack};
	size_t at = 0;

	if (!gn_gathered_is_pack(pack, pack_bytes, t.size)) {
		gn_gathered_release(&t);
		return gn_err_set(err, GN_ERR_MISMATCH, "invalid result of an exchange: not the records of %d ranks; do all ranks "
				  "run the same build of gannet?", size);
	}
	t.items = calloc(t.size, sizeof *t.items);
	t.lens = calloc(t.size, sizeof *t.lens);
	if (!t.items || !t.lens) {
		gn_gathered_release(&t);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", size);
	}
	for (size_t r = 0; r < t.size; r++) {
		t.items[r] = (char *)pack + at + sizeof(uint64_t);
		next(pack, pack_bytes, &at, &t.lens[r]);
	}
	*out = t;
	return GN_OK;
}

void gn_gathered_release(struct gn_gathered *t)
{
	free(t->items);
	free(t->lens);
	free(t->pack);
	*t = (struct gn_gathered){0};
}
