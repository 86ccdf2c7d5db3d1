/* The environment that gannet exec gives to a program, frameworks that a script imports, GPUs by locality, a failure as it travels. */
#include "tests/test.h"

#include "src/base/file.h"
#include "src/base/text.h"
#include "src/jobs/exec_environment.h"
#include "src/jobs/exec_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const endpoints[] = {"10.0.0.1:7000", "10.0.0.1:7001", "10.0.0.2:7000", "10.0.0.2:7001"};

static struct gn_exec_place place_of(int rank)
{
	return (struct gn_exec_place){.rank = rank, .size = 4, .local_rank = rank % 2, .local_size = 2, .node = rank / 2, .nodes = 2,
		.master_addr = "10.0.0.1", .master_port = 12345, .horovod_port = 12346, .address = rank < 2 ? "10.0.0.1" : "10.0.0.2",
		.ifname = "eth0", .ucx_devices = "mlx5_0:1,eth0", .gpus = "2,0,1", .endpoints = endpoints};
}

/* context: {name, value}..., NULL */
static const char *from_table(void *context, const char *name)
{
	for (const char *const *t = context; t && *t; t += 2)
		if (!strcmp(*t, name))
			return t[1];
	return NULL;
}

static const char *value_of(const struct gn_exec_environment *e, const char *name)
{
	for (size_t i = 0; i < e->count; i++)
		if (!strcmp(e->items[i].name, name))
			return e->items[i].value;
	return NULL;
}

static void check(const struct gn_exec_place *p, unsigned frameworks, const char *const *present, const char *const *wanted)
{
	struct gn_exec_environment e;

	assert_int_equal(gn_exec_environment_create(p, frameworks, from_table, (void *)(uintptr_t)present, &e, NULL), GN_OK);
	for (; *wanted; wanted += 2) {
		const char *value = value_of(&e, *wanted);

		if (!wanted[1]) {
			assert_null(value);
			continue;
		}
		assert_non_null(value);
		assert_string_equal(value, wanted[1]);
	}
	gn_exec_environment_release(&e);
}

static void torch(void **state)
{
	struct gn_exec_place p = place_of(3);
	static const char *const wanted[] = {"RANK", "3", "WORLD_SIZE", "4", "LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "2", "NODE_RANK", "1",
		"GROUP_RANK", "1", "MASTER_ADDR", "10.0.0.1", "MASTER_PORT", "12345", "GLOO_SOCKET_IFNAME", "eth0",
		"NCCL_SOCKET_IFNAME", "=eth0", "UCX_NET_DEVICES", "mlx5_0:1,eth0", "CUDA_VISIBLE_DEVICES", "2,0,1",
		"AZ_BATCH_MASTER_NODE", "10.0.0.1:12345", "TF_CONFIG", NULL, "HOROVOD_RANK", NULL, "OMPI_COMM_WORLD_RANK", NULL, NULL};

	(void)state;
	check(&p, GN_EXEC_TORCH, NULL, wanted);
}

static void others(void **state)
{
	struct gn_exec_place p = place_of(2);
	static const char *const mpi[] = {"OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_LOCAL_RANK", "0",
		"OMPI_COMM_WORLD_LOCAL_SIZE", "2", "OMPI_COMM_WORLD_NODE_RANK", "0", NULL};
	static const char *const horovod[] = {"HOROVOD_RANK", "2", "HOROVOD_SIZE", "4", "HOROVOD_LOCAL_RANK", "0", "HOROVOD_LOCAL_SIZE", "2",
		"HOROVOD_CROSS_RANK", "1", "HOROVOD_CROSS_SIZE", "2", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1",
		"HOROVOD_GLOO_RENDEZVOUS_PORT", "12346", "HOROVOD_HOSTNAME", "10.0.0.2", NULL};
	static const char *const deepspeed[] = {"RANK", "2", "LOCAL_SIZE", "2", "CROSS_RANK", "1", "CROSS_SIZE", "2", NULL};

	(void)state;
	check(&p, GN_EXEC_MPI, NULL, mpi);
	check(&p, GN_EXEC_HOROVOD, NULL, horovod);
	check(&p, GN_EXEC_DEEPSPEED, NULL, deepspeed);
}

static void tf(void **state)
{
	struct gn_exec_place p = place_of(1);
	static const char *const workers[] = {"TF_CONFIG", "{\"cluster\": {\"worker\": [\"10.0.0.1:7000\", \"10.0.0.1:7001\", "
		"\"10.0.0.2:7000\", \"10.0.0.2:7001\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}",
		/* its own GPU alone: TensorFlow takes all that it sees */
		"CUDA_VISIBLE_DEVICES", "0", "RANK", NULL, NULL};
	static const char *const roles[][3] = {
		{"TF_CONFIG", "{\"cluster\": {\"chief\": [\"10.0.0.1:7000\"], \"worker\": [\"10.0.0.1:7001\", \"10.0.0.2:7000\"], "
			      "\"ps\": [\"10.0.0.2:7001\"]}, \"task\": {\"type\": \"chief\", \"index\": 0}}", NULL},
		{"TF_CONFIG", "{\"cluster\": {\"chief\": [\"10.0.0.1:7000\"], \"worker\": [\"10.0.0.1:7001\", \"10.0.0.2:7000\"], "
			      "\"ps\": [\"10.0.0.2:7001\"]}, \"task\": {\"type\": \"worker\", \"index\": 0}}", NULL},
		{"TF_CONFIG", "{\"cluster\": {\"chief\": [\"10.0.0.1:7000\"], \"worker\": [\"10.0.0.1:7001\", \"10.0.0.2:7000\"], "
			      "\"ps\": [\"10.0.0.2:7001\"]}, \"task\": {\"type\": \"worker\", \"index\": 1}}", NULL},
		{"TF_CONFIG", "{\"cluster\": {\"chief\": [\"10.0.0.1:7000\"], \"worker\": [\"10.0.0.1:7001\", \"10.0.0.2:7000\"], "
			      "\"ps\": [\"10.0.0.2:7001\"]}, \"task\": {\"type\": \"ps\", \"index\": 0}}", NULL}};

	(void)state;
	check(&p, GN_EXEC_TF, NULL, workers);
	for (int r = 0; r < 4; r++) {
		p = place_of(r);
		p.ps = 1;
		check(&p, GN_EXEC_TF, NULL, roles[r]);
	}
}

static void kept(void **state)
{
	struct gn_exec_place p = place_of(0);
	static const char *const present[] = {"NCCL_SOCKET_IFNAME", "ib0", "RANK", "0", "MASTER_PORT", "", NULL};
	struct gn_exec_environment e;

	(void)state;
	assert_int_equal(gn_exec_environment_create(&p, GN_EXEC_TORCH, from_table, (void *)(uintptr_t)present, &e, NULL), GN_OK);
	for (size_t i = 0; i < e.count; i++) {
		if (!strcmp(e.items[i].name, "NCCL_SOCKET_IFNAME")) {
			assert_string_equal(e.items[i].value, "ib0");
			assert_string_equal(e.items[i].computed, "=eth0");
		} else {
			/* the same value, or an empty one, is nothing to tell of */
			assert_null(e.items[i].computed);
		}
	}
	assert_string_equal(value_of(&e, "MASTER_PORT"), "12345");
	gn_exec_environment_release(&e);
}

static void per_node(void **state)
{
	struct gn_exec_place p = place_of(2);
	static const char *const wanted[] = {"PET_NNODES", "2", "PET_NODE_RANK", "1", "PET_MASTER_ADDR", "10.0.0.1", "PET_MASTER_PORT",
		"12345", "PET_NPROC_PER_NODE", "2", "NODE_RANK", "1", "NNODES", "2", "RANK", NULL, "LOCAL_RANK", NULL,
		"CUDA_VISIBLE_DEVICES", NULL, "TF_CONFIG", NULL, NULL};

	(void)state;
	assert_false(gn_exec_environment_hides(&p, "PMIX_RANK"));
	p.per_node = 1;
	check(&p, GN_EXEC_ALL, NULL, wanted);
	assert_true(gn_exec_environment_hides(&p, "PMIX_RANK"));
	assert_true(gn_exec_environment_hides(&p, "RANK"));
	assert_true(gn_exec_environment_hides(&p, "OMPI_COMM_WORLD_SIZE"));
	assert_false(gn_exec_environment_hides(&p, "RANKS"));
	assert_false(gn_exec_environment_hides(&p, "SLURM_JOB_ID"));
}

static void six(void **state)
{
	struct gn_exec_place p = place_of(0);
	static const char *const wanted[] = {"MASTER_ADDR", "fd00::1", "AZ_BATCH_MASTER_NODE", "[fd00::1]:12345", NULL};

	(void)state;
	p.master_addr = "fd00::1";
	check(&p, GN_EXEC_TORCH, NULL, wanted);
}

static unsigned guess(const char *text, int *script)
{
	char path[] = "/tmp/gn-exec-XXXXXX.py";
	const char *argv[] = {"python", "-u", path, "--lr", "1"};
	int fd = mkstemps(path, 3);
	unsigned bits;

	assert_true(fd >= 0);
	assert_int_equal(gn_write_full(fd, text, strlen(text), path, NULL), GN_OK);
	close(fd);
	bits = gn_exec_framework_guess(argv, 5, script);
	unlink(path);
	return bits;
}

static void scripts(void **state)
{
	const char *none[] = {"python", "nowhere.py", "/dev/null.py"};
	int script;

	(void)state;
	assert_int_equal(guess("import os, torch.nn as nn\n", &script), GN_EXEC_TORCH);
	assert_int_equal(script, 2);
	assert_int_equal(guess("#!x\nif 1:\n\tfrom tensorflow import keras\n", &script), GN_EXEC_TF);
	assert_int_equal(guess("import horovod.torch as hvd\nimport torch", &script), GN_EXEC_TORCH | GN_EXEC_HOROVOD);
	assert_int_equal(guess("import lightning as L\n", &script), GN_EXEC_TORCH | GN_EXEC_LIGHTNING);
	assert_int_equal(guess("import torchvision\nimportant = torch\n# import tensorflow\n", &script), GN_EXEC_ALL);
	assert_int_equal(guess("", &script), GN_EXEC_ALL);
	assert_int_equal(gn_exec_framework_guess(none, 3, &script), GN_EXEC_ALL);
	assert_int_equal(script, -1);
	assert_int_equal(gn_exec_framework_find("tf"), GN_EXEC_TF);
	assert_int_equal(gn_exec_framework_find("t"), 0);
}

static void gpus(void **state)
{
	struct gn_topology_cpu cpus[] = {{0, 0, 0}, {1, 1, 0}, {2, 2, 1}, {3, 3, 1}};
	struct gn_topology_device devices[3] = {{.numa = 1}, {.numa = 1}, {.numa = 0}};
	struct gn_topology m = {.cpus = cpus, .cpu_count = 4, .gpus = devices, .gpu_count = 3, .numa_count = 2};
	cpu_set_t sets[4];
	int order[3], own[4];

	(void)state;
	for (int i = 0; i < 4; i++) {
		CPU_ZERO(&sets[i]);
		CPU_SET((size_t)i, &sets[i]);
	}
	/* NUMA node 0 has one GPU, the last: the second process there takes the first that is free */
	assert_int_equal(gn_exec_local_order_gpus(&m, sets, 2, order, own), 3);
	assert_int_equal(own[0], 2);
	assert_int_equal(own[1], 0);
	assert_int_equal(order[0], 2);
	assert_int_equal(order[1], 0);
	assert_int_equal(order[2], 1);
	/* more processes than GPUs */
	assert_int_equal(gn_exec_local_order_gpus(&m, sets, 4, order, own), 3);
	assert_int_equal(own[2], 1);
	assert_int_equal(own[3], 0);
}

static void round_trip(int code, const char *reason, const char *lines, const char *wanted)
{
	struct gn_strbuf text, why, last;
	char line[2048];
	int heard;

	gn_strbuf_init(&text);
	gn_strbuf_init(&why);
	gn_strbuf_init(&last);
	gn_exec_failure_write(code, reason, lines, &text);
	assert_true(text.len <= 400);
	snprintf(line, sizeof line, "rank 3 on n2 is lost: it gave up: %.400s; rank 0 on n1 was in exec[", gn_strbuf_text(&text));
	assert_true(gn_exec_failure_read(line, &heard, &why, &last));
	assert_int_equal(heard, code);
	assert_string_equal(gn_strbuf_text(&why), reason);
	assert_string_equal(gn_strbuf_text(&last), wanted);
	gn_strbuf_release(&text);
	gn_strbuf_release(&why);
	gn_strbuf_release(&last);
}

static void failures(void **state)
{
	static const char *const bad[] = {"", "exec[", "exec[7,3", "exec[7,999999,1]: x", "exec[7,-1,1]: x", "exec[7,3,1]:"};
	char lines[1500], wanted[400];
	struct gn_strbuf why, last;
	int code;

	(void)state;
	round_trip(7, "exit code 7", "", "");
	round_trip(137, "killed by signal 9 (Killed)", "one\ntwo\n", "one\ntwo");
	round_trip(1, "exit code 1", "caf\xc3\xa9 \x1b[2J]: 5, 6\n\n", "caf\xc3\xa9 \\x1b[2J]: 5, 6");
	/* of many lines the last whole ones, of one long line its end */
	for (int i = 0; i < 100; i++)
		snprintf(lines + 10 * i, 24, "line %04d\n", i);
	*wanted = 0;
	for (int i = 75; i < 100; i++)
		snprintf(wanted + strlen(wanted), 24, "%sline %04d", i > 75 ? "\n" : "", i);
	round_trip(1, "exit code 1", lines, wanted);
	memset(lines, 'x', 1000);
	lines[1000] = 0;
	memset(wanted, 'x', 329);
	wanted[329] = 0;
	round_trip(1, "exit code 1", lines, wanted);
	gn_strbuf_init(&why);
	gn_strbuf_init(&last);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_false(gn_exec_failure_read(bad[i], &code, &why, &last));
	gn_strbuf_release(&why);
	gn_strbuf_release(&last);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(torch),   cmocka_unit_test(others), cmocka_unit_test(tf),   cmocka_unit_test(kept),
		cmocka_unit_test(per_node), cmocka_unit_test(six),    cmocka_unit_test(scripts), cmocka_unit_test(gpus),
		cmocka_unit_test(failures)};

	return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
