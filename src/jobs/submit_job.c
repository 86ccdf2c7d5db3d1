#include "src/jobs/submit_job.h"

#include "src/base/file.h"
#include "src/base/trust.h"
#include "src/jobs/program.h"
#include "src/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- places --- */

/* train.sbatch: where GANNET_JOBS says, where it was installed, or in the tree that this program was built in. */
static enum gn_status find_policy(char *out, size_t size, struct gn_err *err)
{
	char near[PATH_MAX] = "", tree[PATH_MAX] = "";
	const char *named = getenv("GANNET_JOBS"), *const folders[] = {named ? named : "", near, GN_JOBS_DIR, tree};

	gn_path_from_program(GN_JOBS_DIR_NEAR, near, sizeof near, NULL);
	gn_path_from_program("../slurm/jobs", tree, sizeof tree, NULL);
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
		if (*folders[i] && !gn_path_join(out, size, folders[i], "train.sbatch", NULL) && !access(out, R_OK))
			return GN_OK;
	return gn_err_set(err, GN_ERR_UNSUPPORTED, "train.sbatch is in none of %s, %s and %s: GANNET_JOBS names its folder", near, GN_JOBS_DIR, tree);
}

enum gn_status gn_submit_absolute(const char *path, char *out, size_t size, struct gn_err *err)
{
	char here[PATH_MAX] = "";

	if (*path != '/' && !getcwd(here, sizeof here))
		return gn_err_errno(err, errno, "where is this?");
	if ((size_t)snprintf(out, size, "%s%s%s", here, *here ? "/" : "", path) >= size)
		return gn_err_set(err, GN_ERR_USAGE, "%s is too long a path", path);
	return GN_OK;
}

/* --- the job's folder --- */

#define MARK ".gannet-submit"

/* Symbolic links stay links; a relative one that leaves the folder becomes absolute. Version control's folders and those of other
 * jobs are left out. The digests of the copy's files are written beside it. */
static enum gn_status take_snapshot(const char *from, const char *directory, struct gn_err *err)
{
	const char *const copy[] = {"bash", "-c", "set -o pipefail; mkdir \"$1/snapshot\" && tar -C \"$0\" --exclude-vcs "
				    "--exclude-tag-all=" MARK " -cf - . | tar -xf - -C \"$1/snapshot\" && from=$(realpath -- \"$0\") && "
				    "cd \"$1/snapshot\" && find . -type l -print0 | while IFS= read -r -d '' l; do t=$(readlink -- \"$l\"); "
				    "[[ $t == /* ]] && continue; to=$(realpath -ms -- \"$from/${l%/*}/$t\"); [[ $to == \"$from\" || $to == \"$from\"/* ]] || "
				    "ln -sfn -- \"$to\" \"$l\" || exit; done && find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum >../snapshot.sha256",
				    from, directory, NULL};
	struct stat st;

	if (stat(from, &st) || !S_ISDIR(st.st_mode))
		return gn_err_set(err, GN_ERR_USAGE, "--snapshot %s is no folder", from);
	return gn_program_run(copy, 0, NULL, err);
}

static enum gn_status copy_policy(const char *from, const char *directory, struct gn_err *err)
{
	char to[PATH_MAX];
	char *text = NULL;
	size_t len;
	enum gn_status status = gn_file_load(from, 1 << 20, &text, &len, err);

	if (!status)
		status = gn_path_join(to, sizeof to, directory, "train.sbatch", err);
	if (!status)
		status = gn_file_replace(to, text, len, err);
	free(text);
	return status;
}

/* What sbatch --parsable prints: "ID" or "ID;CLUSTER". A wrapper's own text is no number of a job; the job may be there nevertheless. */
static enum gn_status parse_id(const char *said, char id[64], struct gn_err *err)
{
	size_t len = strspn(said, "0123456789"), all = strcspn(said, "\n");

	if (!len || len >= 64 || *said == '0' || (said[len] != ';' && len != all) || (said[len] == ';' && len + 1 == all) ||
	    said[all + (said[all] == '\n')])
		return gn_err_set(err, GN_ERR_FAILED, "sbatch --parsable printed no job number, but '%.100s': is it a wrapper? A job may have been "
				  "queued: see squeue", said);
	snprintf(id, 64, "%.*s", (int)len, said);
	return GN_OK;
}

/* *queued: sbatch has succeeded, whatever it printed. */
static enum gn_status run_sbatch(const char *const *argv, int *queued, char id[64], struct gn_err *err)
{
	struct gn_strbuf said = {0};
	enum gn_status status = gn_program_run(argv, 0, &said, err);

	*queued = !status;
	if (status)
		gn_err_set(err, status, "sbatch did not take the job, see above; it needs Slurm, which gannet launch does without");
	if (!status)
		status = parse_id(gn_strbuf_text(&said), id, err);
	gn_strbuf_release(&said);
	return status;
}

static enum gn_status put_file(const char *directory, const char *name, const char *text, size_t len, struct gn_err *err)
{
	char path[PATH_MAX];
	enum gn_status status = gn_path_join(path, sizeof path, directory, name, err);

	return status ? status : gn_file_replace(path, text, len, err);
}

enum gn_status gn_submit_job(const struct gn_submit *s, const char *snapshot, const struct gn_submit_file *files, size_t file_count,
			     char id[64], struct gn_err *err)
{
	char path[PATH_MAX], policy[2 * PATH_MAX];
	const char *const sbatch[] = {"sbatch", "--parsable", path, NULL}, *const clear[] = {"rm", "-rf", "--", s->directory, NULL};
	struct gn_strbuf script = {0};
	int is_own = 0, queued = 0;
	enum gn_status status = find_policy(policy, sizeof policy, err);

	if (!status)
		status = gn_submit_script(s, &script, err);
	if (!status)
		status = gn_trust_check_links(s->directory, err);
	if (!status && mkdir(s->directory, 0777) && errno == EEXIST)
		status = gn_err_set(err, GN_ERR_EXISTS, "%s is there already: a job's folder is its own, --dir names another", s->directory);
	is_own = !status;
	if (!status)
		status = gn_make_dirs(s->directory, err);
	if (!status)
		status = put_file(s->directory, MARK, "", 0, err);
	if (!status && snapshot)
		status = take_snapshot(snapshot, s->directory, err);
	if (!status)
		status = copy_policy(policy, s->directory, err);
	for (size_t i = 0; !status && i < file_count; i++)
		status = put_file(s->directory, files[i].name, files[i].text, strlen(files[i].text), err);
	if (!status)
		status = put_file(s->directory, "job.sbatch", gn_strbuf_text(&script), script.len, err);
	if (!status)
		status = gn_path_join(path, sizeof path, s->directory, "job.sbatch", err);
	if (!status)
		status = run_sbatch(sbatch, &queued, id, err);
	/* the same call may be made again */
	if (status && is_own && !queued)
		gn_program_run(clear, 0, NULL, NULL);
	gn_strbuf_release(&script);
	return status;
}

enum gn_status gn_submit_again(const char *directory, const char *array, char id[64], struct gn_err *err)
{
	char path[PATH_MAX], option[4096];
	int queued;
	const char *const sbatch[] = {"sbatch", "--parsable", option, path, NULL};
	enum gn_status status = gn_path_join(path, sizeof path, directory, "job.sbatch", err);

	if (!status && (size_t)snprintf(option, sizeof option, "--array=%s", array) >= sizeof option)
		status = gn_err_set(err, GN_ERR_USAGE, "too many tasks at once: %.60s...", array);
	return status ? status : run_sbatch(sbatch, &queued, id, err);
}
