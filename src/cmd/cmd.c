#include "src/cmd/cmd.h"

#include "src/base/file.h"
#include "src/base/text.h"
#include "src/paths.h"
#include "transport/bootstrap/launcher_detect.h"
#include "transport/bootstrap/limits.h"
#include "transport/bootstrap/world.h"
#include "transport/select/tuning_table.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

int gn_cmd_exit_code(enum gn_status status)
{
	switch (status) {
	case GN_OK:
		return GN_EXIT_DONE;
	case GN_ERR_USAGE:
	case GN_ERR_MISMATCH:
		return GN_EXIT_USAGE;
	case GN_ERR_DATA:
		return GN_EXIT_DATA;
	case GN_ERR_NOT_FOUND:
		return GN_EXIT_DATA;
	case GN_ERR_PEER_LOST:
	case GN_ERR_STALL:
		return GN_EXIT_PEER_LOST;
	case GN_ERR_STOPPED:
		return GN_EXIT_STOPPED;
	default:
		return GN_EXIT_FAILED;
	}
}

int gn_cmd_columns(void)
{
	const char *set = getenv("COLUMNS");
	int columns = set ? atoi(set) : 0;
	struct winsize size;

	if (columns < 1 && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		columns = size.ws_col;
	return columns < 1 || columns > 1000 ? 80 : columns < 40 ? 40 : columns;
}

const char *gn_cmd_lost_folder(void)
{
	char path[PATH_MAX];

	return getcwd(path, sizeof path) || errno != ENOENT ? NULL : "the working folder of this process does not exist any more, so that "
	       "relative paths lead nowhere: cd to a folder that exists";
}

int gn_cmd_fail_on(struct gn_log *log, const char *name, const struct gn_err *err)
{
	const char *lost = gn_cmd_lost_folder(), *between = lost ? "; " : "";

	lost = lost ? lost : "";
	if (log && !err->told)
		gn_log_line(log, err->status == GN_ERR_STOPPED ? GN_LOG_WARN : GN_LOG_ERROR, "%s: %s%s%s", name, err->text, between, lost);
	else if (!err->told)
		fprintf(stderr, "gannet %s: %s%s%s\n", name, err->text, between, lost);
	return gn_cmd_exit_code(err->cause ? err->cause : err->status);
}

int gn_cmd_fail(const char *name, const struct gn_err *err)
{
	return gn_cmd_fail_on(NULL, name, err);
}

struct teller {
	struct gn_log *log;
	const char *name;
};

static void tell(void *context, const struct gn_err *why)
{
	const struct teller *t = context;

	gn_cmd_fail_on(t->log, t->name, why);
}

int gn_cmd_decline(struct gn_log *log, const char *name, struct gn_err *err)
{
	struct teller t = {log, name};
	int code;

	gn_world_decline(log, tell, &t, err);
	code = gn_cmd_fail_on(log, name, err);
	err->told = 1;
	return code;
}

const char *gn_cmd_host(char *buffer, size_t size_bytes)
{
	char name[256] = "";

	if (gethostname(name, sizeof name - 1))
		name[0] = '\0';
	return gn_text_visible(name[0] ? name : "?", buffer, size_bytes);
}

int gn_cmd_fail_here(const char *name, const struct gn_err *err)
{
	struct gn_err on_host;
	char host[256];

	gn_err_set(&on_host, err->status, "%s: %s", gn_cmd_host(host, sizeof host), err->text);
	return gn_cmd_fail(name, &on_host);
}

struct gn_log *gn_cmd_log(void)
{
	const char *wanted = getenv("GANNET_LOG");
	enum gn_log_level level = GN_LOG_INFO;
	struct gn_log *log = NULL;
	struct gn_err err;

	if (wanted && gn_log_level_parse(wanted, &level, &err))
		fprintf(stderr, "gannet: GANNET_LOG: %s\n", err.text);
	if (gn_log_create(STDERR_FILENO, level, &log, &err))
		return NULL;
	return log;
}

static const struct {
	const char *key, *variable;
} keys[] = {{"tuning", "GANNET_TUNING"},	  {"interfaces", "UCX_NET_DEVICES"},
	    {"local", "GANNET_LOCAL"},		  {"join_timeout", GN_LIMITS_JOIN},
	    {"heartbeat_timeout", GN_LIMITS_HEARTBEAT}, {"stall_timeout", GN_LIMITS_STALL},
	    {"socket_ifname", GN_WORLD_IFNAMES}};
enum { KEY_TUNING, KEY_INTERFACES, KEY_LOCAL, KEY_JOIN, KEY_HEARTBEAT, KEY_STALL, KEY_IFNAMES, KEY_COUNT };

static const char *find_file(char near[PATH_MAX], int *named)
{
	const char *given = getenv("GANNET_CONF");

	*named = given && *given;
	if (given)
		return given;
	if (!gn_path_from_program(GN_SITE_FILE_NEAR, near, PATH_MAX, NULL) && !access(near, F_OK))
		return near;
	return access(GN_SITE_FILE, F_OK) ? "/etc/gannet.conf" : GN_SITE_FILE;
}

/* Opens the file and checks what was opened. NULL when it does not exist or is not trusted. */
static FILE *open_file(const char *path, int named, struct gn_log *log)
{
	/* opening a FIFO must not block */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	FILE *file = NULL;

	if (fd < 0) {
		if (named || errno != ENOENT)
			gn_log_warn(log, "%s: %s; the site configuration is ignored", path, strerror(errno));
		return NULL;
	}
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		gn_log_warn(log, "%s is not a regular file; the site configuration is ignored", path);
	else if ((st.st_uid && st.st_uid != geteuid()) || st.st_mode & (S_IWGRP | S_IWOTH))
		gn_log_warn(log, "%s is ignored: it must belong to root or to you, and no other user may have write permission",
			    path);
	else
		file = fdopen(fd, "r");
	if (!file)
		close(fd);
	return file;
}

/* Removes white space at both ends, in place. */
static char *trim(char *text)
{
	size_t len = strlen(text);

	while (len && isspace((unsigned char)text[len - 1]))
		text[--len] = 0;
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

/* A tuning table of the user overrides the site's. A missing table is only a warning. */
static int is_table_wanted(const char *value, const char *path, int line, struct gn_log *log)
{
	char own[PATH_MAX];
	int named;

	if (!gn_tuning_table_path(NULL, own, sizeof own, &named, NULL) && *own && !access(own, R_OK))
		return 0;
	if (!access(value, R_OK))
		return 1;
	gn_log_warn(log, "%s:%d: tuning table %s: %s; it is ignored", path, line, value, strerror(errno));
	return 0;
}

/* first_lines: the line of each key's first occurrence, 0 before it. Returns 1 when the value is to be used. */
static int check_value(size_t key, const char *value, int *first_lines, const char *path, int line, struct gn_log *log)
{
	int first = first_lines[key], is_limit = key == KEY_JOIN || key == KEY_HEARTBEAT || key == KEY_STALL;
	const char *name = keys[key].key;
	struct gn_err err;
	double s;

	if (first)
		gn_log_warn(log, "%s:%d: %s is already set in line %d; this line is ignored", path, line, name, first);
	else if (value[strcspn(value, "\"'")])
		gn_log_warn(log, "%s:%d: %s: the value contains quotes, which are not removed; it is ignored", path, line, name);
	else if (value[strcspn(value, " \t")])
		gn_log_warn(log, "%s:%d: %s: the value contains spaces; it is ignored", path, line, name);
	else if (key == KEY_LOCAL && *value != '/')
		gn_log_warn(log, "%s:%d: local: the path must start with /; it is ignored", path, line);
	else if (is_limit && gn_limits_parse(value, &s, &err))
		gn_log_warn(log, "%s:%d: %s: %s; it is ignored", path, line, name, err.text);
	else
		return first_lines[key] = line;
	return 0;
}

static void apply_line(char *text, int without_tuning, int *first_lines, const char *path, int line, struct gn_log *log)
{
	char *key, *value, shown[64], all[160];
	size_t len = 0;

	text[strcspn(text, "#")] = 0;
	key = trim(text);
	if (!*key)
		return;
	value = strchr(key, '=');
	if (value)
		*value++ = 0;
	key = trim(key);
	value = value ? trim(value) : NULL;
	if (!value || !*value) {
		gn_log_warn(log, "%s:%d: not KEY = VALUE", path, line);
		return;
	}
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		if (strcmp(key, keys[i].key))
			continue;
		if (check_value(i, value, first_lines, path, line, log) && !getenv(keys[i].variable) &&
		    (i != KEY_TUNING || (!without_tuning && is_table_wanted(value, path, line, log))))
			setenv(keys[i].variable, value, 0);
		return;
	}
	for (size_t i = 0; i < sizeof keys / sizeof *keys && len < sizeof all; i++)
		len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", i ? ", " : "", keys[i].key);
	gn_log_warn(log, "%s:%d: unknown key '%s' (known: %s)", path, line, gn_text_visible(key, shown, sizeof shown), all);
}

/* Only one rank reports problems of the file. */
static int is_first_rank(void)
{
	static const char *const variables[] = {"PMIX_RANK", "SLURM_PROCID", "RANK", "OMPI_COMM_WORLD_RANK"};

	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
		const char *rank = getenv(variables[i]);

		if (rank && *rank)
			return !strcmp(rank, "0");
	}
	return 1;
}

void gn_site_apply(struct gn_log *log, int without_tuning, char *path, size_t path_size)
{
	int named, line = 0, first_lines[KEY_COUNT] = {0};
	char near[PATH_MAX];
	const char *name = find_file(near, &named);
	struct gn_log *told = is_first_rank() ? log : NULL;
	FILE *file = *name ? open_file(name, named, told) : NULL;
	char *text = NULL;
	size_t room = 0;

	snprintf(path, path_size, "%s", file ? name : "");
	if (!file)
		return;
	while (getline(&text, &room, file) >= 0) {
		/* skip a UTF-8 byte order mark */
		int skip = !line && !strncmp(text, "\xEF\xBB\xBF", 3) ? 3 : 0;

		apply_line(text + skip, without_tuning, first_lines, name, ++line, told);
	}
	if (ferror(file))
		gn_log_warn(told, "%s: %s", name, strerror(errno));
	free(text);
	fclose(file);
}
