/* Progress while the program is elsewhere: a thread of the communicator's, and the lock that keeps the two apart. Private to
 * comm.c and coll*.c.
 *
 * The program goes first: whenever it is inside a call, or wants to be, the thread leaves the communicator to it, so that a
 * call that waits works at full speed and no result has to be handed over. Between calls the thread works on what is in
 * flight, and sleeps (rest.h) when nothing is, or nothing of it can go on. Over TCP what arrives wakes it although nothing is
 * in flight, since the end of what was sent may still be with UCX (gn_ucx_may_hold); so what peers send ahead is taken from
 * the sockets then.
 *
 * What the thread finds wrong stays with the operation and is told by the next call on it.
 *
 * Thread safety: one program thread and the thread within.
 */
#ifndef GN_TRANSPORT_COLL_COMM_PROGRESS_H
#define GN_TRANSPORT_COLL_COMM_PROGRESS_H

#include "transport/coll/coll.h"

struct gn_comm_progress;

/* c is complete but for c->progress. */
enum gn_status gn_comm_progress_create(struct gn_comm *c, struct gn_comm_progress **out, struct gn_err *err);
/* Ends the thread. NULL is fine. */
void gn_comm_progress_destroy(struct gn_comm_progress *p);

/* See below. */
void gn_comm_progress_take(struct gn_comm_progress *p);
void gn_comm_progress_give(struct gn_comm_progress *p);

/* Every call that touches what is in flight stands between these. Nothing when the caller makes progress. */
static inline void gn_comm_enter(const struct gn_comm *c)
{
	if (c->progress)
		gn_comm_progress_take(c->progress);
}

static inline void gn_comm_leave(const struct gn_comm *c)
{
	if (c->progress)
		gn_comm_progress_give(c->progress);
}

#endif
