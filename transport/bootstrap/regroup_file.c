/* The file by which processes that join a run find its members. */
#include "transport/bootstrap/regroup_internal.h"

#include "src/base/file.h"
#include "src/base/trust.h"
#include "src/base/version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES (64u << 20)

/* DIR/members: this and the contacts. Of and for the same build, while the run lasts. */
struct members_file {
	char format[16], build[65], zero[7];
	struct gn_secret secret;
	int32_t first_ranks, usual, silent_ms, contact_count;
	struct gn_roster roster;
};
static const char format[16] = "gannet-members";

enum gn_status gn_regroup_publish(struct gn_regroup *g, const char *directory, struct gn_err *err)
{
	struct members_file *m = calloc(1, sizeof *m);
	struct gn_regroup_contact *contacts = NULL;
	char path[4096], made[4096 + 8];
	int fd = -1;
	enum gn_status status = m ? gn_path_join(path, sizeof path, directory, "members", err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory");

	if (!status) {
		pthread_mutex_lock(&g->lock);
		memcpy(m->format, format, sizeof format);
		memcpy(m->build, gn_version_source_digest(), sizeof m->build);
		m->secret = g->secret;
		m->first_ranks = g->first_ranks;
		m->usual = g->usual;
		m->silent_ms = g->silent_ms;
		m->contact_count = (int32_t)g->contact_count;
		m->roster = g->acceptor.current;
		contacts = malloc(g->contact_count * sizeof *contacts);
		if (contacts)
			memcpy(contacts, g->contacts, g->contact_count * sizeof *contacts);
		pthread_mutex_unlock(&g->lock);
		snprintf(made, sizeof made, "%s.new", path);
		/* left by a crash */
		unlink(made);
		fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		status = fd < 0 ? gn_err_errno(err, errno, "cannot create %s", made) : GN_OK;
	}
	if (!status && !contacts)
		status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for contacts");
	if (!status)
		status = gn_write_full(fd, m, sizeof *m, made, err);
	if (!status)
		status = gn_write_full(fd, contacts, (size_t)m->contact_count * sizeof *contacts, made, err);
	if (fd >= 0)
		close(fd);
	if (!status && rename(made, path))
		status = gn_err_errno(err, errno, "cannot rename %s", made);
	if (status && fd >= 0)
		unlink(made);
	if (m)
		gn_secret_wipe(&m->secret);
	free(m);
	free(contacts);
	return status;
}

void gn_regroup_unpublish(const char *directory)
{
	char path[4096];

	if (!gn_path_join(path, sizeof path, directory, "members", NULL))
		unlink(path);
}

static enum gn_status load(const char *path, char **out, size_t *len, struct gn_err *err)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	off_t end;
	enum gn_status status;

	if (fd < 0 && errno == ENOENT)
		return gn_err_set(err, GN_ERR_NOT_FOUND, "there is no %s: no run that others may join (--elastic MIN:MAX) is going on there", path);
	if (fd < 0)
		return gn_err_errno(err, errno, "cannot read %s", path);
	status = gn_trust_check_secret(fd, path, "the file of a run's members", err);
	end = lseek(fd, 0, SEEK_END);
	if (!status && (end < (off_t)sizeof(struct members_file) || end > (off_t)FILE_MAX_BYTES))
		status = gn_err_set(err, GN_ERR_USAGE, "%s is no file of a run's members", path);
	*out = status ? NULL : malloc((size_t)end);
	if (!status)
		status = *out ? gn_pread_full(fd, *out, (size_t)end, 0, path, err) : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for %s", path);
	close(fd);
	*len = (size_t)end;
	return status;
}

static enum gn_status check_file(const struct members_file *m, size_t len, const char *path, struct gn_err *err)
{
	if (memcmp(m->format, format, sizeof format) || m->contact_count < 0 || m->roster.count > GN_MEMBERS_MAX ||
	    len != sizeof *m + (size_t)m->contact_count * sizeof(struct gn_regroup_contact))
		return gn_err_set(err, GN_ERR_USAGE, "%s is no file of a run's members, or of another version of this program", path);
	if (memcmp(m->build, gn_version_source_digest(), sizeof m->build))
		return gn_err_set(err, GN_ERR_USAGE, "%s is of a run of another build of this program: join it with the same one", path);
	return GN_OK;
}

static enum gn_status open_joining(const struct members_file *m, const struct gn_regroup_options *options, struct gn_regroup **out,
				   struct gn_err *err)
{
	const struct gn_regroup_contact *contacts = (const void *)(m + 1);
	struct gn_regroup *g;
	struct gn_secret random;
	uint64_t id = 0;
	enum gn_status status = gn_secret_random(&random, err);

	/* no rank of the first world has such a one */
	memcpy(&id, random.bytes, sizeof id);
	id |= UINT64_C(1) << 63;
	if (!status)
		status = gn_regroup_create(options, id, &m->secret, &g, err);
	if (status)
		return status;
	g->first_ranks = m->first_ranks;
	g->usual = m->usual;
	g->silent_ms = m->silent_ms;
	gn_acceptor_init(&g->acceptor, &m->roster);
	status = gn_net_choose(options->ifnames ? options->ifnames : getenv(GN_WORLD_IFNAMES), &g->self.addresses, err);
	for (int i = 0; i <= m->contact_count && !status; i++)
		if (gn_regroup_add_contact(g, i < m->contact_count ? &contacts[i] : &g->self))
			status = gn_err_set(err, GN_ERR_NO_MEMORY, "no memory for contacts");
	return gn_regroup_start(g, status, out, err);
}

enum gn_status gn_regroup_join(const char *directory, const struct gn_regroup_options *options, struct gn_regroup **out, struct gn_err *err)
{
	char path[4096], *data = NULL;
	size_t len = 0;
	enum gn_status status = gn_path_join(path, sizeof path, directory, "members", err);

	if (!status)
		status = load(path, &data, &len, err);
	if (!status)
		status = check_file((const void *)data, len, path, err);
	if (!status)
		status = open_joining((const void *)data, options, out, err);
	if (data)
		explicit_bzero(data, len);
	free(data);
	return status;
}
