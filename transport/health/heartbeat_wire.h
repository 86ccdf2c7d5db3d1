/* The watch's messages and their transfer over one stream: private to watch*.c.
 *
 * A message has a fixed size, so that a reader always knows what is missing. Peers are one build of one program, so
 * numbers travel in the machine's own order; another order does not show the right magic.
 */
#ifndef GN_TRANSPORT_HEALTH_HEARTBEAT_WIRE_H
#define GN_TRANSPORT_HEALTH_HEARTBEAT_WIRE_H

#include <stddef.h>
#include <stdint.h>

/* A record of transport/health/recorder.h fits in. */
#define GN_HEARTBEAT_TEXT_MAX 500

enum gn_heartbeat_type {
	GN_HEARTBEAT_BEAT = 1,
	GN_HEARTBEAT_BYE,	   /* to rank 0: rank leaves in good order */
	GN_HEARTBEAT_GIVE_UP,  /* to rank 0: rank ends because of text */
	GN_HEARTBEAT_LOST,	   /* from rank 0: rank is lost, text says how it was noticed */
	GN_HEARTBEAT_LEFT,	   /* from rank 0: rank has said goodbye */
	GN_HEARTBEAT_ALL_GONE, /* from rank 0: everyone has */
	GN_HEARTBEAT_SUSPECT,  /* to rank 0: an operation stands still; its number, and for how long nothing more is said of it */
	GN_HEARTBEAT_ASK,	   /* from rank 0: what do you know about this operation? */
	GN_HEARTBEAT_TELL,	   /* to rank 0: a struct gn_record */
	GN_HEARTBEAT_VERDICT   /* from rank 0: the job cannot go on; rank is the status without its sign, text says why */
};

struct gn_heartbeat_message {
	uint32_t magic, type, rank;
	char text[GN_HEARTBEAT_TEXT_MAX];
};

#define GN_HEARTBEAT_MAGIC 0x33574e47u

struct gn_heartbeat_stream {
	int fd; /* -1: none */
	size_t got;
	uint64_t heard_ns;
	struct gn_heartbeat_message in;
};

enum gn_heartbeat_read { GN_HEARTBEAT_NOTHING, GN_HEARTBEAT_MESSAGE, GN_HEARTBEAT_CLOSED, GN_HEARTBEAT_GARBAGE };

/* Takes what has arrived, without blocking. On GN_HEARTBEAT_MESSAGE s->in is whole until the next call. */
enum gn_heartbeat_read gn_heartbeat_read(struct gn_heartbeat_stream *s);
/* text may be NULL; cut to GN_HEARTBEAT_TEXT_MAX - 1 characters. */
struct gn_heartbeat_message gn_heartbeat_say(enum gn_heartbeat_type type, int rank, const char *text);
/* The same with len_bytes of anything, at most GN_HEARTBEAT_TEXT_MAX. */
struct gn_heartbeat_message gn_heartbeat_say_bytes(enum gn_heartbeat_type type, int rank, const void *data, size_t len_bytes);
/* Blocks until until_ns (gn_clock_ns) at most, and what the kernel takes at once it takes even then. A peer that does not is one
 * that has not read for a long time: the stream is shut down, so that nobody reads half a message, and ends at the next read. */
void gn_heartbeat_send(struct gn_heartbeat_stream *s, const struct gn_heartbeat_message *m, uint64_t until_ns);
/* When a send that begins now has to be over, however many streams it goes to. */
uint64_t gn_heartbeat_send_until(void);
/* Closes so that what was written arrives: half-closes, then reads until the other end closes or until_ns. */
void gn_heartbeat_shut(struct gn_heartbeat_stream *s, uint64_t until_ns);

#endif
