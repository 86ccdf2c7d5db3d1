/* What sending and receiving messages share. */
#ifndef GN_TRANSPORT_COLL_MESSAGES_INTERNAL_H
#define GN_TRANSPORT_COLL_MESSAGES_INTERNAL_H

#include "transport/coll/comm_internal.h"
#include "transport/coll/messages.h"
#include "transport/ucx/ucx.h"

/* What precedes the user's header on the wire; in the sender's byte order, as everything between ranks. */
struct gn_message_wire {
	uint64_t token;	   /* derived from the job's secret */
	uint32_t from;	   /* world rank */
	uint32_t sequence; /* of messages from this rank to that one; answers and credits have none */
	uint32_t call;	   /* which of the sender's calls; 0: none */
	uint16_t kind, is; /* enum gn_message_is */
	uint32_t credits;  /* messages that the sender of this one has finished since it said so last */
	uint32_t header_bytes;
};

/* Credits are returned in a message of their own when so many are owed; fewer go along with other messages. */
#define GN_MESSAGES_OWED_MAX (GN_MESSAGES_CREDITS / 2)

enum gn_message_is { GN_MESSAGE_PLAIN, GN_MESSAGE_ANSWER, GN_MESSAGE_CREDIT };

#define GN_MESSAGE_WIRE_MAX (sizeof(struct gn_message_wire) + GN_MESSAGE_HEADER_MAX)
_Static_assert(GN_MESSAGE_WIRE_MAX <= GN_UCX_AM_HEADER_MAX, "the header fits into a UCX active message");

/* One UCX message on its way out: a user's, an answer, or credits. */
struct gn_message_send_state {
	struct gn_ucx_request request; /* first: it leads back here */
	struct gn_messages *owner;
	struct gn_message_send *user; /* NULL: an answer or credits */
	struct gn_message_send_state *next;
	struct gn_message_send_state *newer, *older; /* of a user's: among those not complete */
	int to;
	uint32_t call; /* of a user's call; 0: a message */
	int is_sent, is_answered, is_finished;
	enum gn_status status;
	const void *data;
	size_t data_bytes;
	void (*answered)(void *context); /* of an answer with data of the caller's */
	void *context;
	void *copy; /* of an answer's data */
	size_t wire_bytes;
	unsigned char wire[GN_MESSAGE_WIRE_MAX];
};

enum gn_inbound_state { GN_INBOUND_OFFERED, GN_INBOUND_COMING, GN_INBOUND_HERE, GN_INBOUND_HANDLED };

/* One that has arrived, or is announced. */
struct gn_inbound {
	struct gn_message message; /* first: it leads back here */
	struct gn_ucx_request request;
	struct gn_messages *owner;
	struct gn_inbound *next;
	struct gn_message_wire wire;
	struct gn_message_send *answers; /* of an answer: to which call */
	void *kept;   /* UCX's: bytes, or the descriptor of a rendezvous */
	void *memory; /* of our own */
	size_t counted_bytes; /* of GN_MESSAGES_RECEIVE_BYTES */
	enum gn_inbound_state state;
	int is_kept, is_answered;
	_Alignas(8) unsigned char header[GN_MESSAGE_HEADER_MAX]; /* receivers read it as what it is */
};

struct gn_message_peer {
	struct gn_message_peer *next_busy; /* of those that have something to do */
	int is_busy, is_lost, is_connected;
	uint32_t send_sequence, receive_sequence;
	uint32_t credits; /* messages that may still be sent */
	uint32_t owed;	  /* credits that the peer has not been told of */
	struct gn_message_send_state *waiting, **waiting_end; /* for credits */
	struct gn_inbound *inbound;			      /* by sequence, from receive_sequence on */
};

struct gn_messages {
	struct gn_comm *comm;
	uint64_t token;
	int size, rank;
	size_t held_bytes;
	struct gn_message_kind kinds[GN_MESSAGE_KINDS];
	struct gn_message_peer *peers;
	struct gn_message_peer *busy;
	struct gn_inbound *answers; /* whose data are still to come */
	size_t coming; /* data that UCX writes now, also of lost ranks */
	struct gn_message_send_state *finished, **finished_end; /* completions to be called */
	struct gn_message_send_state *free_sends;
	struct gn_message_send_state *newest; /* of users' sends that are not complete */
	struct gn_message_send_state *without_user; /* that UCX may still work on, by their newer and older: answers, credits, sends to lost ranks */
	unsigned losses; /* gn_world_losses() that is dealt with */
	struct gn_message_send_state **calls; /* by number less one; NULL: free */
	uint32_t call_count, free_call;
	struct gn_messages_counts counts;
};

/* --- messages_send.c --- */

void gn_message_make_busy(struct gn_messages *m, struct gn_message_peer *p);
/* Ends a user's send, or what was ours: its completion is called at the end of this progress. */
void gn_message_finish(struct gn_message_send_state *s, enum gn_status status);
struct gn_message_send_state *gn_message_take_send(struct gn_messages *m, int to);
/* The call of this number to that rank; NULL: there is none. */
struct gn_message_send_state *gn_message_call_of(struct gn_messages *m, uint32_t call, int rank);
/* Of a completed one: its call's number is free, it is no longer among users' sends, its memory may be used again. */
void gn_message_forget_call(struct gn_message_send_state *s);
void gn_message_list(struct gn_message_send_state **newest, struct gn_message_send_state *s);
void gn_message_unlist(struct gn_message_send_state *s);
void gn_message_return_send(struct gn_message_send_state *s);
/* As many of those that wait as there are credits. */
void gn_message_launch_waiting(struct gn_messages *m, struct gn_message_peer *p);
/* Tells the peer of its credits if enough are owed. */
void gn_message_return_credits(struct gn_messages *m, struct gn_message_peer *p);
void gn_message_take_credits(struct gn_messages *m, struct gn_message_peer *p, uint32_t credits);

/* --- messages_receive.c --- */

int gn_message_arrived(void *context, const struct gn_ucx_am *am);
/* Starts what rendezvous may begin now. Inside the communicator. */
void gn_message_receive_offered(struct gn_messages *m, struct gn_message_peer *p);
void gn_message_receive_answers(struct gn_messages *m);
/* Runs the handlers of what is next in order. Inside the communicator, which is left while a handler runs. Returns how many ran. */
unsigned gn_message_deliver(struct gn_messages *m, struct gn_message_peer *p);
/* Whether the peer's next message could be handled or received now. */
int gn_message_has_work(const struct gn_messages *m, const struct gn_message_peer *p);
void gn_message_drop_all(struct gn_messages *m, struct gn_message_peer *p);

static inline int gn_message_rank_of(const struct gn_messages *m, const struct gn_message_peer *p)
{
	return (int)(p - m->peers);
}

#endif
