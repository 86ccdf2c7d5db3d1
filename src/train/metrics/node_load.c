#include "src/train/metrics/node_load.h"

#include "src/base/clock.h"
#include "src/base/file.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double read_number(const char *path)
{
	char text[64];

	return gn_file_read_start(path, text, sizeof text) < 0 ? 0 : strtod(text, NULL);
}

/* "cpu user nice system idle iowait irq softirq steal ...": idle and iowait are not busy. */
static void read_processors(struct gn_node_counters *out)
{
	char text[512];
	double t[8] = {0};

	if (gn_file_read_start("/proc/stat", text, sizeof text) < 0)
		return;
	if (sscanf(text, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) == 8) {
		for (int i = 0; i < 8; i++)
			out->total += t[i];
		out->busy = out->total - t[3] - t[4];
	}
}

static void read_memory(struct gn_node_counters *out)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];
	double kib;

	while (file && fgets(line, sizeof line, file)) {
		if (sscanf(line, "MemTotal: %lf kB", &kib) == 1)
			out->memory_bytes = kib * 1024;
		if (sscanf(line, "MemAvailable: %lf kB", &kib) == 1)
			out->available_bytes = kib * 1024;
	}
	if (file)
		fclose(file);
}

/* Adds unit times the two counters of every entry of a folder that has the file in which. */
static void add_devices(const char *folder, const char *which, const char *in, const char *out, double unit, struct gn_node_counters *c)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	char path[512];

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "lo"))
			continue;
		snprintf(path, sizeof path, "%s/%s/%s", folder, entry->d_name, which);
		if (access(path, F_OK))
			continue;
		snprintf(path, sizeof path, "%s/%s/%s", folder, entry->d_name, in);
		c->received_bytes += unit * read_number(path);
		snprintf(path, sizeof path, "%s/%s/%s", folder, entry->d_name, out);
		c->sent_bytes += unit * read_number(path);
	}
	if (dir)
		closedir(dir);
}

void gn_node_counters_read(struct gn_node_counters *out)
{
	memset(out, 0, sizeof *out);
	out->time_s = gn_clock_s();
	read_processors(out);
	read_memory(out);
	/* a bridge, a bond or a tunnel has no device of its own: its bytes would count twice */
	add_devices("/sys/class/net", "device", "statistics/rx_bytes", "statistics/tx_bytes", 1, out);
	/* port 1 of each adapter counts words of four bytes */
	add_devices("/sys/class/infiniband", "ports/1/counters", "ports/1/counters/port_rcv_data", "ports/1/counters/port_xmit_data", 4, out);
}

/* A counter that went back was reset. */
static double rate(double before, double now, double seconds)
{
	return seconds > 0 && now > before ? (now - before) / seconds : 0;
}

void gn_node_load_between(const struct gn_node_counters *before, const struct gn_node_counters *now, struct gn_node_load *out)
{
	double seconds = now->time_s - before->time_s;

	*out = (struct gn_node_load){
		.cpu = rate(before->busy, now->busy, now->total - before->total),
		.memory_bytes = now->memory_bytes,
		.memory_used_bytes = now->memory_bytes > now->available_bytes ? now->memory_bytes - now->available_bytes : 0,
		.receive_bytes_per_s = rate(before->received_bytes, now->received_bytes, seconds),
		.send_bytes_per_s = rate(before->sent_bytes, now->sent_bytes, seconds),
	};
}

void gn_node_load_write(const char *host, const struct gn_node_load *load, double rss_bytes, struct gn_json *j)
{
	gn_json_object(j, NULL);
	gn_json_string(j, "host", host);
	gn_json_fixed(j, "cpu", load->cpu, 4);
	gn_json_fixed(j, "memory_bytes", load->memory_bytes, 0);
	gn_json_fixed(j, "memory_used_bytes", load->memory_used_bytes, 0);
	gn_json_fixed(j, "rss_bytes", rss_bytes, 0);
	gn_json_fixed(j, "receive_bytes_per_s", load->receive_bytes_per_s, 0);
	gn_json_fixed(j, "send_bytes_per_s", load->send_bytes_per_s, 0);
	gn_json_end(j);
}
