#include "src/train/parallel/server_rule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 16, SERVERS_MAX = 65536 };

/* All of text is a number of least .. most. */
static int parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
	char *end;
	unsigned long long value;

	if (*text < '0' || *text > '9')
		return 0;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end || value < least || value > most)
		return 0;
	*out = value;
	return 1;
}

static enum gn_status parse_update(const char *text, struct gn_server_spec *s, struct gn_err *err)
{
	static const char *const names[] = {"allreduce", "sync", "async"};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(text, names[i])) {
			s->mode = (enum gn_update_mode)i;
			return GN_OK;
		}
	s->mode = GN_UPDATE_SSP;
	if (!strncmp(text, "ssp:", 4) && parse_number(text + 4, 0, 1000000, &s->bound))
		return GN_OK;
	return gn_err_set(err, GN_ERR_USAGE, "--update '%s' is none of allreduce, sync, async, ssp:N (a worker is at most N clocks ahead, such "
			  "as ssp:4)", text);
}

static enum gn_status parse_servers(const char *text, struct gn_server_spec *s, struct gn_err *err)
{
	uint64_t count = 0;

	s->is_shared = !strcmp(text, "shared");
	if (s->is_shared || !strcmp(text, "none"))
		return GN_OK;
	if (!parse_number(text, 1, SERVERS_MAX, &count))
		return gn_err_set(err, GN_ERR_USAGE, "--servers '%s' is none of none, shared, or the number of ranks that serve, such as 1", text);
	s->servers = (int)count;
	return GN_OK;
}

enum gn_status gn_server_parse(const char *update, const char *servers, struct gn_server_spec *out, struct gn_err *err)
{
	struct gn_server_spec s = {.mode = GN_UPDATE_ALLREDUCE};
	enum gn_status status = parse_update(update ? update : "allreduce", &s, err);

	if (!status)
		status = parse_servers(servers ? servers : "none", &s, err);
	if (!status && s.mode != GN_UPDATE_ALLREDUCE && !s.servers && !s.is_shared)
		status = gn_err_set(err, GN_ERR_USAGE, "--update %s needs ranks that serve parameters: give --servers N or --servers shared", update);
	if (!status && s.mode == GN_UPDATE_ALLREDUCE && (s.servers || s.is_shared))
		status = gn_err_set(err, GN_ERR_USAGE, "--servers %s serves parameters to nobody: give --update sync, async or ssp:N, too", servers);
	if (!status)
		*out = s;
	return status;
}

int gn_server_workers(const struct gn_server_spec *s, int ranks)
{
	return ranks - s->servers;
}

int gn_server_count(const struct gn_server_spec *s, int ranks)
{
	return s->is_shared ? ranks : s->servers;
}

int gn_server_first(const struct gn_server_spec *s, int ranks)
{
	return s->is_shared ? 0 : ranks - s->servers;
}

struct gn_server_part gn_server_part(size_t elements, int servers, int index)
{
	size_t lines = (elements + LINE - 1) / LINE, count = (size_t)servers, i = (size_t)index;
	size_t begin = (lines / count * i + (i < lines % count ? i : lines % count)) * LINE;
	size_t end = begin + (lines / count + (i < lines % count)) * LINE;

	return (struct gn_server_part){begin < elements ? begin : elements, end < elements ? end : elements};
}

int gn_server_may_go(const struct gn_server_spec *s, uint64_t clock, uint64_t slowest)
{
	return s->mode == GN_UPDATE_ASYNC || clock <= slowest + s->bound;
}
