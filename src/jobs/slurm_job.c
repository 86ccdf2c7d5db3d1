#include "src/jobs/slurm_job.h"

#include "src/base/file.h"
#include "src/base/text.h"
#include "src/jobs/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCRIPT_MAX (4u << 20)

int gn_slurm_is_job(const char *text)
{
	size_t len = strspn(text, "0123456789");

	if (!len || len > 12)
		return 0;
	if (text[len] == '_') {
		size_t task = strspn(text + len + 1, "0123456789");

		return task && task < 12 && !text[len + 1 + task];
	}
	return !text[len];
}

/* --- fields --- */

/* Slurm prints local time: "2026-11-24T12:30:00". */
static double time_of(const char *text)
{
	struct tm tm = {.tm_isdst = -1};

	return strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) ? (double)mktime(&tm) : 0;
}

/* "4000M", "4G", "2500K", "4Gn" */
static double bytes_of(const char *text)
{
	char *end;
	double v = strtod(text, &end);
	const char *units = "KMGTP", *unit = *end ? strchr(units, *end) : NULL;

	for (long power = unit ? unit - units + 1 : 0; power > 0; power--)
		v *= 1024;
	return v > 0 ? v : 0;
}

/* "[[DD-]HH:]MM:SS[.mmm]" */
static double seconds_of(const char *text)
{
	double days = 0, total = 0;
	const char *dash = strchr(text, '-');

	if (dash) {
		days = strtod(text, NULL);
		text = dash + 1;
	}
	for (char *end;; text = end + 1) {
		double v = strtod(text, &end);

		if (end == text)
			break;
		total = total * 60 + v;
		if (*end != ':')
			break;
	}
	return days * 86400 + total;
}

/* The value of " KEY=" in a line of scontrol, up to the next " Key="; "" when it is not there or "(null)". */
static const char *field(const char *line, const char *key, char *out, size_t size)
{
	size_t len = strlen(key);
	const char *at = line, *end;
	char value[4096];

	*out = 0;
	while ((at = strstr(at, key)) && (at[len] != '=' || (at != line && at[-1] != ' ')))
		at += len;
	if (!at)
		return out;
	at += len + 1;
	for (end = at; *end && *end != '\n'; end++) {
		const char *next = end + 1;

		if (*end != ' ')
			continue;
		next += strspn(next, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_:/");
		if (*next == '=' || !*next)
			break;
	}
	snprintf(value, sizeof value, "%.*s", (int)(end - at < 4000 ? end - at : 4000), at);
	return strcmp(value, "(null)") ? gn_text_visible(value, out, size) : out;
}

static double number(const char *line, const char *key)
{
	char text[64];

	return strtod(field(line, key, text, sizeof text), NULL);
}

int gn_slurm_job_parse(const char *line, struct gn_slurm_job *j)
{
	char text[1024], array[64];

	if (!*field(line, "JobId", text, sizeof text))
		return 0;
	memset(j, 0, sizeof *j);
	snprintf(j->id, sizeof j->id, "%.*s", 63, text);
	field(line, "ArrayJobId", array, sizeof array);
	field(line, "ArrayTaskId", text, sizeof text);
	if (*array && gn_slurm_is_job(text))
		snprintf(j->id, sizeof j->id, "%.30s_%.30s", array, text);
	field(line, "JobName", j->name, sizeof j->name);
	field(line, "JobState", j->state, sizeof j->state);
	field(line, "Reason", j->reason, sizeof j->reason);
	if (!strcmp(j->reason, "None"))
		j->reason[0] = 0;
	field(line, "Command", j->script, sizeof j->script);
	field(line, "NodeList", j->nodes, sizeof j->nodes);
	j->submit_time = time_of(field(line, "SubmitTime", text, sizeof text));
	j->start_time = time_of(field(line, "StartTime", text, sizeof text));
	j->memory_bytes = bytes_of(field(line, "MinMemoryNode", text, sizeof text));
	j->restarts = (int)number(line, "Restarts");
	j->node_count = (int)number(line, "NumNodes");
	j->cpus = (int)number(line, "NumCPUs");
	if (*field(line, "MinMemoryCPU", text, sizeof text) && j->node_count > 0)
		j->memory_bytes = bytes_of(text) * j->cpus / j->node_count;
	return 1;
}

/* --- accounting --- */

enum column { ID, STATE, SUBMIT, ELIGIBLE, START, END, ELAPSED, CPUS, NODES, MEMORY, CPU_TIME, RSS, TASKS, NAME, LINE, COLUMNS };

/* Splits one row in place; 0 when it has too few columns. */
static int split(char *row, char *columns[COLUMNS])
{
	for (int c = 0; c < COLUMNS - 1 && row; c++)
		columns[c] = strsep(&row, "|");
	columns[COLUMNS - 1] = row;
	return row != NULL;
}

/* The script is the last word of what was submitted. */
static void script_of(const char *line, char *out, size_t size)
{
	const char *last = strrchr(line, ' ');

	if (last && last[1] == '/')
		gn_text_visible(last + 1, out, size);
}

/* The row of the job itself: one for each start, those of a task of an array one after the other. A job that is queued again is not
 * eligible for a while: that is waiting. Before the first start it waits for others (--dependency, --begin), which is not. */
static void add_start(char *const c[COLUMNS], struct gn_slurm_job *j)
{
	int again = j->accounted && !strcmp(j->id, c[ID]);
	double start = time_of(c[START]), ready = time_of(c[again ? SUBMIT : ELIGIBLE]), elapsed = strtod(c[ELAPSED], NULL);

	j->restarts = (j->accounted ? j->restarts : 0) + again;
	j->accounted = 1;
	snprintf(j->id, sizeof j->id, "%s", c[ID]);
	gn_text_visible(c[STATE], j->state, sizeof j->state);
	gn_text_visible(c[NAME], j->name, sizeof j->name);
	script_of(c[LINE], j->script, sizeof j->script);
	j->cpus = (int)strtod(c[CPUS], NULL);
	j->node_count = (int)strtod(c[NODES], NULL);
	j->memory_bytes = bytes_of(c[MEMORY]);
	/* before Slurm 21.08 "4Gc": of each processor; since then of the whole job */
	if (c[MEMORY][0] && c[MEMORY][strlen(c[MEMORY]) - 1] == 'c')
		j->memory_bytes *= j->cpus;
	if (j->node_count > 0 && !(c[MEMORY][0] && c[MEMORY][strlen(c[MEMORY]) - 1] == 'n'))
		j->memory_bytes /= j->node_count;
	j->submit_time = j->submit_time > 0 ? j->submit_time : time_of(c[SUBMIT]);
	j->start_time = start;
	if (start > ready && ready > 0)
		j->waited_s += start - ready;
	j->elapsed_s += elapsed;
	j->core_s += elapsed * j->cpus;
}

/* The job's own row has the time of its steps, of a running one not all: rows of steps have what is known of each. */
static void add_step(char *const c[COLUMNS], struct gn_slurm_job *j)
{
	double rss = bytes_of(c[RSS]), tasks = strtod(c[TASKS], NULL), nodes = strtod(c[NODES], NULL);

	j->cpu_s += seconds_of(c[CPU_TIME]);
	j->max_rss_bytes = fmax(j->max_rss_bytes, rss);
	j->node_rss_bytes = fmax(j->node_rss_bytes, rss * (tasks > nodes && nodes > 0 ? ceil(tasks / nodes) : 1));
}

int gn_slurm_job_account(const char *text, struct gn_slurm_job *j)
{
	char *copy = strdup(text), *columns[COLUMNS], *rest = copy;
	int starts = 0;

	j->waited_s = j->elapsed_s = j->core_s = j->cpu_s = j->max_rss_bytes = j->node_rss_bytes = 0;
	j->accounted = 0;
	for (char *row; copy && (row = strsep(&rest, "\n"));) {
		if (!split(row, columns))
			continue;
		if (!strchr(columns[ID], '.')) {
			add_start(columns, j);
			starts++;
			continue;
		}
		add_step(columns, j);
	}
	free(copy);
	return starts > 0;
}

/* --- questions --- */

enum gn_status gn_slurm_job_find(const char *id, int accounting, struct gn_slurm_job *out, struct gn_err *err)
{
	const char *const show[] = {"timeout", "10", "scontrol", "show", "job", "--oneliner", id, NULL};
	const char *const account[] = {"timeout", "10", "sacct", "--duplicates", "--parsable2", "--noheader", "--jobs", id, "--format",
				       GN_SLURM_SACCT_FORMAT, NULL};
	struct gn_strbuf text = {0};
	int found = 0;

	memset(out, 0, sizeof *out);
	if (!gn_slurm_is_job(id))
		return gn_err_set(err, GN_ERR_NOT_FOUND, "%s is no file and no job's number", id);
	if (!gn_program_run(show, 1, &text, NULL))
		found = gn_slurm_job_parse(gn_strbuf_text(&text), out);
	gn_strbuf_clear(&text);
	if ((!found || accounting) && !gn_program_run(account, 1, &text, NULL)) {
		struct gn_slurm_job asked = *out;

		if (gn_slurm_job_account(gn_strbuf_text(&text), &asked)) {
			if (found && *out->script)
				snprintf(asked.script, sizeof asked.script, "%s", out->script);
			/* rows of starts may be gone */
			if (found && asked.restarts < out->restarts)
				asked.restarts = out->restarts;
			*out = asked;
			found = 1;
		}
	}
	gn_strbuf_release(&text);
	/* tasks of an array that wait share a record, "ArrayTaskId=2-7%1" */
	if (found && strchr(id, '_'))
		snprintf(out->id, sizeof out->id, "%s", id);
	return found ? GN_OK : gn_err_set(err, GN_ERR_NOT_FOUND, "job %s: neither scontrol nor sacct knows it; give the log of its run", id);
}

enum gn_status gn_slurm_job_log(const struct gn_slurm_job *job, char *out, size_t size, struct gn_err *err)
{
	static const char line[] = "\nexport GANNET_LOG_FILE='", work[] = "\ncd '";
	const char *task = strchr(job->id, '_'), *at;
	char *text = NULL;
	size_t n = 0;
	enum gn_status status;

	if (!*job->script)
		return gn_err_set(err, GN_ERR_NOT_FOUND, "job %s: its script is not known; give the log of its run", job->id);
	status = gn_file_load(job->script, SCRIPT_MAX, &text, NULL, err);
	if (status)
		return gn_err_prefix(err, "job %s: its script", job->id);
	at = strstr(text, line);
	/* of a folder that the script changes to before */
	if (at && at[sizeof line - 1] != '/' && strstr(text, work))
		n = (size_t)snprintf(out, size / 2, "%.*s/", (int)strcspn(strstr(text, work) + sizeof work - 1, "'"),
				     strstr(text, work) + sizeof work - 1);
	for (at = at ? at + sizeof line - 1 : ""; *at && *at != '\'' && n + 32 < size; at++) {
		if (at[0] == '%' && at[1] == 'a' && task) {
			n += (size_t)snprintf(out + n, size - n, "%s", task + 1);
			at++;
		} else {
			out[n++] = *at;
		}
	}
	out[n] = 0;
	free(text);
	if (!n || !strcmp(out, "-") || (n > 1 && !strcmp(out + n - 2, "/-")))
		return gn_err_set(err, GN_ERR_NOT_FOUND, "job %s: %s names no log (train --log FILE); give the log of its run", job->id, job->script);
	return GN_OK;
}

void gn_slurm_job_write(const struct gn_slurm_job *job, const char *key, struct gn_json *j)
{
	gn_json_object(j, key);
	gn_json_put(j, "job %s name %s state %s reason %s restarts %d nodes %d cpus %d memory_asked_bytes_per_node %.0f", job->id,
		    job->name, job->state, job->reason, job->restarts, job->node_count, job->cpus, job->memory_bytes);
	if (job->accounted)
		gn_json_put(j, "waited_s %.0f elapsed_s %.0f core_hours %g core_hours_used %g efficiency %g max_rss_bytes %.0f "
			    "node_rss_bytes %.0f", job->waited_s, job->elapsed_s, job->core_s / 3600, job->cpu_s / 3600,
			    job->core_s > 0 ? job->cpu_s / job->core_s : NAN, job->max_rss_bytes, job->node_rss_bytes);
	gn_json_end(j);
}
