/* A non-blocking TCP socket with send and receive buffers. One thread at a time. Private to cm*.c. */
#ifndef GN_TRANSPORT_NCCL_PLUGIN_NB_SOCKET_H
#define GN_TRANSPORT_NCCL_PLUGIN_NB_SOCKET_H

#include <stddef.h>
#include <stdint.h>

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

#endif
