#include "src/jobs/exec_run.h"

#include "src/base/clock.h"
#include "src/base/text.h"
#include "transport/health/heartbeat.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define TURN_MS 100
/* What another rank said before may be on its way to rank 0. */
#define VERDICT_NS 100000000u
#define CODE_LOST 4

/* --- a failure in one line --- */

#define MARK "exec["
#define LINE_BREAK "\\x0a"
#define TEXT_MAX 380

/* exec[CODE,LENGTH OF REASON,LENGTH OF LINES]: REASON LINES, as gn_text_visible() leaves them */
void gn_exec_failure_write(int code, const char *reason, const char *last_lines, struct gn_strbuf *out)
{
	char shown[TEXT_MAX], lines[4 * 2048];
	const char *last = lines, *next;
	size_t room, len;

	gn_text_visible(reason, shown, sizeof shown / 2);
	room = TEXT_MAX - 40 - strlen(shown);
	gn_text_visible(last_lines, lines, sizeof lines);
	len = strlen(lines);
	while (len >= strlen(LINE_BREAK) && !strcmp(lines + len - strlen(LINE_BREAK), LINE_BREAK))
		lines[len -= strlen(LINE_BREAK)] = 0;
	/* whole lines, from the last one up */
	while (strlen(last) > room && (next = strstr(last, LINE_BREAK)))
		last = next + strlen(LINE_BREAK);
	if (strlen(last) > room)
		last += strlen(last) - room;
	/* not from the middle of a character */
	while ((*last & 0xc0) == 0x80)
		last++;
	gn_strbuf_printf(out, MARK "%d,%zu,%zu]: %s %s", code, strlen(shown), strlen(last), shown, last);
}

int gn_exec_failure_read(const char *text, int *code, struct gn_strbuf *reason, struct gn_strbuf *last_lines)
{
	const char *at = strstr(text, MARK), *line_break;
	size_t reason_len, lines_len;
	int used = 0;

	if (!at || sscanf(at, MARK "%d,%zu,%zu]: %n", code, &reason_len, &lines_len, &used) != 3 || !used)
		return 0;
	at += used;
	if (strnlen(at, reason_len) < reason_len || reason_len > TEXT_MAX || lines_len > TEXT_MAX)
		return 0;
	gn_strbuf_append(reason, at, reason_len);
	at += reason_len + (at[reason_len] == ' ');
	lines_len = strnlen(at, lines_len);
	while ((line_break = strstr(at, LINE_BREAK)) && (size_t)(line_break - at) < lines_len) {
		gn_strbuf_append(last_lines, at, (size_t)(line_break - at));
		gn_strbuf_puts(last_lines, "\n");
		lines_len -= (size_t)(line_break - at) + strlen(LINE_BREAK);
		at = line_break + strlen(LINE_BREAK);
	}
	gn_strbuf_append(last_lines, at, lines_len);
	return 1;
}

/* --- the run --- */

struct run {
	struct gn_world *world;
	const struct gn_exec_run_options *o;
	struct gn_exec_child *child;
	struct gn_exec_outcome *out;
	uint64_t started_ns, kill_ns; /* kill_ns: when patience is over; 0: nothing is to end */
};

/* What the world says of a rank: "rank 3 on n2 is lost: it gave up: exec[7,...". */
static void note_verdict(struct run *r, const struct gn_err *verdict)
{
	struct gn_exec_outcome *o = r->out;

	if (o->rank >= 0 || o->lost)
		return;
	o->seconds = (double)(gn_clock_ns() - r->started_ns) / 1e9;
	if (sscanf(verdict->text, "rank %d", &o->rank) != 1)
		o->rank = -1;
	if (o->rank >= 0 && gn_exec_failure_read(verdict->text, &o->code, &o->reason, &o->last_lines))
		return;
	o->lost = 1;
	o->code = CODE_LOST;
	gn_strbuf_puts(&o->reason, verdict->text);
}

static void end_child(struct run *r)
{
	uint64_t now = gn_clock_ns();

	if (!r->kill_ns) {
		r->kill_ns = now + (uint64_t)r->o->grace_s * 1000000000u;
		/* not twice, if Slurm ends the step */
		if (gn_exec_child_passed_on(r->child) != SIGTERM)
			gn_exec_child_signal(r->child, SIGTERM);
		/* one that is stopped would not hear it */
		gn_exec_child_signal(r->child, SIGCONT);
	} else if (now >= r->kill_ns) {
		gn_exec_child_signal(r->child, SIGKILL);
	}
}

static void await_child(struct run *r)
{
	struct gn_err verdict;

	while (gn_exec_child_turn(r->child, TURN_MS)) {
		if (r->out->rank < 0 && !r->out->lost && gn_world_check(r->world, &verdict))
			note_verdict(r, &verdict);
		if (r->out->rank >= 0 || r->out->lost)
			end_child(r);
	}
}

/* Rank 0, whose program has failed: was another's the first? Once the others are told, they end, which would look like it. */
static void look_for_earlier(struct run *r)
{
	uint64_t until = gn_clock_ns() + VERDICT_NS;
	struct gn_err verdict;

	while (!gn_world_check(r->world, &verdict) && gn_clock_ns() < until)
		gn_clock_sleep_ns(2000000);
	if (gn_world_check(r->world, &verdict))
		note_verdict(r, &verdict);
}

/* The program has ended with another code than 0. */
static void fail(struct run *r)
{
	int code = gn_exec_child_code(r->child), rank = gn_world_rank(r->world);
	struct gn_strbuf reason = {0}, text = {0};

	if (rank == 0)
		look_for_earlier(r);
	gn_exec_child_reason(r->child, &reason);
	gn_exec_failure_write(code, gn_strbuf_text(&reason), gn_exec_child_last_lines(r->child), &text);
	gn_world_abort(r->world, GN_OK, gn_strbuf_text(&text));
	if (r->out->rank < 0 && !r->out->lost) {
		r->out->rank = rank;
		r->out->code = code;
		r->out->seconds = (double)(gn_clock_ns() - r->started_ns) / 1e9;
		gn_strbuf_puts(&r->out->reason, gn_strbuf_text(&reason));
		gn_strbuf_puts(&r->out->last_lines, gn_exec_child_last_lines(r->child));
	}
	gn_strbuf_release(&reason);
	gn_strbuf_release(&text);
}

/* While the others' programs still run; signals go to nobody any more, but are taken. */
static void idle(void *context)
{
	struct run *r = context;

	if (r->child)
		gn_exec_child_turn(r->child, 0);
}

enum gn_status gn_exec_run(struct gn_world *world, const struct gn_exec_run_options *options, struct gn_exec_outcome *out,
			   struct gn_err *err)
{
	struct run r = {.world = world, .o = options, .out = out, .started_ns = gn_clock_ns()};
	enum gn_status status = GN_OK;
	struct gn_err verdict;

	*out = (struct gn_exec_outcome){.rank = -1};
	gn_strbuf_init(&out->reason);
	gn_strbuf_init(&out->last_lines);
	gn_world_set_phase(world, "running the program", INT_MAX);
	if (options->starts)
		status = gn_exec_child_start(&options->child, &r.child, err);
	if (status) {
		gn_world_abort(world, status, err->text);
		return status;
	}
	if (r.child)
		await_child(&r);
	if (r.child && out->rank < 0 && !out->lost && gn_exec_child_code(r.child))
		fail(&r);
	if (out->rank < 0 && !out->lost) {
		gn_world_set_progress(world, idle, &r);
		if (gn_world_barrier(world, &verdict))
			note_verdict(&r, &verdict);
		gn_world_set_progress(world, NULL, NULL);
	}
	gn_exec_child_destroy(r.child);
	return GN_OK;
}

void gn_exec_outcome_release(struct gn_exec_outcome *o)
{
	gn_strbuf_release(&o->reason);
	gn_strbuf_release(&o->last_lines);
}
