/*
 * comm/transport.h -- a connection between every two ranks, and whether the others are alive
 *
 *     td_transport_open      rank 0 listens, the others come to it and are told of each other
 *     td_transport_exchange  with every rank: so many bytes there, so many from there
 *     td_transport_pump      in between: beats are sent and heard
 *
 * A frame is a head of 16 bytes (magic, kind, length) and its body:
 *
 *     DATA   what an exchange sends        BEAT   once a second, no body
 *     BYE    the sender ends, all is well  ABORT  the sender ends; the body says why
 *
 * A rank is lost when its connection ends without BYE, when it says ABORT, or when nothing comes
 * from it for `stall_s`.  A process that was itself stopped blames nobody: it begins to count anew.
 * A transport belongs to one thread at a time; td_transport_wake may be called from any.
 */
#ifndef TD_COMM_TRANSPORT_H
#define TD_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/rank_env.h"

typedef struct td_transport td_transport;

typedef struct {
    double wait_s;  /* for the others to come; 0: 60 */
    double stall_s; /* without a sign of life; 0: 6 */
} td_transport_opts;

/** What goes to one rank, and what is awaited from it; NULL and 0: nothing. */
typedef struct {
    const void *out;
    size_t n_out;
    void *in;
    size_t n_in;
} td_piece;

/**
 * Meet the others.  TD_EDEVICE: some did not come in time, two are the same rank, sizes differ, the
 * address cannot be used.
 */
TD_CHECKED td_status td_transport_open(const td_rank_place *place, const td_transport_opts *opts,
                                       td_transport **out);

/** The rank that was lost first, as far as this one knows; -1: none, or unknown. */
int td_transport_culprit(const td_transport *m);

/** "rank 1 (host, process 4711)" */
const char *td_transport_name(const td_transport *m, int rank);

/**
 * with[size]: do all of it and return.  Every rank calls this in the same order.  TD_EDEVICE: a
 * rank was lost, by name; from then on everything here fails the same way.
 */
TD_CHECKED td_status td_transport_exchange(td_transport *m, const td_piece *with);

/**
 * Send, receive and check for up to `ms` milliseconds; earlier when td_transport_wake is called.
 */
TD_CHECKED td_status td_transport_pump(td_transport *m, int ms);
void td_transport_wake(td_transport *m);

/**
 * Tell the others that this rank ends; `why` NULL: all is well.  Only td_transport_free may follow.
 */
void td_transport_leave(td_transport *m, const char *why);

/** NULL is fine. */
void td_transport_free(td_transport *m);

#endif
