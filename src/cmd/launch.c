#include "src/cmd/cmd.h"
#include "src/cmd/launch_job.h"

#include "src/base/file.h"
#include "transport/bootstrap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct launch_options {
	int64_t ranks, grace;
	const char *bind;
};

static enum gn_status make_directory(char *path, size_t size, struct gn_err *err)
{
	const char *parent = getenv("TMPDIR");

	if ((size_t)snprintf(path, size, "%s/gannet-launch.XXXXXX", parent && *parent ? parent : "/tmp") >= size)
		return gn_err_set(err, GN_ERR_USAGE, "TMPDIR is too long");
	if (!mkdtemp(path)) {
		enum gn_status status = gn_err_errno(err, errno, "cannot make %s", path);

		path[0] = 0;
		return status;
	}
	return GN_OK;
}

/* Ranks know each other by what is in a file of the job's own: on a machine with many users PMIx's word is not enough. */
static enum gn_status make_secret(const char *directory, struct gn_err *err)
{
	char path[600];
	enum gn_status status;

	snprintf(path, sizeof path, "%s/secret", directory);
	status = gn_secret_make(path, err);
	if (!status && setenv(GN_BOOTSTRAP_SECRET, path, 1))
		status = gn_err_errno(err, errno, "cannot set " GN_BOOTSTRAP_SECRET);
	return status;
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct launch_options *o = options;
	struct gn_launch_job *j = NULL;
	char directory[512] = "";
	struct gn_err err;
	enum gn_status status = gn_launch_job_create((int)o->ranks, !strcmp(o->bind, "share"), (int)o->grace, &j, &err);
	int code = 0;

	if (!status)
		status = make_directory(directory, sizeof directory, &err);
	if (!status)
		status = make_secret(directory, &err);
	if (!status)
		status = gn_launch_job_run(j, directory, positional, &err);
	if (!status)
		code = gn_launch_job_code(j);
	gn_launch_job_destroy(j);
	if (directory[0])
		gn_remove_tree(directory, NULL);
	return status ? gn_cmd_fail("launch", &err) : code;
}

static const struct gn_option options_table[] = {
	{.name = "ranks", .letter = 'n', .kind = GN_OPTION_INT, .offset = offsetof(struct launch_options, ranks),
	 .value_name = "N", .help = "how many ranks to start", .min = 1, .max = 1024, .required = 1},
	{.name = "bind", .kind = GN_OPTION_CHOICE, .offset = offsetof(struct launch_options, bind), .value_name = "HOW",
	 .initial = "share", .help = "give each rank its share of the processors, if there are enough, or all of them",
	 .choices = "share|none"},
	{.name = "grace", .kind = GN_OPTION_INT, .offset = offsetof(struct launch_options, grace), .value_name = "S",
	 .initial = "10", .help = "seconds that ranks have to end by themselves after one has failed", .max = 3600},
};

static const struct gn_command command = {
	.name = "launch",
	.summary = "start ranks of a program on this machine",
	.positional = "PROGRAM [ARG]...",
	.description =
		"Starts N copies of PROGRAM on this machine and lets them find each other through a PMIx server of its own. "
		"Lines that ranks write pass through whole. Standard input is empty.\n\n"
		"SIGTERM, SIGINT and SIGUSR1 are passed on to all ranks. When a rank fails, the others have some seconds to "
		"end by themselves (--grace); then they are ended. All end when the launcher does.\n\n"
		"The exit code is that of the rank that failed first, 4 when it was killed by a signal, 128+S when that "
		"signal S had been passed on by the launcher, and 0 when all went well.",
	.examples = "  gannet launch -n 4 gannet bench allreduce   # four ranks, shared memory\n",
	.options = options_table,
	.option_count = sizeof options_table / sizeof *options_table,
	.positional_min = 1,
	.positional_max = SIZE_MAX,
	.keeps_rest = 1,
};

const struct gn_cmd gn_cmd_launch = {&command, run, sizeof(struct launch_options)};
