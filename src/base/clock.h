/* Monotonic time. Never goes back, unrelated to the time of day, comparable only within one machine since boot. */
#ifndef GN_BASE_CLOCK_H
#define GN_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed point. Any thread, never blocks, cannot fail. */
uint64_t gn_clock_ns(void);
/* The same in seconds. */
double gn_clock_s(void);

#endif
