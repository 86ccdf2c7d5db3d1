#include "data/pack/split.h"

#include "src/base/file.h"
#include "src/base/option.h"
#include "src/base/sha256.h"
#include "src/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

enum gn_status gn_pack_split_parse(const char *text, struct gn_pack_split *out, struct gn_err *err)
{
	const char *equals = strchr(text, '=');
	size_t len = equals ? (size_t)(equals - text) : 0;
	struct gn_pack_split split = {.fraction = 0};

	if (!equals || gn_parse_real(equals + 1, &split.fraction, NULL) || !(split.fraction > 0 && split.fraction < 1))
		return gn_err_set(err, GN_ERR_USAGE, "--split %s: give NAME=FRACTION, a fraction between 0 and 1, such as val=0.1", text);
	if (!len || len >= sizeof split.name || text[0] == '.' || strspn(text, NAME_CHARACTERS) < len ||
	    (len == 5 && !strncmp(text, "train", 5)))
		return gn_err_set(err, GN_ERR_USAGE, "--split %s: the name, of letters, digits, '-', '_' and '.', is that of a folder beside "
				  "'train', such as val", text);
	memcpy(split.name, text, len);
	*out = split;
	return GN_OK;
}

struct keyed {
	uint64_t key;
	struct gn_pack_item *item;
};

static int by_key(const void *left, const void *right)
{
	const struct keyed *a = left, *b = right;

	return a->key != b->key ? (a->key < b->key ? -1 : 1) : a->item < b->item ? -1 : a->item > b->item;
}

static uint64_t key_of(struct gn_sha256 *s, uint64_t seed, const char *name)
{
	char hex[GN_SHA256_HEX], number[32];

	gn_sha256_update(s, number, (size_t)snprintf(number, sizeof number, "%llu/", (unsigned long long)seed));
	gn_sha256_update(s, name, strlen(name));
	gn_sha256_finish(s, hex);
	hex[16] = '\0';
	return strtoull(hex, NULL, 16);
}

/* Of a class of n images; 0 of a single one. */
static uint64_t held_out_of(uint64_t n, double fraction)
{
	double share = floor((double)n * fraction + 0.5);

	if (n < 2)
		return 0;
	return share < 1 ? 1 : share > (double)(n - 1) ? n - 1 : (uint64_t)share;
}

/* Equal bytes first, then what is held out. */
static int by_content(const void *left, const void *right)
{
	const struct gn_pack_item *a = ((const struct keyed *)left)->item, *b = ((const struct keyed *)right)->item;

	if (a->crc32c != b->crc32c)
		return a->crc32c < b->crc32c ? -1 : 1;
	if (a->length_bytes != b->length_bytes)
		return a->length_bytes < b->length_bytes ? -1 : 1;
	return a->held_out != b->held_out ? (a->held_out ? -1 : 1) : a < b ? -1 : a > b;
}

static int is_same(const struct gn_pack_item *a, const struct gn_pack_item *b)
{
	return a->crc32c == b->crc32c && a->length_bytes == b->length_bytes;
}

/* Images of the same bytes on both sides make an evaluation better than it is, and in two classes a network that cannot be right. name: of
 * the other side; NULL: there is none. */
static void warn_of_twins(struct keyed *all, size_t count, const char *name, struct gn_log *log)
{
	const struct gn_pack_item *held = NULL, *kept = NULL, *one = NULL, *other = NULL;
	uint64_t twins = 0, conflicts = 0;

	qsort(all, count, sizeof *all, by_content);
	for (size_t i = 0, end; i < count; i = end) {
		uint64_t held_here = 0;

		for (end = i; end < count && is_same(all[i].item, all[end].item); end++) {
			held_here += all[end].item->held_out;
			if (all[end].item->class_id != all[i].item->class_id) {
				conflicts++;
				one = all[i].item;
				other = all[end].item;
			}
		}
		if (!held_here || all[end - 1].item->held_out)
			continue;
		twins += held_here;
		held = all[i].item;
		kept = all[end - 1].item;
	}
	if (conflicts)
		gn_log_warn(log, "%llu image%s the same bytes as one of another class, such as %s and %s", (unsigned long long)conflicts,
			    conflicts == 1 ? " has" : "s have", one->name, other->name);
	if (twins)
		gn_log_warn(log, "%llu image%s of %s %s the same bytes as one of train, such as %s and %s: remove duplicates from the source",
			    (unsigned long long)twins, gn_text_plural(twins), name, twins == 1 ? "has" : "have", held->name, kept->name);
}

static void tell_single(uint64_t single, const struct gn_pack_split *split, struct gn_log *log)
{
	if (single)
		gn_log_warn(log, "%llu class%s %s a single image, which is in train: %s has none of %s", (unsigned long long)single,
			    single == 1 ? "" : "es", single == 1 ? "has" : "have", split->name, single == 1 ? "it" : "them");
}

enum gn_status gn_pack_split_mark(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err)
{
	struct gn_pack_split split;
	struct gn_sha256 *s = NULL;
	struct keyed *all = NULL;
	uint64_t single = 0, held_out = 0;
	enum gn_status status = options->split ? gn_pack_split_parse(options->split, &split, err) : GN_OK;

	if (!status)
		status = gn_sha256_create(&s, err);
	if (status)
		return status;
	if (!(all = calloc(set->count, sizeof *all)))
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to split %llu images", (unsigned long long)set->count);
	for (uint64_t i = 0; i < set->count && !status; i++)
		all[i] = (struct keyed){options->split ? key_of(s, options->seed, set->items[i].name) : 0, &set->items[i]};
	for (uint64_t i = 0, end; i < set->count && !status && options->split; i = end) {
		for (end = i; end < set->count && set->items[end].class_id == set->items[i].class_id;)
			end++;
		qsort(all + i, end - i, sizeof *all, by_key);
		for (uint64_t k = 0; k < held_out_of(end - i, split.fraction); k++, held_out++)
			all[i + k].item->held_out = 1;
		single += end - i == 1;
	}
	if (!status && options->split && !held_out)
		status = gn_err_set(err, GN_ERR_DATA, "--split %s: no class has two images", options->split);
	if (!status && options->split)
		tell_single(single, &split, options->log);
	if (!status)
		warn_of_twins(all, set->count, options->split ? split.name : NULL, options->log);
	gn_sha256_destroy(s);
	free(all);
	return status;
}

/* Returns how many items come first. */
static uint64_t move_held_out(struct gn_pack_set *set, struct gn_pack_item *room)
{
	uint64_t kept = 0, held = 0;

	for (uint64_t i = 0; i < set->count; i++) {
		if (set->items[i].held_out)
			room[held++] = set->items[i];
		else
			set->items[kept++] = set->items[i];
	}
	memcpy(set->items + kept, room, held * sizeof *room);
	return kept;
}

enum gn_status gn_pack_split_parts(struct gn_pack_set *set, const struct gn_pack_options *options, const struct gn_pack_output *output,
				   struct gn_pack_part parts[2], size_t *count, struct gn_err *err)
{
	struct gn_pack_split split;
	struct gn_pack_item *room;
	uint64_t kept;
	enum gn_status status;

	*count = options->split ? 2 : 1;
	parts[0] = (struct gn_pack_part){.count = set->count};
	snprintf(parts[0].folder, sizeof parts[0].folder, "%s", output->temporary);
	if (!options->split)
		return GN_OK;
	room = malloc(set->count * sizeof *room);
	if (!room)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to split %llu images", (unsigned long long)set->count);
	kept = move_held_out(set, room);
	free(room);
	parts[0].count = kept;
	/* shards of the second part are numbered from where the first one's can never be: a shard has an image */
	parts[1] = (struct gn_pack_part){.first = kept, .count = set->count - kept, .first_shard = (uint32_t)kept};
	status = gn_pack_split_parse(options->split, &split, err);
	if (!status)
		status = gn_path_join(parts[0].folder, sizeof parts[0].folder, output->temporary, "train", err);
	if (!status)
		status = gn_path_join(parts[1].folder, sizeof parts[1].folder, output->temporary, split.name, err);
	for (size_t i = 0; i < 2 && !status; i++)
		status = gn_make_dirs(parts[i].folder, err);
	return status;
}
