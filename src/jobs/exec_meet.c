#include "src/jobs/exec_meet.h"

#include "src/base/option.h"
#include "src/jobs/exec_run.h"
#include "src/jobs/program.h"
#include "transport/auth/net.h"
#include "transport/ucx/ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PROBE_MS 2000
#define TOKEN_BYTES 32
#define PROBES_MAX 1024

/* What each tells first. */
struct facts {
	struct gn_exec_local local;
	struct gn_net_addresses addresses; /* rank 0's, to be tried in order */
	int32_t master_port, port, horovod_port, has_master, has_devices; /* has_devices: UCX_NET_DEVICES is set */
	char master_addr[256], master_text[16], problem[512];
};

/* What it tells after each attempt to reach rank 0. */
struct attempt {
	int32_t ok;
	char address[GN_NET_ADDRESS_MAX], ifname[64], why[512];
};

/* Rank 0 proves to who connects that it is rank 0 of this world, while it waits for them. Its ends of the connections are closed by a
 * reset when all is over: the program could not take the port while one of them lingers. */
struct prover {
	int listener, fds[PROBES_MAX], count;
	unsigned char token[TOKEN_BYTES];
};

static void reset(int fd)
{
	const struct linger now = {1, 0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(fd);
}

static void prove(void *context)
{
	struct prover *p = context;
	int fd;

	while (p->listener >= 0 && p->count < PROBES_MAX && (fd = gn_net_accept(p->listener)) >= 0) {
		p->fds[p->count++] = fd;
		gn_net_send_all(fd, p->token, sizeof p->token, PROBE_MS);
	}
}

static void stop_proving(struct prover *p)
{
	while (p->count)
		reset(p->fds[--p->count]);
	if (p->listener >= 0)
		close(p->listener);
	p->listener = -1;
}

/* "rank 2 on n3: what" on all ranks, of the first that has a problem. */
static enum gn_status check_facts(const struct gn_world *w, const struct gn_gathered *all, struct gn_err *err)
{
	const struct facts *first = all->items[0];

	for (size_t r = 0; r < all->size; r++) {
		const struct facts *f = all->items[r];
		const char *host = gn_world_host_of(w, (int)r);

		if (all->lens[r] != sizeof *f)
			return gn_err_set(err, GN_ERR_MISMATCH, "rank %zu on %s runs another version of gannet", r, host);
		if (f->problem[0])
			return gn_err_set(err, GN_ERR_USAGE, "rank %zu on %s: %.512s", r, host, f->problem);
		if (f->has_master != first->has_master || strcmp(f->master_addr, first->master_addr) ||
		    strcmp(f->master_text, first->master_text))
			return gn_err_set(err, GN_ERR_USAGE, "rank 0 on %s was given MASTER_ADDR=%.100s MASTER_PORT=%s, rank %zu on %s "
					  "MASTER_ADDR=%.100s MASTER_PORT=%s: set the same for all, or neither",
					  gn_world_host_of(w, 0), first->master_addr, first->master_text, r, host, f->master_addr,
					  f->master_text);
	}
	return GN_OK;
}

static int is_loopback(const char *address)
{
	return !strcmp(address, "localhost") || !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

static void find_ports(const struct gn_exec_request *q, int rank, struct facts *f, struct prover *p, int *own, int *horovod,
		       struct gn_err *err)
{
	int64_t port = 0;
	enum gn_status status = GN_OK;

	if (q->master_port && (gn_parse_int(q->master_port, &port, NULL) || port < 1 || port > 65535)) {
		snprintf(f->problem, sizeof f->problem, "MASTER_PORT=%.20s is no port: unset or correct it", q->master_port);
		return;
	}
	if (rank == 0) {
		f->master_port = (int)port;
		status = port ? gn_net_listen(NULL, &f->master_port, &p->listener, err)
			      : gn_exec_local_port(&f->master_port, &p->listener, err);
		if (status)
			snprintf(f->problem, sizeof f->problem, "MASTER_PORT: %.400s%s", err->text,
				 port ? "; unset it, and a free one is chosen" : "");
	}
	if (!status)
		status = gn_exec_local_port(&f->port, own, err);
	if (!status && rank == 0 && q->horovod)
		status = gn_exec_local_port(&f->horovod_port, horovod, err);
	if (status && !f->problem[0])
		snprintf(f->problem, sizeof f->problem, "%.500s", err->text);
}

static void find_addresses(const struct gn_world *w, const struct gn_exec_request *q, struct facts *f)
{
	struct gn_err err;

	f->has_master = q->master_addr != NULL;
	snprintf(f->master_addr, sizeof f->master_addr, "%s", q->master_addr ? q->master_addr : "");
	snprintf(f->master_text, sizeof f->master_text, "%.15s", q->master_port ? q->master_port : "");
	if (q->master_addr && gn_world_nodes(w) > 1 && is_loopback(q->master_addr))
		snprintf(f->problem, sizeof f->problem, "MASTER_ADDR=%.64s is each node's own, and there are %d nodes: unset it, and an "
			 "address of rank 0 is chosen that all nodes reach", q->master_addr, gn_world_nodes(w));
	else if (q->master_addr && strlen(q->master_addr) >= sizeof f->master_addr)
		snprintf(f->problem, sizeof f->problem, "MASTER_ADDR is longer than %zu characters", sizeof f->master_addr - 1);
	else if (!q->master_addr && gn_world_rank(w) == 0 && gn_world_nodes(w) > 1 && gn_net_choose(q->ifnames, &f->addresses, &err))
		snprintf(f->problem, sizeof f->problem, "%.500s", err.text);
}

/* --- reaching rank 0 --- */

/* One process of each node, and one more where there is only one node; not rank 0. */
static int tries(const struct gn_world *w)
{
	int rank = gn_world_rank(w);

	return rank && (gn_world_local_rank(w) == 0 || rank == 1);
}

static void try_address(const struct gn_world *w, const char *address, int port, const unsigned char *token, struct attempt *a)
{
	unsigned char heard[TOKEN_BYTES];
	struct gn_err err;
	int fd = -1;

	a->ok = 1;
	if (!tries(w))
		return;
	if (gn_net_connect(address, port, PROBE_MS, &fd, &err))
		snprintf(a->why, sizeof a->why, "%.500s", err.text);
	else if (gn_net_receive_all(fd, heard, sizeof heard, PROBE_MS) || memcmp(heard, token, sizeof heard))
		snprintf(a->why, sizeof a->why, "what answers there is not rank 0 of this job");
	a->ok = !a->why[0];
	if (fd >= 0)
		reset(fd);
}

/* The first rank that did not reach it; -1: all did. */
static int first_failure(const struct gn_gathered *all)
{
	for (size_t r = 0; r < all->size; r++)
		if (all->lens[r] != sizeof(struct attempt) || !((const struct attempt *)all->items[r])->ok)
			return (int)r;
	return -1;
}

/* One address after the other, until all have reached rank 0 by one; *all then holds the last attempts. */
static enum gn_status reach_master(struct gn_world *w, const struct facts *first, const unsigned char *token, char *master,
				   size_t master_size, struct gn_gathered *all, struct gn_err *err)
{
	uint32_t count = first->has_master || gn_world_nodes(w) == 1 ? 1 : first->addresses.count;
	struct gn_strbuf tried = {0};
	enum gn_status status = GN_OK;
	int wrong = -1;

	for (uint32_t i = 0; i < count && !status; i++) {
		struct attempt mine = {0};

		gn_gathered_release(all);
		snprintf(master, master_size, "%s", first->has_master ? first->master_addr
			 : gn_world_nodes(w) == 1 ? GN_NET_LOOPBACK : first->addresses.text[i]);
		try_address(w, master, first->master_port, token, &mine);
		gn_exec_local_address(gn_world_rank(w) ? NULL : master, master, first->master_port, mine.address, mine.ifname);
		status = gn_world_exchange(w, &mine, sizeof mine, all, err);
		wrong = status ? -1 : first_failure(all);
		if (status || wrong < 0)
			break;
		gn_strbuf_printf(&tried, "%srank %d on %s: %s port %d: %s", i ? "; " : "", wrong, gn_world_host_of(w, wrong), master,
				 first->master_port, ((const struct attempt *)all->items[wrong])->why);
	}
	if (!status && (wrong >= 0 || !count))
		status = gn_err_set(err, GN_ERR_USAGE, "rank 0 on %s is not reached %s: %s%s", gn_world_host_of(w, 0),
				    first->has_master ? "at MASTER_ADDR" : "by any of its addresses", gn_strbuf_text(&tried),
				    first->has_master ? "; unset MASTER_ADDR, and an address that all nodes reach is chosen"
						      : "; --socket-ifname or GANNET_SOCKET_IFNAME chooses interfaces");
	gn_strbuf_release(&tried);
	return status;
}

/* --- what comes of it --- */

static enum gn_status list_endpoints(const struct gn_gathered *facts, const struct gn_gathered *attempts, struct gn_exec_meeting *m,
				     struct gn_err *err)
{
	m->endpoints = calloc(facts->size, sizeof *m->endpoints);
	for (size_t r = 0; m->endpoints && r < facts->size; r++) {
		const struct facts *f = facts->items[r];
		const struct attempt *a = attempts->items[r];

		if (asprintf(&m->endpoints[r], strchr(a->address, ':') ? "[%s]:%d" : "%s:%d", a->address, f->port) < 0)
			m->endpoints[r] = NULL;
		if (!m->endpoints[r])
			return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu ranks", facts->size);
	}
	return m->endpoints ? GN_OK : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu ranks", facts->size);
}

/* Of the rails that train would have, those that a message has passed between all nodes; none where UCX cannot be opened, which the
 * program may not need. Where a rank has UCX_NET_DEVICES, even "all", nothing is tried. */
static enum gn_status try_devices(struct gn_world *w, const struct gn_gathered *facts, struct gn_exec_meeting *m, struct gn_err *err)
{
	enum gn_status status = GN_ERR_FAILED;
	struct gn_ucx *f = NULL;
	int skips = gn_world_nodes(w) == 1;

	for (size_t r = 0; r < facts->size; r++)
		skips |= ((const struct facts *)facts->items[r])->has_devices;
	if (!skips)
		status = gn_ucx_create(w, "net", 0, &f, err);
	if (!status)
		status = gn_ucx_tried_devices(f, m->ucx_devices, sizeof m->ucx_devices, err);
	gn_ucx_destroy(f);
	return status == GN_ERR_FAILED ? GN_OK : status;
}

static enum gn_status settle(const struct gn_world *w, const struct gn_exec_request *q, const struct gn_gathered *facts,
			     const struct gn_gathered *attempts, struct gn_exec_meeting *m, struct gn_err *err)
{
	const struct facts *first = facts->items[0];
	int rank = gn_world_rank(w), count = gn_world_local_size(w), at = 0;
	const struct gn_exec_local **here = calloc((size_t)count, sizeof *here);
	const struct attempt *mine = attempts->items[rank];
	enum gn_status status = here ? list_endpoints(facts, attempts, m, err)
				     : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", count);

	if (status) {
		free(here);
		return status;
	}
	for (size_t r = 0; r < facts->size; r++)
		if (gn_world_node_of(w, (int)r) == gn_world_node_of(w, rank))
			here[at++] = &((const struct facts *)facts->items[r])->local;
	gn_exec_local_share(here, count, gn_world_local_rank(w), &m->cores, m->gpus, sizeof m->gpus);
	free(here);
	snprintf(m->address, sizeof m->address, "%s", mine->address);
	snprintf(m->ifname, sizeof m->ifname, "%s", mine->ifname);
	m->place = (struct gn_exec_place){.rank = rank, .size = gn_world_size(w), .local_rank = gn_world_local_rank(w),
		.local_size = count, .node = gn_world_node_of(w, rank), .nodes = gn_world_nodes(w), .per_node = q->per_node,
		.master_addr = m->master_addr, .master_port = first->master_port, .horovod_port = first->horovod_port,
		.address = m->address, .ifname = m->ifname, .ucx_devices = m->ucx_devices, .gpus = m->gpus,
		.endpoints = (const char *const *)m->endpoints, .ps = q->ps};
	return GN_OK;
}

/* It asks nobody for a password, so it listens on no more networks than it has to. */
static void narrow(struct gn_exec_meeting *m)
{
	int port = m->place.horovod_port, fd = -1;

	if (m->horovod_listener < 0 || m->master_addr[strspn(m->master_addr, "0123456789abcdef.:")])
		return;
	close(m->horovod_listener);
	if (gn_net_listen(m->master_addr, &port, &fd, NULL) && gn_net_listen(NULL, &port, &fd, NULL))
		fd = -1;
	m->horovod_listener = fd;
}

enum gn_status gn_exec_meet(struct gn_world *w, const struct gn_exec_request *q, struct gn_exec_meeting *out, struct gn_err *err)
{
	struct prover *p = calloc(1, sizeof *p);
	struct facts *mine = calloc(1, sizeof *mine);
	struct gn_gathered facts = {0}, attempts = {0};
	struct gn_err why = {.text = ""};
	int own = -1;
	enum gn_status status;

	*out = (struct gn_exec_meeting){.horovod_listener = -1};
	if (!p || !mine) {
		free(p);
		free(mine);
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to agree on the world");
	}
	p->listener = -1;
	status = gn_world_key(w, "gannet exec", p->token, sizeof p->token, err);
	if (sched_getaffinity(0, sizeof mine->local.cpus, &mine->local.cpus))
		CPU_ZERO(&mine->local.cpus);
	mine->has_devices = getenv("UCX_NET_DEVICES") && *getenv("UCX_NET_DEVICES");
	if (!status && gn_program_check(q->program, &why))
		snprintf(mine->problem, sizeof mine->problem, "%.500s", why.text);
	if (!status && !mine->problem[0])
		find_addresses(w, q, mine);
	if (!status && !mine->problem[0])
		find_ports(q, gn_world_rank(w), mine, p, &own, &out->horovod_listener, &why);
	if (!status)
		status = gn_world_exchange(w, mine, sizeof *mine, &facts, err);
	if (!status)
		status = check_facts(w, &facts, err);
	gn_world_set_progress(w, prove, p);
	if (!status)
		status = reach_master(w, facts.items[0], p->token, out->master_addr, sizeof out->master_addr, &attempts, err);
	gn_world_set_progress(w, NULL, NULL);
	if (!status)
		status = settle(w, q, &facts, &attempts, out, err);
	if (!status)
		status = try_devices(w, &facts, out, err);
	if (!status)
		narrow(out);
	stop_proving(p);
	if (own >= 0)
		close(own);
	/* nobody's program starts while another's port is still held */
	if (!status)
		status = gn_world_barrier(w, err);
	gn_gathered_release(&facts);
	gn_gathered_release(&attempts);
	free(p);
	free(mine);
	if (status)
		gn_exec_meeting_release(out);
	return status;
}

void gn_exec_meeting_release(struct gn_exec_meeting *m)
{
	for (int r = 0; m->endpoints && r < m->place.size; r++)
		free(m->endpoints[r]);
	free(m->endpoints);
	if (m->horovod_listener >= 0)
		close(m->horovod_listener);
	m->endpoints = NULL;
	m->horovod_listener = -1;
}
