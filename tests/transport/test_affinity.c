/* Which network device, GPU and processors go together, on described machines: hwloc's XML, as lstopo writes it, of a DGX-like
 * machine, of one with two sockets and one adapter, of a virtual one, and this machine. */
#include "tests/test.h"

#include "transport/topology/affinity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- machines as XML --- */

struct sketch {
	struct gn_strbuf xml;
	unsigned next; /* hwloc wants a number of its own for each object */
};

static void open_object(struct sketch *s, const char *type, int os_index, unsigned long cpus, unsigned long nodes)
{
	gn_strbuf_printf(&s->xml,
			 "<object type=\"%s\" os_index=\"%d\" cpuset=\"0x%08lx\" complete_cpuset=\"0x%08lx\" nodeset=\"0x%08lx\" "
			 "complete_nodeset=\"0x%08lx\" allowed_cpuset=\"0x%08lx\" allowed_nodeset=\"0x%08lx\" gp_index=\"%u\">\n",
			 type, os_index, cpus, cpus, nodes, nodes, cpus, nodes, ++s->next);
}

static void close_object(struct sketch *s)
{
	gn_strbuf_puts(&s->xml, "</object>\n");
}

static void begin(struct sketch *s, unsigned long cpus, unsigned long nodes)
{
	s->next = 0;
	gn_strbuf_init(&s->xml);
	gn_strbuf_puts(&s->xml, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
				"<topology version=\"2.0\">\n");
	open_object(s, "Machine", 0, cpus, nodes);
}

/* A socket that is one NUMA node, left open for its bridges: `cores` cores of two threads, numbered as Linux does: all cores
 * of the machine first, then their second threads. */
static void open_socket(struct sketch *s, int index, int cores, int all_cores)
{
	unsigned long mask = 0;

	for (int i = 0; i < cores; i++)
		mask |= 1ul << (index * cores + i) | 1ul << (all_cores + index * cores + i);
	open_object(s, "Package", index, mask, 1ul << index);
	open_object(s, "NUMANode", index, mask, 1ul << index);
	close_object(s);
	for (int i = 0; i < cores; i++) {
		int first = index * cores + i, second = all_cores + first;

		open_object(s, "Core", first, 1ul << first | 1ul << second, 1ul << index);
		open_object(s, "PU", first, 1ul << first, 1ul << index);
		close_object(s);
		open_object(s, "PU", second, 1ul << second, 1ul << index);
		close_object(s);
		close_object(s);
	}
}

static void open_root(struct sketch *s, unsigned domain, unsigned first_bus, unsigned last_bus)
{
	gn_strbuf_printf(&s->xml, "<object type=\"Bridge\" gp_index=\"%u\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"%04x:[%02x-%02x]\">\n",
			 ++s->next, domain, first_bus, last_bus);
}

static void open_switch(struct sketch *s, unsigned bus, unsigned device, unsigned first_bus, unsigned last_bus)
{
	gn_strbuf_printf(&s->xml, "<object type=\"Bridge\" gp_index=\"%u\" bridge_type=\"1-1\" depth=\"1\" bridge_pci=\"0000:[%02x-%02x]\" "
				  "pci_busid=\"0000:%02x:%02x.0\" pci_type=\"0604 [1000:c030] [0000:0000] b0\" pci_link_speed=\"31.5\">\n",
			 ++s->next, first_bus, last_bus, bus, device);
}

/* kind 2: a network device, 3: RDMA (hwloc's osdev_type); NULL names: no such device. */
static void add_pci(struct sketch *s, unsigned bus, const char *type, const char *net, const char *rdma)
{
	gn_strbuf_printf(&s->xml, "<object type=\"PCIDev\" gp_index=\"%u\" pci_busid=\"0000:%02x:00.0\" pci_type=\"%s [0000:0000] a1\" "
				  "pci_link_speed=\"31.5\">\n", ++s->next, bus, type);
	if (net)
		gn_strbuf_printf(&s->xml, "<object type=\"OSDev\" gp_index=\"%u\" name=\"%s\" osdev_type=\"2\"/>\n", ++s->next, net);
	if (rdma)
		gn_strbuf_printf(&s->xml, "<object type=\"OSDev\" gp_index=\"%u\" name=\"%s\" osdev_type=\"3\"/>\n", ++s->next, rdma);
	close_object(s);
}

static void add_gpu(struct sketch *s, unsigned bus)
{
	add_pci(s, bus, "0302 [10de:2330]", NULL, NULL);
}

static void end(struct sketch *s, struct gn_topology *out)
{
	struct gn_err err;

	close_object(s);
	gn_strbuf_puts(&s->xml, "</topology>\n");
	assert_false(gn_strbuf_failed(&s->xml));
	assert_ok(gn_topology_parse(gn_strbuf_text(&s->xml), s->xml.len, out, &err));
	gn_strbuf_release(&s->xml);
}

/* Two sockets of four cores; under each two PCI switches, each with two GPUs and an adapter; a management controller's display
 * and port besides. */
static void make_dgx(struct gn_topology *out)
{
	static const char *const rdma[] = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"};
	static const char *const net[] = {"ib0", "ib1", "ib2", "ib3"};
	struct sketch s;

	begin(&s, 0xffff, 3);
	for (int socket = 0; socket < 2; socket++) {
		open_socket(&s, socket, 4, 8);
		for (int i = 0; i < 2; i++) {
			unsigned bus = 0x10 + 0x80 * (unsigned)socket + 0x20 * (unsigned)i;

			open_root(&s, 0, bus, bus + 0xf);
			open_switch(&s, bus, 1, bus + 1, bus + 0xf);
			add_gpu(&s, bus + 2);
			add_pci(&s, bus + 3, "0207 [15b3:1021]", net[2 * socket + i], rdma[2 * socket + i]);
			add_gpu(&s, bus + 4);
			close_object(&s);
			close_object(&s);
		}
		if (!socket) {
			open_root(&s, 0, 0, 5);
			add_pci(&s, 3, "0300 [1a03:2000]", NULL, NULL);
			add_pci(&s, 4, "0200 [8086:1533]", "eno1", NULL);
			close_object(&s);
		}
		close_object(&s);
	}
	end(&s, out);
}

/* Two sockets, a GPU on each, one adapter, on the first. */
static void make_lopsided(struct gn_topology *out)
{
	struct sketch s;

	begin(&s, 0xff, 3);
	open_socket(&s, 0, 2, 4);
	open_root(&s, 0, 0, 0x1f);
	add_gpu(&s, 0x10);
	add_pci(&s, 0x11, "0200 [15b3:1017]", "eth0", NULL);
	close_object(&s);
	close_object(&s);
	open_socket(&s, 1, 2, 4);
	open_root(&s, 0, 0x80, 0x9f);
	add_gpu(&s, 0x90);
	close_object(&s);
	close_object(&s);
	end(&s, out);
}

/* Two NUMA nodes, but the kernel does not know on which of them devices are: they hang off the machine. */
static void make_virtual(struct gn_topology *out)
{
	struct sketch s;

	begin(&s, 0xff, 3);
	open_socket(&s, 0, 2, 4);
	close_object(&s);
	open_socket(&s, 1, 2, 4);
	close_object(&s);
	open_root(&s, 0, 0, 3);
	add_gpu(&s, 1);
	close_object(&s);
	open_root(&s, 1, 0, 3);
	add_pci(&s, 2, "0200 [1af4:1041]", "eth0", NULL);
	close_object(&s);
	end(&s, out);
}

static cpu_set_t cpus(unsigned long mask)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (size_t i = 0; i < 8 * sizeof mask; i++)
		if (mask >> i & 1)
			CPU_SET(i, &set);
	return set;
}

static void assert_cpus(const cpu_set_t *set, const char *list)
{
	struct gn_strbuf text;

	gn_strbuf_init(&text);
	gn_affinity_list_cpus(set, &text);
	assert_string_equal(gn_strbuf_text(&text), list);
	gn_strbuf_release(&text);
}

/* --- tests --- */

static void test_dgx_is_read(void **state)
{
	struct gn_topology m;

	(void)state;
	make_dgx(&m);
	assert_int_equal(m.cpu_count, 16);
	assert_int_equal(m.numa_count, 2);
	assert_int_equal(m.gpu_count, 8);
	assert_int_equal(m.nic_count, 9);
	assert_string_equal(m.gpus[0].pci, "0000:12:00.0");
	assert_string_equal(m.gpus[7].pci, "0000:b4:00.0");
	assert_int_equal(m.gpus[3].numa, 0);
	assert_int_equal(m.gpus[4].numa, 1);
	/* threads of a core side by side */
	assert_int_equal(m.cpus[0].os_index, 0);
	assert_int_equal(m.cpus[1].os_index, 8);
	assert_int_equal(m.cpus[0].core, m.cpus[1].core);
	assert_int_equal(gn_topology_find_gpu(&m, "0000:B4:00.0"), 7);
	assert_int_equal(gn_topology_find_gpu(&m, "0000:b5:00.0"), -1);
	assert_int_equal(gn_topology_find_nic(&m, "mlx5_9"), -1);
	assert_int_equal(gn_topology_find_nic(&m, "mlx5"), -1);
	assert_string_equal(m.nics[gn_topology_find_nic(&m, "mlx5_2:1")].pci, "0000:93:00.0");
	assert_int_equal(gn_topology_nearness(&m, 0, gn_topology_find_nic(&m, "mlx5_0")), GN_NEAR_SWITCH);
	assert_int_equal(gn_topology_nearness(&m, 1, gn_topology_find_nic(&m, "ib0")), GN_NEAR_SWITCH);
	assert_int_equal(gn_topology_nearness(&m, 0, gn_topology_find_nic(&m, "mlx5_1")), GN_NEAR_NODE);
	assert_int_equal(gn_topology_nearness(&m, 0, gn_topology_find_nic(&m, "eno1")), GN_NEAR_NODE);
	assert_int_equal(gn_topology_nearness(&m, 0, gn_topology_find_nic(&m, "mlx5_2")), GN_NEAR_FAR);
	gn_topology_release(&m);
}

/* Eight ranks, a GPU each: each pair shares the adapter under its switch, and half of the socket's cores. */
static void test_dgx_is_shared_out(void **state)
{
	static const char *const nics[] = {"mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1", "mlx5_2", "mlx5_2", "mlx5_3", "mlx5_3"};
	static const char *const cores[] = {"0,8", "1,9", "2,10", "3,11", "4,12", "5,13", "6,14", "7,15"};
	struct gn_affinity_rank ranks[8];
	struct gn_affinity got[8];
	struct gn_topology m;

	(void)state;
	make_dgx(&m);
	for (int i = 0; i < 8; i++)
		ranks[i] = (struct gn_affinity_rank){
			.cpus = cpus(0xffff), .gpu = i, .nic_count = 1, .nics = {gn_topology_find_nic(&m, nics[i])}};
	gn_affinity_choose(&m, NULL, ranks, 8, got);
	for (int i = 0; i < 8; i++) {
		assert_string_equal(m.nics[got[i].nic].name, nics[i]);
		assert_int_equal(got[i].nearness, GN_NEAR_SWITCH);
		assert_cpus(&got[i].cores, cores[i]);
		assert_int_equal(got[i].faults, 0);
		assert_int_equal(got[i].numa, -1);
	}
	gn_topology_release(&m);
}

/* Without GPUs equal devices are taken in turns, and what may not be used is not. */
static void test_without_gpus(void **state)
{
	struct gn_affinity_rank ranks[4];
	struct gn_affinity got[4];
	unsigned char usable[9];
	struct gn_topology m;

	(void)state;
	make_dgx(&m);
	for (int i = 0; i < 4; i++)
		ranks[i] = (struct gn_affinity_rank){.cpus = cpus(i < 3 ? 0x0f0f : 0xf0f0), .gpu = -1};
	gn_affinity_choose(&m, NULL, ranks, 4, got);
	assert_string_equal(m.nics[got[0].nic].name, "mlx5_0");
	assert_string_equal(m.nics[got[1].nic].name, "mlx5_1");
	assert_string_equal(m.nics[got[2].nic].name, "mlx5_0");
	assert_string_equal(m.nics[got[3].nic].name, "mlx5_2");
	assert_cpus(&got[0].cores, "0,8");
	assert_cpus(&got[2].cores, "2-3,10-11");
	assert_cpus(&got[3].cores, "4-7,12-15");
	assert_int_equal(got[0].numa, 0);
	assert_int_equal(got[0].nearness, GN_NEAR_NODE);
	memset(usable, 0, sizeof usable);
	usable[gn_topology_find_nic(&m, "eno1")] = 1;
	gn_affinity_choose(&m, usable, ranks, 4, got);
	assert_string_equal(m.nics[got[3].nic].name, "eno1");
	assert_int_equal(got[3].nearness, GN_NEAR_FAR);
	memset(usable, 0, sizeof usable);
	gn_affinity_choose(&m, usable, ranks, 4, got);
	assert_int_equal(got[0].nic, -1);
	gn_topology_release(&m);
}

static void test_fewer_cores_than_ranks(void **state)
{
	struct gn_affinity_rank ranks[5];
	struct gn_affinity got[5];
	struct gn_topology m;

	(void)state;
	make_lopsided(&m);
	for (int i = 0; i < 5; i++)
		ranks[i] = (struct gn_affinity_rank){.cpus = cpus(0x33), .gpu = -1};
	gn_affinity_choose(&m, NULL, ranks, 5, got);
	assert_cpus(&got[0].cores, "0,4");
	assert_cpus(&got[1].cores, "1,5");
	assert_cpus(&got[4].cores, "0,4");
	/* a rank that may run nowhere that is known has nothing to share */
	ranks[0].cpus = cpus(0);
	gn_affinity_choose(&m, NULL, ranks, 5, got);
	assert_cpus(&got[0].cores, "");
	gn_topology_release(&m);
}

static void expect_words(const struct gn_topology *m, const struct gn_affinity_rank *r, const struct gn_affinity *a,
			 unsigned fault, const char *words)
{
	struct gn_strbuf text;

	gn_strbuf_init(&text);
	if (fault)
		gn_affinity_explain(m, r, a, (enum gn_affinity_fault)fault, &text);
	else
		gn_affinity_describe(m, r, a, &text);
	assert_string_equal(gn_strbuf_text(&text), words);
	gn_strbuf_release(&text);
}

/* The second socket's GPU has no adapter of its own; a rank on the wrong socket is told where to go. */
static void test_faults(void **state)
{
	struct gn_affinity_rank ranks[2] = {{.gpu = 0, .nic_count = 1}, {.gpu = 1, .nic_count = 1}};
	struct gn_affinity got[2];
	struct gn_topology m;

	(void)state;
	make_lopsided(&m);
	ranks[0].cpus = cpus(0xcc);
	ranks[1].cpus = cpus(0xcc);
	gn_affinity_choose(&m, NULL, ranks, 2, got);
	assert_int_equal(got[0].faults, GN_AFFINITY_CORES_FAR_NIC | GN_AFFINITY_CORES_FAR_GPU);
	assert_int_equal(got[1].faults, GN_AFFINITY_CORES_FAR_NIC | GN_AFFINITY_GPU_FAR_NIC);
	assert_int_equal(got[0].nearness, GN_NEAR_ROOT);
	expect_words(&m, &ranks[1], &got[1], 0,
		     "processors 2-3,6-7 (NUMA node 1), GPU 0000:90:00.0 (NUMA node 1), uses eth0 (NUMA node 0), nearest network "
		     "device eth0 (other NUMA node)");
	expect_words(&m, &ranks[1], &got[1], GN_AFFINITY_GPU_FAR_NIC,
		     "its GPU 0000:90:00.0 is on NUMA node 1, and the network devices that it uses are not: eth0 (NUMA node 0); "
		     "no other usable network device is nearer");
	expect_words(&m, &ranks[0], &got[0], GN_AFFINITY_CORES_FAR_NIC,
		     "its processors 2-3,6-7 (NUMA node 1) are on another NUMA node than the network devices that it uses, eth0 (NUMA node 0): "
		     "start it on processors 0-1,4-5 (srun --cpu-bind, --gpu-bind=closest)");
	expect_words(&m, &ranks[0], &got[0], GN_AFFINITY_CORES_FAR_GPU,
		     "its processors 2-3,6-7 (NUMA node 1) are on another NUMA node than its GPU 0000:10:00.0 (NUMA node 0): "
		     "start it on processors 0-1,4-5 (srun --cpu-bind, --gpu-bind=closest)");
	/* one that may run on both sockets is not wrong */
	ranks[0].cpus = cpus(0xff);
	gn_affinity_choose(&m, NULL, ranks, 1, got);
	assert_int_equal(got[0].faults, 0);
	gn_topology_release(&m);
}

/* A GPU that talks by a far adapter although a near one is there is told of it; one near rail of several is enough. */
static void test_far_rails(void **state)
{
	struct gn_affinity_rank r = {.gpu = 0, .nic_count = 2};
	struct gn_affinity got;
	struct gn_topology m;

	(void)state;
	make_dgx(&m);
	r.cpus = cpus(0x0f0f);
	r.nics[0] = gn_topology_find_nic(&m, "mlx5_2");
	r.nics[1] = gn_topology_find_nic(&m, "mlx5_3");
	gn_affinity_choose(&m, NULL, &r, 1, &got);
	assert_int_equal(got.faults, GN_AFFINITY_GPU_FAR_NIC | GN_AFFINITY_CORES_FAR_NIC);
	expect_words(&m, &r, &got, GN_AFFINITY_GPU_FAR_NIC,
		     "its GPU 0000:12:00.0 is on NUMA node 0, and the network devices that it uses are not: mlx5_2 (NUMA node 1), "
		     "mlx5_3 (NUMA node 1); mlx5_0 is nearer (same PCI switch): select it by UCX_NET_DEVICES, or assign this rank a GPU near the "
		     "devices in use");
	r.nics[1] = gn_topology_find_nic(&m, "mlx5_1");
	gn_affinity_choose(&m, NULL, &r, 1, &got);
	assert_int_equal(got.faults, 0);
	gn_topology_release(&m);
}

static void test_places_unknown(void **state)
{
	struct gn_affinity_rank r = {.gpu = 0, .nic_count = 1, .nics = {0}};
	struct gn_affinity got;
	struct gn_topology m;

	(void)state;
	make_virtual(&m);
	assert_int_equal(m.nics[0].numa, -1);
	assert_int_equal(gn_topology_nearness(&m, 0, 0), GN_NEAR_UNKNOWN);
	r.cpus = cpus(0x33);
	gn_affinity_choose(&m, NULL, &r, 1, &got);
	assert_int_equal(got.faults, 0);
	assert_cpus(&got.cores, "0-1,4-5");
	expect_words(&m, &r, &got, 0, "processors 0-1,4-5 (NUMA node 0), GPU 0000:01:00.0, uses eth0, nearest network device eth0 "
				      "(locality unknown)");
	gn_topology_release(&m);
}

static void test_not_a_machine(void **state)
{
	static const char *const texts[] = {"", "<", "no XML at all", "<topology version=\"2.0\"></topology>",
					    "<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"PU\"/></topology>"};
	struct gn_topology m;
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		assert_int_equal(gn_topology_parse(texts[i], strlen(texts[i]), &m, &err), GN_ERR_DATA);
	assert_int_equal(gn_topology_parse("<a\0>", 4, &m, &err), GN_ERR_DATA);
}

static void test_this_machine(void **state)
{
	struct gn_affinity_rank r = {.gpu = -1};
	struct gn_affinity got;
	struct gn_topology m;
	struct gn_err err;
	int allowed = 0;

	(void)state;
	assert_ok(gn_topology_read(&m, &err));
	assert_true(m.cpu_count > 0 && m.numa_count > 0);
	assert_int_equal(sched_getaffinity(0, sizeof r.cpus, &r.cpus), 0);
	for (int i = 0; i < m.cpu_count; i++)
		allowed += CPU_ISSET((size_t)m.cpus[i].os_index, &r.cpus) != 0;
	assert_int_equal(allowed, CPU_COUNT(&r.cpus));
	gn_affinity_choose(&m, NULL, &r, 1, &got);
	assert_true(CPU_COUNT(&got.cores) > 0);
	gn_topology_release(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dgx_is_read),	       cmocka_unit_test(test_dgx_is_shared_out),
		cmocka_unit_test(test_without_gpus),	       cmocka_unit_test(test_fewer_cores_than_ranks),
		cmocka_unit_test(test_faults),		       cmocka_unit_test(test_far_rails),
		cmocka_unit_test(test_places_unknown),	       cmocka_unit_test(test_not_a_machine),
		cmocka_unit_test(test_this_machine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
