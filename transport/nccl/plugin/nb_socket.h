/* A TCP socket that sends and receives without blocking. Private to ncclnet/meet*.c. */
#ifndef GN_NCCLNET_MAIL_H
#define GN_NCCLNET_MAIL_H

#include <stddef.h>
#include <stdint.h>

/* Larger than any UCX address. */
#define GN_MAIL_MAX 16384

struct gn_mail {
	int fd; /* -1: none */
	size_t sent, to_send, received;
	uint8_t *out, *in; /* in: GN_MAIL_MAX bytes */
};

/* Takes the descriptor, whatever happens: 0, or -1 when there is no memory. */
int gn_mail_open(struct gn_mail *m, int fd);
void gn_mail_close(struct gn_mail *m);
/* Leaves the descriptor to the caller. */
int gn_mail_detach(struct gn_mail *m);
/* Puts bytes at the end of what is to be sent: 0, or -1. */
int gn_mail_put(struct gn_mail *m, const void *data, size_t bytes);
/* 1: all sent; 0: not yet; -1: broken. */
int gn_mail_push(struct gn_mail *m);
/* 1: so many bytes have come; 0: not yet; -1: broken or at its end. Never reads more. */
int gn_mail_pull(struct gn_mail *m, size_t bytes);
/* Begins to connect to a numeric address: the descriptor, or -1 with errno. */
int gn_mail_connect(int family, const void *address, int port);

#endif
