#include "src/train/checkpoint/owner_internal.h"

#include "src/base/clock.h"
#include "src/base/file.h"
#include "src/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct gn_owner {
	char path[PATH_MAX];
	struct gn_owner_identity self;
	int fd; /* of the file, for the heartbeat */
	int beating;
	int has_heirs; /* other processes of the run may have taken over, and ended: a file that is gone is theirs */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	int over;
};

enum verdict { ALIVE, DEAD, UNSURE };

/* Which part of a run succeeds its owner. */

/* The path of the file that settles who succeeds the owner with this nonce; path: of the owner file. 0: too long, or no nonce. */
static int owner_next_path(char next[PATH_MAX], const char *path, const char *nonce)
{
	int len = snprintf(next, PATH_MAX, "%s.%s.next", path, nonce);

	/* it may be of a file that another user wrote, with a path in it */
	return strlen(nonce) == GN_OWNER_NONCE - 1 && strspn(nonce, "0123456789abcdef") == GN_OWNER_NONCE - 1 && len > 0 && len < PATH_MAX;
}

/* A complete file under its final name, unless there is one already. */
static enum gn_status keep(const char *next, const void *mine, size_t len, struct gn_err *err)
{
	struct gn_owner_identity self;
	char temporary[PATH_MAX + 32];
	enum gn_status status = gn_owner_identify(&self, err);
	int fd;

	if (status)
		return status;
	snprintf(temporary, sizeof temporary, "%s.%s", next, self.nonce);
	fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (fd < 0)
		return gn_err_set(err, GN_ERR_IO, "cannot create %s: %s", temporary, gn_errno_text(errno));
	status = gn_write_full(fd, mine, len, temporary, err);
	if (!status && fsync(fd))
		status = gn_err_set(err, GN_ERR_IO, "cannot sync %s: %s", temporary, gn_errno_text(errno));
	close(fd);
	/* what a file system says that has done it and lost its answer (NFS) is EEXIST, too: what the file holds counts */
	if (!status && link(temporary, next) && errno != EEXIST)
		status = gn_err_set(err, GN_ERR_IO, "cannot link %s to %s: %s", temporary, next, gn_errno_text(errno));
	unlink(temporary);
	return status;
}

static enum gn_status read_kept(const char *next, void *kept, size_t room, size_t *kept_len, struct gn_err *err)
{
	int fd = open(next, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t len = fd < 0 ? -1 : gn_read_some(fd, kept, room);
	int failure = errno;

	if (fd >= 0)
		close(fd);
	if (len < 0)
		return gn_err_set(err, GN_ERR_IO, "cannot read %s: %s", next, gn_errno_text(failure));
	*kept_len = (size_t)len;
	return GN_OK;
}

/* After the file is read: a successor replaces the owner's file before it removes the other, so whoever could write that anew does not find
 * the owner's. */
static enum gn_status check_owner(const char *path, const char *nonce, const char *next, struct gn_err *err)
{
	struct gn_owner_file now;
	char other[256];
	enum gn_status status = gn_owner_file_look(path, &now, err);

	if ((!status && !strcmp(now.who.nonce, nonce)) || (status && status != GN_ERR_NOT_FOUND))
		return status;
	unlink(next);
	return gn_err_set(err, GN_ERR_EXISTS, "%s does not belong to this run any more%s%s", path, status ? "" : ": it is of ",
			  status ? "" : gn_owner_describe(&now.who, other));
}

enum gn_status gn_owner_settle(const char *directory, const char *nonce, const void *mine, size_t len, void *kept, size_t room,
			       size_t *kept_len, struct gn_err *err)
{
	char path[PATH_MAX], next[PATH_MAX];
	void *found = malloc(room);
	size_t found_len = 0;
	enum gn_status status = found ? gn_path_join(path, sizeof path, directory, "owner", err)
				      : gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to read %s", directory);

	if (!status && !owner_next_path(next, path, nonce))
		status = gn_err_set(err, GN_ERR_USAGE, "%s: no owner to succeed, or its path is too long", directory);
	if (!status)
		status = keep(next, mine, len, err);
	if (!status)
		status = read_kept(next, found, room, &found_len, err);
	if (!status)
		status = check_owner(path, nonce, next, err);
	if (!status) {
		memcpy(kept, found, found_len);
		*kept_len = found_len;
	}
	free(found);
	return status;
}

static int is_same(const struct gn_owner_file *a, const struct gn_owner_file *b)
{
	return a->inode == b->inode && !strcmp(a->who.nonce, b->who.nonce);
}

static int is_same_beat(const struct gn_owner_file *a, const struct gn_owner_file *b)
{
	return a->beat.tv_sec == b->beat.tv_sec && a->beat.tv_nsec == b->beat.tv_nsec;
}

static enum verdict judge(const struct gn_owner_identity *who, const struct gn_owner_identity *self, double age_s)
{
	if (who->pid > 0 && who->boot[0] && !strcmp(who->boot, self->boot) && !strcmp(who->host, self->host) &&
	    who->pid_namespace && who->pid_namespace == self->pid_namespace)
		return who->pid_start && gn_owner_start_of(who->pid) == who->pid_start ? ALIVE : DEAD;
	if (who->job[0] && !strcmp(who->job, self->job) && !strcmp(who->cluster, self->cluster) && self->restart > who->restart)
		return DEAD;
	return age_s > GN_OWNER_DEAD_S ? DEAD : UNSURE;
}

/* Whether the world of another owner of this run is a later one, 1, or an earlier one, -1; 0 of other runs. */
static int worlds_after(const struct gn_owner *o, const struct gn_owner_identity *who)
{
	return o->self.run[0] && !strcmp(who->run, o->self.run) ? (who->world > o->self.world) - (who->world < o->self.world) : 0;
}

static enum gn_status is_out(const struct gn_owner *o, const struct gn_owner_identity *who, struct gn_err *err)
{
	char other[256];

	return gn_err_set(err, GN_ERR_PEER_LOST, "%s: other ranks of this run have gone on without this one, in world %" PRId64 ", with %s", o->path,
			  who->world, gn_owner_describe(who, other));
}

/* Removes the file of a dead owner, unless it belongs to another run by now. A lock on the file lets only one of several waiting
 * runs remove it. On file systems without locks, a run may remove the file that another has just created; that one's
 * gn_owner_check() detects it. */
static enum gn_status remove_dead(const struct gn_owner *o, const struct gn_owner_file *dead, struct gn_log *log, double age_s,
				  struct gn_err *err)
{
	enum gn_status status = GN_OK;
	struct gn_owner_file now;
	char other[256], next[PATH_MAX];
	int fd = open(o->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	/* the file of another user */
	if (fd < 0 && errno == EACCES)
		fd = open(o->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT ? GN_OK : gn_err_set(err, GN_ERR_IO, "cannot open %s: %s", o->path, strerror(errno));
	if (!(flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) && !gn_owner_file_look(o->path, &now, NULL) &&
	    is_same(&now, dead) && is_same_beat(&now, dead)) {
		/* first: who asks then finds neither, and is no successor */
		if (unlink(o->path))
			status = gn_err_set(err, GN_ERR_IO, "cannot remove %s: %s", o->path, strerror(errno));
		else if (owner_next_path(next, o->path, dead->who.nonce))
			unlink(next);
		/* from the run's own world before this one that is nothing unusual */
		if (!status)
			gn_log_line(log, worlds_after(o, &dead->who) < 0 ? GN_LOG_INFO : GN_LOG_WARN,
				     "taking over the checkpoint folder from %s, last heartbeat %.0f s ago", gn_owner_describe(&dead->who, other), age_s);
	}
	close(fd);
	return status;
}

static enum gn_status in_use(const struct gn_owner *o, const struct gn_owner_file *f, double age_s, struct gn_err *err)
{
	char other[256], mine[256];

	return gn_err_set(err, GN_ERR_EXISTS,
			  "%.*s is in use by another run: %s, last heartbeat %.0f s ago; this is %s: give --checkpoint another "
			  "folder, or end that run first", (int)(strrchr(o->path, '/') - o->path), o->path,
			  gn_owner_describe(&f->who, other), age_s > 0 ? age_s : 0, gn_owner_describe(&o->self, mine));
}

/* Sleeps for a second, or until *stop is set. */
static void sleep_one_beat(const volatile sig_atomic_t *stop)
{
	for (int i = 0; i < 10 && !(stop && *stop); i++)
		gn_clock_sleep_ns(100000000);
}

/* Waits until the folder has no owner file of a run that is or may be alive; those before an heir count as dead. */
static enum gn_status wait_until_free(const struct gn_owner *o, const char *predecessor, const volatile sig_atomic_t *stop,
				      struct gn_log *log, struct gn_err *err)
{
	struct gn_owner_file first, now;
	char other[256];
	uint64_t first_ns = 0;
	double age_s;

	for (int looks = 0;; looks++) {
		enum gn_status status = gn_owner_file_look(o->path, &now, err);
		enum verdict verdict;

		if (status)
			return status == GN_ERR_NOT_FOUND ? GN_OK : status;
		status = gn_owner_file_age(&now, o->path, o->self.nonce, &age_s, err);
		if (status)
			return status;
		if (worlds_after(o, &now.who) > 0)
			return is_out(o, &now.who, err);
		/* a time in the future says nothing: then silence counts from the first look, by this process's clock */
		if (age_s < 0)
			age_s = looks && is_same(&first, &now) ? (double)(gn_clock_ns() - first_ns) * 1e-9 : 0;
		verdict = (predecessor && *predecessor && !strcmp(now.who.nonce, predecessor)) || worlds_after(o, &now.who) < 0
			? DEAD : judge(&now.who, &o->self, age_s);
		if (verdict == ALIVE || (looks && now.who.nonce[0] && is_same(&first, &now) &&
					 !is_same_beat(&first, &now)))
			return in_use(o, &now, age_s, err);
		if (verdict == DEAD)
			return remove_dead(o, &now, log, age_s, err);
		if (!looks || !is_same(&first, &now))
			gn_log_warn(log, "the checkpoint folder belongs to %s, last heartbeat %.0f s ago: waiting for another "
				    "heartbeat, for "
				    "%.0f s", gn_owner_describe(&now.who, other), age_s, GN_OWNER_DEAD_S - age_s);
		if (!looks || !is_same(&first, &now)) {
			first = now;
			first_ns = gn_clock_ns();
		}
		sleep_one_beat(stop);
		if (stop && *stop)
			return gn_err_set(err, GN_ERR_STOPPED, "stopped on request while waiting for %s", gn_owner_describe(&now.who, other));
	}
}

static void *beat(void *argument)
{
	struct gn_owner *o = argument;
	struct timespec until;

	pthread_mutex_lock(&o->lock);
	while (!o->over) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += GN_OWNER_BEAT_S;
		if (pthread_cond_timedwait(&o->ended, &o->lock, &until) == ETIMEDOUT && !o->over) {
			pthread_mutex_unlock(&o->lock);
			/* fails when the file is gone, which gn_owner_check() reports */
			futimens(o->fd, NULL);
			pthread_mutex_lock(&o->lock);
		}
	}
	pthread_mutex_unlock(&o->lock);
	return NULL;
}

static void stop_beating(struct gn_owner *o)
{
	if (!o->beating)
		return;
	pthread_mutex_lock(&o->lock);
	o->over = 1;
	pthread_cond_signal(&o->ended);
	pthread_mutex_unlock(&o->lock);
	pthread_join(o->thread, NULL);
	o->beating = 0;
}

static enum gn_status start_beating(struct gn_owner *o, struct gn_err *err)
{
	if (gn_thread_start(&o->thread, beat, o))
		return gn_err_set(err, GN_ERR_FAILED, "cannot start a thread (see ulimit -u)");
	o->beating = 1;
	return GN_OK;
}

enum gn_status gn_owner_claim(const char *directory, const struct gn_owner_heir *heir, const volatile sig_atomic_t *stop, struct gn_log *log,
			      struct gn_owner **out, struct gn_err *err)
{
	struct gn_owner *o = calloc(1, sizeof *o);
	enum gn_status status;

	if (!o)
		return gn_err_set(err, GN_ERR_NO_MEMORY, "no memory to claim %s", directory);
	o->fd = -1;
	o->has_heirs = heir != NULL;
	pthread_mutex_init(&o->lock, NULL);
	pthread_cond_init(&o->ended, NULL);
	status = gn_path_join(o->path, sizeof o->path, directory, "owner", err);
	if (!status)
		status = gn_owner_identify(&o->self, err);
	if (!status && heir && heir->run) {
		snprintf(o->self.run, sizeof o->self.run, "%016" PRIx64, heir->run);
		o->self.world = (int64_t)heir->world;
	}
	while (!status && (status = gn_owner_file_create(o->path, &o->self, &o->fd, err)) == GN_ERR_EXISTS)
		status = wait_until_free(o, heir ? heir->predecessor : NULL, stop, log, err);
	if (!status)
		status = start_beating(o, err);
	if (status)
		gn_owner_release(o);
	else
		*out = o;
	return status;
}

const char *gn_owner_nonce(const struct gn_owner *o)
{
	return o->self.nonce;
}

enum gn_status gn_owner_check(struct gn_owner *o, struct gn_err *err)
{
	char other[256], mine[256];
	struct gn_owner_file now;
	enum gn_status status = gn_owner_file_look(o->path, &now, err);

	if (status == GN_ERR_NOT_FOUND && o->has_heirs)
		return gn_err_set(err, GN_ERR_EXISTS, "%s is gone: ranks of this run that went on without this one may have ended, or somebody has "
				  "removed it", o->path);
	if (status == GN_ERR_NOT_FOUND) {
		stop_beating(o);
		close(o->fd);
		o->fd = -1;
		o->over = 0;
		status = gn_owner_file_create(o->path, &o->self, &o->fd, err);
		if (!status)
			return start_beating(o, err);
		if (status == GN_ERR_EXISTS)
			status = gn_owner_file_look(o->path, &now, err);
	}
	if (status || !strcmp(now.who.nonce, o->self.nonce))
		return status;
	if (worlds_after(o, &now.who) > 0)
		return is_out(o, &now.who, err);
	return gn_err_set(err, GN_ERR_EXISTS,
			  "%.*s was taken over by another run: %s; this run, %s, had no heartbeat for %d s or its file was "
			  "removed, and ends without writing to the folder", (int)(strrchr(o->path, '/') - o->path), o->path,
			  gn_owner_describe(&now.who, other), gn_owner_describe(&o->self, mine), GN_OWNER_DEAD_S);
}

void gn_owner_leave(struct gn_owner *o)
{
	if (!o)
		return;
	stop_beating(o);
	if (o->fd >= 0)
		close(o->fd);
	pthread_cond_destroy(&o->ended);
	pthread_mutex_destroy(&o->lock);
	free(o);
}

static void remove_own(const char *path, const char *nonce)
{
	struct gn_owner_file now;

	if (!gn_owner_file_look(path, &now, NULL) && !strcmp(now.who.nonce, nonce))
		unlink(path);
}

void gn_owner_remove(const char *directory, const char *nonce)
{
	char path[PATH_MAX], next[PATH_MAX];

	if (!*nonce || gn_path_join(path, sizeof path, directory, "owner", NULL))
		return;
	remove_own(path, nonce);
	if (owner_next_path(next, path, nonce))
		unlink(next);
}

void gn_owner_release(struct gn_owner *o)
{
	if (!o)
		return;
	stop_beating(o);
	if (o->fd >= 0)
		remove_own(o->path, o->self.nonce);
	gn_owner_leave(o);
}
