/* The state of connection setup. Private to cm*.c. */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_CM_INTERNAL_H
#define GN_TRANSPORT_NCCL_PLUGIN_CM_INTERNAL_H

#include "transport/nccl/plugin/cm.h"

/* A non-blocking TCP socket with send and receive buffers. One thread at a time. */

/* Larger than any UCX address. */
#define GN_NB_SOCKET_MAX 16384

struct gn_nb_socket {
	int fd; /* -1: none */
	size_t sent, to_send, received;
	uint8_t *out, *in; /* in: GN_NB_SOCKET_MAX bytes */
};

/* Takes ownership of the descriptor, also on failure: 0, or -1 when memory is exhausted. */
int gn_nb_socket_open(struct gn_nb_socket *m, int fd);
void gn_nb_socket_close(struct gn_nb_socket *m);
/* Frees the buffers; the descriptor returned is owned by the caller. */
int gn_nb_socket_detach(struct gn_nb_socket *m);
/* Appends to the data to be sent: 0, or -1 when memory is exhausted. */
int gn_nb_socket_put(struct gn_nb_socket *m, const void *data, size_t bytes);
/* Sends: 1 when all is sent; 0 when it would block; -1 on error, with errno. */
int gn_nb_socket_push(struct gn_nb_socket *m);
/* Receives until `in` holds `bytes` bytes, never more: 1 when it does; 0 when it would block; -1 at the end or on error, with
 * errno. */
int gn_nb_socket_pull(struct gn_nb_socket *m, size_t bytes);
/* Begins to connect to a binary address: the descriptor, or -1 with errno. */
int gn_nb_socket_connect(int family, const void *address, int port);

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
/* --- cm_connect.c: accepting --- */

/* Accepts connections and advances all that are being set up. */
void gn_cm_progress(struct gn_worker *w);
void gn_incoming_drop(struct gn_worker *w, struct gn_incoming *in);
/* --- cm_connect.c --- */

void gn_outgoing_drop(struct gn_worker *w, struct gn_outgoing *out);

#endif
