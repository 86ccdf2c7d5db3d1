#include "src/base/version.h"
#include "src/cmd/cmd.h"
#include "transport/bootstrap/library_versions.h"
#include "transport/bootstrap/limits.h"
#include "transport/select/tuning_table.h"
#include "transport/bootstrap/world.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define X(name) &gn_cmd_##name,
const struct gn_cmd *const gn_cmd_table[] = {GN_CMDS(X) NULL};
#undef X
const size_t gn_cmd_count = sizeof gn_cmd_table / sizeof *gn_cmd_table - 1;

const struct gn_cmd *gn_cmd_find(const char *name)
{
	for (size_t i = 0; i < gn_cmd_count; i++)
		if (!strcmp(gn_cmd_table[i]->command->name, name))
			return gn_cmd_table[i];
	return NULL;
}

static void overview(FILE *out)
{
	const int columns = gn_cmd_columns();
	struct gn_strbuf text = {0};

	gn_options_wrap(&text, "Usage: gannet COMMAND [OPTION]... [ARGUMENT]...\n\nTrains image classifiers across a Slurm cluster.\n\nCommands:\n",
			columns, 0, 0);
	for (size_t i = 0; i < gn_cmd_count; i++) {
		gn_strbuf_printf(&text, "  %-10s ", gn_cmd_table[i]->command->name);
		gn_options_wrap(&text, gn_cmd_table[i]->command->summary, columns, 13, 13);
		gn_strbuf_puts(&text, "\n");
	}
	gn_options_wrap(&text, "\n'gannet COMMAND --help' describes one command; 'gannet --version' prints the version.\n"
			"Exit codes: 0 done; 1 failed; 2 wrong usage; 3 bad input data; 4 a peer was lost; 5 stopped on request, resumable; "
			"6 a node or fabric failed its check.\n"
			"GANNET_LOG=error|warn|info|debug sets the log level on standard error, GANNET_SOCKET_IFNAME the interfaces of the "
			"exchange at start and of heartbeats (eth: names with that prefix; =eth0: that one; ^docker: all others).\n",
			columns, 0, 0);
	fputs(gn_strbuf_text(&text), out);
	gn_strbuf_release(&text);
}

/* A full disk or a closed pipe must not look like success. */
static int finish_stdout(int code)
{
	if (fflush(stdout) || ferror(stdout)) {
		fputs("gannet: cannot write standard output\n", stderr);
		return code == GN_EXIT_DONE ? GN_EXIT_FAILED : code;
	}
	return code;
}

static int print_text(struct gn_strbuf *text)
{
	fputs(gn_strbuf_text(text), stdout);
	gn_strbuf_release(text);
	return finish_stdout(GN_EXIT_DONE);
}

/* For the build: gannet --man COMMAND, gannet --completion. */
static int print_man(const char *name)
{
	const struct gn_cmd *cmd = name ? gn_cmd_find(name) : NULL;
	struct gn_strbuf text;

	if (!cmd) {
		fputs("gannet: --man needs the name of a command\n", stderr);
		return GN_EXIT_USAGE;
	}
	gn_strbuf_init(&text);
	gn_options_man(cmd->command, "gannet", &text);
	return print_text(&text);
}

static int print_completion(void)
{
	const struct gn_command *commands[32];
	size_t count = 0;
	struct gn_strbuf text;

	for (; count < gn_cmd_count && count < 32; count++)
		commands[count] = gn_cmd_table[count]->command;
	gn_strbuf_init(&text);
	gn_options_completion(commands, count, "gannet", &text);
	return print_text(&text);
}

static int print_help(const struct gn_command *command)
{
	struct gn_strbuf text;

	gn_strbuf_init(&text);
	gn_options_help(command, "gannet", gn_cmd_columns(), &text);
	return print_text(&text);
}

/* Without a setting each run computes its own timeouts. */
static void print_timeouts(void)
{
	static const char *const limits[][2] = {{"join", GN_LIMITS_JOIN}, {"heartbeat", GN_LIMITS_HEARTBEAT}, {"stall",
		GN_LIMITS_STALL}};
	const char *before = "timeouts       ";

	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		const char *value = getenv(limits[i][1]);
		char text[32];

		if (!value || !*value)
			continue;
		printf("%s%s %s s", before, limits[i][0], gn_text_visible(value, text, sizeof text));
		before = ", ";
	}
	if (*before == ',')
		putchar('\n');
}

/* The first line is for scripts. The rest describes build and machine, for problem reports. */
static int print_version(void)
{
	char site[PATH_MAX], tuning[PATH_MAX], job[64], host[256] = "";
	const char *hosts = getenv("SLURM_JOB_NODELIST"), *local, *interfaces, *control;
	int named;
	struct gn_log *log = gn_cmd_log();
	struct gn_strbuf pmix;

	gn_site_apply(log, 0, site, sizeof site);
	gn_log_destroy(log);
	local = getenv("GANNET_LOCAL");
	interfaces = getenv("UCX_NET_DEVICES");
	control = getenv(GN_WORLD_IFNAMES);
	if (gn_tuning_table_path(NULL, tuning, sizeof tuning, &named, NULL) || (!named && access(tuning, F_OK)))
		*tuning = 0;
	gn_strbuf_init(&pmix);
	gn_library_versions_pmix(&pmix);
	gethostname(host, sizeof host - 1);
	printf("gannet %s\ncommit         %s\nsources        %s\nUCX            %s\nPMIx           %s\n", gn_version(),
	       gn_version_commit(), gn_version_source_digest(), gn_library_versions_ucx(), gn_strbuf_text(&pmix));
	gn_strbuf_release(&pmix);
	if (gn_library_versions_job(job))
		printf("job            %s\n", job);
	printf("hosts          %s\nconfiguration  %s\n", hosts && *hosts ? hosts : host, *site ? site : "none");
	printf("tuning table   %s\n", *tuning ? tuning : "none");
	if (interfaces && *interfaces)
		printf("interfaces     %s\n", interfaces);
	if (control && *control)
		printf("heartbeats     %s\n", control);
	print_timeouts();
	/* job scripts read this line */
	if (local && *local)
		printf("local disk     %s\n", local);
	return finish_stdout(GN_EXIT_DONE);
}

static void apply_site(const struct gn_cmd *cmd)
{
	struct gn_log *log = gn_cmd_log();
	char path[PATH_MAX];

	gn_site_apply(log, cmd == &gn_cmd_tune, path, sizeof path);
	if (*path)
		gn_log_debug(log, "the site's configuration is %s", path);
	gn_log_destroy(log);
}

/* Commands that join a job warn by their log. */
static void warn_of_unused(const struct gn_cmd *cmd, const void *options)
{
	struct gn_strbuf text = {0};

	if (cmd->command->given && !cmd->joins)
		gn_options_unused(cmd->command, options, &text);
	if (text.len)
		fprintf(stderr, "gannet %s: warning: options without effect: %s\n", cmd->command->name, gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

static int run(const struct gn_cmd *cmd, int argc, char **argv)
{
	void *options = calloc(1, cmd->options_size ? cmd->options_size : 1);
	struct gn_text_list positional = {0};
	struct gn_option_words words = {0};
	struct gn_err err;
	int help, code;

	if (!options) {
		fputs("gannet: out of memory\n", stderr);
		return GN_EXIT_FAILED;
	}
	if (gn_option_words_read(cmd->command, cmd->options_size, argc, argv, &words, &err) ||
	    gn_options_parse(cmd->command, words.argc, words.argv, options, &positional, &help, &err)) {
		code = cmd->joins ? gn_cmd_decline(NULL, cmd->command->name, &err) : gn_cmd_fail(cmd->command->name, &err);
	} else {
		warn_of_unused(cmd, options);
		code = help ? print_help(cmd->command) : finish_stdout(cmd->run(options, &positional));
		gn_options_release(cmd->command, options);
		free(positional.items);
	}
	free(options);
	gn_option_words_release(&words);
	return code;
}

/*
 * The constructor of UCX's library makes SIGHUP (UCX_DEBUG_SIGNO) start its debug mode: a process then outlives its terminal, and what it
 * starts under nohup does not. What the process was started with is known only before the libraries' constructors run.
 */
static struct sigaction hangup;

static void keep_hangup(int argc, char **argv, char **environment)
{
	(void)argc;
	(void)argv;
	(void)environment;
	sigaction(SIGHUP, NULL, &hangup);
}

__attribute__((section(".preinit_array"), used)) static void (*const keep_hangup_first)(int, char **, char **) = keep_hangup;

static int unknown(const char *command)
{
	struct gn_text_nearest nearest = {.word = command};
	char name[64];

	for (size_t i = 0; i < gn_cmd_count; i++)
		gn_text_offer(&nearest, gn_cmd_table[i]->command->name, strlen(gn_cmd_table[i]->command->name));
	fprintf(stderr, "gannet: no command '%s'; %s%s%s\n", gn_text_visible(command, name, sizeof name),
		nearest.name ? "did you mean gannet " : "see gannet --help", nearest.name ? nearest.name : "", nearest.name ? "?" : "");
	return GN_EXIT_USAGE;
}

int main(int argc, char **argv)
{
	const struct gn_cmd *cmd;
	int code;

	/* a write past the limit of ulimit -f then fails, and is told */
	signal(SIGXFSZ, SIG_IGN);
	if (!getenv("UCX_DEBUG_SIGNO"))
		sigaction(SIGHUP, &hangup, NULL);
	if (argc < 2) {
		overview(stderr);
		return GN_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--version"))
		return print_version();
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || (!strcmp(argv[1], "help") && argc == 2)) {
		overview(stdout);
		return finish_stdout(GN_EXIT_DONE);
	}
	if (!strcmp(argv[1], "help")) {
		cmd = gn_cmd_find(argv[2]);
		return cmd ? print_help(cmd->command) : unknown(argv[2]);
	}
	if (!strcmp(argv[1], "--man"))
		return print_man(argv[2]);
	if (!strcmp(argv[1], "--completion"))
		return print_completion();
	cmd = gn_cmd_find(argv[1]);
	if (!cmd)
		return unknown(argv[1]);
	apply_site(cmd);
	gn_world_ends_job();
	gn_world_set_command(cmd->command->name);
	code = run(cmd, argc - 1, argv + 1);
	gn_world_end_job(code);
	return code;
}
