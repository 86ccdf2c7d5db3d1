/* Maps folders to classes. As in torchvision's ImageFolder, the folder of the first level is the class. An archive of a whole tree
 * has one folder around all classes: when every file of a source lies at least two folders deep and all share the first folder, the
 * second level counts. */
#include "data/pack/pack_parts_internal.h"

#include "data/shard/shard.h"
#include "src/base/alloc.h"
#include "src/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct level_use {
	uint32_t only; /* the folder of this level, if there is only one */
	int count;     /* folders in this level: 0, 1, or 2 for more */
	int shallow;   /* a file lies in one of them */
	int deep;      /* a file lies below it */
	int other;     /* a folder that is not named like a split (train, val, test) */
};

struct source_use {
	struct level_use first, second;
};

#define NO_LEVEL UINT32_MAX

/* The folder of files, with its class. */
struct folder {
	uint32_t source;
	uint32_t first, second; /* numbers in texts; second may be NO_LEVEL */
	int empty;
	int direct; /* a file lies in it, not only in folders below */
};

struct gn_pack_levels {
	const struct gn_pack_options *options;
	struct gn_names *texts;	  /* folder names of the first and second level, as class names */
	struct gn_names *keys;	  /* of folders: "SOURCE FIRST SECOND" */
	struct folder *folders;	  /* indexed by the number of the key */
	size_t capacity;	  /* of folders */
	struct source_use *uses;  /* by source */
};

enum gn_status gn_pack_levels_create(struct gn_pack_levels **out, const struct gn_pack_options *options, struct gn_err *err)
{
	struct gn_pack_levels *l = calloc(1, sizeof *l);
	enum gn_status status = GN_OK;

	if (l) {
		l->options = options;
		l->uses = calloc(options->source_count + 1, sizeof *l->uses);
		status = gn_names_create(&l->texts, err);
		if (!status)
			status = gn_names_create(&l->keys, err);
	}
	if (!l || !l->uses)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the classes of %zu sources", options->source_count);
	if (status)
		gn_pack_levels_destroy(l);
	else
		*out = l;
	return status;
}

void gn_pack_levels_destroy(struct gn_pack_levels *l)
{
	if (!l)
		return;
	gn_names_destroy(l->texts);
	gn_names_destroy(l->keys);
	free(l->folders);
	free(l->uses);
	free(l);
}

static enum gn_status add_text(struct gn_pack_levels *l, const char *raw, uint32_t *id, struct gn_err *err)
{
	char text[GN_SHARD_NAME_MAX];

	*id = NO_LEVEL;
	if (!raw)
		return GN_OK;
	gn_text_valid(raw, text, sizeof text);
	return gn_names_add(l->texts, text, id, err);
}

static enum gn_status add_folder(struct gn_pack_levels *l, const struct folder *folder, uint32_t *id, struct gn_err *err)
{
	char key[64];
	enum gn_status status;

	snprintf(key, sizeof key, "%u %u %u", folder->source, folder->first, folder->second);
	if (!gn_names_find(l->keys, key, id)) {
		if (gn_array_grow(&l->folders, &l->capacity, gn_names_count(l->keys), sizeof *l->folders))
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for another folder");
		status = gn_names_add(l->keys, key, id, err);
		if (status)
			return status;
		l->folders[*id] = *folder;
	}
	l->folders[*id].empty |= folder->empty;
	l->folders[*id].direct |= folder->direct;
	return GN_OK;
}

static int listed(const struct gn_pack_levels *l, const struct gn_pack_set *set, uint32_t text)
{
	return text != NO_LEVEL && gn_names_find(set->classes, gn_names_get(l->texts, text), NULL);
}

/* position: number of classes before this one, or NO_LEVEL when folders of two levels were found. */
static enum gn_status not_listed(const struct gn_pack_options *o, const struct gn_names *classes, const char *source,
				 const char *file, const char *name, uint32_t position, struct gn_err *err)
{
	char here[512], there[512];

	if (position < gn_names_count(classes))
		return gn_err_set(err, GN_ERR_DATA, "%s: %s: class '%s' is not in %s (class %u is %s here and %s there)",
				  source, file, name, o->classes_file, position, gn_text_exact(name, here, sizeof here),
				  gn_text_exact(gn_names_get(classes, position), there, sizeof there));
	return gn_err_set(err, GN_ERR_DATA, "%s: %s: class '%s' is not in %s, which has %u classes", source, file, name,
			  o->classes_file, gn_names_count(classes));
}

static void note_level(struct level_use *use, uint32_t text, const char *name, int deep)
{
	if (!use->count || use->only != text)
		use->count = use->count ? 2 : 1;
	use->only = text;
	use->deep |= deep;
	use->shallow |= !deep;
	use->other |= !gn_source_is_split(name);
}

enum gn_status gn_pack_levels_note(struct gn_pack_levels *l, const struct gn_pack_set *set, uint32_t source, const char *name,
				   const struct gn_source_levels *levels, int empty, uint32_t *id, struct gn_err *err)
{
	struct folder folder = {.source = source, .empty = empty, .direct = !empty && !levels->deeper};
	struct source_use *use = &l->uses[source];
	uint32_t met = gn_names_count(l->texts);
	enum gn_status status = add_text(l, levels->first, &folder.first, err);

	if (!status)
		status = add_text(l, levels->second, &folder.second, err);
	if (!status && l->options->classes_file && !listed(l, set, folder.first) && !listed(l, set, folder.second))
		status = not_listed(l->options, set->classes, l->options->sources[source], name, levels->first,
				    source || use->first.deep || levels->second ? NO_LEVEL : met, err);
	if (!status)
		status = add_folder(l, &folder, id, err);
	if (status)
		return status;
	note_level(&use->first, folder.first, levels->first, levels->second != NULL);
	if (levels->second)
		note_level(&use->second, folder.second, levels->second, levels->deeper);
	return GN_OK;
}

static int is_wrapped(const struct source_use *use)
{
	return use->first.count == 1 && use->first.deep && !use->first.shallow;
}

static int is_parts(const struct level_use *use)
{
	return use->count > 1 && use->deep && !use->shallow && !use->other;
}

/* Several folders that are named as parts of a dataset and hold folders, beside others: probably not classes, but they may be. */
static void warn_of_parts(const struct gn_pack_levels *l, uint32_t source)
{
	int wrapped = is_wrapped(&l->uses[source]);
	const char *part = NULL, *another = NULL, *other = NULL;

	for (uint32_t i = 0; i < gn_names_count(l->keys); i++) {
		const struct folder *f = &l->folders[i];
		const char *name = gn_names_get(l->texts, wrapped ? f->second : f->first);

		if (f->source != source)
			continue;
		if (!gn_source_is_split(name))
			other = other ? other : name;
		else if (f->direct && (wrapped || f->second == NO_LEVEL))
			return;
		else if (!part)
			part = name;
		else if (strcmp(part, name) != 0)
			another = name;
	}
	if (another && other)
		gn_log_warn(l->options->log, "%s: the folders '%s' and '%s' are named as parts of a dataset and hold folders, but '%s' is "
			    "beside them: each is taken as a class; to pack one part, name its folder as the source",
			    l->options->sources[source], part, another, other);
}

static enum gn_status check_parts(const struct gn_pack_levels *l, struct gn_err *err)
{
	for (size_t i = 0; i < l->options->source_count; i++) {
		const struct source_use *use = &l->uses[i];

		if (is_parts(is_wrapped(use) ? &use->second : &use->first))
			return gn_err_set(err, GN_ERR_DATA, "%s holds the parts of a dataset (train, val, test), not classes: "
					  "unpack "
					  "it and pack each part by itself", l->options->sources[i]);
		if (is_wrapped(use))
			gn_log_info(l->options->log, "%s: everything lies in '%s': the folders in it are the classes",
				    l->options->sources[i], gn_names_get(l->texts, use->first.only));
		warn_of_parts(l, (uint32_t)i);
	}
	return GN_OK;
}

/* Sets *id to the class's number in set->classes. */
static enum gn_status resolve(const struct gn_pack_levels *l, struct gn_pack_set *set, const struct folder *f, uint32_t *id,
			      struct gn_err *err)
{
	const char *text = gn_names_get(l->texts, is_wrapped(&l->uses[f->source]) ? f->second : f->first);
	enum gn_status status;

	if (l->options->classes_file && !gn_names_find(set->classes, text, NULL))
		return gn_err_set(err, GN_ERR_DATA, "%s: class '%s' is not in %s", l->options->sources[f->source], text,
				  l->options->classes_file);
	status = gn_names_add(set->classes, text, id, err);
	return status || !f->empty ? status : gn_names_add(set->empty, text, NULL, err);
}

enum gn_status gn_pack_levels_resolve(const struct gn_pack_levels *l, struct gn_pack_set *set, struct gn_err *err)
{
	uint32_t count = gn_names_count(l->keys), *classes = calloc((size_t)count + 1, sizeof *classes);
	enum gn_status status = classes ? check_parts(l, err)
					: gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u folders", count);

	for (uint32_t i = 0; i < count && !status; i++)
		status = resolve(l, set, &l->folders[i], &classes[i], err);
	for (uint64_t i = 0; i < set->count && !status; i++)
		set->items[i].class_id = classes[set->items[i].class_id];
	free(classes);
	return status;
}
