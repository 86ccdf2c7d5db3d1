/* The state of a heartbeat. Private to the heartbeat.
 *
 * One thread per process owns all connections. The program's threads post requests under the lock and wake it. Rank 0's side is in
 * heartbeat_coordinator.c, the other ranks' side in heartbeat_member.c, queries of the ranks' states in state_query.c; what is
 * known of lost ranks in heartbeat_losses.c.
 */
#ifndef GN_TRANSPORT_HEALTH_HEARTBEAT_INTERNAL_H
#define GN_TRANSPORT_HEALTH_HEARTBEAT_INTERNAL_H

#include "transport/auth/auth_listener.h"
#include "transport/auth/handshake.h"
#include "transport/health/heartbeat.h"

#include <pthread.h>
#include <stdatomic.h>

/* The messages of the heartbeat and their transfer over a TCP stream. Private to the heartbeat.
 *
 * All messages have the same size and use the host's byte order: all peers run the same build, and a peer of another byte order
 * fails the check of the magic number. */

/* Holds a struct gn_record of transport/health/recorder.h. */
#define GN_HEARTBEAT_TEXT_MAX 500

enum gn_heartbeat_type {
	GN_HEARTBEAT_BEAT = 1,
	GN_HEARTBEAT_LEAVE,	 /* to rank 0: this rank leaves in an orderly way */
	GN_HEARTBEAT_ABORT,	 /* to rank 0: this rank aborts; text: why */
	GN_HEARTBEAT_LOST,	 /* from rank 0: `rank` is lost; text: why, and the state of the others */
	GN_HEARTBEAT_LEFT,	 /* from rank 0: `rank`, the first, has left */
	GN_HEARTBEAT_ALL_LEFT,	 /* from rank 0: all ranks have left */
	GN_HEARTBEAT_SUSPECT,	 /* to rank 0: an operation makes no progress; its number, the time until the next report */
	GN_HEARTBEAT_QUERY,	 /* from rank 0: asks for the record of an operation */
	GN_HEARTBEAT_RECORD,	 /* to rank 0: the answer, a struct gn_record */
	GN_HEARTBEAT_FAILURE,	 /* from rank 0: the job cannot continue; `rank` is the negated status, text the diagnosis */
	GN_HEARTBEAT_LEFT_SET	 /* from rank 0: rank `rank` + i has left if bit i of the data is set, from the lowest bit of each byte */
};

/* Ranks in one GN_HEARTBEAT_LEFT_SET. */
#define GN_HEARTBEAT_SET_RANKS (8 * GN_HEARTBEAT_TEXT_MAX)

struct gn_heartbeat_message {
	uint32_t magic, type, rank;
	int32_t cause; /* ABORT, LOST: the status by which the rank has failed, as it said */
	char text[GN_HEARTBEAT_TEXT_MAX];
};

#define GN_HEARTBEAT_MAGIC 0x33574e47u

struct gn_heartbeat_stream {
	int fd; /* -1: closed */
	struct gn_stream_keys keys;
	size_t got; /* bytes of `record` received */
	uint64_t heard_ns; /* when the last message was received, gn_clock_ns() */
	struct gn_heartbeat_message in;
	unsigned char record[sizeof(struct gn_heartbeat_message) + GN_RECORD_TAG_BYTES];
};

enum gn_heartbeat_read { GN_HEARTBEAT_NOTHING, GN_HEARTBEAT_MESSAGE, GN_HEARTBEAT_CLOSED, GN_HEARTBEAT_MALFORMED };

/* Receives without blocking; a record that is not authentic is malformed. After GN_HEARTBEAT_MESSAGE s->in is valid until the next call. */
enum gn_heartbeat_read gn_heartbeat_read(struct gn_heartbeat_stream *s);
/* A message with a text: NULL is empty; truncated to GN_HEARTBEAT_TEXT_MAX - 1 characters. */
struct gn_heartbeat_message gn_heartbeat_text_message(enum gn_heartbeat_type type, int rank, const char *text);
/* A message with len_bytes of data, at most GN_HEARTBEAT_TEXT_MAX. */
struct gn_heartbeat_message gn_heartbeat_data_message(enum gn_heartbeat_type type, int rank, const void *data, size_t len_bytes);
/* Sends a message; blocks until deadline_ns (gn_clock_ns) at most. Past the deadline the call still sends what the kernel accepts
 * at once. On failure the stream is shut down, so that the peer never reads part of a message and then another one; the next read
 * returns GN_HEARTBEAT_CLOSED. */
void gn_heartbeat_send(struct gn_heartbeat_stream *s, const struct gn_heartbeat_message *m, uint64_t deadline_ns);
/* The deadline of sends that begin now, shared by all streams they go to. */
uint64_t gn_heartbeat_send_deadline_ns(void);
/* Closes without losing sent data: half-closes, then reads until the peer closes or until deadline_ns. */
void gn_heartbeat_stream_close(struct gn_heartbeat_stream *s, uint64_t deadline_ns);

enum gn_heartbeat_peer_state {
	GN_HEARTBEAT_PEER_ABSENT, /* has not joined yet */
	GN_HEARTBEAT_PEER_CONNECTED,
	GN_HEARTBEAT_PEER_LEFT, /* in an orderly way */
	GN_HEARTBEAT_PEER_LOST
};

struct gn_heartbeat_peer {
	enum gn_heartbeat_peer_state state;
	struct gn_heartbeat_stream stream;
};

struct gn_state_query;

struct gn_heartbeat {
	struct gn_heartbeat_options options;
	pthread_t thread;
	int wake_fd; /* eventfd that interrupts the thread's poll */

	/* rank 0 */
	struct gn_auth_listener *listener;
	int remaining; /* members that are absent or connected */
	struct gn_heartbeat_peer *members; /* [rank]; 0 is unused */
	int epoll_fd; /* the members' streams and wake_fd; -1: none */
	atomic_uint_fast64_t *heard_ns; /* [rank]: when the last message of a connected member was received; 0: not connected */
	uint64_t left_sent_ns; /* when the ranks that have left were reported last; 0: never */
	int left_unsent;       /* others have left since */
	uint64_t started_ns;
	atomic_uint_fast64_t join_by_ns;
	struct gn_state_query *query;
	/* members */
	struct gn_heartbeat_stream coordinator;

	/* The last suspected stall: the operation, whether its time limit had not been reached, the time between two suspicions,
	 * and when the next is due. */
	uint64_t suspected, suspect_pause_ns, suspect_at_ns;
	int suspect_in_time;

	/* heartbeat_losses.c */
	atomic_int first;   /* what came first. 0: nothing; the lost rank + 1; the status of a failure of the job, which is negative */
	atomic_int failure; /* the status of a failure of the job; 0: none */
	atomic_int has_silent; /* a rank was lost because nothing came from it */
	atomic_uint losses; /* lost ranks, and the failure */
	atomic_int *causes;   /* [rank]: why it aborted, as it said; set before its loss */
	atomic_uint *lost_at; /* [rank]: its place among the losses, from 1 on; 0: not lost */
	atomic_int left; /* 0: none; the first rank that left + 1 */
	atomic_uint_fast64_t *left_ns; /* [rank]: when it left; 0: it has not */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	char **reasons; /* [rank] of its loss */
	char failure_text[GN_HEARTBEAT_TEXT_MAX];
	char **hosts;
	enum gn_heartbeat_exit leaving;
	int leave_sent, all_left, stop;
	char abort_reason[GN_HEARTBEAT_TEXT_MAX]; /* still to be sent, with this rank's cause; "" for none */
};

/* heartbeat_losses.c. On failure of create, release follows. */
enum gn_status gn_heartbeat_losses_create(struct gn_heartbeat *h, struct gn_err *err);
void gn_heartbeat_losses_release(struct gn_heartbeat *h);
/* Record a lost rank, the first failure of the job, a rank that leaves. Again for the same rank: no effect. */
void gn_heartbeat_set_lost(struct gn_heartbeat *h, int rank, const char *reason);
void gn_heartbeat_set_failure(struct gn_heartbeat *h, enum gn_status status, const char *text);
void gn_heartbeat_set_left(struct gn_heartbeat *h, int rank);
void gn_heartbeat_set_all_left(struct gn_heartbeat *h);

/* Rank 0. */
enum gn_status gn_heartbeat_coordinator_open(struct gn_heartbeat *h, struct gn_err *err);
/* Waits up to timeout_ms for messages and connections and handles them. */
void gn_heartbeat_coordinator_progress(struct gn_heartbeat *h, int timeout_ms);
/* Marks members as lost that have been silent for too long or have not joined in time. */
void gn_heartbeat_coordinator_check(struct gn_heartbeat *h, uint64_t now);
/* Sends to all connected members but `rank`. Blocks no longer than one send. */
void gn_heartbeat_coordinator_broadcast(struct gn_heartbeat *h, enum gn_heartbeat_type type, int rank, const char *text);
/* Records a rank that leaves. The first is reported to all members at once. */
void gn_heartbeat_coordinator_peer_left(struct gn_heartbeat *h, int rank);
/* Reports the other ranks that have left, once a second at most: when all leave, that is not size reports to size members. */
void gn_heartbeat_coordinator_report_left(struct gn_heartbeat *h, uint64_t now);

/* state_query.c, rank 0. */
enum gn_status gn_state_query_create(int size, struct gn_state_query **out, struct gn_err *err);
void gn_state_query_destroy(struct gn_state_query *q);
/* Handles GN_HEARTBEAT_SUSPECT and GN_HEARTBEAT_RECORD from a member. */
void gn_state_query_receive(struct gn_heartbeat *h, int rank, const struct gn_heartbeat_message *in);
/* A rank is lost: queries the state of the others for up to 0.3 s, then reports the loss to all; reports it at once when no rank
 * can be queried. Ranks that are lost meanwhile are reported after it. After a failure of the job nothing is reported. */
void gn_state_query_peer_lost(struct gn_heartbeat *h, int rank, const char *reason);
/* Reports a loss whose query is in progress, without waiting for more answers. */
void gn_state_query_report_loss(struct gn_heartbeat *h);
/* Members: answer a query. */
void gn_state_query_reply(struct gn_heartbeat *h, const struct gn_heartbeat_message *in);
/* All ranks: samples the flight recorder and reports a suspected stall. */
void gn_state_query_progress(struct gn_heartbeat *h, uint64_t now);

/* Members. Connects to one address of rank 0 until connect_by_ns at most, and waits for the handshake until answer_by_ns
 * (gn_clock_ns). Returns 1 when connected, 0 on failure, -1 when the connection was refused. */
int gn_heartbeat_member_connect(struct gn_heartbeat *h, const char *address, const struct gn_heartbeat_contact *contact,
				uint64_t connect_by_ns, uint64_t answer_by_ns, struct gn_err *err);
/* Waits up to timeout_ms for messages from rank 0 and handles them. */
void gn_heartbeat_member_progress(struct gn_heartbeat *h, int timeout_ms);
/* Marks rank 0 as lost when it has been silent for too long. */
void gn_heartbeat_member_check(struct gn_heartbeat *h, uint64_t now);

#endif
