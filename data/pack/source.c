#include "data/pack/source.h"

#include "src/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

int gn_source_passes_over(const char *component, int is_folder)
{
	static const char *const endings[] = {".txt", ".csv", ".tsv", ".json", ".jsonl", ".md", ".xml", ".yaml", ".yml",
					      ".html", ".log", ".ini"};
	const char *dot = strrchr(component, '.');

	if (component[0] == '.')
		return 1;
	if (is_folder)
		return !strcmp(component, "__MACOSX");
	for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
		if (!strcasecmp(dot, endings[i]))
			return 1;
	return !strcasecmp(component, "Thumbs.db");
}

int gn_source_is_split(const char *component)
{
	/* "seg_train", "test-images", "training_set": one word of the first kind, and else of the second */
	static const char *const names[] = {"train", "training", "val", "valid", "validation", "test", "testing"};
	static const char *const beside[] = {"set", "data", "dataset", "image", "images", "img", "imgs", "seg", "split"};
	int found = 0;

	for (size_t len; *component; component += len + (component[len] != '\0')) {
		size_t i = 0, k = 0;

		len = strcspn(component, "_- .");
		while (i < sizeof names / sizeof *names && (strncasecmp(component, names[i], len) || names[i][len]))
			i++;
		while (k < sizeof beside / sizeof *beside && (strncasecmp(component, beside[k], len) || beside[k][len]))
			k++;
		found += i < sizeof names / sizeof *names;
		if (i == sizeof names / sizeof *names && k == sizeof beside / sizeof *beside)
			return 0;
	}
	return found == 1;
}

static void strip_ending(char *archive)
{
	char *dot = strrchr(archive, '.');
	size_t len;

	if (dot)
		*dot = '\0';
	len = strlen(archive);
	if (len > 4 && !strcmp(archive + len - 4, ".tar"))
		archive[len - 4] = '\0';
}

struct gn_source_levels gn_source_levels_of(const char *name, size_t inner_len, char *buffer, size_t size)
{
	struct gn_source_levels levels = {0};
	char *slash, *below;

	snprintf(buffer, size, "%s", name);
	slash = strchr(buffer, '/');
	if (!slash)
		return levels;
	*slash = '\0';
	levels.first = buffer;
	below = slash + 1;
	if ((size_t)(slash - buffer) == inner_len)
		strip_ending(buffer);
	slash = strchr(below, '/');
	if (!slash)
		return levels;
	*slash = '\0';
	levels.second = below;
	levels.deeper = strchr(slash + 1, '/') != NULL;
	if ((size_t)(slash - buffer) == inner_len)
		strip_ending(below);
	return levels;
}

static int is_folder(const char *parent, const struct dirent *entry)
{
	char path[4096];
	struct stat info;

	if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK)
		return entry->d_type == DT_DIR;
	return (size_t)snprintf(path, sizeof path, "%s/%s", parent, entry->d_name) < sizeof path && !stat(path, &info) &&
	       S_ISDIR(info.st_mode);
}

/* Entries of a folder, without ignored ones. */
struct counts {
	size_t folders, splits, files; /* splits: folders named train, val, test ... */
	char first[256];	       /* the first folder by name */
	char first_file[256];	       /* the first other entry by name */
};

static void keep_first(char first[256], const char *name)
{
	if (!first[0] || strcmp(name, first) < 0)
		snprintf(first, 256, "%s", name);
}

/* Entries that cannot be read are skipped: the walk reports them. */
static void count_entries(const char *path, struct counts *out)
{
	DIR *d = opendir(path);
	struct dirent *entry;

	memset(out, 0, sizeof *out);
	while (d && (entry = readdir(d))) {
		int folder = is_folder(path, entry);

		if (gn_source_passes_over(entry->d_name, folder))
			continue;
		out->folders += folder;
		out->files += !folder;
		out->splits += folder && gn_source_is_split(entry->d_name);
		keep_first(folder ? out->first : out->first_file, entry->d_name);
	}
	if (d)
		closedir(d);
}

enum gn_status gn_source_check_splits(const char *path, struct gn_err *err)
{
	char folder[4096], below[4096 + 256];
	struct counts here, part;

	snprintf(folder, sizeof folder, "%s", path);
	count_entries(folder, &here);
	if (here.folders == 1 && !here.files &&
	    (size_t)snprintf(folder, sizeof folder, "%s/%s", path, here.first) < sizeof folder)
		count_entries(folder, &here);
	if (here.folders < 2 || here.splits != here.folders || here.files)
		return GN_OK;
	snprintf(below, sizeof below, "%s/%s", folder, here.first);
	count_entries(below, &part);
	if (!part.folders)
		return GN_OK;
	return gn_err_set(err, GN_ERR_DATA, "%s holds the parts of a dataset (%s and others), not classes: pack each part by "
			  "itself, such as %s", folder, here.first, below);
}

static int is_empty(const char *parent, const char *name)
{
	char path[4096 + 256];
	struct dirent *entry;
	int empty = 1;
	DIR *d;

	snprintf(path, sizeof path, "%s/%s", parent, name);
	d = opendir(path);
	while (d && empty && (entry = readdir(d)))
		empty = gn_source_passes_over(entry->d_name, is_folder(path, entry));
	empty &= d != NULL;
	if (d)
		closedir(d);
	return empty;
}

static enum gn_status check_empty(const char *folder, struct gn_err *err)
{
	DIR *d = opendir(folder);
	struct dirent *entry;
	char first[256] = "";

	while (d && (entry = readdir(d)))
		if (is_folder(folder, entry) && !gn_source_passes_over(entry->d_name, 1) && is_empty(folder, entry->d_name))
			keep_first(first, entry->d_name);
	if (d)
		closedir(d);
	return first[0] ? gn_err_set(err, GN_ERR_DATA, "class '%s' is empty: remove its folder, or name the classes with --classes FILE",
				     first) : GN_OK;
}

enum gn_status gn_source_check_classes(const char *path, int may_be_empty, struct gn_err *err)
{
	char folder[4096];
	struct counts here;

	snprintf(folder, sizeof folder, "%s", path);
	count_entries(folder, &here);
	if (!here.folders && here.files)
		return gn_err_set(err, GN_ERR_DATA, "%s: its %zu file%s, such as %s, lie%s in no class folder: make a folder of each "
				  "class, or give the classes with --labels FILE", path, here.files, gn_text_plural(here.files), here.first_file,
				  here.files == 1 ? "s" : "");
	if (here.folders == 1 && !here.files &&
	    (size_t)snprintf(folder, sizeof folder, "%s/%s", path, here.first) < sizeof folder)
		count_entries(folder, &here);
	/* files in the only folder: that is the class */
	return may_be_empty || !here.folders || (here.files && strcmp(folder, path)) ? GN_OK : check_empty(folder, err);
}

enum gn_status gn_source_walk(const char *path, struct gn_thread_pool *pool, const struct gn_source_sink *sink, struct gn_err *err)
{
	struct stat info;

	if (stat(path, &info))
		return gn_err_errno(err, errno, "cannot read source %s", path);
	if (S_ISDIR(info.st_mode))
		return gn_source_walk_folder(path, pool, sink, err);
	if (S_ISREG(info.st_mode))
		return gn_source_walk_tar(path, sink, err);
	return gn_err_set(err, GN_ERR_DATA, "source %s is neither a folder nor a tar archive", path);
}
