#include "data/shard/folders.h"

#include "src/base/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The colon before the next folder; NULL: this is the last. */
static const char *find_colon(const char *list)
{
	while ((list = strchr(list, ':')) && list[1] != '/' && list[1] != '.')
		list++;
	return list;
}

int gn_folders_count(const char *list)
{
	int count = 1;

	for (const char *at = list; (at = find_colon(at)); at++)
		count++;
	return count > 1 && !access(list, F_OK) ? 1 : count;
}

enum gn_status gn_folders_get(const char *list, int i, char out[PATH_MAX], struct gn_err *err)
{
	int count = gn_folders_count(list);
	const char *end = count > 1 ? find_colon(list) : NULL;

	if (count > GN_FOLDERS_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "%s: more than %d folders", list, GN_FOLDERS_MAX);
	for (; i > 0 && end; i--) {
		list = end + 1;
		end = find_colon(list);
	}
	if (snprintf(out, PATH_MAX, "%.*s", (int)(end ? (size_t)(end - list) : strlen(list)), list) >= PATH_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", list);
	return GN_OK;
}

enum gn_status gn_folders_find(const char *list, const char *name, char out[PATH_MAX], struct gn_err *err)
{
	char folder[PATH_MAX], path[PATH_MAX], first[PATH_MAX];
	enum gn_status status = GN_OK;

	for (int i = 0, count = gn_folders_count(list); i < count; i++) {
		status = gn_folders_get(list, i, folder, err);
		if (!status)
			status = gn_path_join(path, sizeof path, folder, name, err);
		if (status)
			return status;
		if (!i)
			memcpy(first, path, sizeof first);
		if (!access(path, F_OK))
			break;
		memcpy(path, first, sizeof path);
	}
	memcpy(out, path, PATH_MAX);
	return GN_OK;
}
