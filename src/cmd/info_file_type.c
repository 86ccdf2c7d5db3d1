#include "src/cmd/info_file_type.h"

#include <stdio.h>
#include <string.h>

struct signature {
	size_t at, len;
	const char *bytes, *kind;
};

/* Those that people have beside their shards. A safetensors file begins with a length, then its JSON. */
static const struct signature signatures[] = {
	{0, 3, "\xff\xd8\xff", "a JPEG image"},
	{0, 8, "\x89PNG\r\n\x1a\n", "a PNG image"},
	{257, 5, "ustar", "a tar archive"},
	{0, 2, "\x1f\x8b", "compressed by gzip"},
	{0, 3, "BZh", "compressed by bzip2"},
	{0, 6, "\xfd" "7zXZ\0", "compressed by xz"},
	{0, 4, "\x28\xb5\x2f\xfd", "compressed by zstd"},
	{0, 4, "PK\3\4", "a zip archive"},
	{0, 4, "\x7f" "ELF", "a program or library"},
	{8, 2, "{\"", "a safetensors file"},
	{0, 1, "{", "JSON"},
};

/* Or the first bytes of one: a shard that was cut short there. */
static int is_hdf5(const char *bytes, size_t len)
{
	return !memcmp(bytes, "\x89HDF\r\n\x1a\n", len < 8 ? len : 8);
}

static int is_text(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)bytes[i] < 0x20 && !memchr("\t\n\r\f", bytes[i], 4))
			return 0;
	return 1;
}

const char *gn_info_kind(const char *path)
{
	FILE *f = fopen(path, "rb");
	char bytes[512];
	size_t len;

	if (!f)
		return "not readable";
	len = fread(bytes, 1, sizeof bytes, f);
	if (ferror(f)) {
		fclose(f);
		return "not readable";
	}
	fclose(f);
	if (!len)
		return "an empty file";
	if (is_hdf5(bytes, len))
		return NULL;
	for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
		const struct signature *s = &signatures[i];

		if (s->at + s->len <= len && !memcmp(bytes + s->at, s->bytes, s->len))
			return s->kind;
	}
	return is_text(bytes, len) ? "text" : "of a kind unknown here";
}
