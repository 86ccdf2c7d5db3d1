/* Where the time of a run went, and how it is now, from its log (src/train/metrics/metrics_log.h) alone.
 *
 * Of a log with several runs the last one counts. A run may have been started several times: steps that a later start went back behind
 * are lost. Times of events are whole seconds in the log, so the parts add up to the wall time within a second a start.
 *
 * Thread safety: any thread. Blocks on the file system; the log may grow meanwhile.
 */
#ifndef GN_JOBS_ACCOUNT_H
#define GN_JOBS_ACCOUNT_H

#include "src/base/json.h"
#include "src/base/status.h"

#include <stdint.h>

#define GN_ACCOUNT_RECENT 48
#define GN_ACCOUNT_WORLDS 16
#define GN_ACCOUNT_STAGES 64

/* A world of a run with --elastic that began after a loss, or because others have joined, and what the change cost. */
struct gn_account_world {
	uint64_t world, step, redone; /* the step that it began with; redone: finished steps that were lost with ranks */
	int ranks, before;
	double seconds;		      /* from the last finished step to the next one */
	char after[192];		      /* why */
};

/* "running": the last line is no end. */
struct gn_account {
	char model[64], job[64], hosts[128], state[16]; /* state: running, end, pruned, stop, failed */
	char reason[256];				/* of a failure */
	char patience[160];				/* why --patience ended it; else empty */
	int ranks, nodes, starts;
	uint64_t step, total_steps, checkpoints, evaluations, bad_lines;
	double global_batch, images, epoch, loss, lr, images_per_s, top1; /* the last ones; NaN: not told */
	double first_time, last_start_time, last_time;	/* seconds since 1970 */

	/* of the wall time, in seconds */
	double wall_s, training_s, lost_s, evaluation_s, checkpoint_s, between_s, starting_s, other_s;
	double data_s, communication_s;			/* of training_s, on rank 0 */

	/* with --elastic */
	int losses, world_count;			/* worlds: the last ones of them */
	double recovery_s;				/* between worlds, of the wall time, too */
	struct gn_account_world worlds[GN_ACCOUNT_WORLDS];

	/* of pipelines, of the last start that has ended: by stage, at most the first ones */
	int stages;
	double bubble_formula;				/* share of the steps that a stage waits by formula */
	double bubble[GN_ACCOUNT_STAGES], stage_bytes[GN_ACCOUNT_STAGES]; /* that it waited; bytes that it sent to neighbours in a step */

	/* of the starts whose lines tell what was used, up to the last such line: of a start that was killed, some seconds are missing */
	int usage_starts, processors, max_rss_rank;
	int is_usage_partial;				/* some line counts fewer ranks than train: no core hours */
	double cpu_s, available_s, max_rss_bytes;	/* available_s: processors times how long rank 0's process lived */
	double waiting;					/* share of the last start in which ranks had no processor to compute on; 0: not told */

	int saves_by_minutes, saves_by_steps, saves_by_epochs; /* options of the last start that set when to save; none: a log without options */

	/* the last interval */
	double step_ms, part_ms[5];			/* data, forward, backward, communication, optimizer */
	double compute_low_ms, compute_high_ms;		/* over ranks; NaN with one */
	int slowest;					/* rank, -1: not told */
	char slowest_host[64];
	double interval_s;				/* between its line and the one before; 0: there is one line only */

	double recent_loss[GN_ACCOUNT_RECENT], recent_rate[GN_ACCOUNT_RECENT];
	int recent;
};

/* GN_ERR_DATA when it has no start of a run. A line that is no JSON counts in bad_lines. */
enum gn_status gn_account_read(const char *path, struct gn_account *out, struct gn_err *err);
/* The same of a log that grows: each update reads only what came since the one before. An update does not fail for a last line that is
 * not complete yet. */
struct gn_account_log;
enum gn_status gn_account_open(const char *path, struct gn_account_log **out, struct gn_err *err);
enum gn_status gn_account_update(struct gn_account_log *log, struct gn_account *out, struct gn_err *err);
/* NULL is fine. */
void gn_account_close(struct gn_account_log *log);
/* Seconds to the last step at the present rate; NaN: not known. */
double gn_account_left_s(const struct gn_account *a);
/* Whether a log without an end has no line for so long before now (seconds since 1970) that its run must be over: 10 minutes, or 10 intervals. */
int gn_account_is_dead(const struct gn_account *a, double now);
/* The share of the wall time that finished steps took which were not lost; NaN: not known. */
double gn_account_goodput(const struct gn_account *a);
/* Both into an open object. */
void gn_account_write_summary(const struct gn_account *a, const char *path, struct gn_json *out);
/* silent_s: since the last sign of life. */
void gn_account_write_state(const struct gn_account *a, const char *path, double silent_s, struct gn_json *out);
/* Advice by a line each; nothing when there is none to give.
 *
 * What half of the nodes, m of n (rounded up), would have cost: with the same batch on each rank, an epoch is the same number of batches
 * whatever n is, so its node hours grow as the time T of a step does. Of T only what is waited for gradients, X, depends on n. Of a
 * gradient of G bytes at least 2 (n - 1) / n G pass a node's link (Patarasuk and Yuan, 2009), a part of which backward hides and latency
 * grows faster, so X(m) <= X(n) (1 - 1/m) / (1 - 1/n), and what is cheaper is at least X(n) / T(n) (1 - (1 - 1/m) / (1 - 1/n)). The epoch
 * takes n / m (1 - that) times as long. One node of several ranks sums gradients, too, by other means: of that nothing is derived. */
void gn_account_advise(const struct gn_account *a, struct gn_strbuf *out);

#endif
