/* A progress line for people: rate and time left, redrawn in place on a terminal, silent elsewhere.
 *
 * Logs get their own lines from the caller; this is only for standard error when it is a terminal.
 * Thread safety: gn_progress_bar_add may be called from any thread; the rest belongs to the creating one.
 */
#ifndef GN_BASE_PROGRESS_BAR_H
#define GN_BASE_PROGRESS_BAR_H

#include <stdatomic.h>
#include <stdint.h>

struct gn_progress_bar {
	const char *what; /* "packing" */
	const char *unit; /* "images" or "B" (bytes are shown as MB) */
	uint64_t total;	  /* 0 when unknown */
	uint64_t start_ns;
	atomic_uint_fast64_t done;
	atomic_uint_fast64_t next_draw_ns;
	int terminal;
};

void gn_progress_bar_begin(struct gn_progress_bar *p, const char *what, const char *unit, uint64_t total);
/* Adds to the count and redraws at most five times a second. */
void gn_progress_bar_add(struct gn_progress_bar *p, uint64_t amount);
/* Wipes the line. Safe to call twice. */
void gn_progress_bar_end(struct gn_progress_bar *p);
/* Units a second so far. */
double gn_progress_bar_rate(const struct gn_progress_bar *p);

#endif
