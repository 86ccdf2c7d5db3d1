/* What meeting is made of. Private to ncclnet/meet*.c. */
#ifndef GN_NCCLNET_MEET_INTERNAL_H
#define GN_NCCLNET_MEET_INTERNAL_H

#include "transport/nccl/plugin/nb_socket.h"
#include "transport/nccl/plugin/cm.h"

/* Addresses of a handle that are tried at most. */
#define GN_ATTEMPTS_MAX 18
enum { GN_MEET_KEEP = 'K', GN_MEET_DROP = 'D' };

struct gn_listener {
	struct gn_listener *next;
	struct gn_context *owner;
	struct gn_engine *engine;
	uint8_t token[GN_TOKEN_BYTES], answer[GN_TOKEN_BYTES];
	struct gn_conn *ready; /* oldest first */
};

/* Somebody who has connected. */
struct gn_incoming {
	struct gn_incoming *next;
	struct gn_mail mail;
	struct gn_listener *listener; /* NULL until the token has come */
	struct gn_conn *conn;
	uint64_t since_ns;
	char host[64];
};

struct gn_attempt {
	int family;
	uint8_t address[16];
	struct gn_mail mail;
};

/* Ours, on the way to one listener. */
struct gn_outgoing {
	struct gn_outgoing *next;
	struct gn_handle handle;
	struct gn_conn *conn;
	struct gn_attempt attempts[GN_ATTEMPTS_MAX];
	int count, started;
	uint64_t started_ns; /* the latest attempt */
	int last_errno;
};

struct gn_meet {
	int fd, port; /* -1: nobody listens yet */
	struct gn_listener *listeners;
	struct gn_incoming *incoming;
	struct gn_outgoing *outgoing;
	unsigned strangers; /* that have not said a token yet */
};

enum gn_status gn_meet_get(struct gn_engine *e, struct gn_meet **out, struct gn_err *err);
/* --- meet_in.c --- */

/* A turn for everyone who has connected. */
void gn_meet_serve(struct gn_engine *e);
void gn_incoming_drop(struct gn_engine *e, struct gn_incoming *in);
/* --- meet_out.c --- */

void gn_outgoing_drop(struct gn_engine *e, struct gn_outgoing *out);

#endif
