/*
 * rendezvous.c -- connects the ranks of a run to each other
 */
#include "comm/rendezvous.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/signals.h"
#include "base/text.h"

#define MAGIC UINT64_C(0x314b4e41524454) /* "TDRANK1" */
enum { HELLO_MS = 5000, RETRY_MS = 50, GUESTS_MAX = 64 };

typedef struct {
    uint64_t magic;
    int32_t rank, size, pid;
    uint32_t port; /* of the sender's listening socket */
    char token[65];
    char host[TD_HOST_BYTES];
    char pad[7];
} hello;

typedef struct {
    uint32_t ip; /* network order; 0: the same as rank 0 */
    uint32_t port;
    int32_t pid;
    char host[TD_HOST_BYTES];
} entry;

/* a connection whose hello is incomplete */
typedef struct {
    int fd;
    uint32_t ip; /* as entry.ip */
    int64_t until_ns;
    size_t got; /* bytes of `h` */
    hello h;
} guest;

typedef struct {
    const td_rank_place *place;
    td_connected_rank *met;
    int64_t until_ns;
    int listener;
    struct sockaddr_in master;
    guest guests[GUESTS_MAX]; /* the oldest first */
    int n_guests;
} rendezvous;

/* --- bytes with a deadline -------------------------------------------------------------------- */

static int ms_left(int64_t until_ns)
{
    int64_t ms = (until_ns - td_now_ns()) / 1000000;
    return ms < 0 ? 0 : ms > 1000000 ? 1000000 : (int)ms;
}

static bool read_all(int fd, void *data, size_t n, int64_t until_ns)
{
    for (char *p = data; n > 0;) {
        struct pollfd w = { .fd = fd, .events = POLLIN };
        int ready = poll(&w, 1, ms_left(until_ns));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        ssize_t got = recv(fd, p, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        p += got;
        n -= (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t n)
{
    for (const char *p = data; n > 0;) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        p += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* --- addresses -------------------------------------------------------------------------------- */

static td_status find_master(rendezvous *m)
{
    /* a machine without /etc/hosts may not resolve its own name */
    const char *name = strcmp(m->place->addr, "localhost") == 0 ? "127.0.0.1" : m->place->addr;
    struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *list;
    int failed = getaddrinfo(name, NULL, &hints, &list);
    if (failed)
        return td_error(TD_EDEVICE, "ranks: cannot resolve '%s': %s", name, gai_strerror(failed));
    memcpy(&m->master, list->ai_addr, sizeof m->master);
    freeaddrinfo(list);
    m->master.sin_port = htons((uint16_t)m->place->port);
    return TD_OK;
}

static bool is_loopback(uint32_t ip)
{
    return ntohl(ip) >> 24 == 127;
}

static td_status listen_at(rendezvous *m, int port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    const int on = 1;
    at.sin_addr.s_addr =
        htonl(is_loopback(m->master.sin_addr.s_addr) ? INADDR_LOOPBACK : INADDR_ANY);
    m->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (m->listener < 0)
        return td_error_errno(TD_EIO, "ranks: cannot create a socket");
    (void)setsockopt(m->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(m->listener, (struct sockaddr *)&at, sizeof at) != 0)
        return td_error_errno(TD_EDEVICE, "ranks: cannot listen on port %d", port);
    if (listen(m->listener, m->place->size + 8) != 0)
        return td_error_errno(TD_EDEVICE, "ranks: cannot listen");
    return TD_OK;
}

static int port_of(int listener)
{
    struct sockaddr_in at = { 0 };
    socklen_t n = sizeof at;
    return getsockname(listener, (struct sockaddr *)&at, &n) == 0 ? ntohs(at.sin_port) : 0;
}

static hello own_hello(const rendezvous *m)
{
    hello h = {
        .magic = MAGIC, .rank = m->place->rank, .size = m->place->size, .pid = (int32_t)getpid()
    };
    h.port = m->listener >= 0 ? (uint32_t)port_of(m->listener) : 0;
    snprintf(h.token, sizeof h.token, "%s", m->place->token);
    if (gethostname(h.host, sizeof h.host - 1) != 0)
        snprintf(h.host, sizeof h.host, "unknown");
    return h;
}

/* retries until the deadline: the other rank may not have started yet */
static td_status connect_to(const rendezvous *m, const struct sockaddr_in *at, const char *who,
                            int *out)
{
    const int on = 1;
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return td_error_errno(TD_EIO, "ranks: cannot create a socket");
        if (connect(fd, (const struct sockaddr *)at, sizeof *at) == 0) {
            (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            *out = fd;
            return TD_OK;
        }
        td_status st = td_error_errno(TD_EDEVICE, "cannot connect to %s at %s:%d", who,
                                      inet_ntoa(at->sin_addr), ntohs(at->sin_port));
        close(fd);
        if (ms_left(m->until_ns) == 0 || td_signal_caught())
            return st;
        (void)poll(NULL, 0, RETRY_MS);
    }
}

/* --- taking connections ----------------------------------------------------------------------- */

/* in constant time, so that the token cannot be guessed byte by byte */
static bool is_token(const char *a, const char *b)
{
    unsigned char differs = 0;
    for (size_t i = 0; i < sizeof((hello *)0)->token; i++)
        differs |= (unsigned char)(a[i] ^ b[i]);
    return differs == 0;
}

/* is it a rank of this run? */
static bool is_ours(const rendezvous *m, hello *h)
{
    char token[sizeof h->token] = "", given[sizeof h->token] = "";
    h->token[sizeof h->token - 1] = h->host[sizeof h->host - 1] = '\0';
    td_text_make_printable(h->host);
    memcpy(token, m->place->token, strnlen(m->place->token, sizeof token - 1));
    memcpy(given, h->token, strlen(h->token));
    return h->magic == MAGIC && is_token(token, given);
}

static void forget_guest(rendezvous *m, int i)
{
    m->n_guests--;
    memmove(&m->guests[i], &m->guests[i + 1], (size_t)(m->n_guests - i) * sizeof *m->guests);
}

static void turn_away(rendezvous *m, int i)
{
    close(m->guests[i].fd);
    forget_guest(m, i);
}

/* if there are too many guests, drops the one silent for longest */
static void accept_guest(rendezvous *m)
{
    struct sockaddr_in from = { 0 };
    socklen_t n = sizeof from;
    const int on = 1;
    const struct timeval limit = { .tv_sec = HELLO_MS / 1000 };
    int fd = accept4(m->listener, (struct sockaddr *)&from, &n, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (m->n_guests == GUESTS_MAX)
        turn_away(m, 0);
    m->guests[m->n_guests++] = (guest){
        .fd = fd,
        .ip = is_loopback(from.sin_addr.s_addr) ? 0 : from.sin_addr.s_addr,
        .until_ns = td_now_ns() + (int64_t)HELLO_MS * 1000000,
    };
}

/* reads available bytes; false: the guest is not a rank of this run, or has gone */
static bool hear_guest(const rendezvous *m, guest *g)
{
    ssize_t n = recv(g->fd, (char *)&g->h + g->got, sizeof g->h - g->got, MSG_DONTWAIT);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
    g->got += (size_t)n;
    return n > 0 && (g->got < sizeof g->h || is_ours(m, &g->h));
}

static td_status check_hello(const rendezvous *m, const hello *h, int first)
{
    if (h->size != m->place->size)
        return td_error(TD_EDEVICE, "rank %d on %s expects %d ranks, rank %d expects %d", h->rank,
                        h->host, h->size, m->place->rank, m->place->size);
    if (h->rank < first || h->rank >= m->place->size)
        return td_error(TD_EDEVICE, "a process on %s announced itself as rank %d, wanted %d .. %d",
                        h->host, h->rank, first, m->place->size - 1);
    if (m->met[h->rank].fd >= 0)
        return td_error(TD_EDEVICE,
                        "two processes announced themselves as rank %d: %d on %s and %d on %s",
                        h->rank, m->met[h->rank].pid, m->met[h->rank].host, h->pid, h->host);
    return TD_OK;
}

static td_status not_all_came(const rendezvous *m, int first)
{
    char missing[160] = "";
    int n = 0;
    for (int r = first; r < m->place->size; r++) {
        const size_t used = strlen(missing);
        if (m->met[r].fd >= 0 || n++ >= 16)
            continue;
        snprintf(missing + used, sizeof missing - used, "%s%d", used ? ", " : "", r);
    }
    return td_error(TD_EDEVICE, "rank %d timed out on port %d waiting for %d of %d ranks: %s%s",
                    m->place->rank, port_of(m->listener), n, m->place->size, missing,
                    n > 16 ? ", ..." : "");
}

/* wait up to 200 ms for connections and bytes; guests with a complete hello stay in the list */
static void hear_guests(rendezvous *m)
{
    struct pollfd w[GUESTS_MAX + 1] = { { .fd = m->listener, .events = POLLIN } };
    const int n = m->n_guests, ms = ms_left(m->until_ns);
    for (int i = 0; i < n; i++)
        w[1 + i] = (struct pollfd){ .fd = m->guests[i].fd, .events = POLLIN };
    if (poll(w, (nfds_t)n + 1, ms < 200 ? ms : 200) < 0)
        return;
    const int64_t now = td_now_ns();
    for (int i = n - 1; i >= 0; i--) {
        guest *g = &m->guests[i];
        const bool is_heard = w[1 + i].revents && g->got < sizeof g->h;
        if ((is_heard && !hear_guest(m, g)) || (g->got < sizeof g->h && now > g->until_ns))
            turn_away(m, i);
    }
    if (w[0].revents & POLLIN)
        accept_guest(m);
}

/* accepts one connection from ranks first .. size - 1; *h identifies it */
static td_status take_one(rendezvous *m, int first, hello *h, uint32_t *ip)
{
    for (;;) {
        for (int i = 0; i < m->n_guests; i++) {
            const guest *g = &m->guests[i];
            if (g->got < sizeof g->h)
                continue;
            *h = g->h;
            *ip = g->ip;
            TD_TRY(check_hello(m, h, first));
            m->met[h->rank].fd = g->fd;
            m->met[h->rank].pid = h->pid;
            memcpy(m->met[h->rank].host, h->host, TD_HOST_BYTES);
            forget_guest(m, i);
            return TD_OK;
        }
        if (td_signal_caught())
            return td_error(TD_ESTOPPED, "interrupted by a signal before all ranks connected");
        if (ms_left(m->until_ns) == 0)
            return not_all_came(m, first);
        hear_guests(m);
    }
}

/* --- the two sides ---------------------------------------------------------------------------- */

static td_status host_rendezvous(rendezvous *m, entry *table)
{
    const hello own = own_hello(m);
    const int size = m->place->size;
    if (m->place->listen_fd >= 0)
        m->listener = m->place->listen_fd;
    else
        TD_TRY(listen_at(m, m->place->port));
    for (int i = 1; i < size; i++) {
        hello h;
        uint32_t ip;
        TD_TRY(take_one(m, 1, &h, &ip));
        table[h.rank] = (entry){ .ip = ip, .port = h.port, .pid = h.pid };
        memcpy(table[h.rank].host, h.host, TD_HOST_BYTES);
    }
    table[0].pid = own.pid;
    memcpy(table[0].host, own.host, TD_HOST_BYTES);
    for (int r = 1; r < size; r++)
        if (!write_all(m->met[r].fd, table, (size_t)size * sizeof *table))
            return td_error(TD_EDEVICE, "rank %d on %s disconnected before the run began", r,
                            m->met[r].host);
    return TD_OK;
}

static td_status join_rendezvous(rendezvous *m, entry *table)
{
    const int size = m->place->size, rank = m->place->rank;
    TD_TRY(listen_at(m, 0));
    const hello own = own_hello(m);
    TD_TRY(connect_to(m, &m->master, "rank 0", &m->met[0].fd));
    if (!write_all(m->met[0].fd, &own, sizeof own) ||
        !read_all(m->met[0].fd, table, (size_t)size * sizeof *table, m->until_ns))
        return td_error(TD_EDEVICE,
                        "rank 0 at %s:%d did not accept rank %d: some ranks did not connect, or it "
                        "belongs to another run",
                        m->place->addr, m->place->port, rank);
    for (int r = 0; r < size; r++) {
        table[r].host[TD_HOST_BYTES - 1] = '\0';
        td_text_make_printable(table[r].host);
        m->met[r].pid = table[r].pid;
        memcpy(m->met[r].host, table[r].host, TD_HOST_BYTES);
    }
    for (int r = 1; r < rank; r++) {
        struct sockaddr_in at = m->master;
        char who[32];
        snprintf(who, sizeof who, "rank %d", r);
        if (table[r].ip)
            at.sin_addr.s_addr = table[r].ip;
        at.sin_port = htons((uint16_t)table[r].port);
        TD_TRY(connect_to(m, &at, who, &m->met[r].fd));
        if (!write_all(m->met[r].fd, &own, sizeof own))
            return td_error(TD_EDEVICE, "rank %d on %s disconnected before the run began", r,
                            table[r].host);
    }
    for (int r = rank + 1; r < size; r++) {
        hello h;
        uint32_t ip;
        TD_TRY(take_one(m, rank + 1, &h, &ip));
    }
    return TD_OK;
}

/*
 * Anyone who reaches the port and knows the token is a rank.  Without a token that is everybody, so
 * then only this machine may connect.
 */
static td_status check_token(const rendezvous *m)
{
    if (m->place->token[0] || is_loopback(m->master.sin_addr.s_addr))
        return TD_OK;
    return td_error(TD_EUSAGE,
                    "ranks: '%s' is reachable from other machines, but " TD_ENV_TOKEN
                    " is not set: set it "
                    "to the same secret for every rank",
                    m->place->addr);
}

td_status td_transport_join(const td_rank_place *place, double wait_s, td_connected_rank *met)
{
    td_status st = TD_OK;
    entry *table = td_alloc((size_t)place->size, sizeof *table);
    rendezvous *m = TD_NEW(rendezvous);
    for (int r = 0; r < place->size; r++)
        met[r] = (td_connected_rank){ .fd = -1 };
    if (!table || !m) {
        td_free(table);
        td_free(m);
        return TD_ENOMEM;
    }
    *m = (rendezvous){ .place = place,
                       .met = met,
                       .until_ns = td_now_ns() + (int64_t)(wait_s * 1e9),
                       .listener = -1 };
    TD_OUT(find_master(m));
    TD_OUT(check_token(m));
    st = place->rank == 0 ? host_rendezvous(m, table) : join_rendezvous(m, table);
out:
    while (m->n_guests > 0)
        turn_away(m, 0);
    if (m->listener >= 0)
        close(m->listener);
    if (st == TD_OK) {
        const hello own = own_hello(m);
        met[place->rank].pid = own.pid;
        memcpy(met[place->rank].host, own.host, TD_HOST_BYTES);
    }
    for (int r = 0; st != TD_OK && r < place->size; r++) {
        if (met[r].fd >= 0)
            close(met[r].fd);
        met[r].fd = -1;
    }
    td_free(table);
    td_free(m);
    return st;
}
