#include "src/base/dynlib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

void *gn_dynlib_open(const char *name, const char *folder, char *why, size_t size)
{
	static const char *const parts[] = {"lib64", "lib"};
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	char path[4096];

	if (!library)
		snprintf(why, size, "%s", dlerror());
	for (size_t i = 0; !library && i < sizeof parts / sizeof *parts; i++) {
		snprintf(path, sizeof path, "%s/%s/%s", folder, parts[i], name);
		library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	}
	return library;
}

/* POSIX allows the conversion of an object pointer to a function pointer. */
int gn_dynlib_find(void *library, const char *symbol, void *function)
{
	void *address = dlsym(library, symbol);

	memcpy(function, &address, sizeof address);
	return address != NULL;
}
