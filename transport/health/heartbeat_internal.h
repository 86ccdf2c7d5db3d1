/* A watch from the inside: private to watch*.c.
 *
 * One thread per process does all of the connection's work; the program posts wishes under the lock and wakes it. Rank 0's
 * side of the connections is watch_hub.c, the others' watch_spoke.c.
 */
#ifndef GN_TRANSPORT_HEALTH_HEARTBEAT_INTERNAL_H
#define GN_TRANSPORT_HEALTH_HEARTBEAT_INTERNAL_H

#include "transport/auth/auth_listener.h"
#include "transport/health/heartbeat.h"
#include "transport/health/heartbeat_wire.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

enum gn_heartbeat_presence { GN_HEARTBEAT_ABSENT, GN_HEARTBEAT_HERE, GN_HEARTBEAT_AWAY, GN_HEARTBEAT_DEAD };

struct gn_heartbeat_peer {
	enum gn_heartbeat_presence state;
	struct gn_heartbeat_stream stream;
};

struct gn_state_query;

struct gn_heartbeat {
	struct gn_heartbeat_options options;
	pthread_t thread;
	int wake;

	/* rank 0 */
	struct gn_auth_listener *door;
	int here_or_absent;
	struct gn_heartbeat_peer *members;
	int ready; /* the epoll that has them all, and wake; -1: none */
	int told_left; /* all know of the first that left */
	uint64_t began_ns;
	atomic_uint_fast64_t join_by_ns;
	struct gn_state_query *inquiry;
	/* others */
	struct gn_heartbeat_stream up;

	/* the last suspicion: of which operation, whether its time was not over yet, how long until the next, and when that is */
	uint64_t suspected, suspect_pause_ns, suspect_at_ns;
	int suspect_in_time;

	atomic_int lost; /* rank + 1; or a verdict's status, which is negative */
	atomic_int left; /* rank + 1 of the first that left */
	atomic_uint_fast64_t left_ns;

	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	char how[GN_HEARTBEAT_TEXT_MAX];
	char **hosts;
	int leaving, said_goodbye, all_gone, stop;
	char gives_up[GN_HEARTBEAT_TEXT_MAX];
};

/* The first loss is kept. */
void gn_heartbeat_note_lost(struct gn_heartbeat *w, int rank, const char *how);
/* A verdict counts as one. */
void gn_heartbeat_note_verdict(struct gn_heartbeat *w, enum gn_status status, const char *text);
/* So is the first to leave: the next may be leaving because of it. */
void gn_heartbeat_note_left(struct gn_heartbeat *w, int rank);
void gn_heartbeat_note_all_gone(struct gn_heartbeat *w);

/* Rank 0. */
enum gn_status gn_heartbeat_coordinator_open(struct gn_heartbeat *w, struct gn_err *err);
void gn_heartbeat_coordinator_turn(struct gn_heartbeat *w, int timeout_ms);
/* Who has been silent too long, or has not come? */
void gn_heartbeat_coordinator_judge(struct gn_heartbeat *w, uint64_t now);
/* To everyone who is still connected, but not to the rank that it is about. Does not block for longer than one send may. */
void gn_heartbeat_coordinator_announce(struct gn_heartbeat *w, enum gn_heartbeat_type type, int rank, const char *text);
/* That rank has said goodbye: all are told of the first that does, who is the only one that matters to them. */
void gn_heartbeat_coordinator_leave(struct gn_heartbeat *w, int rank);

/* watch_inquiry.c. Rank 0's side: */
enum gn_status gn_state_query_create(int size, struct gn_state_query **out, struct gn_err *err);
void gn_state_query_destroy(struct gn_state_query *q);
void gn_state_query_hear(struct gn_heartbeat *w, int rank, const struct gn_heartbeat_message *in);
/* A rank is lost: the others are asked what they are in, for some tenths of a second, before they are told; at once when nobody can
 * be asked. Of several the first is told. */
void gn_state_query_lose(struct gn_heartbeat *w, int rank, const char *how);
/* Tells of a loss that answers are still awaited for, if there is one. */
void gn_state_query_settle(struct gn_heartbeat *w);
/* The others': */
void gn_state_query_answer(struct gn_heartbeat *w, const struct gn_heartbeat_message *in);
/* All: looks at the program's progress. */
void gn_state_query_turn(struct gn_heartbeat *w, uint64_t now);

/* The others. Knocks at one address, for which it tries until connect_by_ns, and waits until answer_by_ns (gn_clock_ns) to be let
 * in; 1 when it was, -1 when nobody listens there. */
int gn_heartbeat_member_knock(struct gn_heartbeat *w, const char *address, const struct gn_heartbeat_contact *invitation,
			 uint64_t connect_by_ns, uint64_t answer_by_ns, struct gn_err *err);
void gn_heartbeat_member_turn(struct gn_heartbeat *w, int timeout_ms);
void gn_heartbeat_member_judge(struct gn_heartbeat *w, uint64_t now);

#endif
