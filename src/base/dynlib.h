/* Shared libraries that are loaded at run time, because only some machines have them. They are never unloaded. Thread safety: any
 * thread. */
#ifndef GN_BASE_DYNLIB_H
#define GN_BASE_DYNLIB_H

#include <stddef.h>

/* Loads name by the dynamic linker's search path, else from folder's lib64 or lib. Returns a handle for gn_dynlib_find(), or NULL
 * with the dynamic linker's message in why[0 .. size). */
void *gn_dynlib_open(const char *name, const char *folder, char *why, size_t size);
/* Sets *function (a pointer to a function pointer) to the symbol. Returns non-zero when found; else 0, with *function NULL. */
int gn_dynlib_find(void *library, const char *symbol, void *function);

#endif
