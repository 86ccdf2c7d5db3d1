/* Parts of checkpoints on the nodes' disks: BASE/ID/step-N-node-M has the files that ranks of node M wrote, and the manifest of all. */
#include "src/train/checkpoint/checkpoint_internal.h"

#include "src/base/file.h"
#include "src/base/sha256.h"
#include "src/train/checkpoint/checkpoint_writer.h"
#include "src/train/checkpoint/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANIFEST_MAX = 256 << 20, COPY_BYTES = 4 << 20 };

/* --- names --- */

enum gn_status gn_checkpoint_local_paths(const char *local, const char *nonce, uint64_t step, int node, struct gn_checkpoint_paths *p,
					 struct gn_err *err)
{
	snprintf(p->leaf, sizeof p->leaf, "step-%08llu-node-%05d", (unsigned long long)step, node);
	if ((size_t)snprintf(p->temporary, PATH_MAX, "%s/%s.%s.tmp", local, p->leaf, nonce) >= PATH_MAX)
		return gn_err_set(err, GN_ERR_USAGE, "path too long: %s", local);
	return gn_path_join(p->folder, sizeof p->folder, local, p->leaf, err);
}

/* The step of a part; 0: another name. */
static uint64_t step_of_part(const char *name)
{
	unsigned long long step;
	unsigned node;
	char tail;

	return sscanf(name, "step-%llu-node-%u%c", &step, &node, &tail) == 2 ? step : 0;
}

/* Of a checkpoint in the shared folder; 0: another name. */
static uint64_t step_of_checkpoint(const char *name)
{
	unsigned long long step;
	char tail;

	return sscanf(name, "step-%llu%c", &step, &tail) == 1 ? step : 0;
}

/* The largest step of a name in folder above `above` and below `below`; 0: none. */
static uint64_t newest(const char *folder, uint64_t (*step_of)(const char *name), uint64_t above, uint64_t below)
{
	DIR *d = opendir(folder);
	uint64_t most = 0;

	for (struct dirent *e; d && (e = readdir(d));) {
		uint64_t step = step_of(e->d_name);

		if (step > above && step < below && step > most)
			most = step;
	}
	if (d)
		closedir(d);
	return most;
}

/* --- writing --- */

static int is_temporary_of_others(const char *name, const char *nonce)
{
	size_t len = strlen(name);
	char mine[64];

	snprintf(mine, sizeof mine, ".%s.tmp", nonce);
	return !strncmp(name, "step-", 5) && len > 4 && !strcmp(name + len - 4, ".tmp") &&
	       (len < strlen(mine) || strcmp(name + len - strlen(mine), mine) != 0);
}

/* What is left of killed runs, and parts other than of this step and of the newest one before it. A part is renamed first, so that what
 * remains of it has no name of a part. Another rank may remove the same. */
static void prune(const char *local, const char *nonce, uint64_t step)
{
	uint64_t before = newest(local, step_of_part, 0, step);
	DIR *d = opendir(local);
	char path[PATH_MAX], aside[PATH_MAX + 32];

	for (struct dirent *e; d && (e = readdir(d));) {
		uint64_t of = step_of_part(e->d_name);

		if (gn_path_join(path, sizeof path, local, e->d_name, NULL) ||
		    !(is_temporary_of_others(e->d_name, nonce) || (of && of != step && of != before)))
			continue;
		snprintf(aside, sizeof aside, "%s.old.%s.tmp", path, nonce);
		gn_remove_tree(of && !rename(path, aside) ? aside : path, NULL);
	}
	if (d)
		closedir(d);
}

enum gn_status gn_checkpoint_local_commit(const char *local, const char *nonce, const struct gn_checkpoint_paths *p, uint64_t step,
					  const struct gn_checkpoint_info *info, const struct gn_checkpoint_file *all, size_t count,
					  struct gn_err *err)
{
	char aside[PATH_MAX + 32];
	enum gn_status status = gn_checkpoint_write_manifest_of(p->temporary, info, all, count, err);

	if (!status)
		status = gn_sync_dir(p->temporary, err);
	snprintf(aside, sizeof aside, "%s.old.%s.tmp", p->folder, nonce);
	/* a part of the same step, from which the run has not gone on */
	if (!status && !rename(p->folder, aside))
		gn_remove_tree(aside, NULL);
	if (!status && rename(p->temporary, p->folder))
		status = gn_err_errno(err, errno, "cannot rename %s to %s", p->temporary, p->folder);
	if (!status)
		status = gn_sync_dir(local, err);
	if (status)
		gn_remove_tree(p->temporary, NULL);
	else
		prune(local, nonce, step);
	return status;
}

/* --- the start of a run --- */

/* On rank 0. What a run that goes on finds in local-id; else the nonce of this start. */
static enum gn_status choose_id(const struct gn_checkpoint_target *t, int goes_on, char id[GN_OWNER_NONCE], struct gn_err *err)
{
	char path[PATH_MAX], *text = NULL;
	size_t len = 0;
	enum gn_status status = gn_path_join(path, sizeof path, t->directory, "local-id", err);

	memcpy(id, t->nonce, GN_OWNER_NONCE);
	if (status)
		return status;
	if (goes_on && !gn_file_load(path, 64, &text, &len, NULL) && len >= GN_OWNER_NONCE - 1 &&
	    strspn(text, "0123456789abcdef") == GN_OWNER_NONCE - 1)
		memcpy(id, text, GN_OWNER_NONCE - 1);
	else
		status = gn_file_replace(path, id, GN_OWNER_NONCE - 1, err);
	free(text);
	return status;
}

static enum gn_status try_folder(const char *local, int rank, struct gn_err *err)
{
	char path[PATH_MAX], name[32];
	enum gn_status status = gn_make_dirs(local, err);

	snprintf(name, sizeof name, "try-%05d", rank);
	if (!status)
		status = gn_path_join(path, sizeof path, local, name, err);
	if (!status)
		status = gn_file_replace(path, "try\n", 4, err);
	if (!status)
		unlink(path);
	return status;
}

enum gn_status gn_checkpoint_local_begin(struct gn_comm *comm, const struct gn_checkpoint_target *target, const char *base, int goes_on,
					 char local[PATH_MAX], struct gn_err *err)
{
	char id[GN_OWNER_NONCE];
	int rank = gn_comm_rank(comm);
	enum gn_status status = gn_agree_status(comm, rank ? GN_OK : choose_id(target, goes_on, id, err), err);

	if (!status)
		status = gn_comm_broadcast(comm, id, sizeof id, 0, err);
	if (status)
		return status;
	status = gn_path_join(local, PATH_MAX, base, id, err);
	return gn_agree_status(comm, status ? status : try_folder(local, rank, err), err);
}

/* --- what a killed run left --- */

/* A checkpoint on the nodes' disks that may be complete. */
struct found {
	uint64_t step;
	int source;		/* the lowest rank whose node has a part of it */
	struct gn_checkpoint_paths to; /* in the shared folder */
	struct gn_checkpoint_file *files;
	size_t count;
	struct gn_checkpoint_info info;
};

/* The place of a file in the parts of a step on this node; GN_ERR_NOT_FOUND. */
static enum gn_status find_file(const char *local, uint64_t step, const struct gn_checkpoint_file *file, char path[PATH_MAX])
{
	DIR *d = opendir(local);
	enum gn_status status = GN_ERR_NOT_FOUND;
	char part[PATH_MAX];
	struct stat info;

	for (struct dirent *e; d && status && (e = readdir(d));)
		if (step_of_part(e->d_name) == step && !gn_path_join(part, sizeof part, local, e->d_name, NULL) &&
		    !gn_path_join(path, PATH_MAX, part, file->name, NULL) && !stat(path, &info) && S_ISREG(info.st_mode) &&
		    (uint64_t)info.st_size == file->len_bytes)
			status = GN_OK;
	if (d)
		closedir(d);
	return status;
}

/* Reads and writes, and compares the digest with the manifest's. */
static enum gn_status copy_bytes(int in, int out, const struct gn_checkpoint_file *file, const char *from, const char *to, struct gn_err *err)
{
	char *buffer = malloc(COPY_BYTES), hex[GN_SHA256_HEX];
	struct gn_sha256 *sha = NULL;
	enum gn_status status = buffer ? gn_sha256_create(&sha, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to copy %s", from);
	ssize_t n = 1;

	while (!status && n > 0) {
		n = gn_read_some(in, buffer, COPY_BYTES);
		if (n < 0)
			status = gn_err_errno(err, errno, "cannot read %s", from);
		if (n <= 0)
			break;
		gn_sha256_update(sha, buffer, (size_t)n);
		status = gn_write_full(out, buffer, (size_t)n, to, err);
	}
	if (!status && fsync(out))
		status = gn_err_errno(err, errno, "cannot sync %s", to);
	if (!status) {
		gn_sha256_finish(sha, hex);
		if (strcmp(hex, file->sha256))
			status = gn_err_set(err, GN_ERR_DATA, "%s was changed: its SHA-256 is not the manifest's", from);
	}
	gn_sha256_destroy(sha);
	free(buffer);
	return status;
}

static enum gn_status copy_file(const char *local, const struct found *f, const struct gn_checkpoint_file *file, struct gn_err *err)
{
	char from[PATH_MAX], to[PATH_MAX];
	int in = -1, out = -1;
	enum gn_status status = gn_path_join(to, sizeof to, f->to.temporary, file->name, err);

	if (!status && find_file(local, f->step, file, from))
		status = gn_err_set(err, GN_ERR_IO, "%s is no longer in %s", file->name, local);
	if (!status && (in = open(from, O_RDONLY | O_CLOEXEC)) < 0)
		status = gn_err_errno(err, errno, "cannot open %s", from);
	if (!status && (out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666)) < 0)
		status = gn_err_errno(err, errno, "cannot create %s", to);
	if (!status)
		status = copy_bytes(in, out, file, from, to, err);
	if (in >= 0)
		close(in);
	if (out >= 0 && close(out) && !status)
		status = gn_err_errno(err, errno, "cannot close %s", to);
	return status;
}

/* On the source: the part's manifest into the temporary folder, which rank 0 has made. */
static enum gn_status copy_manifest(const char *local, const struct found *f, struct gn_err *err)
{
	char from[PATH_MAX], to[PATH_MAX], *text;
	DIR *d = opendir(local);
	size_t len;
	enum gn_status status = GN_ERR_NOT_FOUND;

	for (struct dirent *e; d && status && (e = readdir(d));)
		if (step_of_part(e->d_name) == f->step && (size_t)snprintf(from, sizeof from, "%s/%s/manifest.json", local, e->d_name) < sizeof from)
			status = gn_file_load(from, MANIFEST_MAX, &text, &len, err);
	if (d)
		closedir(d);
	if (status)
		return gn_err_set(err, GN_ERR_IO, "cannot read the manifest of step %" PRIu64 " in %s", f->step, local);
	status = gn_path_join(to, sizeof to, f->to.temporary, "manifest.json", err);
	if (!status)
		status = gn_file_replace(to, text, len, err);
	free(text);
	return status;
}

/* Collective. owners[i]: the lowest rank whose node has file i; missing[i]... all ranks have the same list. */
static enum gn_status find_owners(struct gn_comm *comm, const char *local, const struct found *f, int *owners, struct gn_err *err)
{
	int ranks = gn_comm_size(comm), leads = gn_checkpoint_writes_slots(comm);
	unsigned char *has = calloc(f->count, 1), *all = calloc(f->count, (size_t)ranks);
	char path[PATH_MAX];
	enum gn_status status = has && all ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a list of %zu files", f->count);

	for (size_t i = 0; leads && !status && i < f->count; i++)
		has[i] = !find_file(local, f->step, &f->files[i], path);
	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_agree_gather(comm, has, f->count, all, err);
	for (size_t i = 0; !status && i < f->count; i++) {
		owners[i] = 0;
		while (owners[i] < ranks && !all[(size_t)owners[i] * f->count + i])
			owners[i]++;
		if (owners[i] == ranks)
			status = gn_err_set(err, GN_ERR_DATA, "no node has %s", f->files[i].name);
	}
	free(has);
	free(all);
	return status;
}

/* Collective. Each file from a node that has it; failures are agreed on. */
static enum gn_status copy_files(struct gn_comm *comm, const char *local, const struct found *f, struct gn_err *err)
{
	int *owners = calloc(f->count, sizeof *owners);
	enum gn_status status = owners ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for a list of %zu files", f->count);

	status = gn_agree_status(comm, status, err);
	if (!status)
		status = find_owners(comm, local, f, owners, err);
	if (!status) {
		for (size_t i = 0; i < f->count && !status; i++)
			if (owners[i] == gn_comm_rank(comm))
				status = copy_file(local, f, &f->files[i], err);
		status = gn_agree_status(comm, status, err);
	}
	free(owners);
	return status;
}

/* Collective. */
static enum gn_status recover(struct gn_comm *comm, const struct gn_checkpoint_target *t, const char *local, struct found *f, struct gn_err *err)
{
	int rank = gn_comm_rank(comm);
	enum gn_status status = gn_checkpoint_name_paths(t, f->step, &f->to, err);

	if (!status && !rank)
		status = gn_checkpoint_prepare(t, &f->to, err);
	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_agree_status(comm, rank == f->source ? copy_manifest(local, f, err) : GN_OK, err);
	if (!status)
		status = gn_agree_status(comm, gn_checkpoint_manifest_read(f->to.temporary, &f->info, &f->files, &f->count, err), err);
	if (!status)
		status = copy_files(comm, local, f, err);
	if (!status)
		status = gn_agree_status(comm, rank ? GN_OK : gn_checkpoint_place(t, &f->to, f->info.number, err), err);
	if (status && !rank)
		gn_remove_tree(f->to.temporary, NULL);
	free(f->files);
	f->files = NULL;
	return status;
}

/* Collective. The newest step above and below these of which some node has a part; 0: none. */
static enum gn_status look(struct gn_comm *comm, const char *local, uint64_t above, uint64_t below, struct found *f, struct gn_err *err)
{
	int ranks = gn_comm_size(comm);
	uint64_t mine = newest(local, step_of_part, above, below), *all = calloc((size_t)ranks, sizeof *all);
	enum gn_status status = all ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for steps of %d ranks", ranks);

	status = gn_agree_status(comm, status, err);
	if (!status)
		status = gn_agree_gather(comm, &mine, sizeof mine, all, err);
	f->step = 0;
	for (int r = 0; r < ranks && !status; r++)
		if (all[r] > f->step) {
			f->step = all[r];
			f->source = r;
		}
	free(all);
	return status;
}

enum gn_status gn_checkpoint_local_recover(struct gn_comm *comm, const struct gn_checkpoint_target *target, const char *local,
					   struct gn_err *err)
{
	uint64_t above = gn_comm_rank(comm) ? 0 : newest(target->directory, step_of_checkpoint, 0, UINT64_MAX), below = UINT64_MAX;
	int root = gn_comm_rank(comm) == 0;
	struct found f = {.step = 0};
	enum gn_status status = gn_comm_broadcast(comm, &above, sizeof above, 0, err);

	while (!status) {
		status = look(comm, local, above, below, &f, err);
		if (status || !f.step)
			return status;
		status = recover(comm, target, local, &f, err);
		if (!status) {
			if (root)
				gn_log_info(target->log, "the checkpoint of step %" PRIu64 " was complete on the nodes' disks only: copied to %s",
					    f.step, target->directory);
			return GN_OK;
		}
		if (gn_agree_is_over(comm, status) || status == GN_ERR_EXISTS || status == GN_ERR_FAILED)
			return status;
		if (root)
			gn_log_warn(target->log, "the checkpoint of step %" PRIu64 " on the nodes' disks is not used, the one before it is: %s",
				    f.step, err->text);
		below = f.step;
		status = GN_OK;
	}
	return status;
}
