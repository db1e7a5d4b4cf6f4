/*
 * local_transport.c -- frames over socket pairs between ranks, with liveness checks
 *
 * Sockets are non-blocking; one poll watches all of them.  A frame of data that arrives before it
 * is expected stays in the socket: the sender is ahead, and waits.  Bodies are transferred directly
 * from and to the caller's memory.
 */
#include "transport/local_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "transport/local_links.h"

#define SECOND INT64_C(1000000000)
#define MAGIC  0x4d44u
enum {
    BEAT_MS = 1000,
    OWN_STOP_S = 2,
    LEAVE_MS = 1000,
    DRAIN_MS = 300,
    PEEK_BYTES_MAX = 1 << 24 /* a socket holds some 200 KB, unless its owner has raised the limit */
};

typedef enum { DATA = 1, BEAT, BYE, ABORT } frame_kind;

typedef struct {
    uint32_t magic, kind;
    uint64_t n;
} frame_head;

typedef struct {
    int fd; /* -1: this rank, or closed */
    int rank;
    int64_t heard_ns; /* 0: nothing yet, it is still starting */
    bool said_bye;

    frame_head in_head; /* of the frame being read */
    size_t in_head_got, in_got;
    char why[TD_WHY_BYTES];
    bool is_wanted; /* a frame of n_in bytes is expected, into `in` */
    bool is_held;   /* a frame arrived that is not expected yet */
    bool has_left;  /* said BYE; earlier frames may remain unread */
    int64_t cut_ns; /* since when nothing can be sent; what it sent may remain unread; 0: never */
    void *in;
    size_t n_in;

    frame_head out_head; /* of the frame being sent */
    bool is_sending;
    size_t out_head_sent, out_sent;
    const void *out;
    bool is_due; /* a frame of data waits for another frame to be sent */
    const void *due;
    size_t n_due;
} peer;

typedef struct {
    td_transport base;
    peer *peers; /* [size] */
    struct pollfd *polls;
    int *polled; /* [size] rank of each polled socket */
    int64_t opened_ns, progress_ns, beat_ns;
    int lost; /* the first rank whose connection was closed without a reason; -1: none */
    int64_t lost_ns;
    bool is_asking; /* in hear_named */
} local;

static const char *name_of(const local *m, const peer *p)
{
    return m->base.names[p->rank];
}

/* --- failing ---------------------------------------------------------------------------------- */

static void fail(local *m, const char *who, const char *what)
{
    td_transport_fail(&m->base, who, what);
}

static bool is_sending_data(const peer *p)
{
    return p->is_due || (p->is_sending && p->out_head.kind == DATA);
}

/*
 * The connection is closed.  Without BYE the rank has failed: `conclude` reports it, after the
 * reason has had time to arrive from another rank.
 */
static void lose(local *m, peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    if (p->said_bye || p->has_left) {
        if (p->is_wanted || is_sending_data(p))
            fail(m, name_of(m, p), " has already finished, but this rank has not");
    } else if (m->lost < 0) {
        m->lost = p->rank;
        m->lost_ns = td_now_ns();
    }
}

/* Can another rank pass on why the lost one has failed? */
static bool others_may_know(const local *m)
{
    for (int r = 0; r < m->base.size; r++) {
        const peer *p = &m->peers[r];
        if (p->fd >= 0 && !p->said_bye && !p->has_left)
            return true;
    }
    return false;
}

static void conclude(local *m, int64_t now)
{
    if (m->lost >= 0 && (now - m->lost_ns >= m->base.reason_ns || !others_may_know(m)))
        fail(m, m->base.names[m->lost], " is gone: its connection was closed");
}

/* nothing can be sent to it: an error at once only if it is known to have ended normally */
static void cut(local *m, peer *p)
{
    p->cut_ns = p->cut_ns ? p->cut_ns : td_now_ns();
    if ((p->said_bye || p->has_left) && is_sending_data(p))
        fail(m, name_of(m, p), " has already finished, but this rank has not");
}

/* --- sending ---------------------------------------------------------------------------------- */

static void begin_frame(peer *p, frame_kind kind, const void *body, size_t n)
{
    p->out_head = (frame_head){ MAGIC, kind, n };
    p->out = body;
    p->out_head_sent = p->out_sent = 0;
    p->is_sending = true;
}

/* false: the socket accepts no more, now or ever */
static bool send_part(local *m, peer *p, const void *from, size_t n, size_t *sent)
{
    while (*sent < n) {
        ssize_t k = send(p->fd, (const char *)from + *sent, n - *sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return false;
        if (k <= 0) {
            cut(m, p);
            return false;
        }
        *sent += (size_t)k;
    }
    return true;
}

static void send_more(local *m, peer *p)
{
    if (p->cut_ns)
        cut(m, p);
    while (p->fd >= 0 && !p->cut_ns && (p->is_sending || p->is_due)) {
        if (!p->is_sending) {
            begin_frame(p, DATA, p->due, p->n_due);
            p->is_due = false;
        }
        if (!send_part(m, p, &p->out_head, sizeof p->out_head, &p->out_head_sent) ||
            !send_part(m, p, p->out, (size_t)p->out_head.n, &p->out_sent))
            return;
        p->is_sending = false;
    }
}

static void send_beats(local *m, int64_t now)
{
    if (now - m->beat_ns < (int64_t)BEAT_MS * 1000000)
        return;
    m->beat_ns = now;
    for (int r = 0; r < m->base.size; r++) {
        peer *p = &m->peers[r];
        if (p->fd < 0 || p->is_sending || p->is_due || p->has_left || p->cut_ns)
            continue;
        begin_frame(p, BEAT, NULL, 0);
        send_more(m, p);
    }
}

/* --- hearing ---------------------------------------------------------------------------------- */

/* the destination of the frame's body; NULL: it has none, or is not expected yet */
static void *body_of(local *m, peer *p)
{
    const frame_head *h = &p->in_head;
    if (h->magic != MAGIC || h->kind < DATA || h->kind > ABORT ||
        (h->kind == ABORT && h->n >= TD_WHY_BYTES) ||
        ((h->kind == BEAT || h->kind == BYE) && h->n)) {
        fail(m, name_of(m, p), " sent an invalid message");
        return NULL;
    }
    if (h->kind == ABORT)
        return p->why;
    if (h->kind != DATA)
        return NULL;
    p->is_held = !p->is_wanted;
    if (p->is_held)
        return NULL;
    if (h->n != p->n_in) {
        char what[100];
        snprintf(what, sizeof what,
                 " sent %llu bytes, wanted %zu: it may run another program or other options",
                 (unsigned long long)h->n, p->n_in);
        fail(m, name_of(m, p), what);
        return NULL;
    }
    return p->in;
}

static void hear_more(local *m, peer *p);
static bool peek(local *m, peer *p);

/*
 * `p` has passed on a message about another rank, which may have sent its own reason: that one is
 * the cause.  Reads one connection at most, whatever the ranks name.
 */
static void hear_named(local *m, const peer *p)
{
    int r;
    if (m->is_asking || sscanf(p->why, "rank %5d", &r) != 1 || r < 0 || r >= m->base.size)
        return;
    peer *named = &m->peers[r];
    if (named == p)
        return;
    m->is_asking = true;
    hear_more(m, named);
    if (named->fd >= 0 && named->is_held)
        (void)peek(m, named);
    m->is_asking = false;
}

static void end_frame(local *m, peer *p)
{
    const frame_kind kind = (frame_kind)p->in_head.kind;
    p->in_head_got = p->in_got = 0;
    if (kind == DATA)
        p->is_wanted = false;
    else if (kind == BYE)
        p->said_bye = true;
    else if (kind == ABORT) {
        hear_named(m, p);
        fail(m, p->why, "");
        close(p->fd); /* it waits for that */
        p->fd = -1;
    }
}

/* false: no more data now */
static bool hear_part(local *m, peer *p, void *to, size_t n, size_t *got)
{
    while (*got < n) {
        ssize_t k = recv(p->fd, (char *)to + *got, n - *got, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return false;
        if (k <= 0) {
            lose(m, p);
            return false;
        }
        p->heard_ns = td_now_ns();
        *got += (size_t)k;
    }
    return true;
}

static void hear_more(local *m, peer *p)
{
    while (p->fd >= 0 && !p->is_held && m->base.st == TD_OK) {
        if (!hear_part(m, p, &p->in_head, sizeof p->in_head, &p->in_head_got))
            return;
        void *body = body_of(m, p);
        if (p->is_held || m->base.st != TD_OK)
            return;
        if (!hear_part(m, p, body, (size_t)p->in_head.n, &p->in_got))
            return;
        end_frame(m, p);
    }
}

/* parses the frames in `at`, the first without its head: is the last one BYE? */
static bool is_farewell(local *m, const peer *p, const char *at, size_t n)
{
    frame_head h = p->in_head;
    size_t from = 0;
    while (h.n <= n - from && n - from - (size_t)h.n >= sizeof h) {
        from += (size_t)h.n;
        memcpy(&h, at + from, sizeof h);
        from += sizeof h;
        if (h.kind == BYE)
            return true;
        if (h.kind == ABORT && h.n < TD_WHY_BYTES && h.n <= n - from) {
            char why[TD_WHY_BYTES] = "";
            memcpy(why, at + from, (size_t)h.n);
            fail(m, why, "");
            return false;
        }
    }
    return false;
}

/*
 * A frame not expected yet precedes the others: look at them without consuming.  Is the last one
 * BYE?  A reason among them is the failure.
 */
static bool peek(local *m, peer *p)
{
    int n = 0;
    const bool has_some = ioctl(p->fd, FIONREAD, &n) == 0 && n > 0 && n <= PEEK_BYTES_MAX;
    char *at = has_some ? td_alloc((size_t)n, 1) : NULL;
    const ssize_t got = at ? recv(p->fd, at, (size_t)n, MSG_PEEK | MSG_DONTWAIT) : 0;
    const bool has_left = got > 0 && is_farewell(m, p, at, (size_t)got);
    td_free(at);
    return has_left;
}

/* the other end is closed: all data has arrived */
static void look_behind(local *m, peer *p)
{
    p->has_left = peek(m, p);
    if (!p->has_left)
        lose(m, p);
    else if (p->cut_ns)
        cut(m, p);
}

static void check_peers(local *m, int64_t now)
{
    for (int r = 0; r < m->base.size; r++) {
        peer *p = &m->peers[r];
        const bool has_started = p->heard_ns > 0;
        const int64_t quiet_ns = now - (has_started ? p->heard_ns : m->opened_ns);
        char what[80];
        if (p->fd >= 0 && p->cut_ns && !p->has_left && now - p->cut_ns >= m->base.reason_ns)
            lose(m, p); /* it reads nothing, and has not closed */
        if (p->fd < 0 || p->said_bye || p->is_held ||
            quiet_ns < (has_started ? m->base.stall_ns : m->base.wait_ns))
            continue;
        snprintf(what, sizeof what,
                 has_started ? " has stopped responding: no message for %.0f s"
                             : " has not started within %.0f s",
                 (double)quiet_ns / (double)SECOND);
        fail(m, name_of(m, p), what);
    }
}

/* --- one turn --------------------------------------------------------------------------------- */

static int watch(local *m)
{
    int n = 0;
    for (int r = 0; r < m->base.size; r++) {
        const peer *p = &m->peers[r];
        if (p->fd < 0 || (p->has_left && p->is_held))
            continue;
        short events = p->is_held ? POLLRDHUP : POLLIN;
        if ((p->is_sending || p->is_due) && !p->cut_ns)
            events |= POLLOUT;
        m->polls[n] = (struct pollfd){ .fd = p->fd, .events = events };
        m->polled[n++] = r;
    }
    m->polls[n] = (struct pollfd){ .fd = m->base.wake_fd, .events = POLLIN };
    return n + 1;
}

static void serve(local *m, int n)
{
    uint64_t count;
    for (int i = 0; i < n - 1; i++) {
        peer *p = &m->peers[m->polled[i]];
        const short got = m->polls[i].revents;
        if (p->is_held && (got & (POLLRDHUP | POLLHUP | POLLERR)))
            look_behind(m, p);
        else if (!p->is_held && (got & (POLLIN | POLLHUP | POLLERR)))
            hear_more(m, p);
        if (p->fd >= 0 && (got & POLLOUT))
            send_more(m, p);
    }
    if (m->polls[n - 1].revents & POLLIN)
        (void)!read(m->base.wake_fd, &count, sizeof count);
}

/* this process was stopped for a while: restart the timers */
static void forgive(local *m, int64_t now)
{
    if (now - m->progress_ns < OWN_STOP_S * SECOND)
        return;
    m->opened_ns = m->lost_ns = now;
    for (int r = 0; r < m->base.size; r++)
        if (m->peers[r].heard_ns > 0)
            m->peers[r].heard_ns = now;
}

/* how long to wait for a message, in milliseconds */
static int patience(const local *m, int64_t now, int ms)
{
    int64_t until = m->beat_ns + (int64_t)BEAT_MS * 1000000;
    if (m->lost >= 0 && !others_may_know(m))
        return 0;
    if (m->lost >= 0 && m->lost_ns + m->base.reason_ns < until)
        until = m->lost_ns + m->base.reason_ns;
    const int64_t wait_ms = until > now ? (until - now) / 1000000 + 1 : 0;
    return wait_ms < ms ? (int)wait_ms : ms;
}

static void progress(td_transport *t, int ms)
{
    local *m = (local *)t;
    const int64_t before = td_now_ns();
    if (before - m->progress_ns >= OWN_STOP_S * SECOND)
        forgive(m, before);
    m->progress_ns = before;
    send_beats(m, before);
    const int n = watch(m);
    if (poll(m->polls, (nfds_t)n, patience(m, before, ms)) > 0)
        serve(m, n);
    const int64_t now = td_now_ns();
    forgive(m, now);
    m->progress_ns = now;
    check_peers(m, now);
    conclude(m, now);
}

/* --- exchange --------------------------------------------------------------------------------- */

static bool is_busy(const td_transport *t)
{
    const local *m = (const local *)t;
    for (int r = 0; r < t->size; r++) {
        const peer *p = &m->peers[r];
        if (p->fd >= 0 && (p->is_wanted || is_sending_data(p)))
            return true;
    }
    return m->lost >= 0;
}

/* what this rank exchanges with rank r */
static td_exchange_peer piece_for(const td_transport *t, const td_exchange *e, int r)
{
    static const char mark = 1;
    static char sink;
    td_exchange_peer w = { .rank = r };
    switch (e->kind) {
    case TD_EXCHANGE_ALL_TO_ALL:
        w = (td_exchange_peer){ r, e->out + e->out_at[r], e->out_n[r], e->in + e->in_at[r],
                                e->in_n[r] };
        break;
    case TD_EXCHANGE_ALL_GATHER:
        w = (td_exchange_peer){ r, e->in + e->in_at[t->rank], e->in_n[t->rank], e->in + e->in_at[r],
                                e->in_n[r] };
        break;
    case TD_EXCHANGE_BROADCAST:
        if (t->rank == 0)
            w = (td_exchange_peer){ .out = e->in, .n_out = e->n };
        else if (r == 0)
            w = (td_exchange_peer){ .in = e->in, .n_in = e->n };
        break;
    case TD_EXCHANGE_PEERS:
        for (int i = 0; i < 2; i++)
            if (e->peers[i].rank == r && (e->peers[i].n_out || e->peers[i].n_in))
                w = e->peers[i];
        break;
    case TD_EXCHANGE_SUM: /* can_sum is false */
        break;
    case TD_EXCHANGE_BARRIER:
        w = (td_exchange_peer){ r, &mark, 1, &sink, 1 };
        break;
    }
    return w;
}

static void begin_piece(local *m, peer *p, const td_exchange_peer *w)
{
    if (w->n_in) {
        p->in = w->in;
        p->n_in = w->n_in;
        p->is_wanted = true;
    }
    if (w->n_out) {
        m->base.n_messages++;
        p->due = w->out;
        p->n_due = w->n_out;
        p->is_due = true;
    }
    if (p->fd < 0 && (w->n_in || w->n_out)) {
        lose(m, p);
        return;
    }
    send_more(m, p);
    if (p->is_held && w->n_in) {
        p->is_held = false;
        p->heard_ns = td_now_ns();
        hear_more(m, p);
    }
}

static void begin(td_transport *t, const td_exchange *e)
{
    local *m = (local *)t;
    for (int r = 0; r < t->size && t->st == TD_OK; r++) {
        const td_exchange_peer w = piece_for(t, e, r);
        if (r != t->rank)
            begin_piece(m, &m->peers[r], &w);
    }
}

/* --- the end ---------------------------------------------------------------------------------- */

static bool is_sending(const local *m)
{
    for (int r = 0; r < m->base.size; r++)
        if (m->peers[r].fd >= 0 && m->peers[r].is_sending && !m->peers[r].cut_ns)
            return true;
    return false;
}

/*
 * Read until the others have closed: closing a socket with unread data discards what was sent last,
 * here BYE.
 */
static void drain(local *m, int64_t until)
{
    char bytes[4096];
    for (int r = 0; r < m->base.size; r++)
        if (m->peers[r].fd >= 0)
            (void)shutdown(m->peers[r].fd, SHUT_WR);
    for (int r = 0; r < m->base.size; r++) {
        const int fd = m->peers[r].fd;
        while (fd >= 0 && td_now_ns() < until) {
            struct pollfd w = { .fd = fd, .events = POLLIN };
            if (poll(&w, 1, (int)((until - td_now_ns()) / 1000000) + 1) <= 0)
                continue;
            const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
            if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                break;
        }
    }
}

static void leave(td_transport *t, const char *why)
{
    local *m = (local *)t;
    const int64_t until = td_now_ns() + (int64_t)LEAVE_MS * 1000000;
    const size_t n = why ? strnlen(why, TD_WHY_BYTES - 1) : 0;
    for (int r = 0; r < m->base.size; r++) {
        peer *p = &m->peers[r];
        if (p->fd < 0 || (p->is_sending && p->out_head.kind == DATA))
            continue; /* in the middle of a frame: closing the connection must signal it */
        if (p->is_sending)
            send_more(m, p);
        if (p->fd < 0 || p->is_sending)
            continue;
        begin_frame(p, why ? ABORT : BYE, why, n);
        send_more(m, p);
    }
    while (is_sending(m) && td_now_ns() < until) {
        for (int r = 0; r < m->base.size; r++)
            if (m->peers[r].fd >= 0 && m->peers[r].is_sending)
                send_more(m, &m->peers[r]);
        (void)poll(NULL, 0, 5);
    }
    drain(m, td_now_ns() + (int64_t)DRAIN_MS * 1000000);
    for (int r = 0; r < m->base.size; r++) { /* no rank can be lost any more */
        if (m->peers[r].fd >= 0)
            close(m->peers[r].fd);
        m->peers[r].fd = -1;
    }
}

static void free_local(td_transport *t)
{
    local *m = (local *)t;
    for (int r = 0; m->peers && r < t->size; r++)
        if (m->peers[r].fd >= 0)
            close(m->peers[r].fd);
    td_free(m->peers);
    td_free(m->polls);
    td_free(m->polled);
    td_free(m);
}

/* --- opening ---------------------------------------------------------------------------------- */

static const td_transport_type local_type = {
    .begin = begin,
    .progress = progress,
    .is_busy = is_busy,
    .leave = leave,
    .free = free_local,
};

static td_status set_up(local *m, const td_rank_place *place)
{
    const size_t n = (size_t)place->size;
    int *fds = td_alloc(n, sizeof *fds);
    m->peers = td_alloc(n, sizeof *m->peers);
    m->polls = td_alloc(n + 1, sizeof *m->polls);
    m->polled = td_alloc(n, sizeof *m->polled);
    td_status st = fds && m->peers && m->polls && m->polled ? TD_OK : TD_ENOMEM;
    for (int r = 0; m->peers && r < place->size; r++)
        m->peers[r] = (peer){ .fd = -1, .rank = r };
    if (st == TD_OK)
        st = td_local_links_take(place, fds);
    for (int r = 0; st == TD_OK && r < place->size; r++)
        m->peers[r].fd = fds[r];
    m->lost = -1;
    m->opened_ns = m->progress_ns = m->beat_ns = td_now_ns();
    td_free(fds);
    return st;
}

td_status td_local_transport_open(const td_rank_place *place, const td_transport_opts *opts,
                                  td_transport **out)
{
    local *m = TD_NEW(local);
    if (!m)
        return TD_ENOMEM;
    *out = &m->base;
    TD_TRY(td_transport_init(&m->base, &local_type, place, opts));
    return set_up(m, place);
}
