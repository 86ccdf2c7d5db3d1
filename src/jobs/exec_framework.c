/* Names of frameworks, and which of them a Python script uses. */
#include "src/jobs/exec_environment.h"

#include "src/base/file.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRIPT_BYTES (256 << 10)

static const struct {
	const char *name;
	unsigned bit;
} frameworks[] = {{"torch", GN_EXEC_TORCH},	    {"tf", GN_EXEC_TF},	  {"horovod", GN_EXEC_HOROVOD},
		  {"deepspeed", GN_EXEC_DEEPSPEED}, {"mpi", GN_EXEC_MPI}, {"lightning", GN_EXEC_LIGHTNING}};

static const struct {
	const char *module;
	unsigned bits;
} modules[] = {{"torch", GN_EXEC_TORCH},
	       {"accelerate", GN_EXEC_TORCH},
	       {"transformers", GN_EXEC_TORCH},
	       {"tensorflow", GN_EXEC_TF},
	       {"keras", GN_EXEC_TF},
	       {"horovod", GN_EXEC_HOROVOD},
	       {"deepspeed", GN_EXEC_DEEPSPEED},
	       {"mpi4py", GN_EXEC_MPI},
	       {"lightning", GN_EXEC_LIGHTNING | GN_EXEC_TORCH},
	       {"pytorch_lightning", GN_EXEC_LIGHTNING | GN_EXEC_TORCH}};

unsigned gn_exec_framework_find(const char *name)
{
	for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++)
		if (!strcmp(frameworks[i].name, name))
			return frameworks[i].bit;
	return 0;
}

void gn_exec_framework_names(unsigned bits, struct gn_strbuf *out)
{
	const char *before = "";

	for (size_t i = 0; i < sizeof frameworks / sizeof *frameworks; i++)
		if (bits & frameworks[i].bit) {
			gn_strbuf_printf(out, "%s%s", before, frameworks[i].name);
			before = ", ";
		}
}

/* line: "import torch.nn as nn", "from tensorflow import keras", "import os, torch" */
static unsigned imports(const char *line)
{
	int is_list;
	unsigned bits = 0;

	line += strspn(line, " \t");
	is_list = !strncmp(line, "import ", 7);
	if (!is_list && strncmp(line, "from ", 5))
		return 0;
	line += is_list ? 7 : 5;
	do {
		size_t len;

		line += strspn(line, " \t,");
		for (len = 0; isalnum((unsigned char)line[len]) || line[len] == '_'; len++)
			;
		for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
			if (strlen(modules[i].module) == len && !strncmp(line, modules[i].module, len))
				bits |= modules[i].bits;
		line += len;
		line += strcspn(line, ",#\n");
	} while (is_list && *line == ',');
	return bits;
}

/* Of what is a regular file; a FIFO would block. 0 when it cannot be read. */
static int scan(const char *path, unsigned *bits)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = fd < 0 ? NULL : calloc(1, SCRIPT_BYTES + 1), *line;
	struct stat st;
	ssize_t n = -1;

	if (text && !fstat(fd, &st) && S_ISREG(st.st_mode))
		n = gn_read_some(fd, text, SCRIPT_BYTES);
	for (line = text; n > 0 && line; line = strchr(line, '\n')) {
		line += *line == '\n';
		*bits |= imports(line);
	}
	free(text);
	if (fd >= 0)
		close(fd);
	return n >= 0;
}

unsigned gn_exec_framework_guess(const char *const *argv, size_t count, int *script)
{
	*script = -1;
	for (size_t i = 0; i < count; i++) {
		size_t len = strlen(argv[i]);
		unsigned bits = 0;

		if (len < 4 || strcmp(argv[i] + len - 3, ".py") || !scan(argv[i], &bits))
			continue;
		*script = (int)i;
		return bits ? bits : GN_EXEC_ALL;
	}
	return GN_EXEC_ALL;
}
