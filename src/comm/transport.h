/*
 * comm/transport.h -- connections between all pairs of ranks, with liveness checks
 *
 *     td_transport_open      rank 0 listens, the others connect and receive the table of all
 *     td_transport_exchange  with every rank: send n bytes, receive m bytes
 *     td_transport_pump      in between: sends and receives heartbeats
 *
 * A frame is a head of 16 bytes (magic, kind, length) and its body:
 *
 *     DATA   data of an exchange        BEAT   once a second, no body
 *     BYE    the sender ends normally   ABORT  the sender failed; the body has the message
 *
 * A rank is lost when its connection ends without BYE, when it sends ABORT, or when nothing arrives
 * from it for `stall_s`.  A process that was itself stopped restarts its timers.  One thread uses a
 * transport at a time; td_transport_wake may be called from any thread.
 */
#ifndef TD_COMM_TRANSPORT_H
#define TD_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/rank_env.h"

typedef struct td_transport td_transport;

typedef struct {
    double wait_s;  /* timeout for the others to connect; 0: 60 */
    double stall_s; /* timeout without a frame; 0: 6 */
} td_transport_opts;

/** Data to send to one rank, and to receive from it; NULL and 0: nothing. */
typedef struct {
    const void *out;
    size_t n_out;
    void *in;
    size_t n_in;
} td_piece;

/**
 * Connect to the other ranks.  TD_EDEVICE: some did not connect in time, two have the same rank,
 * sizes differ, or the address cannot be used.
 */
TD_CHECKED td_status td_transport_open(const td_rank_place *place, const td_transport_opts *opts,
                                       td_transport **out);

/** The rank that was lost first, as far as known here; -1: none, or unknown. */
int td_transport_culprit(const td_transport *m);

/** "rank 1 (host, process 4711)" */
const char *td_transport_name(const td_transport *m, int rank);

/**
 * Send and receive with[size], then return.  Every rank calls this in the same order.  TD_EDEVICE:
 * a rank was lost; names it; every later call fails the same way.
 */
TD_CHECKED td_status td_transport_exchange(td_transport *m, const td_piece *with);

/**
 * Send, receive and check for up to `ms` milliseconds; earlier when td_transport_wake is called.
 */
TD_CHECKED td_status td_transport_pump(td_transport *m, int ms);
void td_transport_wake(td_transport *m);

/**
 * Tell the others that this rank ends; `why` NULL: normally.  Only td_transport_free may follow.
 */
void td_transport_leave(td_transport *m, const char *why);

/** NULL is fine. */
void td_transport_free(td_transport *m);

#endif
