/* A progress line on standard error: rate and time left, redrawn in place. Prints nothing unless standard error is a terminal.
 *
 * begin, add and end take NULL, and show nothing then. Thread safety: gn_progress_bar_add() from any thread; the rest only from the thread
 * that created the bar.
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
/* Adds to the count. Redraws at most five times a second. */
void gn_progress_bar_add(struct gn_progress_bar *p, uint64_t amount);
/* Clears the line. May be called twice. */
void gn_progress_bar_end(struct gn_progress_bar *p);
/* Average units per second since the start. */
double gn_progress_bar_rate(const struct gn_progress_bar *p);

#endif
