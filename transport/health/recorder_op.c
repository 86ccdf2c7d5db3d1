#include "transport/health/recorder_op.h"

#include <search.h>
#include <stdio.h>
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

static size_t append(char *text, size_t size, size_t len, const char *format, const char *word)
{
	return word && len < size ? len + (size_t)snprintf(text + len, size - len, format, word) : len;
}

static void bytes_text(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
	int unit = 0;

	while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, size, "%llu %s", (unsigned long long)bytes, units[unit]);
}

void gn_recorder_op_text(const struct gn_recorder_op *op, char *text, size_t size)
{
	char number[32], bytes[32];
	size_t len = append(text, size, 0, "%s", op->name ? op->name : "operation");
	size_t before;

	if (op->bytes) {
		bytes_text(op->bytes, bytes, sizeof bytes);
		len = append(text, size, len, " of %s", bytes);
	}
	len = append(text, size, len, "%s", " (");
	before = len;
	if (op->count) {
		snprintf(number, sizeof number, "%llu", (unsigned long long)op->count);
		len = append(text, size, len, "%s ", number);
		len = append(text, size, len, "%s", op->type ? op->type : "elements");
	}
	len = append(text, size, len, before == len ? "%s" : ", %s", op->reduction);
	len = append(text, size, len, before == len ? "%s" : ", %s", op->algorithm);
	if (op->root >= 0) {
		snprintf(number, sizeof number, "root %d", op->root);
		len = append(text, size, len, before == len ? "%s" : ", %s", number);
	}
	if (len == before && before < size)
		text[before - 2] = 0;
	else
		append(text, size, len, "%s", ")");
}

static uint64_t hash(uint64_t h, const void *data, size_t len)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ bytes[i]) * 0x100000001b3u;
	return h;
}

uint64_t gn_recorder_op_signature(const struct gn_recorder_op *op)
{
	const char *texts[] = {op->name, op->algorithm, op->type, op->reduction};
	uint64_t numbers[] = {op->count, op->bytes, (uint64_t)(int64_t)op->root}, h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		h = hash(h, texts[i] ? texts[i] : "", texts[i] ? strlen(texts[i]) + 1 : 1);
	h = hash(h, numbers, sizeof numbers);
	/* mix all bits: callers combine the signature with small numbers */
	h = (h ^ h >> 31) * 0x9e3779b97f4a7c15u;
	h ^= h >> 29;
	return h ? h : 1;
}
