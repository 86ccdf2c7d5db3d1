/* What the subcommands of gannet share: the row of the command table, exit codes, and error output.
 *
 * Only this layer prints, chooses exit codes and handles signals. A subcommand is one file with one `const struct gn_cmd`, listed
 * in GN_CMDS.
 */
#ifndef GN_CMD_CMD_H
#define GN_CMD_CMD_H

#include "src/base/log.h"
#include "src/base/option.h"
#include "src/base/status.h"
#include "src/base/text.h"

#include <stddef.h>

/* a contract with scripts */
enum gn_exit { GN_EXIT_DONE, GN_EXIT_FAILED, GN_EXIT_USAGE, GN_EXIT_DATA, GN_EXIT_PEER_LOST, GN_EXIT_STOPPED, GN_EXIT_CHECK };

struct gn_cmd {
	const struct gn_command *command; /* bench has several modes but one row here */
	/* options: the parsed struct of options_size bytes. Returns an enum gn_exit. */
	int (*run)(const void *options, const struct gn_text_list *positional);
	size_t options_size;
	int joins; /* it runs as the ranks of one job, which end when one of them cannot begin */
	/* What run() would refuse before it meets other ranks, of which there will be so many. NULL: nothing but what parsing refuses. */
	enum gn_status (*check)(const void *options, int64_t ranks, struct gn_err *err);
};

/* X(name), in the order of the overview. */
#define GN_CMDS(X) \
	X(bench) X(eval) X(exec) X(export) X(info) X(launch) X(pack) X(predict) X(preflight) X(preview) X(report) X(selftest) X(sim) \
	X(stage) X(submit) X(summary) X(sweep) X(top) X(train) X(tune) X(verify)

#define X(name) extern const struct gn_cmd gn_cmd_##name;
GN_CMDS(X)
#undef X

extern const struct gn_cmd *const gn_cmd_table[];
extern const size_t gn_cmd_count;
/* NULL: there is none of that name. */
const struct gn_cmd *gn_cmd_find(const char *name);

/* the exit code for a status */
int gn_cmd_exit_code(enum gn_status status);
/* "the working folder of this process does not exist any more, ..."; NULL: it does. */
const char *gn_cmd_lost_folder(void);
/* Prints "gannet NAME: text" on standard error, unless another rank tells, and returns the exit code, that of the cause. Of a process whose
 * working folder is gone it says so. */
int gn_cmd_fail(const char *name, const struct gn_err *err);
/* The same as a line of log; NULL: as above. */
int gn_cmd_fail_on(struct gn_log *log, const char *name, const struct gn_err *err);
/* The same before the process has tried to meet the other ranks of its job, which end with it: gn_world_decline(). Sets err->told. */
int gn_cmd_decline(struct gn_log *log, const char *name, struct gn_err *err);
/* The same with the name of this host before the text: of a command that is started on many. */
int gn_cmd_fail_here(const char *name, const struct gn_err *err);
/* Writes this host's name, fit to be shown, to buffer, and returns that; "?" when it has none. */
const char *gn_cmd_host(char *buffer, size_t size_bytes);
struct gn_json;
/* Ends the outermost object, if it is open, prints it as a line on standard output, and releases j. Returns GN_EXIT_FAILED without a line
 * when memory ran out, else GN_EXIT_DONE. */
int gn_cmd_print_json(struct gn_json *j);
/* Columns of printed text, at least 40: COLUMNS of the environment, else the width of the terminal on standard output, else 80. */
int gn_cmd_columns(void);
/* Creates a log on standard error at the level of GANNET_LOG (default info); NULL when out of memory. */
struct gn_log *gn_cmd_log(void);

/* Site configuration: one file for all users of a machine; a user's own settings override it.
 *
 * The file is $GANNET_CONF (empty: none), else gannet.conf as configure's sysconfdir lies from this program, else in configure's
 * sysconfdir, else /etc/gannet.conf. Lines are KEY = VALUE; # starts a comment. Keys: tuning (a table of gannet tune, for users without one), interfaces (as UCX_NET_DEVICES), local (as
 * GANNET_LOCAL), join_timeout, heartbeat_timeout, stall_timeout (transport/bootstrap/limits.h), socket_ifname
 * (transport/bootstrap/world.h). Each key sets the corresponding environment variable unless it is set. A file that anyone but root
 * or this user can write is ignored. src/man/site.md is for administrators.
 *
 * without_tuning: for commands that write a tuning table, which is the user's. path: the file in use, "" when there is none.
 * Problems are warnings in log with file and line; log may be NULL. Sets environment variables: call once, before other threads
 * start. */
void gn_site_apply(struct gn_log *log, int without_tuning, char *path, size_t path_size);

#endif
