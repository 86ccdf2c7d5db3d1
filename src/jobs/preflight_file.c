/* Results as JSON, and back as a baseline. */
#include "src/jobs/preflight.h"

#include "src/base/file.h"
#include "src/base/text.h"
#include "src/base/sort.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (64u << 20)

static const struct {
	const char *key;
	size_t offset;
	int is_baseline; /* 0 is no measurement */
} numbers[] = {
	{"gflop_per_s", offsetof(struct gn_preflight_host, gflops), 1},
	{"processor_share", offsetof(struct gn_preflight_host, share), 1},
	{"memory_gb_per_s", offsetof(struct gn_preflight_host, memory_gb_per_s), 1},
	{"disk_write_mb_per_s", offsetof(struct gn_preflight_host, write_mb_per_s), 1},
	{"disk_read_mb_per_s", offsetof(struct gn_preflight_host, read_mb_per_s), 1},
	{"disk_free_gb", offsetof(struct gn_preflight_host, free_gb), 0},
	{"network_out_gbit_per_s", offsetof(struct gn_preflight_host, out_gbit_per_s), 1},
	{"network_in_gbit_per_s", offsetof(struct gn_preflight_host, in_gbit_per_s), 1},
	{"latency_us", offsetof(struct gn_preflight_host, latency_us), 1},
	{"clock_ahead_s", offsetof(struct gn_preflight_host, ahead_s), 0},
	{"clock_uncertain_s", offsetof(struct gn_preflight_host, uncertain_s), 0},
};
#define NUMBERS (sizeof numbers / sizeof *numbers)

static void write_number(const char *key, double value, int is_known, struct gn_json *j)
{
	if (is_known)
		gn_json_double(j, key, value);
	else
		gn_json_null(j, key);
}

static void write_host(const struct gn_preflight_host *h, struct gn_json *j)
{
	gn_json_put(j, "{ host %s", h->host);
	for (size_t i = 0; i < NUMBERS; i++) {
		double value = *(const double *)(const void *)((const char *)h + numbers[i].offset);
		int is_free = numbers[i].offset == offsetof(struct gn_preflight_host, free_gb);

		write_number(numbers[i].key, value, numbers[i].is_baseline ? value > 0 : !is_free || value >= 0, j);
	}
	gn_json_put(j, "processors %d memory_bytes %lu", h->processors, h->memory_bytes);
	if (h->memlock_bytes == UINT64_MAX)
		gn_json_null(j, "memlock_bytes");
	else
		gn_json_uint(j, "memlock_bytes", h->memlock_bytes);
	if (h->nofile == UINT64_MAX)
		gn_json_null(j, "nofile");
	else
		gn_json_uint(j, "nofile", h->nofile);
	write_number("gpus", h->gpus.count, h->gpus.count >= 0, j);
	write_number("gpu_ecc_errors", (double)h->gpus.ecc_errors, h->gpus.count > 0, j);
	write_number("gpu_throttle_bits", (double)h->gpus.throttle, h->gpus.count > 0, j);
	gn_json_put(j, "gannet %s binary %s ucx %s pmix %s libc %s kernel %s processor_model %s nvidia_driver %s }", h->gannet, h->binary,
		    h->ucx, h->pmix, h->libc, h->kernel, h->model, h->driver);
}

static void write_matrix(const char *key, const double *values, int count, struct gn_json *j)
{
	gn_json_array(j, key);
	for (int a = 0; a < count; a++) {
		gn_json_array(j, NULL);
		for (int b = 0; b < count; b++)
			if (values[a * count + b] > 0)
				gn_json_fixed(j, NULL, values[a * count + b], 4);
			else
				gn_json_null(j, NULL);
		gn_json_end(j);
	}
	gn_json_end(j);
}

static void write_exclude(const struct gn_preflight_host *hosts, const struct gn_preflight_problem *problems, size_t count,
			  struct gn_json *j)
{
	const char **names = calloc(count + 1, sizeof *names);
	struct gn_strbuf text = {0};
	size_t n = 0;

	for (size_t i = 0; names && i < count; i++)
		if (!i || problems[i].node != problems[i - 1].node)
			names[n++] = hosts[problems[i].node].host;
	if (names)
		gn_hostlist_append(&text, names, n);
	gn_json_string(j, "exclude", gn_strbuf_text(&text));
	gn_strbuf_release(&text);
	free(names);
}

void gn_preflight_write(const struct gn_preflight_host *hosts, int count, const double *rate, const double *latency,
			const struct gn_preflight_problem *problems, size_t problem_count, double seconds, struct gn_json *j)
{
	gn_json_put(j, "{ ok? %d seconds %.1f hosts [", problem_count == 0, seconds);
	for (int i = 0; i < count; i++)
		write_host(&hosts[i], j);
	gn_json_put(j, "] problems [");
	for (size_t i = 0; i < problem_count; i++)
		gn_json_put(j, "{ host %s what %s text %s }", hosts[problems[i].node].host, problems[i].what, problems[i].text);
	gn_json_end(j);
	write_exclude(hosts, problems, problem_count, j);
	write_matrix("rate_gbit_per_s", rate, count, j);
	write_matrix("one_way_us", latency, count, j);
	gn_json_end(j);
}

static double median_of_key(const json_t *hosts, const char *key, double *values)
{
	size_t n = 0;

	for (size_t i = 0; i < json_array_size(hosts); i++) {
		double v = json_number_value(json_object_get(json_array_get(hosts, i), key));

		if (isfinite(v) && v > 0)
			values[n++] = v;
	}
	gn_sort_doubles(values, n);
	return n ? values[n / 2] : 0;
}

enum gn_status gn_preflight_baseline(const char *path, struct gn_preflight_host *out, struct gn_err *err)
{
	struct gn_preflight_host found;
	size_t len = 0;
	char *text = NULL;
	double *values;
	json_t *root, *hosts;
	enum gn_status status = gn_file_load(path, FILE_MAX, &text, &len, err);

	if (status)
		return status;
	root = json_loadb(text, len, 0, NULL);
	free(text);
	hosts = json_object_get(root, "hosts");
	values = calloc(json_array_size(hosts) + 1, sizeof *values);
	memset(&found, 0, sizeof found);
	if (!json_array_size(hosts))
		status = gn_err_set(err, GN_ERR_DATA, "%s is no result of gannet preflight --out", path);
	else if (!values)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %zu hosts", json_array_size(hosts));
	for (size_t i = 0; !status && i < NUMBERS; i++)
		if (numbers[i].is_baseline)
			*(double *)(void *)((char *)&found + numbers[i].offset) = median_of_key(hosts, numbers[i].key, values);
	free(values);
	json_decref(root);
	if (!status)
		*out = found;
	return status;
}
