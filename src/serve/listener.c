/*
 * listener.c -- accepts connections, and closes slow ones
 *
 * Closing a listening socket resets the connections that wait in its queue.  So when draining
 * begins, the listener attaches a filter that drops SYN segments: new connections are ignored,
 * handshakes in progress complete, and once the queue stays empty the socket is closed.  A client
 * whose SYN was dropped repeats it, and its connection is then refused.
 */
#include "serve/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"

#define MS INT64_C(1000000)

enum {
    BACKLOG = 511,
    PENDING_MAX = 64, /* handed over, but not yet added by the library */
    TICK_MS = 50      /* between two checks for slow connections */
};

#define HANDSHAKE_NS  (200 * MS)  /* for handshakes in progress when draining begins */
#define IDLE_NS       (500 * MS)  /* an idle connection may be closed to make room after this ... */
#define SLOW_NS       (5000 * MS) /* ... and a sending one after this */
#define QUIET_NS      (250 * MS)  /* while draining, a connection idle for so long is finished */
#define FIRST_WAIT_NS (2000 * MS) /* the same, before its first request */

struct td_peer {
    td_peer *next, *before; /* the listener's lock guards all members */
    int fd;
    int64_t since_ns; /* when its state began */
    td_peer_state state;
    bool had_request;
};

struct td_listener {
    td_listener_opts o;
    int fd, port;
    td_thread thread;
    atomic_bool is_draining, is_closed, is_stopped;
    atomic_int n_connections, n_pending;
    pthread_mutex_t lock;
    td_peer *peers; /* lock guards peers and n_closing */
    int n_closing;
};

/* --- addresses -------------------------------------------------------------------------------- */

static bool parse_address(const char *host, int port, struct sockaddr_storage *out, socklen_t *n)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *n = sizeof *v4;
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
        return false;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    *n = sizeof *v6;
    return true;
}

static td_status no_address(const char *host)
{
    return td_error(TD_EUSAGE, "'%s' is not an IP address, wanted one like 127.0.0.1 or ::1", host);
}

td_status td_host_is_loopback(const char *host, bool *out)
{
    struct sockaddr_storage a;
    const struct in6_addr *v6 = &((struct sockaddr_in6 *)&a)->sin6_addr;
    socklen_t n;
    *out = false;
    if (!parse_address(host, 0, &a, &n))
        return no_address(host);
    if (a.ss_family == AF_INET)
        *out = ntohl(((struct sockaddr_in *)&a)->sin_addr.s_addr) >> 24 == 127;
    else
        *out = IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
    return TD_OK;
}

static td_status listen_at(td_listener *l)
{
    struct sockaddr_storage address;
    socklen_t n;
    int on = 1;
    if (!parse_address(l->o.host, l->o.port, &address, &n))
        return no_address(l->o.host);
    l->fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd < 0)
        return td_error_errno(TD_EIO, "cannot create a socket");
    (void)setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(l->fd, (struct sockaddr *)&address, n) != 0 || listen(l->fd, BACKLOG) != 0)
        return td_error_errno(TD_EIO, "cannot listen on %s port %d", l->o.host, l->o.port);
    if (getsockname(l->fd, (struct sockaddr *)&address, &n) != 0)
        return td_error_errno(TD_EIO, "cannot read the port number");
    l->port = ntohs(address.ss_family == AF_INET ? ((struct sockaddr_in *)&address)->sin_port
                                                 : ((struct sockaddr_in6 *)&address)->sin6_port);
    return TD_OK;
}

/* --- peers ------------------------------------------------------------------------------------ */

td_peer *td_listener_add_peer(td_listener *l, int fd)
{
    td_peer *p = TD_NEW(td_peer);
    atomic_fetch_add(&l->n_connections, 1);
    atomic_fetch_sub(&l->n_pending, 1);
    if (!p)
        return NULL;
    *p = (td_peer){ .fd = fd, .since_ns = td_now_ns() };
    pthread_mutex_lock(&l->lock);
    p->next = l->peers;
    if (l->peers)
        l->peers->before = p;
    l->peers = p;
    pthread_mutex_unlock(&l->lock);
    return p;
}

void td_listener_remove_peer(td_listener *l, td_peer *p)
{
    atomic_fetch_sub(&l->n_connections, 1);
    if (!p)
        return;
    pthread_mutex_lock(&l->lock);
    if (p->next)
        p->next->before = p->before;
    if (p->before)
        p->before->next = p->next;
    else
        l->peers = p->next;
    l->n_closing -= p->state == TD_PEER_CLOSING;
    pthread_mutex_unlock(&l->lock);
    td_free(p);
}

void td_listener_set(td_listener *l, td_peer *p, td_peer_state state)
{
    if (!p)
        return;
    pthread_mutex_lock(&l->lock);
    if (p->state != TD_PEER_CLOSING) {
        p->state = state;
        p->since_ns = td_now_ns();
        p->had_request = p->had_request || state != TD_PEER_IDLE;
    }
    pthread_mutex_unlock(&l->lock);
}

/* call with the lock held; the library detects the end of the connection and cleans up */
static void shutdown_peer(td_listener *l, td_peer *p)
{
    shutdown(p->fd, SHUT_RDWR);
    p->state = TD_PEER_CLOSING;
    l->n_closing++;
}

/* call with the lock held: the peer that has been in `state` longest, at least `least_ns`, or
   NULL */
static td_peer *find_oldest(td_listener *l, td_peer_state state, int64_t least_ns)
{
    td_peer *oldest = NULL;
    int64_t since_ns = td_now_ns() - least_ns;
    for (td_peer *p = l->peers; p; p = p->next)
        if (p->state == state && p->fd >= 0 && p->since_ns <= since_ns) {
            oldest = p;
            since_ns = p->since_ns;
        }
    return oldest;
}

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* call with the lock held: closes an idle connection if allowed, otherwise a slow one */
static bool close_one(td_listener *l, bool takes_idle)
{
    const int64_t slow_ns = at_most((int64_t)(l->o.timeout_s * 1e9), SLOW_NS);
    td_peer *p = takes_idle ? find_oldest(l, TD_PEER_IDLE, IDLE_NS) : NULL;
    if (!p)
        p = find_oldest(l, TD_PEER_SENDING, slow_ns);
    if (!p)
        p = find_oldest(l, TD_PEER_RECEIVING, slow_ns);
    if (p)
        shutdown_peer(l, p);
    return p != NULL;
}

void td_listener_close_slowest(td_listener *l)
{
    pthread_mutex_lock(&l->lock);
    (void)close_one(l, false);
    pthread_mutex_unlock(&l->lock);
}

/* is there room for another connection, if necessary by closing one? */
static bool make_room(td_listener *l)
{
    pthread_mutex_lock(&l->lock);
    const int n = atomic_load(&l->n_connections) + atomic_load(&l->n_pending) - l->n_closing;
    const bool has_room = n < l->o.max_connections || close_one(l, true);
    pthread_mutex_unlock(&l->lock);
    return has_room;
}

static void close_late(td_listener *l)
{
    const int64_t limit_ns = td_now_ns() - (int64_t)(l->o.timeout_s * 1e9);
    pthread_mutex_lock(&l->lock);
    for (td_peer *p = l->peers; p; p = p->next)
        if (p->state != TD_PEER_WAITING && p->state != TD_PEER_CLOSING && p->fd >= 0 &&
            p->since_ns < limit_ns)
            shutdown_peer(l, p);
    pthread_mutex_unlock(&l->lock);
}

int td_listener_connections(const td_listener *l)
{
    return atomic_load(&l->n_connections);
}

bool td_listener_is_quiet(td_listener *l)
{
    const int64_t now = td_now_ns();
    bool is_quiet = atomic_load(&l->is_closed) && atomic_load(&l->n_pending) <= 0;
    pthread_mutex_lock(&l->lock);
    for (td_peer *p = l->peers; p && is_quiet; p = p->next) {
        const int64_t idle_ns = p->had_request ? QUIET_NS : FIRST_WAIT_NS;
        if (p->state != TD_PEER_CLOSING)
            is_quiet = p->state == TD_PEER_IDLE && now - p->since_ns > idle_ns;
    }
    pthread_mutex_unlock(&l->lock);
    return is_quiet;
}

bool td_listener_is_answering(td_listener *l)
{
    bool is_answering = false;
    pthread_mutex_lock(&l->lock);
    for (const td_peer *p = l->peers; p && !is_answering; p = p->next)
        is_answering = p->state == TD_PEER_WAITING || p->state == TD_PEER_RECEIVING;
    pthread_mutex_unlock(&l->lock);
    return is_answering;
}

/* --- accepting -------------------------------------------------------------------------------- */

static void nap(int64_t ns)
{
    nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

/* waits until the library has added most of the connections that were handed over */
static void wait_for_pending(td_listener *l)
{
    for (int i = 0; i < 1000 && atomic_load(&l->n_pending) >= PENDING_MAX; i++)
        nap(MS);
    if (atomic_load(&l->n_pending) >= PENDING_MAX)
        atomic_store(&l->n_pending, 0); /* it had no memory to add them */
}

/* false: no connection is waiting, or none can be accepted */
static bool accept_one(td_listener *l)
{
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    int fd = accept4(l->fd, (struct sockaddr *)&address, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
        return true;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        pthread_mutex_lock(&l->lock);
        (void)close_one(l, true);
        pthread_mutex_unlock(&l->lock);
        nap(10 * MS);
    }
    if (fd < 0)
        return false;
    wait_for_pending(l);
    atomic_fetch_add(&l->n_pending, 1);
    if (!l->o.add_connection(l->o.ctx, fd, (struct sockaddr *)&address, n))
        atomic_fetch_sub(&l->n_pending, 1);
    return true;
}

/* accepts all waiting connections; returns their number */
static int accept_all(td_listener *l)
{
    struct pollfd p = { .fd = l->fd, .events = POLLIN };
    int n = 0;
    if (!make_room(l)) {
        nap(10 * MS);
        return 1; /* a connection may be waiting */
    }
    if (poll(&p, 1, TICK_MS) <= 0)
        return 0;
    while (make_room(l) && accept_one(l))
        n++;
    return n;
}

/* drop segments that begin a connection: byte 13 of the TCP header has the flag SYN */
static void refuse_new(td_listener *l)
{
    struct sock_filter code[] = { BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13),
                                  BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 0x02, 0, 1),
                                  BPF_STMT(BPF_RET | BPF_K, 0),
                                  BPF_STMT(BPF_RET | BPF_K, 0xffffffff) };
    struct sock_fprog program = { .len = sizeof code / sizeof *code, .filter = code };
    if (setsockopt(l->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
        td_log(TD_LOG_DEBUG, "serve", "cannot install a filter for new connections: %s",
               strerror(errno));
}

static void run(void *ctx)
{
    td_listener *l = ctx;
    int64_t drain_ns = 0;
    while (!atomic_load(&l->is_stopped)) {
        close_late(l);
        if (atomic_load(&l->is_draining) && !drain_ns) {
            refuse_new(l);
            drain_ns = td_now_ns();
        }
        const int n = l->fd >= 0 ? accept_all(l) : (nap(TICK_MS * MS), 0);
        if (drain_ns && l->fd >= 0 && n == 0 && td_now_ns() - drain_ns > HANDSHAKE_NS) {
            close(l->fd);
            l->fd = -1;
            atomic_store(&l->is_closed, true);
        }
    }
}

/* --- opening and closing ---------------------------------------------------------------------- */

td_status td_listener_open(const td_listener_opts *opts, td_listener **out)
{
    *out = NULL;
    td_listener *l = TD_NEW(td_listener);
    if (!l)
        return TD_ENOMEM;
    l->o = *opts;
    l->fd = -1;
    TD_CHECK(pthread_mutex_init(&l->lock, NULL) == 0);
    td_status st = listen_at(l);
    if (st == TD_OK)
        *out = l;
    else
        td_listener_free(l);
    return st;
}

int td_listener_port(const td_listener *l)
{
    return l->port;
}

td_status td_listener_start(td_listener *l)
{
    return td_thread_start(&l->thread, "accept", run, l);
}

void td_listener_drain(td_listener *l)
{
    atomic_store(&l->is_draining, true);
}

void td_listener_stop(td_listener *l)
{
    if (!l)
        return;
    atomic_store(&l->is_stopped, true);
    td_thread_join(&l->thread);
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

void td_listener_free(td_listener *l)
{
    if (!l)
        return;
    td_listener_stop(l);
    pthread_mutex_destroy(&l->lock);
    td_free(l);
}
