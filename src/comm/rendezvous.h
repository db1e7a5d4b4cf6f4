/*
 * comm/rendezvous.h -- how ranks connect to each other
 *
 *     rank 0   listens at the master's address <--- hello (rank, size, token, own port) --- rank r
 *              when all have come: the table of all  --------------------------------->
 *     rank r   connects to ranks 1 .. r - 1 and takes connections from r + 1 ... up
 *
 * A connection without a valid hello and the run's token is closed.  IPv4.
 */
#ifndef TD_COMM_RENDEZVOUS_H
#define TD_COMM_RENDEZVOUS_H

#include "comm/rank_env.h"

#define TD_HOST_BYTES 64

typedef struct {
    int fd; /* connected, blocking; -1: this rank */
    int pid;
    char host[TD_HOST_BYTES];
} td_connected_rank;

/** Fill met[size]; on failure nothing is left open.  TD_EDEVICE, TD_EIO. */
TD_CHECKED td_status td_transport_join(const td_rank_place *place, double wait_s,
                                       td_connected_rank *met);

#endif
