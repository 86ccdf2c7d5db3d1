/* The flight recorder alone, and what records of several ranks say together. */
#include "tests/test.h"

#include "transport/health/diagnosis.h"

#include <string.h>

#define S 1000000000u

static const struct gn_recorder_op sum = {.name = "allreduce", .algorithm = "ring", .type = "f32", .reduction = "sum",
					  .count = 16777216, .bytes = 64u << 20, .root = -1};
static const struct gn_recorder_op cast = {.name = "broadcast", .algorithm = "binomial", .type = "bytes", .count = 100,
					   .bytes = 100, .root = 3};

static void test_texts(void **state)
{
	struct gn_recorder_op bare = {.name = "barrier", .root = -1}, other = sum;
	char text[GN_RECORD_OP_MAX], tiny[9];

	(void)state;
	gn_recorder_op_text(&sum, text, sizeof text);
	assert_string_equal(text, "allreduce of 64 MiB (16777216 f32, sum, ring)");
	gn_recorder_op_text(&cast, text, sizeof text);
	assert_string_equal(text, "broadcast of 100 B (100 bytes, binomial, root 3)");
	gn_recorder_op_text(&bare, text, sizeof text);
	assert_string_equal(text, "barrier");
	bare.algorithm = "pmix";
	gn_recorder_op_text(&bare, text, sizeof text);
	assert_string_equal(text, "barrier (pmix)");
	gn_recorder_op_text(&sum, tiny, sizeof tiny);
	assert_string_equal(tiny, "allreduc");
	assert_true(gn_recorder_op_signature(&sum) == gn_recorder_op_signature(&other));
	other.type = "i32";
	assert_true(gn_recorder_op_signature(&sum) != gn_recorder_op_signature(&other));
	other = sum;
	other.count--;
	assert_true(gn_recorder_op_signature(&sum) != gn_recorder_op_signature(&other));
	other = sum;
	other.algorithm = "shared";
	assert_true(gn_recorder_op_signature(&sum) != gn_recorder_op_signature(&other));
	other = sum;
	other.root = 0;
	assert_true(gn_recorder_op_signature(&sum) != gn_recorder_op_signature(&other));
}

static uint64_t start(struct gn_recorder *r, const struct gn_recorder_op *op)
{
	return gn_recorder_start(r, gn_recorder_kind(r, op));
}

/* Operation 1 waits for rank 3: only a rail with a name is told of. */
static void wait_by_rails(struct gn_recorder *r, uint64_t now)
{
	struct gn_record t;
	char text[300];

	gn_recorder_waits_for(r, 1, 3, 17, 1);
	gn_recorder_report(r, 2, now, &t);
	assert_string_equal(t.waits_by, "");
	gn_recorder_name_rail(r, 1, "eth1");
	gn_recorder_name_rail(r, 7, "a name that is longer than there is room for");
	gn_recorder_name_rail(r, 8, "no such rail");
	gn_recorder_report(r, 2, now, &t);
	assert_string_equal(t.waits_by, "eth1");
	assert_int_equal(t.waits_rank, 3);
	assert_int_equal(t.waits_message, 17);
	gn_recorder_describe(r, text, sizeof text);
	assert_non_null(strstr(text, ", waiting for rank 3 by eth1"));
	gn_recorder_waits_for(r, 1, 3, (1u << 24) - 1, 7);
	gn_recorder_report(r, 2, now, &t);
	assert_string_equal(t.waits_by, "a name that is longer t");
	assert_int_equal(t.waits_message, (1u << 24) - 1);
	gn_recorder_waits_for(r, 1, 3, 17, 8);
	gn_recorder_report(r, 2, now, &t);
	assert_string_equal(t.waits_by, "");
	gn_recorder_describe(r, text, sizeof text);
	assert_null(strstr(text, " by "));
}

static void test_life_of_an_operation(void **state)
{
	struct gn_recorder *r = NULL;
	struct gn_record t;
	struct gn_err err;
	uint64_t now = 1000 * (uint64_t)S, n;

	(void)state;
	assert_ok(gn_recorder_create(5000, &r, &err));
	gn_recorder_sample(r, now);
	gn_recorder_report(r, 1, now, &t);
	assert_int_equal(t.state, GN_RECORD_NEVER);
	assert_int_equal(t.oldest, 0);
	n = start(r, &sum);
	assert_int_equal(n, 1);
	assert_int_equal(start(r, &cast), 2);
	gn_recorder_sample(r, now += S);
	for (int i = 0; i < 6; i++) {
		gn_recorder_waiting(r, 0);
		gn_recorder_waits_for(r, 1, 3, 17, -1);
		gn_recorder_sample(r, now += S);
	}
	gn_recorder_report(r, 2, now, &t);
	assert_int_equal(t.state, GN_RECORD_RUNNING);
	assert_int_equal(t.oldest, 1);
	assert_int_equal(t.inside, 1);
	assert_int_equal(t.idle_ms, 6000);
	assert_int_equal(t.limit_ms, 5000);
	assert_int_equal(t.suspects, 1);
	assert_int_equal(t.waits_rank, 3);
	assert_int_equal(t.waits_message, 17);
	assert_string_equal(t.waits_by, "");
	wait_by_rails(r, now);
	assert_non_null(strstr(t.op, "broadcast"));
	assert_non_null(strstr(t.oldest_op, "allreduce"));
	/* something moves */
	gn_recorder_waiting(r, 1);
	gn_recorder_report(r, 2, now, &t);
	assert_int_equal(t.idle_ms, 0);
	assert_int_equal(t.suspects, 0);
	gn_recorder_done(r, 1);
	gn_recorder_report(r, 1, now, &t);
	assert_int_equal(t.state, GN_RECORD_DONE);
	assert_int_equal(t.oldest, 2);
	gn_recorder_done(r, 2);
	for (int i = 0; i < 100; i++)
		gn_recorder_done(r, start(r, &sum));
	gn_recorder_report(r, 2, now, &t);
	assert_int_equal(t.state, GN_RECORD_FORGOTTEN);
	assert_int_equal(t.started, 102);
	gn_recorder_destroy(r);
}

/* What an operation was is still told when whoever described it has let go of that, and of many more. */
static void test_kinds(void **state)
{
	struct gn_recorder_op op = cast;
	struct gn_recorder *r = NULL;
	struct gn_record t;
	struct gn_err err;
	uint32_t kinds[1000];

	(void)state;
	assert_ok(gn_recorder_create(5000, &r, &err));
	for (uint32_t i = 0; i < 1000; i++) {
		op.count = op.bytes = 1 + i * 7919 % 1000;
		kinds[i] = gn_recorder_kind(r, &op);
		assert_int_equal(kinds[i], i + 1);
	}
	for (uint32_t i = 0; i < 1000; i++) {
		op.count = op.bytes = 1 + i * 7919 % 1000;
		assert_int_equal(gn_recorder_kind(r, &op), kinds[i]);
	}
	op.count = op.bytes = 1 + 998 * 7919 % 1000;
	op.root = 4;
	assert_int_equal(gn_recorder_kind(r, &op), 1001);
	gn_recorder_start(r, kinds[1]);
	gn_recorder_start(r, 0);
	gn_recorder_start(r, 1u << 21);
	gn_recorder_report(r, 1, 0, &t);
	assert_string_equal(t.oldest_op, "broadcast of 920 B (920 bytes, binomial, root 3)");
	for (uint64_t n = 2; n <= 3; n++) {
		gn_recorder_report(r, n, 0, &t);
		assert_string_equal(t.op, "operation");
	}
	gn_recorder_destroy(r);
}

/* More in flight than are kept: what ends when its place is taken changes nothing there. */
static void test_many_in_flight(void **state)
{
	struct gn_recorder *r = NULL;
	struct gn_record t;
	struct gn_err err;

	(void)state;
	assert_ok(gn_recorder_create(5000, &r, &err));
	for (uint64_t n = 1; n <= 100; n++)
		assert_int_equal(start(r, n <= 64 ? &sum : &cast), n);
	gn_recorder_waits_for(r, 1, 7, 0, -1);
	gn_recorder_report(r, 100, 0, &t);
	assert_int_equal(t.oldest, 37);
	gn_recorder_done(r, 1);
	gn_recorder_report(r, 65, 0, &t);
	assert_int_equal(t.state, GN_RECORD_RUNNING);
	for (uint64_t n = 2; n <= 64; n++)
		gn_recorder_done(r, n);
	gn_recorder_waits_for(r, 1, 7, 0, -1);
	gn_recorder_report(r, 37, 0, &t);
	assert_int_equal(t.state, GN_RECORD_DONE);
	assert_int_equal(t.oldest, 65);
	assert_int_equal(t.waits_rank, -1);
	assert_non_null(strstr(t.oldest_op, "broadcast"));
	gn_recorder_destroy(r);
}

static void test_announcements(void **state)
{
	struct gn_recorder *r = NULL;
	struct gn_record t;
	struct gn_err err;
	uint64_t now = 1000 * (uint64_t)S;

	(void)state;
	assert_ok(gn_recorder_create(5000, &r, &err));
	start(r, &sum);
	gn_recorder_set_phase(r, "reading data", 600000);
	gn_recorder_sample(r, now += S);
	gn_recorder_sample(r, now += 7 * (uint64_t)S);
	gn_recorder_report(r, 1, now, &t);
	assert_int_equal(t.idle_ms, 7000);
	assert_int_equal(t.limit_ms, 600000);
	assert_int_equal(t.suspects, 0);
	assert_string_equal(t.phase, "reading data");
	/* an announcement is no excuse for who waits within the library */
	gn_recorder_waiting(r, 0);
	gn_recorder_sample(r, now += S);
	gn_recorder_report(r, 1, now, &t);
	assert_int_equal(t.limit_ms, 5000);
	assert_int_equal(t.suspects, 1);
	/* this process was itself stopped */
	gn_recorder_exclude(r, 3 * (uint64_t)S, now);
	gn_recorder_report(r, 1, now, &t);
	assert_int_equal(t.idle_ms, 5000);
	gn_recorder_exclude(r, 30 * (uint64_t)S, now);
	gn_recorder_report(r, 1, now, &t);
	assert_int_equal(t.idle_ms, 0);
	gn_recorder_set_phase(r, NULL, 0);
	gn_recorder_sample(r, now += S);
	gn_recorder_sample(r, now += S);
	gn_recorder_report(r, 1, now, &t);
	assert_string_equal(t.phase, "");
	assert_int_equal(t.limit_ms, 5000);
	gn_recorder_destroy(r);
}

/* --- diagnosis --- */

#define RANKS 4

struct ranks {
	struct gn_record records[RANKS];
	unsigned char present[RANKS], lost[RANKS];
	char text[500];
};

static const char *const hosts[RANKS] = {"n1", "n1", "n2", "n2"};

/* All wait in number 812 for 5.1 s. */
static void all_wait(struct ranks *k)
{
	memset(k, 0, sizeof *k);
	for (int r = 0; r < RANKS; r++) {
		k->present[r] = 1;
		k->records[r] = (struct gn_record){.number = 812, .started = 812, .oldest = 812, .idle_ms = 5100, .limit_ms = 5000,
						   .waits_rank = (r + 3) % RANKS, .state = GN_RECORD_RUNNING, .inside = 1,
						   .suspects = 1, .op = "allreduce of 64 MiB", .oldest_op = "allreduce of 64 MiB"};
	}
}

static enum gn_status diagnose(struct ranks *k)
{
	struct gn_diagnosis_input in = {RANKS, k->records, k->present, hosts, 812, k->lost};

	k->text[0] = 0;
	return gn_diagnose(&in, k->text, sizeof k->text);
}

static void assert_says(const struct ranks *k, const char *what)
{
	if (!strstr(k->text, what))
		fail_msg("'%s' does not say '%s'", k->text, what);
}

static void never_comes(struct ranks *k, int r, const char *phase, uint32_t limit_ms)
{
	k->records[r] = (struct gn_record){.number = 812, .started = 811, .idle_ms = 5200, .limit_ms = limit_ms, .waits_rank = -1,
					   .state = GN_RECORD_NEVER};
	strcpy(k->records[r].phase, phase);
}

static void test_who_never_came(void **state)
{
	struct ranks k;

	(void)state;
	all_wait(&k);
	never_comes(&k, 3, "", 5000);
	assert_int_equal(diagnose(&k), GN_ERR_STALL);
	assert_says(&k, "operation number 812, allreduce of 64 MiB, has stalled");
	assert_says(&k, "rank 3 on n2 never started it: it is alive, but in no collective, after operation number 811, for 5.2 s");
	assert_says(&k, "ranks 0-2 wait in it, for 5.1 s (rank 0 for rank 3, ");
	/* it has said that it will take some time */
	all_wait(&k);
	never_comes(&k, 3, "writing a checkpoint", 600000);
	assert_int_equal(diagnose(&k), GN_OK);
	k.records[3].idle_ms = 600100;
	assert_int_equal(diagnose(&k), GN_ERR_STALL);
	assert_says(&k, "after operation number 811, writing a checkpoint, for 600.1 s");
}

/* Its part was done; what it had sent was still on its way when it turned to something else. */
static void test_who_went_away(void **state)
{
	struct ranks k;

	(void)state;
	all_wait(&k);
	never_comes(&k, 3, "", 5000);
	k.records[3].state = GN_RECORD_DONE;
	k.records[3].started = 812;
	strcpy(k.records[3].op, "allreduce of 64 MiB");
	k.records[2].state = GN_RECORD_DONE;
	k.records[2].oldest = 813;
	assert_int_equal(diagnose(&k), GN_ERR_STALL);
	assert_says(&k, "rank 3 on n2 has completed it: it is alive, but in no collective, after operation number 812, for 5.2 s");
	assert_says(&k, "rank 2 on n2 has completed it, for 5.1 s (rank 2 for rank 1 in a later operation)");
}

/* Ranks of other groups neither count nor hold the verdict. */
static void test_a_group(void **state)
{
	struct ranks k;

	(void)state;
	all_wait(&k);
	k.records[1].outside = k.records[3].outside = 1;
	k.records[1].state = k.records[3].state = GN_RECORD_NEVER;
	k.records[1].idle_ms = 10;
	never_comes(&k, 2, "", 5000);
	assert_int_equal(diagnose(&k), GN_ERR_STALL);
	assert_says(&k, "rank 2 on n2 never started it");
	assert_says(&k, "; rank 0 on n1 waits in it");
	assert_null(strstr(k.text, "rank 1 on"));
	assert_null(strstr(k.text, "ranks 1"));
}

/* Groups number their operations by themselves; a group of the same number and another color is another one. */
static void test_groups_of_a_rank(void **state)
{
	const uint64_t group_2 = (uint64_t)(2 << 14 | 5) << GN_RECORD_GROUP_SHIFT, other = (uint64_t)(2 << 14 | 6) << GN_RECORD_GROUP_SHIFT;
	struct gn_recorder *r = NULL;
	struct gn_record t;
	struct gn_err err;
	uint64_t now = 1000 * (uint64_t)S, n;
	char text[300];

	(void)state;
	assert_ok(gn_recorder_create(5000, &r, &err));
	gn_recorder_sample(r, now);
	start(r, &sum);
	gn_recorder_report(r, group_2 + 1, now, &t);
	assert_int_equal(t.outside, 1);
	gn_recorder_set_group(r, 2, 5, "data[5]");
	gn_recorder_report(r, group_2 + 1, now, &t);
	assert_int_equal(t.outside, 0);
	assert_int_equal(t.state, GN_RECORD_NEVER);
	assert_int_equal(t.oldest, 1);
	n = gn_recorder_start_in(r, 2, gn_recorder_kind(r, &sum));
	assert_int_equal(n, 2);
	gn_recorder_report(r, group_2 + 1, now, &t);
	assert_int_equal(t.state, GN_RECORD_RUNNING);
	assert_int_equal(t.started, 1);
	assert_non_null(strstr(t.op, " in data[5]"));
	gn_recorder_report(r, other + 1, now, &t);
	assert_int_equal(t.outside, 1);
	gn_recorder_report(r, 2, now, &t);
	assert_int_equal(t.state, GN_RECORD_NEVER);
	gn_recorder_done(r, 1);
	gn_recorder_report(r, 1, now, &t);
	assert_int_equal(t.state, GN_RECORD_DONE);
	assert_null(strstr(t.op, " in data"));
	assert_int_equal(t.oldest, group_2 + 1);
	gn_recorder_describe(r, text, sizeof text);
	assert_non_null(strstr(text, "in operation number 1, "));
	assert_non_null(strstr(text, " in data[5]"));
	gn_recorder_done(r, n);
	gn_recorder_set_group(r, 2, 5, NULL);
	gn_recorder_report(r, group_2 + 1, now, &t);
	assert_int_equal(t.outside, 1);
	gn_recorder_destroy(r);
}

static void test_one_that_moves_holds_the_verdict(void **state)
{
	struct ranks k;

	(void)state;
	for (int r = 0; r < RANKS; r++) {
		all_wait(&k);
		k.records[r].idle_ms = 4900;
		assert_int_equal(diagnose(&k), GN_OK);
	}
	all_wait(&k);
	k.records[1].idle_ms = 10;
	k.present[1] = 0; /* left in good order */
	assert_int_equal(diagnose(&k), GN_ERR_STALL);
	assert_says(&k, "has stalled; rank 1 on n1 has left the job; ranks 0, 2-3 wait in it");
	k.lost[1] = 1;
	assert_int_equal(diagnose(&k), GN_ERR_STALL);
	assert_says(&k, "has stalled; rank 1 on n1 is lost; ranks 0, 2-3 wait in it");
	all_wait(&k);
	for (int r = 0; r < RANKS; r++)
		k.records[r].suspects = 0; /* nobody waits for anything */
	assert_int_equal(diagnose(&k), GN_OK);
}

static void test_a_cut_link(void **state)
{
	struct ranks k;

	(void)state;
	all_wait(&k);
	k.records[1].inside = 0;
	k.records[2].state = GN_RECORD_DONE;
	assert_int_equal(diagnose(&k), GN_ERR_STALL);
	assert_says(&k, "ranks 0, 3 wait in it, for 5.1 s (rank 0 for rank 3, rank 3 for rank 2)");
	strcpy(k.records[3].waits_by, "mlx5_1:1");
	assert_int_equal(diagnose(&k), GN_ERR_STALL);
	assert_says(&k, " (rank 0 for rank 3, rank 3 for rank 2 by mlx5_1:1)");
	assert_says(&k, "rank 1 on n1 started it and is not waiting in it");
	assert_says(&k, "rank 2 on n2 has completed it, for 5.1 s (rank 2 for rank 1 in a later operation)");
}

/* None is behind: what is lost is on the way, where it goes from host to host. */
static void test_large_messages_are_lost(void **state)
{
	struct ranks k;

	(void)state;
	all_wait(&k);
	assert_int_equal(diagnose(&k), GN_ERR_STALL);
	assert_says(&k, "; heartbeats pass and this does not: compare the hosts' MTU");
	k.records[2].inside = 0;
	assert_int_equal(diagnose(&k), GN_ERR_STALL);
	assert_null(strstr(k.text, "MTU"));
}

static void test_mismatch(void **state)
{
	struct ranks k;

	(void)state;
	all_wait(&k);
	for (int r = 0; r < RANKS; r++)
		k.records[r].idle_ms = 1000; /* no need to wait for the limit */
	strcpy(k.records[2].op, "broadcast of 1 KiB");
	assert_int_equal(diagnose(&k), GN_ERR_MISMATCH);
	assert_says(&k, "the ranks disagree about operation number 812: rank 2 on n2 started broadcast of 1 KiB, ranks 0-1, 3 started "
		    "allreduce of 64 MiB; all ranks must");
	strcpy(k.records[0].op, "barrier");
	strcpy(k.records[1].op, "exchange");
	assert_int_equal(diagnose(&k), GN_ERR_MISMATCH);
	assert_says(&k, "others started other operations");
	/* who has not started it has no say */
	all_wait(&k);
	k.records[1].state = GN_RECORD_NEVER;
	k.records[1].op[0] = 0;
	k.records[1].idle_ms = 0;
	assert_int_equal(diagnose(&k), GN_OK);
}
static void assert_loss_says(struct ranks *k, int lost, const char *what)
{
	struct gn_diagnosis_input in = {RANKS, k->records, k->present, hosts, 0, NULL};

	gn_diagnose_loss(&in, lost, k->text, sizeof k->text);
	assert_string_equal(k->text, what);
}

/* What the survivors of a loss were in: alike ranks together, whoever waits for the lost one counted. */
static void test_what_others_were_in(void **state)
{
	struct ranks k;

	(void)state;
	all_wait(&k);
	assert_loss_says(&k, 3, "ranks 0-2 were in operation number 812, allreduce of 64 MiB, 1 of them waiting for it");
	k.present[0] = 0;
	assert_loss_says(&k, 3, "ranks 1-2 were in operation number 812, allreduce of 64 MiB");
	k.present[2] = 0;
	k.records[1].waits_rank = 3;
	strcpy(k.records[1].phase, "training");
	assert_loss_says(&k, 3, "rank 1 on n1 was in operation number 812, allreduce of 64 MiB, training, waiting for it");
	memset(k.present, 0, sizeof k.present);
	assert_loss_says(&k, 3, "");
	all_wait(&k);
	never_comes(&k, 0, "writing a checkpoint", 5000);
	never_comes(&k, 2, "", 5000);
	k.records[2].started = 0;
	assert_loss_says(&k, 3, "rank 0 on n1 was in no collective, after operation number 811, writing a checkpoint; "
				"rank 1 on n1 was in operation number 812, allreduce of 64 MiB; "
				"rank 2 on n2 was before the first collective");
	k.present[3] = 1;
	k.records[3].oldest = 7;
	assert_loss_says(&k, -1, "rank 0 on n1 was in no collective, after operation number 811, writing a checkpoint; "
				 "rank 1 on n1 was in operation number 812, allreduce of 64 MiB; "
				 "rank 2 on n2 was before the first collective; others were in other operations");
}

/* Any number of ranks, any texts: the sentence ends within its room. */
static void test_long_sentences(void **state)
{
	enum { MANY = 999 };
	static struct gn_record records[MANY];
	static unsigned char present[MANY];
	struct gn_diagnosis_input in = {MANY, records, present, NULL, 812, NULL};
	char text[501];

	(void)state;
	for (int r = 0; r < MANY; r++) {
		present[r] = r % 3 != 0;
		records[r] = (struct gn_record){.idle_ms = 99999, .limit_ms = 1, .waits_rank = r, .state = (uint8_t)(r % 4 == 0
							       ? GN_RECORD_NEVER : GN_RECORD_RUNNING), .inside = 1, .suspects = 1};
		memset(records[r].op, 'x', sizeof records[r].op - 1);
	}
	for (size_t size = 1; size <= 500; size++) {
		memset(text, 1, sizeof text);
		assert_int_equal(gn_diagnose(&in, text, size), GN_ERR_STALL);
		assert_int_equal(text[size], 1);
		assert_true(strlen(text) < size);
		memset(text, 1, sizeof text);
		gn_diagnose_loss(&in, 1, text, size);
		assert_int_equal(text[size], 1);
		assert_true(strlen(text) < size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_life_of_an_operation),
		cmocka_unit_test(test_kinds), cmocka_unit_test(test_many_in_flight),
		cmocka_unit_test(test_announcements),
		cmocka_unit_test(test_who_never_came),
		cmocka_unit_test(test_who_went_away),
		cmocka_unit_test(test_a_group),
		cmocka_unit_test(test_groups_of_a_rank),
		cmocka_unit_test(test_one_that_moves_holds_the_verdict),
		cmocka_unit_test(test_a_cut_link),
		cmocka_unit_test(test_large_messages_are_lost), cmocka_unit_test(test_mismatch),
		cmocka_unit_test(test_what_others_were_in),
		cmocka_unit_test(test_long_sentences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
