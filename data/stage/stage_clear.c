#include "data/stage/stage_clear.h"

#include "data/stage/stage_marker.h"
#include "data/stage/stage_owner.h"
#include "src/base/file.h"
#include "src/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

enum gn_status gn_stage_refuse(const char *path, struct gn_err *err)
{
	return gn_err_set(err, GN_ERR_EXISTS, "%s exists and was not staged by gannet: choose another folder, or move it away", path);
}

static enum gn_status remove_file(const char *folder, const char *name, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, folder, name, err);

	if (!status && unlink(path) && errno != ENOENT)
		status = gn_err_errno(err, errno, "cannot remove %s", path);
	return status;
}

enum gn_status gn_stage_clear_parts(const char *folder, struct gn_err *err)
{
	DIR *d = opendir(folder);
	enum gn_status status = GN_OK;
	struct dirent *entry;

	if (!d)
		return gn_err_errno(err, errno, "cannot read folder %s", folder);
	while (!status && (entry = readdir(d)))
		if (gn_text_ends_with(entry->d_name, GN_STAGE_PART_ENDING))
			status = remove_file(folder, entry->d_name, err);
	closedir(d);
	return status;
}

static int names_shard(const struct gn_manifest *m, const char *file)
{
	for (uint32_t i = 0; i < m->shard_count; i++)
		if (!strcmp(m->shards[i].file, file))
			return 1;
	return 0;
}

static enum gn_status refuse_dataset(const char *folder, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, folder, GN_MANIFEST_NAME, err);

	return status ? status : gn_stage_refuse(path, err);
}

/* A reader that comes after the claim finds no manifest, and one that came before prevents it. */
static enum gn_status replace(const char *from, const char *to, const struct gn_manifest *old, const struct gn_manifest *m, struct gn_log *log,
			      struct gn_err *err)
{
	int held = -1;
	enum gn_status status = gn_stage_claim(to, "holds another dataset that a program reads: it is not replaced; give another folder, or wait until "
					       "gannet stage --list does not say \"in use\"", &held, err);

	if (status)
		return status;
	gn_log_warn(log, "%s held another dataset (%u shards, digest %.12s), which is replaced by that of %s (%u shards, digest %.12s)", to,
		    old->shard_count, old->digest, from, m->shard_count, m->digest);
	status = remove_file(to, GN_MANIFEST_NAME, err);
	if (held >= 0)
		close(held);
	for (uint32_t i = 0; !status && i < old->shard_count; i++)
		if (!names_shard(m, old->shards[i].file))
			status = remove_file(to, old->shards[i].file, err);
	return status ? status : gn_sync_dir(to, err);
}

enum gn_status gn_stage_clear_other(const char *from, const char *to, const struct gn_manifest *m, int begun, struct gn_log *log,
				    struct gn_err *err)
{
	enum gn_status status = GN_OK;
	struct gn_manifest old;

	if (gn_manifest_load(to, &old, NULL))
		return GN_OK;
	if (strcmp(old.digest, m->digest) != 0)
		status = begun ? replace(from, to, &old, m, log, err) : refuse_dataset(to, err);
	gn_manifest_release(&old);
	return status;
}

enum gn_status gn_stage_clear_manifest(const char *to, struct gn_err *err)
{
	enum gn_status status = remove_file(to, GN_MANIFEST_NAME, err);

	return status ? status : gn_sync_dir(to, err);
}
