/* Drives any NCCL network plugin through its table of functions, between processes of its own, without NCCL or a GPU, and
 * says in TAP what it keeps of the interface's promises. For other people's plugins, too. */
#include "tests/transport/plugin/cluster.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: conform [OPTION]... PLUGIN.so\n"
	"Checks a NCCL network plugin and prints TAP. What UCX or another network is to use is the environment's business\n"
	"(UCX_TLS=tcp,self or posix,sysv,cma,self, ...). The exit code is 0 when every check held.\n"
	"  --version N       only this version of the interface (8 to 12); default: all that the plugin has\n"
	"  --only NAME,...   only these checks\n"
	"  --strict          also what NCCL itself does not rely on\n"
	"  --limit SECONDS   for each check (default 20; some take a multiple)\n"
	"  --connections N   of the check with many (default 1000)\n"
	"  --list            names the checks\n"
	"With GN_CONFORM_LOG=1 in the environment the plugin's log goes to standard error.\n";

static const struct cluster_check *const all[] = {checks_basic, checks_life, checks_hard, checks_stop};

struct selection {
	const char *only;
	int strict, list, version;
};

static int chosen(const struct selection *s, const struct cluster_check *c)
{
	size_t len = strlen(c->name);

	if (!s->only)
		return s->strict || !c->strict;
	for (const char *at = s->only; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncmp(at, c->name, len) && (at[len] == ',' || !at[len]))
			return 1;
	return 0;
}

static int parse(int argc, char **argv, struct selection *s, struct cluster_options *o)
{
	static const struct option longs[] = {{"version", 1, NULL, 'v'}, {"only", 1, NULL, 'o'}, {"strict", 0, NULL, 's'},
					      {"limit", 1, NULL, 'l'},	 {"list", 0, NULL, 'L'}, {"connections", 1, NULL, 'c'},
					      {"help", 0, NULL, 'h'},	 {0}};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0)
		switch (c) {
		case 'v':
			s->version = atoi(optarg);
			break;
		case 'o':
			s->only = optarg;
			break;
		case 's':
			s->strict = 1;
			break;
		case 'l':
			o->limit_s = atoi(optarg);
			break;
		case 'c':
			o->connections = atoi(optarg);
			break;
		case 'L':
			s->list = 1;
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			return -1;
		}
	o->path = optind < argc ? argv[optind] : NULL;
	return (!o->path && !s->list) || o->limit_s < 1 || o->connections < 1 ? -1 : 0;
}

/* In a process of its own, as everything that loads the plugin. */
static void look(struct cluster *cluster)
{
	const char *why = "";
	int rc = plug_open(&cluster->plug, cluster->options->path, cluster->options->version, &why);

	if (rc > 0)
		skip(cluster, "%s", why);
	if (rc)
		fail(cluster, "%s", why);
}

/* The text in one line, since TAP reads lines. */
static void print_reason(char *text)
{
	for (char *at = text; *at; at++)
		if (*at == '\n')
			*at = ' ';
	printf("#   %s\n", text);
}

static int run_version(const struct selection *s, const struct cluster_options *o, int *number)
{
	int failed = 0;
	char text[600];

	for (size_t list = 0; list < sizeof all / sizeof *all; list++)
		for (const struct cluster_check *c = all[list]; c->name; c++) {
			double began = now_s();
			int verdict;

			if (!chosen(s, c))
				continue;
			verdict = cluster_run(c, o, text, sizeof text);
			printf("%s %d - v%d %s: %s", verdict == 1 ? "not ok" : "ok", ++*number, o->version, c->name, c->promise);
			if (verdict == 2)
				printf(" # SKIP %s", text);
			printf("\n# %.2f s\n", now_s() - began);
			if (verdict == 1)
				print_reason(text);
			fflush(stdout);
			failed += verdict == 1;
		}
	return failed;
}

int main(int argc, char **argv)
{
	struct cluster_options options = {.limit_s = 20, .connections = 1000};
	struct selection selection = {0};
	int failed = 0, number = 0;
	static const struct cluster_check loads = {"loads", "it can be loaded", 1, 0, 0, look};
	char why[600];

	if (parse(argc, argv, &selection, &options)) {
		fputs(usage, stderr);
		return 2;
	}
	for (size_t list = 0; selection.list && list < sizeof all / sizeof *all; list++)
		for (const struct cluster_check *c = all[list]; c->name; c++)
			printf("%-16s %s%s\n", c->name, c->promise, c->strict ? " (strict)" : "");
	if (selection.list)
		return 0;
	for (int v = PLUG_NEWEST; v >= PLUG_OLDEST; v--) {
		int verdict;

		options.version = v;
		verdict = cluster_run(&loads, &options, why, sizeof why);
		if (verdict == 1) {
			printf("not ok 1 - %s can be loaded\n", options.path);
			print_reason(why);
			printf("1..1\n");
			return 1;
		}
		if (!verdict && (!selection.version || v == selection.version))
			failed += run_version(&selection, &options, &number);
	}
	if (!number) {
		printf("not ok 1 - %s has a table of a version asked for, and a check of that name is there\n", options.path);
		failed = number = 1;
	}
	printf("1..%d\n", number);
	return failed ? 1 : 0;
}
