/* A TCP socket that sends and receives without blocking. Private to ncclnet/meet*.c. */
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

/* Takes the descriptor, whatever happens: 0, or -1 when there is no memory. */
int gn_nb_socket_open(struct gn_nb_socket *m, int fd);
void gn_nb_socket_close(struct gn_nb_socket *m);
/* Leaves the descriptor to the caller. */
int gn_nb_socket_detach(struct gn_nb_socket *m);
/* Puts bytes at the end of what is to be sent: 0, or -1. */
int gn_nb_socket_put(struct gn_nb_socket *m, const void *data, size_t bytes);
/* 1: all sent; 0: not yet; -1: broken. */
int gn_nb_socket_push(struct gn_nb_socket *m);
/* 1: so many bytes have come; 0: not yet; -1: broken or at its end. Never reads more. */
int gn_nb_socket_pull(struct gn_nb_socket *m, size_t bytes);
/* Begins to connect to a numeric address: the descriptor, or -1 with errno. */
int gn_nb_socket_connect(int family, const void *address, int port);

#endif
