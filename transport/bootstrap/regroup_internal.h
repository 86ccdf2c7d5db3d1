/* Private to transport/bootstrap/regroup*.c. */
#ifndef GN_TRANSPORT_BOOTSTRAP_REGROUP_INTERNAL_H
#define GN_TRANSPORT_BOOTSTRAP_REGROUP_INTERNAL_H

#include "transport/auth/auth_listener.h"
#include "transport/auth/net.h"
#include "transport/bootstrap/membership.h"
#include "transport/bootstrap/regroup.h"

#include <pthread.h>

/* For a connection, and for each message. */
#define GN_REGROUP_MESSAGE_MS 1000

enum gn_regroup_what { GN_REGROUP_PREPARE = 1, GN_REGROUP_ACCEPT, GN_REGROUP_DECIDE, GN_REGROUP_WHERE };

/* Messages have fixed sizes and the host's byte order: all processes run the same build. */
struct gn_regroup_request {
	uint32_t what, zero;
	uint64_t epoch, ballot;	  /* PREPARE, WHERE: epoch */
	struct gn_roster roster; /* ACCEPT, DECIDE */
};

struct gn_regroup_answer {
	uint32_t result;   /* enum gn_membership_answer */
	uint32_t busy;	   /* nothing was done yet: ask again */
	uint32_t leaves;   /* it will be in no new world */
	int32_t port;	   /* WHERE: of the new world's rank 0; 0: not yet */
	uint64_t promised, accepted;
	struct gn_roster roster; /* NEWER: the present one; GRANTED of a PREPARE: what was accepted */
};

/* How a process is reached. */
struct gn_regroup_contact {
	int32_t port;
	int32_t same_host; /* as this process */
	struct gn_net_addresses addresses;
};

struct gn_regroup {
	struct gn_log *log;
	struct gn_secret secret;
	struct gn_auth_listener *listener;
	struct gn_regroup_contact *contacts; /* by id: the rank in the first world */
	uint32_t count, id;
	struct gn_regroup_witness witness; /* settle NULL: none */
	int least, started, is_last;
	uint64_t epoch;	  /* of the world that this process is or was last in */
	uint64_t highest; /* ballot seen */
	pthread_t thread;
	pthread_mutex_t lock; /* of what follows */
	struct gn_acceptor acceptor;
	int stop, ready, leaves;
	int port;	    /* of the rendezvous of */
	uint64_t port_epoch; /* that epoch */
};

enum gn_regroup_reply { GN_REGROUP_ANSWERED, GN_REGROUP_DEAD, GN_REGROUP_SILENT };

/* What this process answers. Any thread. */
void gn_regroup_answer(struct gn_regroup *g, const struct gn_regroup_request *q, struct gn_regroup_answer *a);
/* Asks another process, or this one; blocks for some seconds at most. DEAD: its host says that nobody listens there. */
enum gn_regroup_reply gn_regroup_ask(struct gn_regroup *g, uint64_t id, const struct gn_regroup_request *q, struct gn_regroup_answer *a);

#endif
