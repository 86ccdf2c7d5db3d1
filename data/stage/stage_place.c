#include "data/stage/stage_place.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* linux/magic.h has some; the others are those that coreutils' stat knows. */
static const struct {
	unsigned long magic;
	enum gn_stage_place place;
	const char *name;
} kinds[] = {
	{0x65735546, GN_STAGE_PLACE_FUSE, "FUSE"},	{0x6969, GN_STAGE_PLACE_NETWORK, "NFS"},
	{0x0BD00BD0, GN_STAGE_PLACE_NETWORK, "Lustre"}, {0x47504653, GN_STAGE_PLACE_NETWORK, "GPFS"},
	{0x19830326, GN_STAGE_PLACE_NETWORK, "BeeGFS"}, {0x00C36400, GN_STAGE_PLACE_NETWORK, "Ceph"},
	{0xFF534D42, GN_STAGE_PLACE_NETWORK, "CIFS"},	{0xFE534D42, GN_STAGE_PLACE_NETWORK, "SMB"},
	{0x5346414F, GN_STAGE_PLACE_NETWORK, "AFS"},	{0x01021997, GN_STAGE_PLACE_NETWORK, "9p"},
	{0xAAD7AAEA, GN_STAGE_PLACE_NETWORK, "PanFS"},	{0x01021994, GN_STAGE_PLACE_MEMORY, "tmpfs"},
	{0x858458F6, GN_STAGE_PLACE_MEMORY, "ramfs"},
};

enum gn_stage_place gn_stage_place_of(unsigned long magic, const char **name)
{
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (kinds[i].magic == (magic & 0xFFFFFFFFul)) {
			*name = kinds[i].name;
			return kinds[i].place;
		}
	*name = "";
	return GN_STAGE_PLACE_DISK;
}

const char *gn_stage_place_above(const char *path, char out[PATH_MAX])
{
	char *slash;

	snprintf(out, PATH_MAX, "%s", path);
	while (access(out, F_OK) && strcmp(out, ".") && strcmp(out, "/")) {
		slash = strrchr(out, '/');
		if (!slash)
			strcpy(out, ".");
		else
			slash[slash == out] = '\0';
	}
	return out;
}

static enum gn_stage_place place_at(const char *path, const char **name)
{
	char above[PATH_MAX];
	struct statfs s;

	*name = "";
	if ((access(path, F_OK) && errno != ENOENT) || statfs(gn_stage_place_above(path, above), &s))
		return GN_STAGE_PLACE_DISK;
	return gn_stage_place_of((unsigned long)s.f_type, name);
}

void gn_stage_warn_places(const char *from, const char *to, struct gn_log *log)
{
	const char *name;
	enum gn_stage_place place;

	if (from && place_at(from, &name) == GN_STAGE_PLACE_FUSE)
		gn_log_warn(log, "--from %s is on a FUSE mount: each read passes a process of this node and may be slow; stage from the file system "
			    "or server behind it if you can", from);
	place = place_at(to, &name);
	if (place == GN_STAGE_PLACE_MEMORY)
		gn_log_warn(log, "--to %s is on %s, in memory: the copy takes memory that the job's limit counts, and is lost at the next boot; "
			    "choose a folder on a disk if it does not fit", to, name);
	else if (place != GN_STAGE_PLACE_DISK)
		gn_log_warn(log, "--to %s is on %s, which is not this node's own disk: all nodes would read the copy over the network; "
			    "choose a folder on a local disk", to, name);
}
