/*
 * transport/transport.h -- moves bytes between the ranks of a run and detects lost ranks
 *
 *     TD_TRY(td_local_transport_open(place, NULL, &t));   or td_mpi_transport_open
 *     TD_TRY(td_transport_exchange_names(t));
 *     td_transport_exchange(t, &exchange);             the same exchanges in the same order
 *     td_transport_progress(t, ms);                    in between: detects lost ranks
 *     td_transport_leave(t, NULL);  td_transport_free(t);
 *
 * A transport is a struct of functions (td_transport_type):
 *
 *     local   the ranks of one machine, connected by socket pairs that `launch` makes
 *     mpi     the ranks that mpirun or srun started, on any number of machines
 *
 * The sums are not done here: reduction.h adds what arrives, so the result does not depend on the
 * transport.  One thread uses a transport at a time; td_transport_wake may be called by any thread.
 */
#ifndef TD_TRANSPORT_TRANSPORT_H
#define TD_TRANSPORT_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transport/rank_env.h"

typedef struct td_transport td_transport;

typedef struct {
    double wait_s;  /* timeout for another rank to start; 0: 60 */
    double stall_s; /* timeout without a message from a rank; 0: 6 */
    /** After a connection was closed: timeout for the reason from another rank; 0: 0.5. */
    double reason_s;
} td_transport_opts;

typedef enum {
    TD_EXCHANGE_ALL_TO_ALL, /* rank k gets out[out_at[k] ..], in[in_at[k] ..] comes from rank k */
    TD_EXCHANGE_ALL_GATHER, /* in[in_at[k] ..] comes from rank k; the own part is there already */
    TD_EXCHANGE_BROADCAST,  /* `in` of rank 0, n bytes, goes to all */
    TD_EXCHANGE_PEERS,      /* with up to two other ranks; no further rank has to call */
    TD_EXCHANGE_SUM,        /* `in`: the sums of n elements `out` of every rank */
    TD_EXCHANGE_BARRIER     /* no bytes: returns when every rank has called */
} td_exchange_kind;

/** What goes to another rank and comes from it; NULL and 0: nothing. */
typedef struct {
    int rank;
    const void *out;
    size_t n_out;
    void *in;
    size_t n_in;
} td_exchange_peer;

/** Sizes and offsets are in bytes; those of the own rank in an all-to-all are ignored. */
typedef struct {
    td_exchange_kind kind;
    const char *out;
    const size_t *out_at, *out_n; /* [size] */
    char *in;
    const size_t *in_at, *in_n; /* [size] */
    size_t n;
    td_exchange_peer peers[2]; /* PEERS: two different ranks */
    /** SUM: NULL: the elements are float; otherwise of 2 bytes, and sum[i] += x[i] is this call. */
    void (*add)(const uint16_t *x, uint16_t *sum, size_t n);
} td_exchange;

/** What a transport implements. */
typedef struct {
    bool can_sum; /* TD_EXCHANGE_SUM */
    /** Begin one exchange; *e is valid until it has finished. */
    void (*begin)(td_transport *t, const td_exchange *e);
    /** Work for up to `ms` milliseconds; earlier when the exchange has finished, or when woken. */
    void (*progress)(td_transport *t, int ms);
    bool (*is_busy)(const td_transport *t);
    void (*leave)(td_transport *t, const char *why);
    void (*free)(td_transport *t); /* what is beyond the td_transport, and itself */
} td_transport_type;

enum { TD_RANK_NAME = 128, TD_WHY_BYTES = 600 };

/** The common part, the first member of every transport's struct. */
struct td_transport {
    const td_transport_type *type;
    int rank, size;
    int wake_fd;
    int64_t wait_ns, stall_ns, reason_ns;
    char (*names)[TD_RANK_NAME]; /* [size] "rank 1 (host, process 4711)" */
    int64_t n_messages;          /* sent with data; of a transport that sends them itself */
    td_status st;
    int culprit; /* the rank that `message` names; -1: unknown */
    char message[TD_WHY_BYTES + 200];
};

/**
 * The first exchange of a new transport: who the ranks are.  TD_EDEVICE: a rank did not start in
 * time, or runs another version of this program.
 */
TD_CHECKED td_status td_transport_exchange_names(td_transport *t);

/** The rank that was lost first, as far as known here; -1: none, or unknown. */
int td_transport_culprit(const td_transport *t);

/** Does it add by itself (TD_EXCHANGE_SUM)? */
bool td_transport_can_sum(const td_transport *t);

/** "rank 1 (host, process 4711)" */
const char *td_transport_name(const td_transport *t, int rank);

/** TD_EDEVICE: a rank was lost; names it; every later call fails the same way. */
TD_CHECKED td_status td_transport_exchange(td_transport *t, const td_exchange *e);

/**
 * Gather n bytes of every rank into all[size][n]; the own ones are there already.  Errors as above;
 * TD_ENOMEM.
 */
TD_CHECKED td_status td_transport_gather(td_transport *t, void *all, size_t n);

/** Work for up to `ms` milliseconds without an exchange; earlier when woken.  Errors as above. */
TD_CHECKED td_status td_transport_progress(td_transport *t, int ms);
void td_transport_wake(td_transport *t);

/**
 * Tell the others that this rank ends; `why` NULL: normally.  Only td_transport_free may follow.
 */
void td_transport_leave(td_transport *t, const char *why);

/** NULL is fine. */
void td_transport_free(td_transport *t);

/* --- for transports --------------------------------------------------------------------------- */

/** Fill in the common part.  td_transport_free releases it, also after a failure. */
TD_CHECKED td_status td_transport_init(td_transport *t, const td_transport_type *type,
                                       const td_rank_place *place, const td_transport_opts *opts);

/** Record the first failure: `who` followed by `what`; it begins with the name of a rank. */
void td_transport_fail(td_transport *t, const char *who, const char *what);

/** Wait until woken, at most `ms` milliseconds; or only reset the event. */
void td_transport_sleep(td_transport *t, int ms);

#endif
