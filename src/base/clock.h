/* Monotonic time: never decreases, is unrelated to the time of day, and is comparable only within one machine since boot. */
#ifndef GN_BASE_CLOCK_H
#define GN_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since an arbitrary fixed point. Any thread, never blocks, cannot fail. */
uint64_t gn_clock_ns(void);
/* The same in seconds. */
double gn_clock_s(void);
/* The time of day: seconds since 1970. */
double gn_clock_unix_s(void);
/* Processor time of the calling thread, seconds of user and system: independent of other processes and of waiting for a disk. */
double gn_clock_thread_cpu_s(void);
/* Blocks the calling thread for so long, or until it has handled a signal. */
void gn_clock_sleep_ns(uint64_t ns);
/* Spin-wait hint, called between two reads of memory that another processor writes: avoids the memory-order misspeculation penalty
 * when the value changes, and yields execution resources to the sibling hyperthread. Takes some 10 ns. */
static inline void gn_clock_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb");
#endif
}

#endif
