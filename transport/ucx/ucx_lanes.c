#include "transport/ucx/ucx_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uct/api/uct.h>

/* UCX_TLS by transport name. sysv is excluded: its segments can be attached by the user's group (UCX 1.13 creates them with mode
 * 0660); posix segments, which are unlinked at once, only by processes that may trace the owner. */
static const struct {
	const char *name, *tls;
	int with_cuda; /* add UCX's CUDA component, if it is built in (UCX warns about unknown names) */
} transports[] = {
	{"auto", "^sysv", 0}, {"net", "^sm", 0}, {"tcp", "tcp,self", 1}, {"shm", "posix,cma,self", 1}, {"rc", "rc,dc,ud,self", 1},
	{"ud", "ud,self", 1},
};

/* Whether UCX has the component; with_devices: and can use it on this host. */
static int has_component(const char *name, int with_devices)
{
	uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME | UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT};
	uct_component_h *all;
	unsigned count;
	int found = 0;

	if (uct_query_components(&all, &count) != UCS_OK)
		return 0;
	for (unsigned i = 0; i < count; i++)
		found |= uct_component_query(all[i], &attr) == UCS_OK && !strncmp(attr.name, name, strlen(name)) &&
			 (!with_devices || attr.md_resource_count);
	uct_release_component_list(all);
	return found;
}

enum gn_status gn_ucx_tls(const char *transport, char place[GN_UCX_TLS_MAX], const char **tls, struct gn_err *err)
{
	int shm = !strcmp(transport, "shm");

	*tls = getenv("UCX_TLS");
	if (*tls)
		return GN_OK;
	for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
		if (strcmp(transports[i].name, transport))
			continue;
		snprintf(place, GN_UCX_TLS_MAX, "%s%s%s%s", transports[i].tls,
			 transports[i].with_cuda && has_component("cuda", 0) ? ",cuda" : "",
			 shm && has_component("xpmem", 1) ? ",xpmem" : "", shm && has_component("knem", 1) ? ",knem" : "");
		*tls = place;
		return GN_OK;
	}
	return gn_err_set(err, GN_ERR_USAGE, "no transport '%s': auto, tcp, shm, rc or ud", transport);
}

/* Whether one of the lanes, "rc_mlx5/mlx5_0:1 tcp/eth0", has one of the prefixes. */
static int has_lane(const char *lanes, const char *const *prefixes, size_t count)
{
	for (const char *at = lanes; *at; at += *at == ' ') {
		for (size_t i = 0; i < count; i++)
			if (!strncmp(at, prefixes[i], strlen(prefixes[i])))
				return 1;
		at += strcspn(at, " ");
	}
	return 0;
}

int gn_ucx_lanes_match(const char *lanes, const char *transport)
{
	static const char *const rc[] = {"rc_", "dc_"}, *const ud[] = {"ud_"}, *const tcp[] = {"tcp/"};
	static const char *const shm[] = {"posix/", "sysv/", "cma/", "knem/", "xpmem/"};
	int connected = has_lane(lanes, rc, 2), datagrams = has_lane(lanes, ud, 1), sockets = has_lane(lanes, tcp, 1);

	if (!connected && !datagrams && !sockets && !has_lane(lanes, shm, 5))
		return 1;
	if (!strcmp(transport, "rc"))
		return connected && !sockets;
	if (!strcmp(transport, "ud"))
		return datagrams && !connected && !sockets;
	if (!strcmp(transport, "tcp"))
		return sockets && !connected && !datagrams;
	return strcmp(transport, "shm") || (!sockets && !connected && !datagrams);
}

void gn_ucx_lanes(const struct gn_ucx *f, int rank, struct gn_strbuf *out)
{
	size_t before = out->len;

	for (int i = 0; i < f->rail_count; i++)
		gn_ucx_endpoint_lanes(f->rails[i].endpoints[rank].ep, before, out);
}

int gn_ucx_endpoint_is_shm(const struct gn_ucx_endpoint *e)
{
	struct gn_strbuf lanes = {0};
	int shm;

	gn_ucx_endpoint_lanes(e->ep, 0, &lanes);
	shm = gn_ucx_lanes_match(gn_strbuf_text(&lanes), "shm");
	gn_strbuf_release(&lanes);
	return shm;
}

int gn_ucx_endpoint_is_tcp(const struct gn_ucx_endpoint *e)
{
	struct gn_strbuf lanes = {0};
	int tcp;

	gn_ucx_endpoint_lanes(e->ep, 0, &lanes);
	tcp = strstr(gn_strbuf_text(&lanes), "tcp/") != NULL;
	gn_strbuf_release(&lanes);
	return tcp;
}
