/* The messages of the heartbeat and their transfer over a TCP stream. Private to the heartbeat.
 *
 * All messages have the same size and use the host's byte order: all peers run the same build, and a peer of another byte order
 * fails the check of the magic number.
 *
 * Thread safety: one thread per stream.
 */
#ifndef GN_TRANSPORT_HEALTH_HEARTBEAT_WIRE_H
#define GN_TRANSPORT_HEALTH_HEARTBEAT_WIRE_H

#include "transport/auth/handshake.h"

/* Holds a struct gn_record of transport/health/recorder.h. */
#define GN_HEARTBEAT_TEXT_MAX 500

enum gn_heartbeat_type {
	GN_HEARTBEAT_BEAT = 1,
	GN_HEARTBEAT_LEAVE,	 /* to rank 0: this rank leaves in an orderly way */
	GN_HEARTBEAT_ABORT,	 /* to rank 0: this rank aborts; text: why */
	GN_HEARTBEAT_LOST,	 /* from rank 0: `rank` is lost; text: why, and the state of the others */
	GN_HEARTBEAT_LEFT,	 /* from rank 0: `rank`, the first, has left */
	GN_HEARTBEAT_ALL_LEFT,	 /* from rank 0: all ranks have left */
	GN_HEARTBEAT_SUSPECT,	 /* to rank 0: an operation makes no progress; its number, the time until the next report */
	GN_HEARTBEAT_QUERY,	 /* from rank 0: asks for the record of an operation */
	GN_HEARTBEAT_RECORD,	 /* to rank 0: the answer, a struct gn_record */
	GN_HEARTBEAT_FAILURE,	 /* from rank 0: the job cannot continue; `rank` is the negated status, text the diagnosis */
	GN_HEARTBEAT_LEFT_SET	 /* from rank 0: rank `rank` + i has left if bit i of the data is set, from the lowest bit of each byte */
};

/* Ranks in one GN_HEARTBEAT_LEFT_SET. */
#define GN_HEARTBEAT_SET_RANKS (8 * GN_HEARTBEAT_TEXT_MAX)

struct gn_heartbeat_message {
	uint32_t magic, type, rank;
	int32_t cause; /* ABORT, LOST: the status by which the rank has failed, as it said */
	char text[GN_HEARTBEAT_TEXT_MAX];
};

#define GN_HEARTBEAT_MAGIC 0x33574e47u

struct gn_heartbeat_stream {
	int fd; /* -1: closed */
	struct gn_stream_keys keys;
	size_t got; /* bytes of `record` received */
	uint64_t heard_ns; /* when the last message was received, gn_clock_ns() */
	struct gn_heartbeat_message in;
	unsigned char record[sizeof(struct gn_heartbeat_message) + GN_RECORD_TAG_BYTES];
};

enum gn_heartbeat_read { GN_HEARTBEAT_NOTHING, GN_HEARTBEAT_MESSAGE, GN_HEARTBEAT_CLOSED, GN_HEARTBEAT_MALFORMED };

/* Receives without blocking; a record that is not authentic is malformed. After GN_HEARTBEAT_MESSAGE s->in is valid until the next call. */
enum gn_heartbeat_read gn_heartbeat_read(struct gn_heartbeat_stream *s);
/* A message with a text: NULL is empty; truncated to GN_HEARTBEAT_TEXT_MAX - 1 characters. */
struct gn_heartbeat_message gn_heartbeat_text_message(enum gn_heartbeat_type type, int rank, const char *text);
/* A message with len_bytes of data, at most GN_HEARTBEAT_TEXT_MAX. */
struct gn_heartbeat_message gn_heartbeat_data_message(enum gn_heartbeat_type type, int rank, const void *data, size_t len_bytes);
/* Sends a message; blocks until deadline_ns (gn_clock_ns) at most. Past the deadline the call still sends what the kernel accepts
 * at once. On failure the stream is shut down, so that the peer never reads part of a message and then another one; the next read
 * returns GN_HEARTBEAT_CLOSED. */
void gn_heartbeat_send(struct gn_heartbeat_stream *s, const struct gn_heartbeat_message *m, uint64_t deadline_ns);
/* The deadline of sends that begin now, shared by all streams they go to. */
uint64_t gn_heartbeat_send_deadline_ns(void);
/* Closes without losing sent data: half-closes, then reads until the peer closes or until deadline_ns. */
void gn_heartbeat_stream_close(struct gn_heartbeat_stream *s, uint64_t deadline_ns);

#endif
