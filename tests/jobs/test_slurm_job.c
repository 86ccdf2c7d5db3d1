/* What Slurm prints of jobs: lines of scontrol of a virtual cluster, and rows as sacct's manual describes them. */
#include "tests/test.h"

#include "src/base/file.h"
#include "src/jobs/slurm_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char shown[] =
	"JobId=13 ArrayJobId=12 ArrayTaskId=3 JobName=gannet sweep UserId=a(1000) GroupId=a(1000) MCS_label=N/A Priority=1 Nice=0 Account=(null) "
	"QOS=(null) JobState=PENDING Reason=Resources Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 "
	"RunTime=00:00:00 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-11-24T10:00:00 EligibleTime=2026-11-24T10:00:00 AccrueTime=Unknown "
	"StartTime=2026-11-24T12:30:00 EndTime=Unknown Deadline=N/A NodeList=(null) NumNodes=2 NumCPUs=8 NumTasks=4 CPUs/Task=2 "
	"MinCPUsNode=1 MinMemoryCPU=2G MinTmpDiskNode=0 Command=/home/a/my run/job.sbatch WorkDir=/home/a StdOut=/home/a/sweep/12_3.out Power=\n";

static void waiting(void **state)
{
	struct gn_slurm_job j;

	(void)state;
	assert_true(gn_slurm_job_parse(shown, &j));
	assert_string_equal(j.id, "12_3");
	assert_string_equal(j.state, "PENDING");
	assert_string_equal(j.reason, "Resources");
	assert_string_equal(j.script, "/home/a/my run/job.sbatch");
	assert_string_equal(j.name, "gannet sweep");
	assert_string_equal(j.nodes, "");
	assert_int_equal(j.restarts, 2);
	assert_int_equal(j.node_count, 2);
	assert_true(fabs(j.start_time - j.submit_time - 2.5 * 3600) < 1);
	/* of a node */
	assert_true(fabs(j.memory_bytes - 8.0 * (1 << 30)) < 1);
	assert_false(gn_slurm_job_parse("slurm_load_jobs error: Invalid job id specified\n", &j));
	assert_false(gn_slurm_job_parse("", &j));
}

/* Queued again once; the job's own rows count the processors, those of steps what they used. */
static void accounted(void **state)
{
	static const char rows[] =
		"12|NODE_FAIL|2026-11-24T10:00:00|2026-11-24T10:00:00|2026-11-24T10:10:00|2026-11-24T10:20:00|600|8|2|16G|00:00:00|||train|"
		"sbatch --parsable /home/a/run/job.sbatch\n"
		"12.batch|CANCELLED|2026-11-24T10:10:00|2026-11-24T10:10:00|2026-11-24T10:10:00|2026-11-24T10:20:00|600|4|1||00:01.500|100M|1|batch|\n"
		"12|COMPLETED|2026-11-24T10:20:00|2026-11-24T10:22:00|2026-11-24T10:25:00|2026-11-24T11:25:00|3600|8|2|16G|06:30:02|||train|"
		"sbatch --parsable /home/a/run/job.sbatch\n"
		"12.batch|COMPLETED|2026-11-24T10:25:00|2026-11-24T10:25:00|2026-11-24T10:25:00|2026-11-24T11:25:00|3600|4|1||00:02.000|51200K|1|batch|\n"
		"12.extern|COMPLETED|2026-11-24T10:25:00|2026-11-24T10:25:00|2026-11-24T10:25:00|2026-11-24T11:25:00|3600|8|2||00:00:00|0|2|extern|\n"
		"12.0|COMPLETED|2026-11-24T10:25:00|2026-11-24T10:25:00|2026-11-24T10:25:00|2026-11-24T11:25:00|3590|8|2||1-02:30:00|1.5G|4|gannet|\n";
	struct gn_slurm_job j = {.accounted = 0};

	(void)state;
	assert_true(gn_slurm_job_account(rows, &j));
	assert_true(j.accounted);
	assert_string_equal(j.id, "12");
	assert_string_equal(j.state, "COMPLETED");
	assert_string_equal(j.script, "/home/a/run/job.sbatch");
	assert_int_equal(j.restarts, 1);
	assert_true(fabs(j.waited_s - (600 + 300)) < 0.1);
	assert_true(fabs(j.elapsed_s - 4200) < 0.1);
	assert_true(fabs(j.core_s - 8 * 4200) < 0.1);
	assert_true(fabs(j.cpu_s - (1.5 + 2 + 26.5 * 3600)) < 0.1);
	assert_true(fabs(j.max_rss_bytes - 1.5 * (1 << 30)) < 1);
	assert_true(fabs(j.node_rss_bytes - 3.0 * (1 << 30)) < 1);
	/* the whole job's 16 GiB on two nodes */
	assert_true(fabs(j.memory_bytes - 8.0 * (1 << 30)) < 1);
	assert_false(gn_slurm_job_account("", &j));
	assert_false(gn_slurm_job_account("12|short\nnonsense\n", &j));
}

/* Tasks of an array are no restarts of each other. */
static void accounted_array(void **state)
{
#define TASK(id, state) id "|" state "|2026-11-24T10:00:00|2026-11-24T10:00:00|2026-11-24T10:00:10|2026-11-24T10:01:10|60|2|1|1G|00:00||||\n"
	struct gn_slurm_job j = {.restarts = 7};

	(void)state;
	assert_true(gn_slurm_job_account(TASK("12_1", "COMPLETED") TASK("12_2", "REQUEUED") TASK("12_2", "COMPLETED") TASK("12_3", "FAILED"), &j));
	assert_int_equal(j.restarts, 1);
	assert_true(fabs(j.core_s - 4 * 120) < 0.1);
#undef TASK
}

static void names(void **state)
{
	static const char *const jobs[] = {"1", "4711", "12_3"}, *const none[] = {"", "12_", "_3", "12_3_4", "12.0", "run1.jsonl", "12a", "1234567890123"};

	(void)state;
	for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
		assert_true(gn_slurm_is_job(jobs[i]));
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		assert_false(gn_slurm_is_job(none[i]));
}

static void log_of_script(void **state)
{
	static const char text[] = "#!/bin/bash\ncd '/home/a/work' || exit 1\nexport GANNET_CHECKPOINT='run'\nexport GANNET_LOG_FILE='%s'\n";
	static const struct {
		const char *log, *id, *wanted; /* NULL: none */
	} cases[] = {{"/s/run.jsonl", "12", "/s/run.jsonl"}, {"run.jsonl", "12", "/home/a/work/run.jsonl"}, {"/s/trial-%a.jsonl", "12_3", "/s/trial-3.jsonl"},
		     {"-", "12", NULL}};
	char path[] = "/tmp/gn-script-XXXXXX", script[512], log[512];
	struct gn_slurm_job j = {.accounted = 0};
	struct gn_err err;
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	snprintf(j.script, sizeof j.script, "%s", path);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		snprintf(script, sizeof script, text, cases[i].log);
		assert_ok(gn_file_replace(path, script, strlen(script), &err));
		snprintf(j.id, sizeof j.id, "%s", cases[i].id);
		assert_int_equal(gn_slurm_job_log(&j, log, sizeof log, &err), cases[i].wanted ? GN_OK : GN_ERR_NOT_FOUND);
		if (cases[i].wanted)
			assert_string_equal(log, cases[i].wanted);
	}
	unlink(path);
	assert_int_equal(gn_slurm_job_log(&j, log, sizeof log, &err), GN_ERR_NOT_FOUND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waiting),
		cmocka_unit_test(accounted),
		cmocka_unit_test(accounted_array),
		cmocka_unit_test(names),
		cmocka_unit_test(log_of_script),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
