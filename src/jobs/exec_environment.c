#include "src/jobs/exec_environment.h"

#include "src/base/file.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AT(field) offsetof(struct gn_exec_place, field)

/* Numbers of the place, by the frameworks that read them. */
static const struct {
	unsigned frameworks;
	const char *name;
	size_t offset;
} numbers[] = {
	{~(unsigned)GN_EXEC_TF, "RANK", AT(rank)},
	{~(unsigned)GN_EXEC_TF, "WORLD_SIZE", AT(size)},
	{~(unsigned)GN_EXEC_TF, "LOCAL_RANK", AT(local_rank)},
	{~(unsigned)GN_EXEC_TF, "LOCAL_WORLD_SIZE", AT(local_size)},
	{~(unsigned)GN_EXEC_TF, "GROUP_RANK", AT(node)},
	{~(unsigned)GN_EXEC_TF, "GROUP_WORLD_SIZE", AT(nodes)},
	{GN_EXEC_MPI, "OMPI_COMM_WORLD_RANK", AT(rank)},
	{GN_EXEC_MPI, "OMPI_COMM_WORLD_SIZE", AT(size)},
	{GN_EXEC_MPI, "OMPI_COMM_WORLD_LOCAL_RANK", AT(local_rank)},
	{GN_EXEC_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE", AT(local_size)},
	{GN_EXEC_MPI, "OMPI_COMM_WORLD_NODE_RANK", AT(local_rank)},
	{GN_EXEC_DEEPSPEED, "LOCAL_SIZE", AT(local_size)},
	{GN_EXEC_DEEPSPEED, "CROSS_RANK", AT(node)},
	{GN_EXEC_DEEPSPEED, "CROSS_SIZE", AT(nodes)},
	{GN_EXEC_HOROVOD, "HOROVOD_RANK", AT(rank)},
	{GN_EXEC_HOROVOD, "HOROVOD_SIZE", AT(size)},
	{GN_EXEC_HOROVOD, "HOROVOD_LOCAL_RANK", AT(local_rank)},
	{GN_EXEC_HOROVOD, "HOROVOD_LOCAL_SIZE", AT(local_size)},
	{GN_EXEC_HOROVOD, "HOROVOD_CROSS_RANK", AT(node)},
	{GN_EXEC_HOROVOD, "HOROVOD_CROSS_SIZE", AT(nodes)},
};

struct builder {
	const struct gn_exec_place *p;
	gn_launcher_lookup lookup;
	void *context;
	struct gn_exec_environment *out;
	int failed;
};

/* Names of frameworks, and which of them a Python script uses. */

#define SCRIPT_BYTES (256 << 10)

static const struct {
	const char *name;
	unsigned bit;
} known[] = {{"torch", GN_EXEC_TORCH},	    {"tf", GN_EXEC_TF},	  {"horovod", GN_EXEC_HOROVOD},
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

__attribute__((format(printf, 3, 4))) static void set(struct builder *b, const char *name, const char *format, ...)
{
	struct gn_exec_variable *v = &b->out->items[b->out->count];
	const char *present = b->lookup(b->context, name);
	char *computed;
	va_list args;

	for (size_t i = 0; i < b->out->count; i++)
		if (!strcmp(b->out->items[i].name, name))
			return;
	va_start(args, format);
	if (vasprintf(&computed, format, args) < 0)
		computed = NULL;
	va_end(args);
	if (!computed || b->out->count == GN_EXEC_VARIABLES_MAX) {
		free(computed);
		b->failed = 1;
		return;
	}
	*v = (struct gn_exec_variable){name, computed, NULL};
	if (present && *present && strcmp(present, computed)) {
		v->value = strdup(present);
		v->computed = computed;
		b->failed |= !v->value;
	}
	b->out->count++;
}

/* Of every framework, and of what a launcher on each node needs. */
static void set_common(struct builder *b)
{
	const struct gn_exec_place *p = b->p;
	int is_six = strchr(p->master_addr, ':') != NULL;

	set(b, "MASTER_ADDR", "%s", p->master_addr);
	set(b, "MASTER_PORT", "%d", p->master_port);
	set(b, "NODE_RANK", "%d", p->node);
	set(b, "NNODES", "%d", p->nodes);
	set(b, "AZ_BATCH_MASTER_NODE", is_six ? "[%s]:%d" : "%s:%d", p->master_addr, p->master_port);
	if (*p->ifname) {
		set(b, "GLOO_SOCKET_IFNAME", "%s", p->ifname);
		set(b, "NCCL_SOCKET_IFNAME", "=%s", p->ifname);
	}
	if (*p->ucx_devices)
		set(b, "UCX_NET_DEVICES", "%s", p->ucx_devices);
}

/* torchrun takes its options from these where the command line has none; static rendezvous, so the port is used by node 0 alone. */
static void set_torchrun(struct builder *b)
{
	const struct gn_exec_place *p = b->p;

	set(b, "PET_NNODES", "%d", p->nodes);
	set(b, "PET_NODE_RANK", "%d", p->node);
	set(b, "PET_MASTER_ADDR", "%s", p->master_addr);
	set(b, "PET_MASTER_PORT", "%d", p->master_port);
	if (p->local_size > 1)
		set(b, "PET_NPROC_PER_NODE", "%d", p->local_size);
}

/* As horovodrun sets them for Gloo. */
static void set_horovod(struct builder *b)
{
	const struct gn_exec_place *p = b->p;

	set(b, "HOROVOD_HOSTNAME", "%s", p->address);
	set(b, "HOROVOD_CONTROLLER", "gloo");
	set(b, "HOROVOD_CPU_OPERATIONS", "gloo");
	if (*p->ifname)
		set(b, "HOROVOD_GLOO_IFACE", "%s", p->ifname);
	if (p->horovod_port) {
		set(b, "HOROVOD_GLOO_RENDEZVOUS_ADDR", "%s", p->master_addr);
		set(b, "HOROVOD_GLOO_RENDEZVOUS_PORT", "%d", p->horovod_port);
	}
}

static void put_endpoints(const struct gn_exec_place *p, const char *kind, int first, int end, struct gn_strbuf *text)
{
	if (first == end)
		return;
	gn_strbuf_printf(text, "%s\"%s\": [", first ? ", " : "", kind);
	for (int r = first; r < end; r++)
		gn_strbuf_printf(text, "%s\"%s\"", r > first ? ", " : "", p->endpoints[r]);
	gn_strbuf_puts(text, "]");
}

static void set_tf(struct builder *b)
{
	const struct gn_exec_place *p = b->p;
	int chiefs = p->ps > 0, workers = p->size - p->ps - chiefs, index = p->rank - chiefs;
	const char *kind = index < 0 ? "chief" : index < workers ? "worker" : "ps";
	struct gn_strbuf text = {0};

	gn_strbuf_puts(&text, "{\"cluster\": {");
	put_endpoints(p, "chief", 0, chiefs, &text);
	put_endpoints(p, "worker", chiefs, chiefs + workers, &text);
	put_endpoints(p, "ps", chiefs + workers, p->size, &text);
	gn_strbuf_printf(&text, "}, \"task\": {\"type\": \"%s\", \"index\": %d}}", kind,
			 index < 0 ? 0 : index < workers ? index : index - workers);
	if (gn_strbuf_failed(&text))
		b->failed = 1;
	else
		set(b, "TF_CONFIG", "%s", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

/* Programs take cuda:LOCAL_RANK, so all GPUs stay visible, in another order; TensorFlow takes all that it sees. */
static void set_gpus(struct builder *b, unsigned frameworks)
{
	const struct gn_exec_place *p = b->p;
	const char *own = p->gpus;

	if (!*p->gpus || p->per_node)
		return;
	set(b, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
	for (int i = 0; i < p->local_rank && frameworks == GN_EXEC_TF; i++)
		own = strchr(own, ',') ? strchr(own, ',') + 1 : p->gpus;
	if (frameworks == GN_EXEC_TF)
		set(b, "CUDA_VISIBLE_DEVICES", "%.*s", (int)strcspn(own, ","), own);
	else
		set(b, "CUDA_VISIBLE_DEVICES", "%s", p->gpus);
}

enum gn_status gn_exec_environment_create(const struct gn_exec_place *place, unsigned frameworks, gn_launcher_lookup lookup,
					  void *context, struct gn_exec_environment *out, struct gn_err *err)
{
	struct builder b = {place, lookup, context, out, 0};

	*out = (struct gn_exec_environment){.count = 0};
	set_common(&b);
	if (place->per_node)
		set_torchrun(&b);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !place->per_node; i++)
		if (frameworks & numbers[i].frameworks)
			set(&b, numbers[i].name, "%d", *(const int *)(const void *)((const char *)place + numbers[i].offset));
	if (!place->per_node && frameworks & GN_EXEC_HOROVOD)
		set_horovod(&b);
	if (!place->per_node && frameworks & GN_EXEC_TF)
		set_tf(&b);
	set_gpus(&b, frameworks);
	if (!b.failed)
		return GN_OK;
	gn_exec_environment_release(out);
	return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for the program's environment");
}

void gn_exec_environment_release(struct gn_exec_environment *e)
{
	for (size_t i = 0; i < e->count; i++) {
		free(e->items[i].value);
		free(e->items[i].computed);
	}
	e->count = 0;
}

int gn_exec_environment_hides(const struct gn_exec_place *place, const char *name)
{
	static const char *const beginnings[] = {"PMIX_", "PMI_", "OMPI_COMM_WORLD_"};
	static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
					    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_PROCID", "SLURM_LOCALID"};

	if (!place->per_node)
		return 0;
	for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
		if (!strncmp(name, beginnings[i], strlen(beginnings[i])))
			return 1;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(name, names[i]))
			return 1;
	return 0;
}

unsigned gn_exec_framework_find(const char *name)
{
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(known[i].name, name))
			return known[i].bit;
	return 0;
}

void gn_exec_framework_names(unsigned bits, struct gn_strbuf *out)
{
	const char *before = "";

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (bits & known[i].bit) {
			gn_strbuf_printf(out, "%s%s", before, known[i].name);
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
