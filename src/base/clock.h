/* Monotonic time. Never goes back, unrelated to the time of day, comparable only within one machine since boot. */
#ifndef GN_BASE_CLOCK_H
#define GN_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed point. Any thread, never blocks, cannot fail. */
uint64_t gn_clock_ns(void);
/* The same in seconds. */
double gn_clock_s(void);
/* Between two looks at memory that another processor writes: without it the processor runs ahead with looks that it has to take
 * back when the value changes, and takes from who shares its core. Some ten nanoseconds. */
static inline void gn_clock_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

#endif
