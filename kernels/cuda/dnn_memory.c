/* Plans kept in memory where there is no folder for them: the text that a file would hold, by the file's name. One table for the
 * process, since who plans the same again (another repeat, a plan for evaluation) does so in a gn_dnn of its own, often when the first
 * one is gone. It lasts as long as the process. */
#include "kernels/cuda/dnn_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A plan that cuDNN compiled takes about 90 KB, the 23 of ResNet-50's training step 2 MB. What comes when it is full is not kept. */
#define TABLE_BYTES_MAX ((size_t)64 << 20)

struct entry {
	struct entry *next;
	char *name, *text;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries; /* under lock */
static size_t total_bytes;    /* under lock */

static struct entry *find(const char *name)
{
	struct entry *e = entries;

	while (e && strcmp(e->name, name) != 0)
		e = e->next;
	return e;
}

char *gn_dnn_memory_load(const char *name, size_t *out_bytes)
{
	const struct entry *e;
	char *text = NULL;

	pthread_mutex_lock(&lock);
	e = find(name);
	if (e && (text = malloc(e->bytes + 1))) {
		memcpy(text, e->text, e->bytes);
		text[e->bytes] = 0;
		*out_bytes = e->bytes;
	}
	pthread_mutex_unlock(&lock);
	return text;
}

static struct entry *add(const char *name)
{
	struct entry *e = calloc(1, sizeof *e);

	if (!e || !(e->name = strdup(name))) {
		free(e);
		return NULL;
	}
	e->next = entries;
	return entries = e;
}

void gn_dnn_memory_keep(const char *name, char *text, size_t bytes)
{
	struct entry *e;

	pthread_mutex_lock(&lock);
	e = find(name);
	if (!e && total_bytes + bytes <= TABLE_BYTES_MAX)
		e = add(name);
	if (e && total_bytes - e->bytes + bytes <= TABLE_BYTES_MAX) {
		char *old = e->text;

		total_bytes += bytes - e->bytes;
		e->text = text;
		e->bytes = bytes;
		text = old;
	}
	pthread_mutex_unlock(&lock);
	free(text);
}
