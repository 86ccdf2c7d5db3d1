/* What meeting is made of. Private to ncclnet/meet*.c. */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_CM_INTERNAL_H
#define GN_TRANSPORT_NCCL_PLUGIN_CM_INTERNAL_H

#include "transport/nccl/plugin/nb_socket.h"
#include "transport/nccl/plugin/cm.h"

/* Addresses of a handle that are tried at most. */
#define GN_ATTEMPTS_MAX 18
enum { GN_CM_KEEP = 'K', GN_CM_DROP = 'D' };

struct gn_listener {
	struct gn_listener *next;
	struct gn_context *owner;
	struct gn_worker *engine;
	uint8_t token[GN_TOKEN_BYTES], answer[GN_TOKEN_BYTES];
	struct gn_conn *ready; /* oldest first */
};

/* Somebody who has connected. */
struct gn_incoming {
	struct gn_incoming *next;
	struct gn_nb_socket mail;
	struct gn_listener *listener; /* NULL until the token has come */
	struct gn_conn *conn;
	uint64_t since_ns;
	char host[64];
};

struct gn_attempt {
	int family;
	uint8_t address[16];
	struct gn_nb_socket mail;
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

struct gn_cm {
	int fd, port; /* -1: nobody listens yet */
	struct gn_listener *listeners;
	struct gn_incoming *incoming;
	struct gn_outgoing *outgoing;
	unsigned strangers; /* that have not said a token yet */
};

enum gn_status gn_cm_get(struct gn_worker *e, struct gn_cm **out, struct gn_err *err);
/* --- meet_in.c --- */

/* A turn for everyone who has connected. */
void gn_cm_serve(struct gn_worker *e);
void gn_incoming_drop(struct gn_worker *e, struct gn_incoming *in);
/* --- meet_out.c --- */

void gn_outgoing_drop(struct gn_worker *e, struct gn_outgoing *out);

#endif
