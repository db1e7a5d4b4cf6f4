/*
 * serve/listener.h -- the listening socket, and the state of every connection
 *
 * A separate thread accepts connections and hands their sockets to the HTTP library.  It closes
 * connections that take too long and, if max_connections is reached, the one that has been idle
 * longest.
 *
 *     IDLE ---> SENDING ---> WAITING ---> RECEIVING ---> IDLE ...
 *      no        a request    for an       the answer
 *      request   arrives      answer       is sent
 */
#ifndef TD_SERVE_LISTENER_H
#define TD_SERVE_LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

typedef enum {
    TD_PEER_IDLE,
    TD_PEER_SENDING,
    TD_PEER_WAITING,
    TD_PEER_RECEIVING,
    TD_PEER_CLOSING /* its socket was shut down */
} td_peer_state;

/** A connection. */
typedef struct td_peer td_peer;

typedef struct {
    const char *host; /* an address of this machine, or "localhost" */
    int port;         /* 0: any free port */
    int max_connections;
    double timeout_s; /* to send a request, to read an answer, and between requests */

    /* Receives a connection's socket; td_listener_add_peer must be called for it, on any thread.
       False: the socket was closed. */
    bool (*add_connection)(void *ctx, int fd, const struct sockaddr *address, socklen_t n_address);
    void *ctx;
} td_listener_opts;

typedef struct td_listener td_listener;

/** Is an address a loopback address?  TD_EUSAGE: not an address. */
TD_CHECKED td_status td_host_is_loopback(const char *host, bool *out);

/** Listen.  TD_EUSAGE: the host is not an IP address; TD_EIO: cannot listen there. */
TD_CHECKED td_status td_listener_open(const td_listener_opts *opts, td_listener **out);
int td_listener_port(const td_listener *l);

/** Start accepting. */
TD_CHECKED td_status td_listener_start(td_listener *l);

/**
 * Accept no new connections.  Those that the kernel has already accepted are still handed over; the
 * socket is closed after the last of them.
 */
void td_listener_drain(td_listener *l);

/** Stop accepting and closing connections.  Peers may leave until td_listener_free. */
void td_listener_stop(td_listener *l);
void td_listener_free(td_listener *l);

/** Call when a connection begins and ends.  NULL (out of memory): the connection is counted, but
    has no time limit. */
td_peer *td_listener_add_peer(td_listener *l, int fd);
void td_listener_remove_peer(td_listener *l, td_peer *p);

/** Set a connection's state; p may be NULL. */
void td_listener_set(td_listener *l, td_peer *p, td_peer_state state);

/** Close the connection that has been sending longest, if it has been for some seconds. */
void td_listener_close_slowest(td_listener *l);

int td_listener_connections(const td_listener *l);

/**
 * While draining: the socket is closed, no request is being sent or answered, and every connection
 * has been idle for long enough that its client will not send another one.
 */
bool td_listener_is_quiet(td_listener *l);

/** Is an answer being computed or sent? */
bool td_listener_is_answering(td_listener *l);

#endif
