#include "transport/ucx/ucx_common.h"

#include "transport/topology/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a UCX_TLS list allows one of the words. A list that begins with ^ names what is excluded. */
static int allows(const char *tls, const char *const *words, size_t count)
{
	const char *at = tls;
	int listed = 0;

	if (!tls)
		return 1;
	if (*at == '^')
		at++;
	while (*at) {
		size_t len = strcspn(at, ",");

		for (size_t i = 0; i < count; i++)
			listed |= strlen(words[i]) == len && !strncmp(words[i], at, len);
		at += len + (at[len] == ',');
	}
	return *tls == '^' ? !listed : listed;
}

int gn_ucx_tls_has_shm(const char *tls)
{
	static const char *const words[] = {"all", "sm", "shm", "mm", "posix", "sysv", "cma", "knem", "xpmem"};
	static const char *const sysv[] = {"all", "sm", "shm", "mm", "sysv"};

	/* with some excluded: posix or sysv remains to carry messages */
	if (tls && *tls == '^')
		return allows(tls, words, 5) || allows(tls, sysv, 5);
	return allows(tls, words, sizeof words / sizeof *words);
}

int gn_ucx_tls_has_tcp(const char *tls)
{
	static const char *const words[] = {"all", "tcp"};

	return allows(tls, words, sizeof words / sizeof *words);
}

static int has_rdma(const char *tls)
{
	static const char *const words[] = {"all", "ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "ud", "ud_v", "ud_x",
					    "ud_verbs", "ud_mlx5", "dc", "dc_x", "dc_mlx5"};

	return allows(tls, words, sizeof words / sizeof *words);
}

unsigned gn_ucx_tls_rail_kinds(const char *tls)
{
	return (has_rdma(tls) ? GN_RAILS_RDMA : 0) | (gn_ucx_tls_has_tcp(tls) ? GN_RAILS_TCP : 0);
}

/* UCX 1.13 reports an endpoint's lanes only as text: "#  lane[0]:  1:tcp/eth0.0 md[1] ...". */
void gn_ucx_endpoint_lanes(ucp_ep_h ep, size_t before, struct gn_strbuf *out)
{
	char *text = NULL, *line, *save = NULL, name[128], *dot;
	size_t len = 0;
	FILE *stream;

	if (!ep)
		return;
	stream = open_memstream(&text, &len);
	if (!stream)
		return;
	ucp_ep_print_info(ep, stream);
	fclose(stream);
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (sscanf(line, "# lane[%*d]: %*d:%127s", name) != 1)
			continue;
		dot = strrchr(name, '.');
		if (dot)
			*dot = 0;
		if (!strstr(gn_strbuf_text(out) + before, name))
			gn_strbuf_printf(out, "%s%s", out->len > before ? " " : "", name);
	}
	free(text);
}
