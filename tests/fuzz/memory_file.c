#include "tests/fuzz/memory_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int memory_file(const uint8_t *data, size_t len_bytes, char *path, size_t path_size)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, len_bytes) != (ssize_t)len_bytes) {
		perror("memfd_create");
		exit(2);
	}
	snprintf(path, path_size, "/proc/self/fd/%d", fd);
	return fd;
}
