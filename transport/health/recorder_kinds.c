#include "transport/health/recorder_kinds.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

/* Compares the addresses of texts, which are constants: an equal text at another address makes another kind, which does no harm. */
struct gn_recorder_kind {
	uint64_t key[7];
	struct gn_recorder_op op;
	uint32_t number;
};

static int by_key(const void *a, const void *b)
{
	const struct gn_recorder_kind *x = a, *y = b;

	return memcmp(x->key, y->key, sizeof x->key);
}

static int make_room(struct gn_recorder_kinds *s)
{
	uint32_t room = s->room ? 2 * s->room : 64;
	struct gn_recorder_kind **all;

	if (s->count + 1 < s->room)
		return 1;
	all = room <= GN_RECORDER_KINDS_MAX ? realloc(s->all, room * sizeof(*all)) : NULL;
	if (!all)
		return 0;
	s->all = all;
	s->room = room;
	return 1;
}

uint32_t gn_recorder_kinds_add(struct gn_recorder_kinds *s, const struct gn_recorder_op *op)
{
	struct gn_recorder_kind new = {
		.key = {(uintptr_t)op->name, (uintptr_t)op->algorithm, (uintptr_t)op->type, (uintptr_t)op->reduction, op->count,
			op->bytes, (uint64_t)(int64_t)op->root},
		.op = *op, .number = s->count + 1};
	struct gn_recorder_kind **found = tfind(&new, &s->tree, by_key), *k;

	if (found)
		return (*found)->number;
	k = make_room(s) ? malloc(sizeof *k) : NULL;
	if (k)
		*k = new;
	if (!k || !tsearch(k, &s->tree, by_key)) {
		free(k);
		return 0;
	}
	s->all[++s->count] = k;
	return k->number;
}

void gn_recorder_kinds_get(const struct gn_recorder_kinds *s, uint32_t number, struct gn_recorder_op *op)
{
	*op = number && number <= s->count ? s->all[number]->op : (struct gn_recorder_op){.root = -1};
}

void gn_recorder_kinds_release(struct gn_recorder_kinds *s)
{
	tdestroy(s->tree, free);
	free(s->all);
}
