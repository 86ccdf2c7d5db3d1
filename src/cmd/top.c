#include "src/cmd/cmd.h"

#include "src/jobs/run_view.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

struct top_options {
	int json, once;
	double interval;
};

/* --- the terminal --- */

/* What signals say to the loop. */
static volatile sig_atomic_t last_signal;

/* A second SIGTERM ends at once: the first is held up where the terminal takes no output (Ctrl-S, a program that does not read it). */
static void on_signal(int number)
{
	if (number == SIGTERM && last_signal == SIGTERM) {
		signal(SIGTERM, SIG_DFL);
		raise(SIGTERM);
	}
	if (number != SIGWINCH)
		last_signal = number;
}

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE, SIGWINCH};
enum { SIGNALS = sizeof signals / sizeof *signals };

struct screen {
	struct termios before;
	struct sigaction handlers[SIGNALS];
};

/* "\033[?1049h": the terminal's second screen, so that leaving brings the first one back as it was. */
static void enter(struct screen *s)
{
	struct termios raw;
	struct sigaction action = {.sa_handler = on_signal};

	sigemptyset(&action.sa_mask);
	for (int i = 0; i < SIGNALS; i++) {
		sigaction(signals[i], &action, &s->handlers[i]);
		/* as nohup wants it */
		if (s->handlers[i].sa_handler == SIG_IGN)
			sigaction(signals[i], &s->handlers[i], NULL);
	}
	tcgetattr(STDIN_FILENO, &s->before);
	raw = s->before;
	raw.c_lflag &= (tcflag_t)~(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	fputs("\033[?1049h\033[?25l", stdout);
	fflush(stdout);
}

static void leave(const struct screen *s)
{
	fputs("\033[?25h\033[?1049l", stdout);
	fflush(stdout);
	tcsetattr(STDIN_FILENO, TCSANOW, &s->before);
	for (int i = 0; i < SIGNALS; i++)
		sigaction(signals[i], &s->handlers[i], NULL);
}

/* Ctrl-Z gives the terminal back until fg. */
static void suspend(struct screen *s)
{
	leave(s);
	raise(SIGTSTP);
	last_signal = 0;
	enter(s);
}

static void size_of(int *columns, int *rows)
{
	struct winsize size;

	*columns = 80;
	*rows = 24;
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col >= 20 && size.ws_row >= 4) {
		*columns = size.ws_col;
		*rows = size.ws_row;
	}
}

/* Each line is followed by "erase to its end", so that nothing flickers. */
static void draw(const struct gn_run_view *v, double interval)
{
	struct gn_strbuf text = {0};
	char name[4200], clock[16];
	char *shown = name, *slash;
	int columns, rows, room;
	time_t now = time(NULL);
	struct tm tm;

	size_of(&columns, &rows);
	localtime_r(&now, &tm);
	strftime(clock, sizeof clock, " %H:%M:%S", &tm);
	gn_text_visible(*v->log ? v->log : v->job.id, name, sizeof name);
	room = columns - 10;
	/* of a long path the last folders that fit, and the clock only beside a name that does */
	while ((int)strlen(shown) > room && (slash = strchr(shown + 4, '/')))
		shown = memcpy(slash - 3, "...", 3);
	if ((int)strlen(shown) > room) {
		*clock = '\0';
		room = columns - 1;
	}
	printf("\033[H\033[7m%-*.*s%s\033[0m\033[K\n", room, room, shown, clock);
	gn_run_view_text(v, (double)now, columns, rows - 2, &text);
	for (const char *line = gn_strbuf_text(&text); *line;) {
		size_t len = strcspn(line, "\n");

		printf("%.*s\033[K\n", (int)len, line);
		line += len + (line[len] == '\n');
	}
	printf("\033[J\033[%d;1Hq quits; every %g s\033[K", rows, interval);
	fflush(stdout);
	gn_strbuf_release(&text);
}

/* Until the interval is over or a key or signal comes. 0: to go on. */
static int wait_or_quit(double interval)
{
	struct pollfd in = {STDIN_FILENO, POLLIN, 0};
	char keys[16];
	ssize_t n;
	int ready = poll(&in, 1, (int)(interval * 1000));

	if (ready <= 0)
		return ready < 0 && errno != EINTR;
	n = read(STDIN_FILENO, keys, sizeof keys);
	/* the terminal is gone */
	if (n == 0 || (n < 0 && errno != EINTR))
		return 1;
	return n > 0 && (memchr(keys, 'q', (size_t)n) || memchr(keys, 'Q', (size_t)n));
}

static enum gn_status watch(struct gn_run_source *source, struct gn_run_view *v, double interval, struct gn_err *err)
{
	struct screen screen;
	enum gn_status status = GN_OK;

	last_signal = 0;
	enter(&screen);
	for (int quit = 0; !quit && !status && !ferror(stdout);) {
		status = gn_run_source_read(source, (double)time(NULL), v, err);
		if (!status)
			draw(v, interval);
		quit = status || wait_or_quit(interval);
		if (last_signal == SIGTSTP)
			suspend(&screen);
		quit |= last_signal != 0;
	}
	leave(&screen);
	return status;
}

/* --- command --- */

static enum gn_status print(const struct top_options *o, struct gn_run_source *source, struct gn_run_view *v, struct gn_err *err)
{
	double now = (double)time(NULL);
	struct gn_strbuf text = {0};
	struct gn_json j;
	enum gn_status status = gn_run_source_read(source, now, v, err);

	if (status)
		return status;
	if (o->json) {
		gn_json_init(&j);
		gn_run_view_json(v, now, &j);
		gn_cmd_print_json(&j);
		return GN_OK;
	}
	gn_run_view_text(v, now, gn_cmd_columns(), 0, &text);
	fputs(gn_strbuf_text(&text), stdout);
	gn_strbuf_release(&text);
	return GN_OK;
}

static int run(const void *options, const struct gn_text_list *positional)
{
	const struct top_options *o = options;
	struct gn_run_view *view = calloc(1, sizeof *view); /* large for a stack */
	struct gn_run_source *source = NULL;
	struct gn_err err;
	enum gn_status status = view ? gn_run_source_open(positional->items[0], &source, &err)
				     : gn_err_set(&err, GN_ERR_NO_MEMORY, "no memory for the state of a run");

	if (status)
		;
	else if (o->json || o->once || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
		status = print(o, source, view, &err);
	else
		status = watch(source, view, o->interval, &err);
	gn_run_source_close(source);
	free(view);
	if (status)
		return gn_cmd_fail("top", &err);
	/* as if the signal had not been caught */
	if (last_signal) {
		signal(last_signal, SIG_DFL);
		raise(last_signal);
	}
	return GN_EXIT_DONE;
}

static const struct gn_option options_table[] = {
	GN_OPT_REAL("interval", offsetof(struct top_options, interval), "S", "2", 0.1, 3600, "seconds between two looks at the run",
		    .letter = 'd'),
	GN_OPT_FLAG("once", offsetof(struct top_options, once), "print the state once, as without a terminal", .letter = '1'),
	GN_OPT_FLAG("json", offsetof(struct top_options, json), "print one JSON object"),
};

static const struct gn_command command = {
	.name = "top",
	.summary = "show how a run is doing now",
	.positional = "JOB|LOG",
	.description =
		"Shows in a terminal, until q is pressed, how a run is doing: step, loss and rate with the course of the last lines, time to the "
		"end, what a step is spent on, silent ranks and the slowest ones, processors, memory and network of each node, restarts, and why a job waits. "
		"Without a terminal, and with --once or --json, it prints that once.\n\n"
		"LOG is the file of train --log, on a file system that both see; the run keeps LOG.status beside it. JOB is the number of a job "
		"of gannet submit or gannet sweep (12, or 12_3 in an array), whose script names the log. Nothing runs on the nodes for it, and "
		"Slurm is asked only about a job that waits or is silent, every 30 s.\n\n"
		"A running job is called silent when its last sign of life is older than a minute and ten intervals between lines of the log.",
	.examples = "  gannet top run1.jsonl\n"
		    "  gannet top 4711\n"
		    "  gannet top --json run1.jsonl | jq .left_s\n",
	GN_OPTIONS(options_table),
	.positional_min = 1,
	.positional_max = 1,
};

const struct gn_cmd gn_cmd_top = {.command = &command, .run = run, .options_size = sizeof(struct top_options)};
