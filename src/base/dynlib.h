/* Shared libraries that are looked for while the program runs: those that only some machines have. They are never unloaded.
 * Thread safety: any thread. */
#ifndef GN_BASE_DYNLIB_H
#define GN_BASE_DYNLIB_H

#include <stddef.h>

/* The library as the system finds it by name, else in folder's lib64 or lib; for gn_dynlib_find. NULL when there is none, and
 * then why[0 .. size) says what the system's search said. */
void *gn_dynlib_open(const char *name, const char *folder, char *why, size_t size);
/* Sets *function, a pointer to a function, to the symbol. Returns non-zero, or 0 when the library has none; *function is NULL
 * then. */
int gn_dynlib_find(void *library, const char *symbol, void *function);

#endif
