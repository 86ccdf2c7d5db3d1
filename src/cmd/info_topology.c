#include "src/cmd/info.h"

#include "src/base/file.h"
#include "src/base/json.h"
#include "src/cmd/cmd.h"
#include "transport/topology/affinity.h"

#include <stdio.h>
#include <stdlib.h>

#define XML_MAX_BYTES (64u << 20)

static void cpus_of(const struct gn_topology *m, int numa, cpu_set_t *out)
{
	CPU_ZERO(out);
	for (int i = 0; i < m->cpu_count; i++)
		if (numa < 0 || m->cpus[i].numa == numa)
			CPU_SET((size_t)m->cpus[i].os_index, out);
}

static int last_numa(const struct gn_topology *m)
{
	int last = -1;

	for (int i = 0; i < m->cpu_count; i++)
		last = m->cpus[i].numa > last ? m->cpus[i].numa : last;
	return last;
}

static void json_cpus(struct gn_json *j, const char *key, const cpu_set_t *cpus)
{
	struct gn_strbuf text = {0};

	gn_affinity_list_cpus(cpus, &text);
	gn_json_string(j, key, gn_strbuf_text(&text));
	gn_strbuf_release(&text);
}

static void json_numa(struct gn_json *j, int numa)
{
	if (numa < 0)
		gn_json_null(j, "numa");
	else
		gn_json_int(j, "numa", numa);
}

static void json_devices(struct gn_json *j, const struct gn_topology *m)
{
	gn_json_array(j, "network_devices");
	for (int n = 0; n < m->nic_count; n++) {
		gn_json_put(j, "{ name %s pci %s rdma? %d", m->nics[n].name, m->nics[n].pci, m->nics[n].rdma);
		json_numa(j, m->nics[n].numa);
		gn_json_end(j);
	}
	gn_json_put(j, "] gpus [");
	for (int g = 0; g < m->gpu_count; g++) {
		gn_json_put(j, "{ pci %s", m->gpus[g].pci);
		json_numa(j, m->gpus[g].numa);
		gn_json_object(j, "nearness");
		for (int n = 0; n < m->nic_count; n++)
			gn_json_string(j, m->nics[n].name, gn_nearness_name(gn_topology_nearness(m, g, n)));
		gn_json_end(j);
		gn_json_end(j);
	}
	gn_json_end(j);
}

static int print_json(const struct gn_topology *m, const struct gn_affinity_rank *ranks, const struct gn_affinity *choices,
		      int count)
{
	struct gn_json j;

	gn_json_begin(&j);
	gn_json_put(&j, "kind topology processors %d numa_nodes %d", m->cpu_count, m->numa_count);
	json_devices(&j, m);
	gn_json_array(&j, "ranks");
	for (int i = 0; i < count; i++) {
		gn_json_object(&j, NULL);
		json_cpus(&j, "processors", &choices[i].cores);
		if (ranks[i].gpu >= 0)
			gn_json_string(&j, "gpu", m->gpus[ranks[i].gpu].pci);
		if (choices[i].nic >= 0) {
			gn_json_string(&j, "network_device", m->nics[choices[i].nic].name);
			gn_json_string(&j, "nearness", gn_nearness_name(choices[i].nearness));
		}
		gn_json_end(&j);
	}
	gn_json_end(&j);
	return gn_cmd_print_json(&j);
}

static void print_place(const struct gn_topology_device *d)
{
	if (d->numa >= 0)
		printf("NUMA node %d", d->numa);
	else
		printf("NUMA node unknown");
	if (*d->pci)
		printf(", PCI %s", d->pci);
}

static void print_devices(const struct gn_topology *m)
{
	char name[64];

	for (int n = 0; n < m->nic_count; n++) {
		printf("network    %s: ", gn_text_visible(m->nics[n].name, name, sizeof name));
		print_place(&m->nics[n]);
		puts(m->nics[n].rdma ? ", RDMA" : "");
	}
	for (int g = 0; g < m->gpu_count; g++) {
		printf("GPU        ");
		print_place(&m->gpus[g]);
		for (int n = 0; n < m->nic_count; n++)
			printf("%s%s: %s", n ? ", " : "; ", gn_text_visible(m->nics[n].name, name, sizeof name),
			       gn_nearness_name(gn_topology_nearness(m, g, n)));
		putchar('\n');
	}
}

static void print_machine(const struct gn_topology *m, const struct gn_affinity_rank *ranks,
			  const struct gn_affinity *choices, int count)
{
	struct gn_strbuf text = {0};
	cpu_set_t cpus;

	for (int numa = 0; numa <= last_numa(m); numa++) {
		cpus_of(m, numa, &cpus);
		gn_strbuf_clear(&text);
		gn_affinity_list_cpus(&cpus, &text);
		if (CPU_COUNT(&cpus))
			printf("NUMA node  %d: processors %s\n", numa, gn_strbuf_text(&text));
	}
	print_devices(m);
	for (int i = 0; i < count; i++) {
		struct gn_affinity_rank shown = ranks[i];
		struct gn_affinity a = choices[i];

		shown.cpus = a.cores;
		a.numa = gn_topology_numa_of(m, &a.cores);
		gn_strbuf_clear(&text);
		gn_affinity_describe(m, &shown, &a, &text);
		printf("rank       %d of %d: %s\n", i, count, gn_strbuf_text(&text));
	}
	gn_strbuf_release(&text);
}

static int tell(const struct gn_topology *m, int count, int json, struct gn_err *err)
{
	struct gn_affinity_rank *ranks = calloc((size_t)count, sizeof *ranks);
	struct gn_affinity *choices = calloc((size_t)count, sizeof *choices);
	int code = GN_EXIT_DONE;

	if (!ranks || !choices) {
		gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %d ranks", count);
		code = gn_cmd_fail("info", err);
	}
	for (int i = 0; !code && i < count; i++) {
		cpus_of(m, -1, &ranks[i].cpus);
		ranks[i].gpu = m->gpu_count ? i % m->gpu_count : -1;
	}
	if (!code) {
		gn_affinity_choose(m, NULL, ranks, count, choices);
		if (json)
			code = print_json(m, ranks, choices, count);
		else
			print_machine(m, ranks, choices, count);
	}
	free(ranks);
	free(choices);
	return code;
}

int gn_info_topology(const char *xml, int64_t ranks, int json)
{
	struct gn_topology m = {0};
	struct gn_err err;
	enum gn_status status;
	char *text = NULL;
	size_t len;
	int code;

	status = xml ? gn_file_load(xml, XML_MAX_BYTES, &text, &len, &err) : gn_topology_read(&m, &err);
	if (!status && xml && (status = gn_topology_parse(text, len, &m, &err)))
		gn_err_prefix(&err, "%s", xml);
	free(text);
	if (status)
		return gn_cmd_fail("info", &err);
	code = tell(&m, ranks ? (int)ranks : m.gpu_count ? m.gpu_count : 1, json, &err);
	gn_topology_release(&m);
	return code;
}
