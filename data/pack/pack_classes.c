/* Class names and the order of samples: turns the result of the first pass into labels and one shuffled list. */
#include "data/pack/pack_parts_internal.h"

#include "data/pack/pack_journal.h"
#include "data/pack/split.h"
#include "data/shard/manifest.h"
#include "data/shard/shard.h"
#include "src/base/text.h"
#include "src/base/file.h"
#include "src/base/philox.h"
#include "src/base/strbuf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLASS_FILE_MAX_BYTES (64u << 20)
/* Distinct from the epochs of training, which count from 0. */
#define PACK_EPOCH UINT32_MAX
enum { CLASSES_TOLD = 10 };

static enum gn_status add_line(struct gn_pack_set *set, char *line, const char *path, size_t number, struct gn_err *err)
{
	char name[GN_SHARD_NAME_MAX];
	uint32_t id;
	enum gn_status status;

	line += strspn(line, " \t");
	for (size_t len = strlen(line); len && strchr(" \t", line[len - 1]);)
		line[--len] = '\0';
	if (!line[0])
		return gn_err_set(err, GN_ERR_DATA, "%s, line %zu is empty: one class name per line", path, number);
	gn_text_valid(line, name, sizeof name);
	status = gn_names_add(set->classes, name, &id, err);
	if (!status && id != number - 1)
		status = gn_err_set(err, GN_ERR_DATA, "%s, line %zu repeats class '%s'", path, number, line);
	return status;
}

static enum gn_status read_class_file(struct gn_pack_set *set, const char *path, struct gn_err *err)
{
	char *text, *rest;
	size_t number = 0;
	enum gn_status status = gn_file_load_text(path, CLASS_FILE_MAX_BYTES, &text, NULL, err);

	if (status)
		return gn_err_prefix(err, "--classes");
	for (rest = text; !status && rest && *rest;)
		status = add_line(set, strsep(&rest, "\n"), path, ++number, err);
	free(text);
	if (!status && !number)
		status = gn_err_set(err, GN_ERR_DATA, "%s names no classes", path);
	return status;
}

/* Takes the class names of a packed dataset. */
static enum gn_status read_class_dataset(struct gn_pack_set *set, const char *path, struct gn_err *err)
{
	struct gn_manifest m;
	enum gn_status status = gn_manifest_load(path, &m, err);

	if (status)
		return gn_err_prefix(err, "--classes");
	for (uint32_t i = 0; i < m.class_count && !status; i++)
		status = gn_names_add(set->classes, m.classes[i].name, NULL, err);
	gn_manifest_release(&m);
	return status;
}

static enum gn_status read_classes(struct gn_pack_set *set, const char *path, struct gn_err *err)
{
	struct stat info;

	return !stat(path, &info) && S_ISDIR(info.st_mode) ? read_class_dataset(set, path, err)
							    : read_class_file(set, path, err);
}

/* id: what the journal says of the key. */
static enum gn_status read_key(struct gn_pack_set *set, const char *path, struct gn_data_key *id, struct gn_err *err)
{
	static const uint8_t no_salt[GN_DATA_SALT_BYTES];
	enum gn_status status = gn_data_key_read(path, &set->key, err);

	set->encrypt = 1;
	return status ? status : gn_data_key_derive(&set->key, no_salt, "gannet journal 1", id, err);
}

enum gn_status gn_pack_set_init(struct gn_pack_set *set, const struct gn_pack_options *options,
				const struct gn_pack_output *output, struct gn_err *err)
{
	struct gn_data_key id;
	enum gn_status status;
	struct stat info;
	int going_on = 0;

	memset(set, 0, sizeof *set);
	set->spool = -1;
	status = gn_names_create(&set->classes, err);
	if (!status)
		status = gn_names_create(&set->empty, err);
	if (!status)
		status = gn_path_join(set->spool_path, sizeof set->spool_path, output->temporary, "spool", err);
	if (!status && options->classes_file)
		status = read_classes(set, options->classes_file, err);
	if (!status && options->key_file)
		status = read_key(set, options->key_file, &id, err);
	if (!status)
		status = gn_pack_journal_open(&set->journal, output->temporary, options, set->encrypt ? &id : NULL, set->classes, &going_on,
					      err);
	if (status)
		return status;
	set->spool = open(set->spool_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (going_on ? 0 : O_EXCL), 0666);
	if (set->spool < 0 || fstat(set->spool, &info))
		return gn_err_errno(err, errno, "cannot create %s", set->spool_path);
	set->spool_end = (uint64_t)info.st_size;
	return GN_OK;
}

void gn_pack_set_release(struct gn_pack_set *set)
{
	for (uint64_t i = 0; i < set->count; i++)
		free(set->items[i].name);
	free(set->items);
	gn_names_destroy(set->classes);
	gn_names_destroy(set->empty);
	gn_pack_journal_close(set->journal);
	if (set->spool >= 0)
		close(set->spool);
	gn_data_key_wipe(&set->key);
	memset(set, 0, sizeof *set);
	set->spool = -1;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Without a class file, labels follow the sorted names, whatever the order of the sources. */
static enum gn_status sort_classes(struct gn_pack_set *set, struct gn_err *err)
{
	uint32_t count = gn_names_count(set->classes);
	const char **sorted = calloc(count ? count : 1, sizeof *sorted);
	uint32_t *labels = calloc(count ? count : 1, sizeof *labels);
	struct gn_names *classes = NULL;
	enum gn_status status;

	if (!sorted || !labels)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u classes", count);
	else
		status = gn_names_create(&classes, err);
	for (uint32_t i = 0; i < count && !status; i++)
		sorted[i] = gn_names_get(set->classes, i);
	if (!status)
		qsort(sorted, count, sizeof *sorted, by_name);
	for (uint32_t i = 0; i < count && !status; i++)
		status = gn_names_add(classes, sorted[i], NULL, err);
	for (uint32_t i = 0; i < count && !status; i++)
		gn_names_find(classes, gn_names_get(set->classes, i), &labels[i]);
	if (!status) {
		for (uint64_t i = 0; i < set->count; i++)
			set->items[i].class_id = labels[set->items[i].class_id];
		gn_names_destroy(set->classes);
		set->classes = classes;
		classes = NULL;
	}
	gn_names_destroy(classes);
	free(sorted);
	free(labels);
	return status;
}

/* A class without images is an error in the source unless a class file names it. */
static enum gn_status check_not_empty(const struct gn_pack_set *set, const struct gn_pack_options *options,
				      struct gn_err *err)
{
	uint32_t count = gn_names_count(set->classes), found;
	uint64_t *samples;
	enum gn_status status = GN_OK;

	if (!set->count)
		return gn_err_set(err, GN_ERR_DATA, "no image found in %s%s", options->sources ? options->sources[0] : "?",
				  options->source_count > 1 ? " and the other sources" : "");
	if (options->classes_file)
		return GN_OK;
	samples = calloc(count, sizeof *samples);
	if (!samples)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u classes", count);
	for (uint64_t i = 0; i < set->count; i++)
		samples[set->items[i].class_id]++;
	for (uint32_t i = 0; i < gn_names_count(set->empty) && !status; i++) {
		const char *name = gn_names_get(set->empty, i);

		if (!gn_names_find(set->classes, name, &found) || !samples[found])
			status = gn_err_set(err, GN_ERR_DATA, "class '%s' is empty: remove its folder, or name the "
					    "classes with --classes FILE", name);
	}
	for (uint32_t i = 0; i < count && !status; i++)
		if (!samples[i])
			status = gn_err_set(err, GN_ERR_DATA, "class '%s' has no good image left: name the classes with "
					    "--classes FILE to keep it", gn_names_get(set->classes, i));
	free(samples);
	return status;
}

static int by_class_and_name(const void *left, const void *right)
{
	const struct gn_pack_item *a = left, *b = right;
	int order;

	if (a->class_id != b->class_id)
		return a->class_id < b->class_id ? -1 : 1;
	order = strcmp(a->name, b->name);
	if (order)
		return order;
	/* the same name in two sources, or several times in an archive */
	if (a->source != b->source)
		return a->source < b->source ? -1 : 1;
	return a->number < b->number ? -1 : a->number > b->number;
}

/* Of the images of an archive that have the same name the last one counts, as when tar unpacks them. */
static void keep_last(struct gn_pack_set *set, struct gn_log *log)
{
	uint64_t kept = 0, dropped = 0;

	for (uint64_t i = 0; i < set->count; i++) {
		struct gn_pack_item *here = &set->items[i], *next = here + 1;

		if (i + 1 == set->count || here->source != next->source || strcmp(here->name, next->name) != 0) {
			set->items[kept++] = *here;
			continue;
		}
		if (!dropped++)
			gn_log_warn(log, "%s is more than once in its archive: the last one counts, as when tar unpacks it", here->name);
		free(here->name);
	}
	if (dropped > 1)
		gn_log_warn(log, "%llu images were replaced by later ones of the same name", (unsigned long long)dropped);
	set->count = kept;
}

/* Without blanks and case. */
static int by_folded_name(const void *left, const void *right)
{
	const char *a = *(const char *const *)left, *b = *(const char *const *)right;

	for (;; a++, b++) {
		a += strspn(a, " \t");
		b += strspn(b, " \t");
		if (!*a || tolower((unsigned char)*a) != tolower((unsigned char)*b))
			return tolower((unsigned char)*a) - tolower((unsigned char)*b);
	}
}

/* Warns of classes whose names differ only in blanks or case, and of as many classes as images; says which there are. */
static enum gn_status tell_classes(const struct gn_pack_set *set, const struct gn_pack_options *o, struct gn_err *err)
{
	uint32_t count = gn_names_count(set->classes);
	const char **names = calloc(count, sizeof *names);
	uint64_t *samples = calloc(count, sizeof *samples);
	struct gn_strbuf text = {0};

	if (!names || !samples) {
		free(names);
		free(samples);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %u classes", count);
	}
	for (uint64_t i = 0; i < set->count; i++)
		samples[set->items[i].class_id]++;
	for (uint32_t i = 0; i < count && i < CLASSES_TOLD; i++)
		gn_strbuf_printf(&text, "%s%s %llu", i ? ", " : "", gn_names_get(set->classes, i), (unsigned long long)samples[i]);
	if (count > CLASSES_TOLD)
		gn_strbuf_printf(&text, " and %u more", count - CLASSES_TOLD);
	if (!o->synthetic_count)
		gn_log_info(o->log, "images of each class: %s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	for (uint32_t i = 0; i < count; i++)
		names[i] = gn_names_get(set->classes, i);
	qsort(names, count, sizeof *names, by_folded_name);
	for (uint32_t i = 0; i + 1 < count; i++)
		if (!by_folded_name(&names[i], &names[i + 1]))
			gn_log_warn(o->log, "the classes '%s' and '%s' differ only in blanks or case", names[i], names[i + 1]);
	if (o->labels_file && count > 2 && count == set->count)
		gn_log_warn(o->log, "there are as many classes as images: is the second column of --labels the class?");
	free(names);
	free(samples);
	return GN_OK;
}

/* Fisher-Yates. */
static void shuffle(struct gn_pack_set *set, uint64_t seed)
{
	struct gn_rng rng;

	gn_rng_init(&rng, seed, GN_RNG_SHUFFLE, PACK_EPOCH, 0);
	for (uint64_t i = set->count; i > 1; i--) {
		uint64_t j = gn_rng_below(&rng, (uint32_t)i);
		struct gn_pack_item item = set->items[i - 1];

		set->items[i - 1] = set->items[j];
		set->items[j] = item;
	}
}

enum gn_status gn_pack_arrange(struct gn_pack_set *set, const struct gn_pack_options *options, struct gn_err *err)
{
	enum gn_status status = GN_OK;

	if (!options->classes_file)
		status = sort_classes(set, err);
	if (!status)
		status = check_not_empty(set, options, err);
	if (status)
		return status;
	if (!options->synthetic_count && gn_names_count(set->classes) == 1)
		gn_log_warn(options->log, "all images are of one class, '%s': nothing can be learned from them",
			    gn_names_get(set->classes, 0));
	qsort(set->items, set->count, sizeof *set->items, by_class_and_name);
	keep_last(set, options->log);
	status = tell_classes(set, options, err);
	if (status)
		return status;
	status = gn_pack_split_mark(set, options, err);
	if (status)
		return status;
	shuffle(set, options->seed);
	for (uint64_t i = 0; i < set->count; i++)
		set->data_bytes += set->items[i].length_bytes;
	return GN_OK;
}
