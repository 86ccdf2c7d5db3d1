#include "tests/fuzz/scratch.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *scratch_file(const uint8_t *data, size_t len_bytes)
{
	static char path[PATH_MAX];
	const char *folder = getenv("TMPDIR");
	int fd;

	snprintf(path, sizeof path, "%s/gannet-fuzz-%ld", folder ? folder : "/tmp", (long)getpid());
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data, len_bytes) != (ssize_t)len_bytes) {
		perror(path);
		exit(2);
	}
	close(fd);
	return path;
}

void must_be_good(enum gn_status status, const struct gn_err *err)
{
	if (status && getenv("FUZZ_GOOD")) {
		fprintf(stderr, "a good input was refused: %s\n", err->text);
		abort();
	}
}
