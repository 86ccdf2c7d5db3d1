/* Counter-based random numbers: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
 * 2011.
 *
 * A block of four 32-bit numbers is a pure function of a key (the seed) and a counter. Any rank or thread computes any number
 * without shared state, and a resumed run draws the same numbers as an uninterrupted one.
 */
#ifndef GN_BASE_PHILOX_H
#define GN_BASE_PHILOX_H

#include <stddef.h>
#include <stdint.h>

/* out = Philox4x32-10(counter, key). out may be counter. */
void gn_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A random stream for one purpose, named by (seed; stream, a, b); draws increase a counter inside it. Streams with different names
 * never overlap; each has 2^32 blocks. */
struct gn_rng {
	uint32_t key[2];
	uint32_t counter[4];
	uint32_t block[4];
	unsigned used;
};

/* stream: the purpose, enum gn_rng_stream; a and b: 32 bits each (an epoch, an index). */
enum gn_rng_stream { GN_RNG_SHUFFLE = 1, GN_RNG_AUGMENT, GN_RNG_INIT, GN_RNG_DROPOUT, GN_RNG_SYNTHETIC, GN_RNG_TEST,
		     GN_RNG_SIM, GN_RNG_MIXUP, GN_RNG_SWEEP, GN_RNG_COMPRESS, GN_RNG_POLICY, GN_RNG_ERASE, GN_RNG_CUTMIX };
void gn_rng_init(struct gn_rng *r, uint64_t seed, enum gn_rng_stream stream, uint32_t a, uint32_t b);
uint32_t gn_rng_u32(struct gn_rng *r);
/* Uniform in 0 .. bound-1 without bias; bound > 0. */
uint32_t gn_rng_below(struct gn_rng *r, uint32_t bound);
/* Uniform in [0, 1), 53 bits. */
double gn_rng_uniform(struct gn_rng *r);
/* Normal, mean 0, deviation 1 (Box-Muller). */
double gn_rng_normal(struct gn_rng *r);
/* Writes the next count normal numbers: those of count calls of gn_rng_normal() to within 4e-15, in a fraction of the time.
 * Afterwards the stream is where those calls would leave it. */
void gn_rng_normals(struct gn_rng *r, size_t count, double *out);

#endif
