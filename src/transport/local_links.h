/*
 * transport/local_links.h -- socket pairs between the ranks of one machine, made by the launcher
 *
 *     launcher:   td_local_links links;
 *                 TD_TRY(td_local_links_make(size, &links));
 *                 fork;  in the child: td_local_links_pass(&links, rank);  exec
 *                 td_local_links_close(&links);       when all ranks have been started
 *     rank:       td_local_links_take(&place, fds);   finds its sockets in the environment
 *
 * Each pair of ranks has a socket pair.  There is no port, and no other process can join: a rank is
 * a process that has inherited the descriptors.
 */
#ifndef TD_TRANSPORT_LOCAL_LINKS_H
#define TD_TRANSPORT_LOCAL_LINKS_H

#include "transport/rank_env.h"

/** The descriptors of all socket pairs: fds[a][b] is rank a's end of its connection to rank b. */
typedef struct {
    int size;
    int *fds; /* [size][size]; -1: closed, or a == b */
} td_local_links;

/**
 * Make size (size - 1) / 2 socket pairs, closed on exec.  Raises the soft limit of open files of
 * this process where it is too low.  TD_EIO: the hard limit is too low; the message has the number.
 */
TD_CHECKED td_status td_local_links_make(int size, td_local_links *out);

/**
 * In the process of a rank, before exec: keep its descriptors open and set TD_ENV_RANK_FDS; close
 * the others.  TD_ENOMEM.
 */
TD_CHECKED td_status td_local_links_pass(td_local_links *l, int rank);

/** Close all that are open.  An unused object, all zero, is fine. */
void td_local_links_close(td_local_links *l);

/**
 * The sockets of the rank at `place`, by the rank at the other end: fds[size], -1 for its own.
 * They are closed on exec from now on.  TD_EUSAGE: place->fds does not name them.
 */
TD_CHECKED td_status td_local_links_take(const td_rank_place *place, int *fds);

#endif
