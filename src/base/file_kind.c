#include "src/base/file_kind.h"

#include "src/base/crc32c.h"
#include "src/base/file.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { HEAD_BYTES = 512 };

static const struct {
	size_t at, len;
	const char *bytes, *kind;
} magic[] = {
	{0, 3, "\xff\xd8\xff", "a JPEG image"},
	{0, 8, "\x89PNG\r\n\x1a\n", "a PNG image"},
	{0, 4, "GIF8", "a GIF image"},
	{0, 4, "II*\0", "a TIFF image"},
	{0, 4, "MM\0*", "a TIFF image"},
	{8, 4, "WEBP", "a WebP image"},
	{4, 8, "ftypavif", "an AVIF image"},
	{4, 8, "ftypheic", "a HEIC image"},
	{4, 8, "ftypheix", "a HEIC image"},
	{4, 8, "ftypmif1", "a HEIC image"},
	{4, 8, "jP  \r\n\x87\n", "a JPEG 2000 image"},
	{0, 4, "\xff\x4f\xff\x51", "a JPEG 2000 image"},
	{4, 8, "JXL \r\n\x87\n", "a JPEG XL image"},
	{0, 4, "PK\3\4", "a zip archive"},
	{0, 4, "PK\5\6", "a zip archive"},
	{0, 6, "7z\xbc\xaf\x27\x1c", "a 7z archive"},
	{0, 6, "Rar!\x1a\7", "a RAR archive"},
	{0, 4, "PAR1", "a Parquet file"},
	{0, 4, "\x0a\x23\xd7\xce", "a RecordIO file"},
	{0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file"},
	{0, 38, "version https://git-lfs.github.com/spe", "a git-lfs pointer (git lfs pull brings the file)"},
};

/* Text that begins with one of these, after blanks and an XML declaration. */
static const char *kind_of_text(const char *text, size_t len)
{
	static const struct {
		const char *begin, *kind;
	} known[] = {
		{"<svg", "an SVG image"},
		{"<!doctype svg", "an SVG image"},
		{"<!doctype html", "an HTML page (a download that failed?)"},
		{"<html", "an HTML page (a download that failed?)"},
	};
	size_t at = 0;

	if (len > 5 && !memcmp(text, "<?xml", 5))
		while (at < len && text[at++] != '>')
			;
	while (at < len && strchr(" \t\r\n", text[at]) && text[at])
		at++;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (len - at >= strlen(known[i].begin) && !strncasecmp(text + at, known[i].begin, strlen(known[i].begin)))
			return known[i].kind;
	return NULL;
}

/* A TFRecord's first 12 bytes: a length, and its CRC-32C, rotated and offset (as TensorFlow writes them). */
static int is_tfrecord(const unsigned char *head, size_t len)
{
	uint32_t crc = gn_crc32c(0, head, 8), stored = 0;

	for (int i = 3; len >= 12 && i >= 0; i--)
		stored = stored << 8 | head[8 + i];
	return len >= 12 && stored == ((crc >> 15 | crc << 17) + 0xa282ead8u);
}

const char *gn_file_kind(const void *head, size_t len_bytes)
{
	const char *bytes = head;

	for (size_t i = 0; i < sizeof magic / sizeof *magic; i++)
		if (len_bytes >= magic[i].at + magic[i].len && !memcmp(bytes + magic[i].at, magic[i].bytes, magic[i].len))
			return magic[i].kind;
	/* "BM" may also start a text: the reserved header bytes must be zero */
	if (len_bytes >= 10 && !memcmp(bytes, "BM", 2) && !memcmp(bytes + 6, "\0\0\0\0", 4))
		return "a BMP image";
	return len_bytes >= 12 && is_tfrecord(head, len_bytes) ? "a TFRecord file" : kind_of_text(bytes, len_bytes);
}

const char *gn_file_kind_at(const char *path)
{
	char head[HEAD_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t len = fd < 0 ? 0 : gn_read_some(fd, head, sizeof head);

	if (fd >= 0)
		close(fd);
	return len > 0 ? gn_file_kind(head, (size_t)len) : NULL;
}
