#include "transport/fabric_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uct/api/uct.h>

/* with_gpus: where UCX has been built for them; where not, it would complain. */
static const struct {
	const char *name, *tls, *with_gpus;
} transports[] = {
	{"tcp", "tcp,self", "tcp,self,cuda"}, {"shm", "sm,self", "sm,self,cuda"}, {"rc", "rc,ud,self", "rc,ud,self,cuda"},
	{"ud", "ud,self", "ud,self,cuda"},
};

static int has_gpus(void)
{
	uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
	uct_component_h *all;
	unsigned count;
	int found = 0;

	if (uct_query_components(&all, &count) != UCS_OK)
		return 0;
	for (unsigned i = 0; i < count; i++)
		found |= uct_component_query(all[i], &attr) == UCS_OK && !strncmp(attr.name, "cuda", 4);
	uct_release_component_list(all);
	return found;
}

enum gn_status gn_fabric_tls(const char *transport, const char **tls, struct gn_err *err)
{
	*tls = getenv("UCX_TLS");
	if (*tls || !strcmp(transport, "auto"))
		return GN_OK;
	for (size_t i = 0; i < sizeof transports / sizeof *transports; i++)
		if (!strcmp(transports[i].name, transport)) {
			*tls = has_gpus() ? transports[i].with_gpus : transports[i].tls;
			return GN_OK;
		}
	return gn_err_set(err, GN_ERR_USAGE, "no transport '%s': auto, tcp, shm, rc or ud", transport);
}

/* A list that begins with ^ names what is kept out. */
static int lets_in(const char *tls, const char *const *words, size_t count)
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

int gn_fabric_tls_has_shm(const char *tls)
{
	static const char *const words[] = {"all", "sm", "shm", "posix", "sysv", "cma", "mm", "knem", "xpmem"};

	return lets_in(tls, words, sizeof words / sizeof *words);
}

int gn_fabric_tls_has_tcp(const char *tls)
{
	static const char *const words[] = {"all", "tcp"};

	return lets_in(tls, words, sizeof words / sizeof *words);
}

int gn_fabric_tls_has_rdma(const char *tls)
{
	static const char *const words[] = {"all", "ib", "rc", "rc_v", "rc_x", "rc_verbs", "rc_mlx5", "ud", "ud_v", "ud_x",
					    "ud_verbs", "ud_mlx5", "dc", "dc_x", "dc_mlx5"};

	return lets_in(tls, words, sizeof words / sizeof *words);
}

/* UCX 1.13 tells an endpoint's lanes only as text: "#  lane[0]:  1:tcp/eth0.0 md[1] ...". */
void gn_fabric_end_lanes(const struct gn_fabric_end *e, size_t before, struct gn_strbuf *out)
{
	char *text = NULL, *line, *save = NULL, name[128], *dot;
	size_t len = 0;
	FILE *stream;

	if (!e->ep)
		return;
	stream = open_memstream(&text, &len);
	if (!stream)
		return;
	ucp_ep_print_info(e->ep, stream);
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

void gn_fabric_lanes(const struct gn_fabric *f, int rank, struct gn_strbuf *out)
{
	size_t before = out->len;

	for (int i = 0; i < f->rail_count; i++)
		gn_fabric_end_lanes(&f->rails[i].ends[rank], before, out);
}

int gn_fabric_end_is_shm(const struct gn_fabric_end *e)
{
	static const char *const others[] = {"tcp/", "rc_", "ud_", "dc_"};
	struct gn_strbuf lanes;
	int shm = 1;

	gn_strbuf_init(&lanes);
	gn_fabric_end_lanes(e, 0, &lanes);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		shm &= !strstr(gn_strbuf_text(&lanes), others[i]);
	gn_strbuf_release(&lanes);
	return shm;
}

int gn_fabric_end_is_tcp(const struct gn_fabric_end *e)
{
	struct gn_strbuf lanes;
	int tcp;

	gn_strbuf_init(&lanes);
	gn_fabric_end_lanes(e, 0, &lanes);
	tcp = strstr(gn_strbuf_text(&lanes), "tcp/") != NULL;
	gn_strbuf_release(&lanes);
	return tcp;
}
