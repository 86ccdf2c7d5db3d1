#include "src/base/process.h"

#include "src/base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int gn_process_read(int64_t pid, struct gn_process *out)
{
	char path[64], text[1024];
	const char *end;

	snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
	gn_file_read_start(path, text, sizeof text);
	/* the name of the program may contain any character */
	end = strrchr(text, ')');
	return end && sscanf(end, ") %c %d %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNd64, &out->state, &out->parent,
			     &out->group, &out->start) == 4;
}

int gn_process_has_ended(const struct gn_process *p)
{
	return p->state == 'Z' || p->state == 'X';
}

double gn_process_age_s(void)
{
	struct gn_process self;
	struct timespec now;

	if (!gn_process_read(getpid(), &self) || clock_gettime(CLOCK_BOOTTIME, &now))
		return -1;
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9 - (double)self.start / (double)sysconf(_SC_CLK_TCK);
}
