/* Messages that are encrypted in fragments: pieces of all sizes and orders, and everything that somebody on the way may do to them. */
#include "tests/test.h"

#include "transport/auth/sealed_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { F = GN_SEALED_FRAGMENT_BYTES, TAG = GN_AEAD_TAG_BYTES, HEAD = GN_SEALED_COUNTER_BYTES, LONG = 3 * F + 17 };

static const struct gn_data_key key = {{1, 2, 3}};
static struct gn_aead *sends, *receives;

static int make_keys(void **state)
{
	(void)state;
	return gn_aead_create(&key, 1, &sends, NULL) || gn_aead_create(&key, 0, &receives, NULL);
}

static int drop_keys(void **state)
{
	(void)state;
	gn_aead_destroy(sends);
	gn_aead_destroy(receives);
	return 0;
}

static unsigned char *text_of(size_t len)
{
	unsigned char *text = malloc(len + 1);

	for (size_t i = 0; i < len; i++)
		text[i] = (unsigned char)((i * 2654435761u + len) >> 13);
	return text;
}

/* The message on the wire, packed in pieces of at most `piece` bytes. */
static unsigned char *wire_of(const unsigned char *text, size_t len, uint64_t counter, uint64_t tag, size_t piece)
{
	struct gn_sealed_message m = {.aead = sends, .counter = counter, .len_bytes = len, .from = text};
	size_t total = gn_sealed_message_bytes(len), n;
	unsigned char *wire = malloc(total);

	m.space = malloc(gn_sealed_message_space(len, 1));
	gn_sealed_message_bind(&m, tag, 0, len);
	for (size_t at = 0; at < total; at += n) {
		n = gn_sealed_message_pack(&m, at, wire + at, piece);
		assert_int_equal(n, total - at < piece ? total - at : piece);
	}
	assert_false(m.has_failed);
	free(m.space);
	return wire;
}

static struct gn_sealed_message reader_of(size_t len, uint64_t tag)
{
	struct gn_sealed_message m = {.aead = receives, .len_bytes = len, .into = malloc(len + 1)};

	m.space = malloc(gn_sealed_message_space(len, 0));
	memset(m.into, 0, len + 1);
	gn_sealed_message_bind(&m, tag, 0, len);
	return m;
}

static void end(struct gn_sealed_message *m)
{
	free(m->into);
	free(m->space);
}

/* Whether wire, in pieces of `piece` bytes, is authentic; then it is the text. */
static int arrives(const unsigned char *wire, size_t len, uint64_t tag, size_t piece, const unsigned char *text)
{
	struct gn_sealed_message m = reader_of(len, tag);
	size_t total = gn_sealed_message_bytes(len);
	int whole;

	for (size_t at = 0; at < total; at += piece)
		assert_true(gn_sealed_message_unpack(&m, at, wire + at, total - at < piece ? total - at : piece));
	whole = gn_sealed_message_finish(&m);
	if (whole)
		assert_memory_equal(m.into, text, len);
	end(&m);
	return whole;
}

static void test_sizes(void **state)
{
	static const size_t lens[] = {0, 1, 100, F - 1, F, F + 1, 2 * F, LONG}, pieces[] = {1, 7, 8192, F - 3, F + 24, 1 << 20};

	(void)state;
	for (size_t i = 0; i < sizeof lens / sizeof *lens; i++)
		for (size_t k = lens[i] > 100; k < sizeof pieces / sizeof *pieces; k++) {
			unsigned char *text = text_of(lens[i]), *wire = wire_of(text, lens[i], 5, 9, pieces[k]);
			size_t other = pieces[sizeof pieces / sizeof *pieces - 1 - k];

			assert_true(lens[i] < 100 || memcmp(wire + HEAD, text, 100));
			assert_true(arrives(wire, lens[i], 9, pieces[k], text));
			assert_true(arrives(wire, lens[i], 9, other, text));
			free(text);
			free(wire);
		}
}

/* Backwards, with what is still missing noticed. */
static void test_any_order(void **state)
{
	unsigned char *text = text_of(LONG), *wire = wire_of(text, LONG, 1, 2, F);
	size_t total = gn_sealed_message_bytes(LONG), piece = 5000, count = (total + piece - 1) / piece;
	struct gn_sealed_message m = reader_of(LONG, 2), some = reader_of(LONG, 2);

	(void)state;
	for (size_t i = count; i-- > 0;) {
		size_t at = i * piece, n = total - at < piece ? total - at : piece;

		assert_true(gn_sealed_message_unpack(&m, at, wire + at, n));
		if (i != count / 2)
			assert_true(gn_sealed_message_unpack(&some, at, wire + at, n));
	}
	assert_true(gn_sealed_message_finish(&m));
	assert_memory_equal(m.into, text, LONG);
	assert_false(gn_sealed_message_finish(&some));
	end(&m);
	end(&some);
	free(text);
	free(wire);
}

/* In a short message every bit; in a long one a bit every 8 KiB, and of all bytes around the ends of fragments. */
static void test_bits(void **state)
{
	static const size_t lens[] = {0, 33, LONG};

	(void)state;
	for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
		size_t len = lens[i], total = gn_sealed_message_bytes(len);
		unsigned char *text = text_of(len), *wire = wire_of(text, len, 1, 2, F);

		for (size_t bit = 0; bit < 8 * total; bit++) {
			int is_end = (bit / 8 + 20) % (F + TAG) < 40 && bit % 8 == bit / 8 % 8;

			if (len > 100 && !is_end && bit % 65536 != 13)
				continue;
			wire[bit / 8] ^= (unsigned char)(1u << bit % 8);
			if (arrives(wire, len, 2, 8192, text))
				fail_msg("bit %zu of %zu bytes", bit, len);
			wire[bit / 8] ^= (unsigned char)(1u << bit % 8);
		}
		assert_true(arrives(wire, len, 2, 8192, text));
		free(text);
		free(wire);
	}
}

static void swap(unsigned char *a, unsigned char *b, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = a[i];

		a[i] = b[i];
		b[i] = c;
	}
}

static void test_moved_fragments(void **state)
{
	unsigned char *text = text_of(LONG), *wire = wire_of(text, LONG, 1, 2, F), *later = wire_of(text, LONG, 2, 2, F);
	unsigned char *first = wire + HEAD, *second = first + F + TAG;

	(void)state;
	swap(first, second, F + TAG);
	assert_false(arrives(wire, LONG, 2, F, text));
	swap(first, second, F + TAG);
	/* one again in the next one's place; one of another message, of the same text */
	memcpy(second, first, F + TAG);
	assert_false(arrives(wire, LONG, 2, F, text));
	memcpy(second, later + HEAD + F + TAG, F + TAG);
	assert_false(arrives(wire, LONG, 2, F, text));
	memcpy(first, later + HEAD, F + TAG);
	assert_false(arrives(wire, LONG, 2, F, text));
	free(text);
	free(wire);
	free(later);
}

/* A message that ends after a whole fragment, or begins after one, is none. Nor is it one of another tag, or another part of a text. */
static void test_cut_messages(void **state)
{
	unsigned char *text = text_of(LONG), *wire = wire_of(text, LONG, 1, 2, F);
	struct gn_sealed_message part = reader_of(LONG, 2);

	(void)state;
	assert_false(arrives(wire, 2 * F, 2, F, text));
	memmove(wire + HEAD, wire + HEAD + F + TAG, LONG - F + 3 * TAG);
	assert_false(arrives(wire, LONG - F, 2, F, text + F));
	free(wire);
	wire = wire_of(text, LONG, 1, 2, F);
	assert_false(arrives(wire, LONG, 3, F, text));
	gn_sealed_message_bind(&part, 2, LONG, 2 * LONG);
	assert_true(gn_sealed_message_unpack(&part, 0, wire, gn_sealed_message_bytes(LONG)));
	assert_false(gn_sealed_message_finish(&part));
	end(&part);
	free(text);
	free(wire);
}

/* What was decrypted cannot be written again, and nothing is written beyond the message. */
static void test_pieces_again(void **state)
{
	unsigned char *text = text_of(LONG), *wire = wire_of(text, LONG, 1, 2, F);
	size_t total = gn_sealed_message_bytes(LONG);
	struct gn_sealed_message m = reader_of(LONG, 2);

	(void)state;
	assert_false(gn_sealed_message_unpack(&m, total - 1, wire, 2));
	assert_false(gn_sealed_message_unpack(&m, total + 1, wire, 0));
	assert_true(gn_sealed_message_unpack(&m, 0, wire, HEAD + F + TAG));
	assert_int_equal(m.decrypted, 1);
	assert_true(gn_sealed_message_unpack(&m, HEAD + 10, wire, 100));
	assert_memory_equal(m.into, text, F);
	assert_true(gn_sealed_message_unpack(&m, HEAD + F + TAG, wire + HEAD + F + TAG, total - HEAD - F - TAG));
	assert_false(gn_sealed_message_finish(&m));
	end(&m);
	free(text);
	free(wire);
}

/* Memory that is its user's again is neither read nor written. */
static void test_disowned(void **state)
{
	unsigned char *text = text_of(LONG), *wire = malloc(gn_sealed_message_bytes(LONG));
	size_t total = gn_sealed_message_bytes(LONG), half = HEAD + F + TAG;
	struct gn_sealed_message out = {.aead = sends, .counter = 1, .len_bytes = LONG, .from = text}, in = reader_of(LONG, 2);
	unsigned char *into = in.into;

	(void)state;
	out.space = malloc(gn_sealed_message_space(LONG, 1));
	gn_sealed_message_bind(&out, 2, 0, LONG);
	assert_int_equal(gn_sealed_message_pack(&out, 0, wire, half), half);
	out.from = NULL;
	free(text);
	assert_int_equal(gn_sealed_message_pack(&out, half, wire + half, total), total - half);
	assert_true(gn_sealed_message_unpack(&in, 0, wire, half));
	in.into = NULL;
	free(into);
	assert_true(gn_sealed_message_unpack(&in, half, wire + half, total - half));
	assert_false(gn_sealed_message_finish(&in));
	free(out.space);
	end(&in);
	free(wire);
}

static void test_window(void **state)
{
	struct gn_replay_window *w = calloc(1, sizeof *w);

	(void)state;
	assert_true(gn_replay_window_take(w, 3));
	assert_true(gn_replay_window_take(w, 1));
	assert_false(gn_replay_window_take(w, 3));
	assert_true(gn_replay_window_take(w, GN_REPLAY_WINDOW + 1));
	assert_false(gn_replay_window_take(w, 1));
	assert_true(gn_replay_window_take(w, 2));
	assert_false(gn_replay_window_take(w, 2));
	assert_true(gn_replay_window_take(w, 5 * GN_REPLAY_WINDOW));
	assert_false(gn_replay_window_take(w, 4));
	assert_false(gn_replay_window_take(w, 4 * GN_REPLAY_WINDOW));
	assert_true(gn_replay_window_take(w, 4 * GN_REPLAY_WINDOW + 1));
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),	   cmocka_unit_test(test_any_order),	cmocka_unit_test(test_bits),
		cmocka_unit_test(test_moved_fragments), cmocka_unit_test(test_cut_messages), cmocka_unit_test(test_pieces_again),
		cmocka_unit_test(test_disowned),	   cmocka_unit_test(test_window),
	};

	return cmocka_run_group_tests(tests, make_keys, drop_keys);
}
