/*
 * transport/local_transport.h -- the ranks of one machine, connected by socket pairs
 *
 * A frame is a head of 16 bytes (magic, kind, length) and its body:
 *
 *     DATA   data of an exchange        BEAT   once a second, no body
 *     BYE    the sender ends normally   ABORT  the sender failed; the body has the message
 *
 * A rank is lost when its connection ends without BYE, when it sends ABORT, or when nothing arrives
 * from it for `stall_s`.  A process that was itself stopped restarts its timers.
 *
 * A rank that fails sends ABORT on all its connections before it closes them, and a rank that
 * receives it sends it on when it ends.  So after a connection has ended without BYE or ABORT, this
 * rank reads the others for `reason_s`, and only then reports that the rank is gone.  A message
 * that the named rank has sent itself is preferred to one that is passed on.
 */
#ifndef TD_TRANSPORT_LOCAL_TRANSPORT_H
#define TD_TRANSPORT_LOCAL_TRANSPORT_H

#include "transport/transport.h"

/**
 * The transport of the rank at `place`, on place->fds.  *out: free it, also after a failure.
 * TD_EUSAGE: place->fds does not name the sockets of a rank.
 */
TD_CHECKED td_status td_local_transport_open(const td_rank_place *place,
                                             const td_transport_opts *opts, td_transport **out);

#endif
