#include "src/jobs/exec_run.h"

#include "src/base/clock.h"
#include "src/base/text.h"
#include "src/jobs/program.h"
#include "transport/auth/net.h"
#include "transport/health/heartbeat.h"
#include "transport/topology/affinity.h"

#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define TURN_MS 100
/* What another rank said before may be on its way to rank 0. */
#define VERDICT_NS 100000000u
#define CODE_LOST 4

/* --- a failure in one line --- */

#define MARK "exec["
#define LINE_BREAK "\\x0a"
#define TEXT_MAX 380

/* exec[CODE,LENGTH OF REASON,LENGTH OF LINES]: REASON LINES, as gn_text_visible() leaves them */
void gn_exec_failure_write(int code, const char *reason, const char *last_lines, struct gn_strbuf *out)
{
	char shown[TEXT_MAX], lines[4 * 2048];
	const char *last = lines, *next;
	size_t room, len;

	gn_text_visible(reason, shown, sizeof shown / 2);
	room = TEXT_MAX - 40 - strlen(shown);
	gn_text_visible(last_lines, lines, sizeof lines);
	len = strlen(lines);
	while (len >= strlen(LINE_BREAK) && !strcmp(lines + len - strlen(LINE_BREAK), LINE_BREAK))
		lines[len -= strlen(LINE_BREAK)] = 0;
	/* whole lines, from the last one up */
	while (strlen(last) > room && (next = strstr(last, LINE_BREAK)))
		last = next + strlen(LINE_BREAK);
	if (strlen(last) > room)
		last += strlen(last) - room;
	/* not from the middle of a character */
	while ((*last & 0xc0) == 0x80)
		last++;
	gn_strbuf_printf(out, MARK "%d,%zu,%zu]: %s %s", code, strlen(shown), strlen(last), shown, last);
}

int gn_exec_failure_read(const char *text, int *code, struct gn_strbuf *reason, struct gn_strbuf *last_lines)
{
	const char *at = strstr(text, MARK), *line_break;
	size_t reason_len, lines_len;
	int used = 0;

	if (!at || sscanf(at, MARK "%d,%zu,%zu]: %n", code, &reason_len, &lines_len, &used) != 3 || !used)
		return 0;
	at += used;
	if (strnlen(at, reason_len) < reason_len || reason_len > TEXT_MAX || lines_len > TEXT_MAX)
		return 0;
	gn_strbuf_append(reason, at, reason_len);
	at += reason_len + (at[reason_len] == ' ');
	lines_len = strnlen(at, lines_len);
	while ((line_break = strstr(at, LINE_BREAK)) && (size_t)(line_break - at) < lines_len) {
		gn_strbuf_append(last_lines, at, (size_t)(line_break - at));
		gn_strbuf_puts(last_lines, "\n");
		lines_len -= (size_t)(line_break - at) + strlen(LINE_BREAK);
		at = line_break + strlen(LINE_BREAK);
	}
	gn_strbuf_append(last_lines, at, lines_len);
	return 1;
}

/* --- the run --- */

struct run {
	struct gn_world *world;
	const struct gn_exec_run_options *o;
	struct gn_exec_child *child;
	struct gn_exec_outcome *out;
	uint64_t started_ns, kill_ns; /* kill_ns: when patience is over; 0: nothing is to end */
};

/* What the world says of a rank: "rank 3 on n2 is lost: it gave up: exec[7,...". */
static void note_verdict(struct run *r, const struct gn_err *verdict)
{
	struct gn_exec_outcome *o = r->out;

	if (o->rank >= 0 || o->lost)
		return;
	o->seconds = (double)(gn_clock_ns() - r->started_ns) / 1e9;
	if (sscanf(verdict->text, "rank %d", &o->rank) != 1)
		o->rank = -1;
	if (o->rank >= 0 && gn_exec_failure_read(verdict->text, &o->code, &o->reason, &o->last_lines))
		return;
	o->lost = 1;
	o->code = CODE_LOST;
	gn_strbuf_puts(&o->reason, verdict->text);
}

static void end_child(struct run *r)
{
	uint64_t now = gn_clock_ns();

	if (!r->kill_ns) {
		r->kill_ns = now + (uint64_t)r->o->grace_s * 1000000000u;
		/* not twice, if Slurm ends the step */
		if (gn_exec_child_passed_on(r->child) != SIGTERM)
			gn_exec_child_signal(r->child, SIGTERM);
		/* one that is stopped would not hear it */
		gn_exec_child_signal(r->child, SIGCONT);
	} else if (now >= r->kill_ns) {
		gn_exec_child_signal(r->child, SIGKILL);
	}
}

static void await_child(struct run *r)
{
	struct gn_err verdict;

	while (gn_exec_child_turn(r->child, TURN_MS)) {
		if (r->out->rank < 0 && !r->out->lost && gn_world_check(r->world, &verdict))
			note_verdict(r, &verdict);
		if (r->out->rank >= 0 || r->out->lost)
			end_child(r);
	}
}

/* Rank 0, whose program has failed: was another's the first? Once the others are told, they end, which would look like it. */
static void look_for_earlier(struct run *r)
{
	uint64_t until = gn_clock_ns() + VERDICT_NS;
	struct gn_err verdict;

	while (!gn_world_check(r->world, &verdict) && gn_clock_ns() < until)
		gn_clock_sleep_ns(2000000);
	if (gn_world_check(r->world, &verdict))
		note_verdict(r, &verdict);
}

/* The program has ended with another code than 0. */
static void fail(struct run *r)
{
	int code = gn_exec_child_code(r->child), rank = gn_world_rank(r->world);
	struct gn_strbuf reason = {0}, text = {0};

	if (rank == 0)
		look_for_earlier(r);
	gn_exec_child_reason(r->child, &reason);
	gn_exec_failure_write(code, gn_strbuf_text(&reason), gn_exec_child_last_lines(r->child), &text);
	gn_world_abort(r->world, GN_OK, gn_strbuf_text(&text));
	if (r->out->rank < 0 && !r->out->lost) {
		r->out->rank = rank;
		r->out->code = code;
		r->out->seconds = (double)(gn_clock_ns() - r->started_ns) / 1e9;
		gn_strbuf_puts(&r->out->reason, gn_strbuf_text(&reason));
		gn_strbuf_puts(&r->out->last_lines, gn_exec_child_last_lines(r->child));
	}
	gn_strbuf_release(&reason);
	gn_strbuf_release(&text);
}

/* While the others' programs still run; signals go to nobody any more, but are taken. */
static void idle(void *context)
{
	struct run *r = context;

	if (r->child)
		gn_exec_child_turn(r->child, 0);
}

enum gn_status gn_exec_run(struct gn_world *world, const struct gn_exec_run_options *options, struct gn_exec_outcome *out,
			   struct gn_err *err)
{
	struct run r = {.world = world, .o = options, .out = out, .started_ns = gn_clock_ns()};
	enum gn_status status = GN_OK;
	struct gn_err verdict;

	*out = (struct gn_exec_outcome){.rank = -1};
	gn_strbuf_init(&out->reason);
	gn_strbuf_init(&out->last_lines);
	gn_world_set_phase(world, "running the program", INT_MAX);
	if (options->starts)
		status = gn_exec_child_start(&options->child, &r.child, err);
	if (status) {
		gn_world_abort(world, status, err->text);
		return status;
	}
	if (r.child)
		await_child(&r);
	if (r.child && out->rank < 0 && !out->lost && gn_exec_child_code(r.child))
		fail(&r);
	if (out->rank < 0 && !out->lost) {
		gn_world_set_progress(world, idle, &r);
		if (gn_world_barrier(world, &verdict))
			note_verdict(&r, &verdict);
		gn_world_set_progress(world, NULL, NULL);
	}
	gn_exec_child_destroy(r.child);
	return GN_OK;
}

void gn_exec_outcome_release(struct gn_exec_outcome *o)
{
	gn_strbuf_release(&o->reason);
	gn_strbuf_release(&o->last_lines);
}

/* --- ports and addresses --- */

#define PORT_MIN 10000
#define PORT_TRIES 200

static void ephemeral(int *first, int *last)
{
	FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	*first = 32768;
	*last = 60999;
	if (!file)
		return;
	if (fscanf(file, "%d %d", first, last) != 2)
		*first = 32768, *last = 60999;
	fclose(file);
}

enum gn_status gn_exec_local_port(int32_t *port, int *listener, struct gn_err *err)
{
	enum gn_status status = GN_ERR_FAILED;
	int first, last;

	ephemeral(&first, &last);
	for (int i = 0; i < PORT_TRIES && status; i++) {
		uint16_t draw = 0;
		int wanted = 0;

		if (getrandom(&draw, sizeof draw, 0) != (ssize_t)sizeof draw)
			return gn_err_errno(err, errno, "cannot draw a port");
		/* the last tries take any */
		wanted = i < PORT_TRIES - 10 ? draw : 0;
		if (wanted && (wanted < PORT_MIN || (wanted >= first && wanted <= last)))
			continue;
		status = gn_net_listen(NULL, &wanted, listener, err);
		*port = wanted;
	}
	return status;
}

static int same_address(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return 0;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
	return a->sa_family == AF_INET6 && !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
						   &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr));
}

static void name_interface(const struct sockaddr *address, char ifname[64])
{
	struct ifaddrs *all, *a;

	if (getifaddrs(&all))
		return;
	for (a = all; a; a = a->ifa_next)
		if (a->ifa_addr && same_address(a->ifa_addr, address)) {
			snprintf(ifname, 64, "%s", a->ifa_name);
			break;
		}
	freeifaddrs(all);
}

/* Connecting a datagram socket sends nothing, and tells the source address. */
static int source_address(const char *master, int port, struct sockaddr_storage *out)
{
	struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
	socklen_t len = sizeof *out;
	char service[16];
	int fd, ok;

	snprintf(service, sizeof service, "%d", port);
	if (getaddrinfo(master, service, &hints, &found) || !found)
		return 0;
	fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ok = fd >= 0 && !connect(fd, found->ai_addr, found->ai_addrlen) && !getsockname(fd, (struct sockaddr *)out, &len);
	freeaddrinfo(found);
	if (fd >= 0)
		close(fd);
	return ok;
}

void gn_exec_local_address(const char *known, const char *master, int port, char address[64], char ifname[64])
{
	struct sockaddr_storage source;

	*address = *ifname = 0;
	/* to itself rank 0 would go by loopback, unless that is its address */
	if (!source_address(known ? known : master, port, &source))
		return;
	if (getnameinfo((struct sockaddr *)&source, sizeof source, address, 64, NULL, 0, NI_NUMERICHOST))
		*address = 0;
	name_interface((struct sockaddr *)&source, ifname);
}

/* --- sharing --- */

int gn_exec_local_order_gpus(const struct gn_topology *m, const cpu_set_t *cpus, int count, int *order, int *own)
{
	unsigned char *taken = calloc((size_t)m->gpu_count + 1, 1);
	int left = 0;

	for (int i = 0; i < count && taken; i++) {
		int numa = gn_topology_numa_of(m, &cpus[i]), pick = -1;

		for (int g = m->gpu_count - 1; g >= 0; g--)
			if (!taken[g] && (pick < 0 || m->gpus[g].numa == numa || m->gpus[pick].numa != numa))
				pick = g;
		own[i] = pick >= 0 ? pick : i % m->gpu_count;
		if (pick >= 0)
			taken[order[left++] = pick] = 1;
	}
	for (int g = 0; g < m->gpu_count && taken; g++)
		if (!taken[g])
			order[left++] = g;
	free(taken);
	return left;
}

static void list_gpus(const int *order, int count, char *out, size_t size)
{
	size_t len = 0;

	*out = 0;
	for (int i = 0; i < count && len < size; i++)
		len += (size_t)snprintf(out + len, size - len, "%s%d", i ? "," : "", order[i]);
}

static int share_one_set(const struct gn_exec_local *const *all, int count)
{
	for (int i = 1; i < count; i++)
		if (!CPU_EQUAL(&all[i]->cpus, &all[0]->cpus))
			return 0;
	return CPU_COUNT(&all[0]->cpus) >= count;
}

void gn_exec_local_share(const struct gn_exec_local *const *all, int count, int rank, cpu_set_t *cores, char *gpus, size_t gpus_size)
{
	struct gn_affinity_rank *ranks = calloc((size_t)count, sizeof *ranks);
	struct gn_affinity *chosen = calloc((size_t)count, sizeof *chosen);
	cpu_set_t *cpus = calloc((size_t)count, sizeof *cpus);
	int *own = calloc((size_t)count, sizeof *own), *order = NULL;
	struct gn_topology m;

	CPU_ZERO(cores);
	*gpus = 0;
	if (ranks && chosen && cpus && own && !gn_topology_read(&m, NULL)) {
		for (int i = 0; i < count; i++)
			cpus[i] = all[i]->cpus;
		order = m.gpu_count ? calloc((size_t)m.gpu_count, sizeof *order) : NULL;
		if (order)
			list_gpus(order, gn_exec_local_order_gpus(&m, cpus, count, order, own), gpus, gpus_size);
		for (int i = 0; i < count; i++)
			ranks[i] = (struct gn_affinity_rank){.cpus = cpus[i], .gpu = order ? own[i] : -1};
		gn_affinity_choose(&m, NULL, ranks, count, chosen);
		if (count > 1 && share_one_set(all, count))
			*cores = chosen[rank].cores;
		gn_topology_release(&m);
	}
	free(order);
	free(own);
	free(cpus);
	free(ranks);
	free(chosen);
}
