/* The state of connection setup. Private to cm*.c. */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_CM_INTERNAL_H
#define GN_TRANSPORT_NCCL_PLUGIN_CM_INTERNAL_H

#include "transport/nccl/plugin/nb_socket.h"
#include "transport/nccl/plugin/cm.h"

/* The addresses in a handle. */
#define GN_ATTEMPTS_MAX 18
enum { GN_CM_KEEP = 'K', GN_CM_DROP = 'D' };

struct gn_listener {
	struct gn_listener *next;
	struct gn_context *owner;
	struct gn_worker *worker;
	uint8_t token[GN_TOKEN_BYTES], answer[GN_TOKEN_BYTES];
	struct gn_conn *ready; /* oldest first */
};

/* A connection from a client whose setup is in progress. */
struct gn_incoming {
	struct gn_incoming *next;
	struct gn_nb_socket socket;
	struct gn_listener *listener; /* NULL until its token has arrived */
	struct gn_conn *conn;
	uint64_t since_ns;
	char host[64];
};

struct gn_attempt {
	int family;
	uint8_t address[16];
	struct gn_nb_socket socket;
};

/* An attempt to connect to a listener. */
struct gn_outgoing {
	struct gn_outgoing *next;
	struct gn_handle handle;
	struct gn_conn *conn;
	struct gn_attempt attempts[GN_ATTEMPTS_MAX];
	int count, started;
	uint64_t started_ns; /* of the latest address */
	int last_errno;
};

struct gn_cm {
	int fd, port; /* fd -1: there has been no listener yet */
	struct gn_listener *listeners;
	struct gn_incoming *incoming;
	struct gn_outgoing *outgoing;
	unsigned unauthenticated; /* incoming connections whose token has not arrived */
};

enum gn_status gn_cm_get(struct gn_worker *w, struct gn_cm **out, struct gn_err *err);
/* --- cm_accept.c --- */

/* Accepts connections and advances all that are being set up. */
void gn_cm_progress(struct gn_worker *w);
void gn_incoming_drop(struct gn_worker *w, struct gn_incoming *in);
/* --- cm_connect.c --- */

void gn_outgoing_drop(struct gn_worker *w, struct gn_outgoing *out);

#endif
