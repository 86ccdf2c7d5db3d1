/* Private to transport/bootstrap/regroup*.c. */
#ifndef GN_TRANSPORT_BOOTSTRAP_REGROUP_INTERNAL_H
#define GN_TRANSPORT_BOOTSTRAP_REGROUP_INTERNAL_H

#include "transport/auth/auth_listener.h"
#include "transport/auth/net.h"
#include "transport/bootstrap/membership.h"
#include "transport/bootstrap/regroup.h"

#include <pthread.h>

#define GN_REGROUP_PAUSE_NS 5000000
/* For each message, and for a connection. */
#define GN_REGROUP_MESSAGE_MS 1000
#define GN_REGROUP_CONNECT_MS 500
/* For a world to be formed after the program was asked to stop: then the stop saves a checkpoint as ever. Slurm kills after 30 s. */
#define GN_REGROUP_STOP_NS UINT64_C(5000000000)
/* Of one message. */
#define GN_REGROUP_CONTACTS 4
#define GN_REGROUP_CANDIDATES 64
#define GN_REGROUP_HOST_MAX 256

enum gn_regroup_what { GN_REGROUP_PREPARE = 1, GN_REGROUP_ACCEPT, GN_REGROUP_DECIDE, GN_REGROUP_WHERE, GN_REGROUP_JOIN, GN_REGROUP_CONTACT,
		       GN_REGROUP_END };
enum gn_regroup_refusal { GN_REGROUP_WELCOME, GN_REGROUP_CLOSED, GN_REGROUP_DIFFERS };

/* How a process is reached. */
struct gn_regroup_contact {
	uint64_t id;
	int32_t port;
	char host[GN_REGROUP_HOST_MAX];
	struct gn_net_addresses addresses;
};

/* Messages have fixed sizes and the host's byte order: all processes run the same build. */
struct gn_regroup_request {
	uint32_t what;
	uint32_t value; /* JOIN: it is a spare; CONTACT: number of ids wanted; END: -status */
	uint64_t epoch, ballot;	  /* PREPARE, WHERE: epoch */
	struct gn_roster roster; /* ACCEPT, DECIDE */
	uint64_t wanted[GN_REGROUP_CONTACTS]; /* CONTACT */
	struct gn_regroup_contact self;	      /* JOIN */
	char digest[65];		      /* JOIN */
};

struct gn_regroup_answer {
	uint32_t result;   /* enum gn_membership_answer */
	uint32_t busy;	   /* nothing was done yet: ask again */
	uint32_t leaves;   /* it will be in no new world */
	int32_t port;	   /* WHERE: of the new world's rank 0; 0: not yet */
	uint32_t refusal;  /* JOIN: enum gn_regroup_refusal */
	uint32_t contact_count;
	uint64_t promised, accepted;
	struct gn_roster roster; /* NEWER, JOIN: the present one; GRANTED of a PREPARE: what was accepted */
	struct gn_regroup_contact contacts[GN_REGROUP_CONTACTS]; /* CONTACT: of those that are known */
};

/* A process that waits. */
struct gn_regroup_candidate {
	uint64_t id, since_ns, heard_ns;
	uint64_t held_until_ns; /* it could not be reached, so many times: not taken in before that */
	int misses, is_spare;
};

struct gn_regroup {
	struct gn_log *log;
	struct gn_secret secret;
	struct gn_auth_listener *listener;
	struct gn_regroup_contact self; /* id: the rank in the first world, or random */
	int each, is_surplus;
	int places[GN_MEMBERS_MAX]; /* of the members of */
	uint64_t places_epoch;	    /* that epoch; 0: not known */
	int least, most, first_ranks, is_spare, started, is_last;
	struct gn_regroup_witness witness; /* settle NULL: none */
	int silent_ms;	  /* how long a rank may answer nothing */
	char digest[65];
	const volatile sig_atomic_t *stop_asked; /* may be NULL */
	uint64_t stop_ns; /* when that was seen; 0: not yet */
	uint64_t run;	  /* gn_regroup_run() */
	uint64_t replaced; /* the process that is to be replaced, if replaces */
	int replaces;
	uint64_t epoch;	  /* of the world that this process is or was last in; 0: of none */
	uint64_t highest; /* ballot seen */
	struct gn_roster before; /* the world when this one was begun to be agreed on */
	struct gn_roster world, begun; /* the present one; the last one in which the program has begun, count 0: none */
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	struct gn_regroup_contact *contacts;
	size_t contact_count;
	struct gn_acceptor acceptor;
	struct gn_regroup_candidate candidates[GN_REGROUP_CANDIDATES];
	int candidate_count;
	int usual;   /* the most ranks that there have been */
	int stop, ready, leaves;
	int has_ended, end_status; /* the run */
	uint64_t lost_epoch; /* whose world cannot be made any more: a member is lost */
	uint32_t lost;	     /* this one, a rank */
	int port;	    /* of the rendezvous of */
	uint64_t port_epoch; /* that epoch */
};

/* UNREACHABLE: there is no connection to its host; a host to which there is one accepts it for a process that is stopped, too. */
enum gn_regroup_reply { GN_REGROUP_ANSWERED, GN_REGROUP_DEAD, GN_REGROUP_SILENT, GN_REGROUP_UNREACHABLE };

/* What this process answers. Any thread. */
void gn_regroup_answer(struct gn_regroup *g, const struct gn_regroup_request *q, struct gn_regroup_answer *a);
/* Asks another process, or this one; blocks for some seconds at most. DEAD: its host says that nobody listens there, or it is not known.
 * Any thread. */
enum gn_regroup_reply gn_regroup_ask(struct gn_regroup *g, uint64_t id, const struct gn_regroup_request *q, struct gn_regroup_answer *a);
/* One attempt to end the present epoch, the number-th from 0; w: its world, NULL: it never was. GN_OK: gn_regroup_is_decided() tells. *promised of
 * *ranks have answered. */
enum gn_status gn_regroup_attempt(struct gn_regroup *g, const struct gn_world *w, uint64_t began_ns, uint64_t until_ns, int number, uint32_t *promised,
				  uint32_t *ranks, struct gn_err *err);
enum gn_status gn_regroup_too_few(uint32_t promised, uint32_t ranks, struct gn_err *err);
int gn_regroup_is_decided(struct gn_regroup *g);
/* How long a rank may answer nothing. */
uint64_t gn_regroup_silence_ns(const struct gn_world *w);
/* Whether the program was asked to stop longer ago than forming a world is given after that. The program's own thread. */
int gn_regroup_is_stopped(struct gn_regroup *g);
/* Makes the world of an epoch that is agreed on, which this process is a member of. Ends as soon as a member is lost or the epoch is
 * given up, and *world is NULL on failure. */
enum gn_status gn_regroup_meet(struct gn_regroup *g, const struct gn_roster *roster, const struct gn_world_options *how,
			       struct gn_world **world, struct gn_err *err);
/* For opening: an object with a secret, without contacts; the port of its listener is in self. Its thread starts later. */
enum gn_status gn_regroup_create(const struct gn_regroup_options *options, uint64_t id, const struct gn_secret *secret,
				 struct gn_regroup **out, struct gn_err *err);
/* The end of opening: starts the thread and sets *out, or closes g when status, of what came before, or this is a failure. */
enum gn_status gn_regroup_start(struct gn_regroup *g, enum gn_status status, struct gn_regroup **out, struct gn_err *err);
/* Under the lock. NULL: not known. Adds or replaces; -1: no memory. */
const struct gn_regroup_contact *gn_regroup_find(const struct gn_regroup *g, uint64_t id);
int gn_regroup_add_contact(struct gn_regroup *g, const struct gn_regroup_contact *c);
int gn_regroup_is_same_host(struct gn_regroup *g, uint64_t id, uint64_t other);
/* Asks the members of a roster for those of them that this process does not know. */
void gn_regroup_learn_contacts(struct gn_regroup *g, const struct gn_roster *roster);
/* Under the lock: an answer to a JOIN. */
void gn_regroup_note_candidate(struct gn_regroup *g, const struct gn_regroup_request *q, struct gn_regroup_answer *a);
/* Of so many ranks, how many can be of use. */
int gn_regroup_usable(const struct gn_regroup *g, int ranks);
/* Until it asks again; one that could not be reached for some seconds more, and longer each time: it would end the world again and again. */
void gn_regroup_forget_candidate(struct gn_regroup *g, uint64_t id, int is_missed);
/* Under the lock: whether so many ranks have a place for it, which asked not long ago. */
int gn_regroup_has_place(const struct gn_regroup *g, const struct gn_regroup_candidate *c, uint32_t ranks);

#endif
