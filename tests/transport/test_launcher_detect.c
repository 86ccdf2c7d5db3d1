#include "tests/test.h"

#include "transport/bootstrap/launcher_detect.h"

#include <string.h>

#define VARS_MAX 10

struct variables {
	const char *pairs[VARS_MAX][2];
};

static const char *look(void *context, const char *name)
{
	const struct variables *v = context;

	for (int i = 0; i < VARS_MAX && v->pairs[i][0]; i++)
		if (!strcmp(v->pairs[i][0], name))
			return v->pairs[i][1];
	return NULL;
}

struct good {
	struct variables vars;
	enum gn_launcher_source source;
	int rank, size, port;
};

static const struct good good[] = {
	{{{{NULL, NULL}}}, GN_LAUNCHER_SINGLE, 0, 1, 0},
	/* a batch script, and the shell of salloc: the step to come is not ours */
	{{{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}}, GN_LAUNCHER_SINGLE, 0, 1, 0},
	{{{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}}}, GN_LAUNCHER_SINGLE, 0, 1, 0},
	{{{{"RANK", ""}, {"WORLD_SIZE", ""}}}, GN_LAUNCHER_SINGLE, 0, 1, 0},
	{{{{"PMI_SIZE", "1"}}}, GN_LAUNCHER_SINGLE, 0, 1, 0},
	{{{{"RANK", "0"}, {"WORLD_SIZE", "1"}}}, GN_LAUNCHER_ENVIRONMENT, 0, 1, 0},
	{{{{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"}}},
	 GN_LAUNCHER_ENVIRONMENT, 3, 4, 29500},
	/* torchrun's agent has its own store on the port */
	{{{{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29500"},
	   {"TORCHELASTIC_USE_AGENT_STORE", "True"}}}, GN_LAUNCHER_ENVIRONMENT, 3, 4, 29501},
	/* torchrun started once per node by srun: fewer tasks than ranks */
	{{{{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}, {"SLURM_STEP_ID", "0"},
	   {"SLURM_STEP_NUM_TASKS", "2"}}}, GN_LAUNCHER_ENVIRONMENT, 3, 8, 1},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"AZ_BATCH_MASTER_NODE", "10.0.0.4:6000"}}}, GN_LAUNCHER_ENVIRONMENT, 1, 2, 6000},
	/* who says more goes first */
	{{{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"AZ_BATCH_MASTER_NODE", "10.0.0.4:6000"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "5"}}},
	 GN_LAUNCHER_ENVIRONMENT, 1, 2, 5},
	{{{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "5"}}},
	 GN_LAUNCHER_ENVIRONMENT, 1, 2, 5},
	{{{{"PMIX_NAMESPACE", "slurm.pmix.1.0"}, {"PMIX_RANK", "2"}, {"SLURM_STEP_ID", "0"},
	   {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "2"}}}, GN_LAUNCHER_PMIX, 2, 0, 0},
	/* gannet launch inside a Slurm step: the step's numbers are not the ranks' */
	{{{{"PMIX_NAMESPACE", "gannet.1"}, {"PMIX_RANK", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"},
	   {"SLURM_PROCID", "0"}}}, GN_LAUNCHER_PMIX, 2, 0, 0},
	{{{{"PMIX_NAMESPACE", "1"}, {"PMIX_RANK", "1"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}},
	 GN_LAUNCHER_PMIX, 1, 0, 0},
	{{{{"PMIX_NAMESPACE", "1"}, {"PMIX_RANK", "1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}}, GN_LAUNCHER_PMIX, 1, 0, 0},
};

struct bad {
	struct variables vars;
	const char *says[2]; /* both must be in the message */
};

static const struct bad bad[] = {
	{{{{"RANK", "0"}}}, {"RANK", "WORLD_SIZE"}},
	{{{{"WORLD_SIZE", "2"}}}, {"RANK", "WORLD_SIZE"}},
	{{{{"RANK", "4"}, {"WORLD_SIZE", "4"}}}, {"RANK=4", "WORLD_SIZE=4"}},
	{{{{"RANK", "-1"}, {"WORLD_SIZE", "4"}}}, {"RANK=-1", "whole number"}},
	{{{{"RANK", "0"}, {"WORLD_SIZE", "0"}}}, {"WORLD_SIZE=0", "at least 1"}},
	{{{{"RANK", "1x"}, {"WORLD_SIZE", "4"}}}, {"RANK=1x", "whole number"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "99999999999"}}}, {"WORLD_SIZE=99999999999", "whole number"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}}}, {"WORLD_SIZE=4", "MASTER_ADDR"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}}}, {"WORLD_SIZE=4", "MASTER_PORT"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "70000"}}}, {"MASTER_PORT", "65535"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "0"}}}, {"MASTER_PORT=0", ""}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"AZ_BATCH_MASTER_NODE", "h"}}}, {"AZ_BATCH_MASTER_NODE=h", "HOST:PORT"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"AZ_BATCH_MASTER_NODE", ":5"}}}, {"AZ_BATCH_MASTER_NODE=:5", "HOST:PORT"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"AZ_BATCH_MASTER_NODE", "h:70000"}}}, {"AZ_BATCH_MASTER_NODE=h:70000", "HOST:PORT"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"AZ_BATCH_MASTER_NODE", "h:5"}, {"MASTER_PORT", "5"}}}, {"WORLD_SIZE=4", "MASTER_ADDR"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "x"}}}, {"LOCAL_RANK=x", "whole number"}},
	{{{{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}}, {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}},
	 {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE=2"}},
	{{{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}},
	 {"rank 1", "OMPI_COMM_WORLD_RANK=2"}},
	{{{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}}, {"OMPI_COMM_WORLD_SIZE=2", "MASTER_ADDR"}},
	{{{{"PMIX_NAMESPACE", "a"}}}, {"PMIX_NAMESPACE", "PMIX_RANK"}},
	{{{{"PMIX_RANK", "0"}}}, {"PMIX_NAMESPACE", "PMIX_RANK"}},
	{{{{"PMIX_NAMESPACE", "a"}, {"PMIX_RANK", "0"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}}, {"PMIX_RANK=0", "RANK=1"}},
	{{{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}}, {"SLURM_STEP_NUM_TASKS=4", "srun --mpi=pmix"}},
	{{{{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}}}, {"SLURM_NTASKS=4", "srun --mpi=pmix"}},
	{{{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "x"}}}, {"SLURM_STEP_NUM_TASKS=x", ""}},
	/* left-over variables of one rank in a step of four */
	{{{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}},
	 {"WORLD_SIZE=1", "SLURM_STEP_NUM_TASKS=4"}},
	{{{{"PMI_SIZE", "2"}}}, {"PMI_SIZE=2", "PMIx"}},
};

static void test_good(void **state)
{
	struct gn_launcher d;
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		struct variables v = good[i].vars;

		print_message("# case %zu\n", i);
		assert_ok(gn_launcher_detect(look, &v, &d, &err));
		assert_int_equal(d.source, good[i].source);
		assert_int_equal(d.rank, good[i].rank);
		assert_int_equal(d.size, good[i].size);
		assert_int_equal(d.port, good[i].port);
	}
}

/* The job's size is noted outside of a step, and only for who is alone. */
static void test_job(void **state)
{
	static const struct {
		struct variables vars;
		const char *name;
		int count;
	} cases[] = {
		{{{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_NNODES", "2"}}}, "SLURM_NTASKS", 8},
		{{{{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "2"}}}, "SLURM_NNODES", 2},
		{{{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "1"}, {"SLURM_NNODES", "1"}}}, NULL, 0},
		{{{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "x"}}}, NULL, 0},
		{{{{"SLURM_NTASKS", "8"}}}, NULL, 0},
		{{{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}}}, NULL, 0},
		{{{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}}, NULL, 0},
		{{{{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"PMIX_NAMESPACE", "gannet.1"}, {"PMIX_RANK", "0"}}}, NULL, 0},
	};
	struct gn_launcher d;
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct variables v = cases[i].vars;

		print_message("# case %zu\n", i);
		assert_ok(gn_launcher_detect(look, &v, &d, &err));
		assert_int_equal(d.job_name != NULL, cases[i].name != NULL);
		if (cases[i].name)
			assert_string_equal(d.job_name, cases[i].name);
		assert_int_equal(d.job_count, cases[i].count);
	}
}

static void test_bad(void **state)
{
	struct gn_launcher d;
	struct gn_err err;

	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct variables v = bad[i].vars;

		print_message("# case %zu\n", i);
		assert_int_equal(gn_launcher_detect(look, &v, &d, &err), GN_ERR_USAGE);
		if (!strstr(err.text, bad[i].says[0]) || !strstr(err.text, bad[i].says[1]))
			fail_msg("case %zu: '%s' lacks '%s' or '%s'", i, err.text, bad[i].says[0], bad[i].says[1]);
	}
}

/* What PMIx itself says is held against the variables. */
static void test_confirm(void **state)
{
	struct variables v = {{{"PMIX_NAMESPACE", "slurm.pmix.1.0"}, {"PMIX_RANK", "1"}, {"RANK", "1"},
			       {"WORLD_SIZE", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}};
	struct gn_launcher d;
	struct gn_err err;

	(void)state;
	assert_ok(gn_launcher_detect(look, &v, &d, &err));
	assert_int_equal(gn_launcher_confirm(&d, "PMIx", 1, 4, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "WORLD_SIZE=2"));
	assert_int_equal(gn_launcher_confirm(&d, "PMIx", 1, 2, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "SLURM_STEP_NUM_TASKS=4"));
	v.pairs[3][1] = "4";
	assert_ok(gn_launcher_detect(look, &v, &d, &err));
	assert_ok(gn_launcher_confirm(&d, "PMIx", 1, 4, &err));
	assert_int_equal(gn_launcher_confirm(&d, "PMIx", 2, 4, &err), GN_ERR_USAGE);
}

/* What torchrun says of the host is held against who is there. */
static void test_confirm_local(void **state)
{
	struct variables v = {{{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
			       {"AZ_BATCH_MASTER_NODE", "[fd77::1]:6000"}}};
	struct gn_launcher d;
	struct gn_err err;

	(void)state;
	assert_ok(gn_launcher_detect(look, &v, &d, &err));
	assert_string_equal(d.address, "fd77::1");
	assert_ok(gn_launcher_confirm_local(&d, "n2", 5, 1, 4, &err));
	assert_int_equal(gn_launcher_confirm_local(&d, "n2", 5, 2, 4, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "LOCAL_RANK=1 but rank 5 has local rank 2 of 4 on n2"));
	assert_int_equal(gn_launcher_confirm_local(&d, "n2", 5, 1, 3, &err), GN_ERR_USAGE);
	assert_non_null(strstr(err.text, "LOCAL_WORLD_SIZE=4 but rank 5 is one of 3 ranks on n2"));
	v.pairs[2][1] = v.pairs[3][1] = "";
	assert_ok(gn_launcher_detect(look, &v, &d, &err));
	assert_ok(gn_launcher_confirm_local(&d, "n2", 5, 2, 3, &err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_job),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_confirm),
		cmocka_unit_test(test_confirm_local),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
