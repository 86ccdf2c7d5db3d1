/* A library that bench/peers measures beside Gannet: who the ranks are, two buffers, a float sum over all ranks.
 *
 * One file each (mpi.c, gloo.cc, floor.c), linked with main.c, which measures with the loop of gannet bench itself
 * (src/cmd/bench_row.c) and prints its JSON rows. A failure ends the program: these are not libraries. */
#ifndef GN_BENCH_PEERS_PEER_H
#define GN_BENCH_PEERS_PEER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct peer {
	int rank, size;
	float *in, *out; /* of the bytes asked for */
};

/* In floor's case, the size of the world; elsewhere what started the program says it. */
void peer_open(int *argc, char ***argv, int ranks, size_t buffer_bytes, struct peer *p);
/* in NULL: in place. */
void peer_sum(struct peer *p, const float *in, float *out, size_t count);
/* Each value becomes the largest of all ranks; nobody leaves before all have come. */
void peer_max(struct peer *p, double *values, size_t count);
void peer_close(struct peer *p);
void peer_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#ifdef __cplusplus
}
#endif
#endif
